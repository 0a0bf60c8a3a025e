"""Multi-level online sequential experts: every stage of the network learns to classify, and teaches the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.backbones.base import Pixels
from prol.backbones.resnet import Norm, Norms, ResNet, require_resnet
from prol.engine.similarity import cosine_to_all
from prol.methods.replay.learner import (
    Drawn,
    Losses,
    Payload,
    ReplayLearner,
    ReplayOptions,
    current_cross_entropy,
    summed,
)
from prol.methods.replay.views import CROP_GREY, FULL, apply_views, draw_views
from prol.options import NotNegative, Positive, Range
from prol.state import State

EXPERTS = 4
PROJECTED = 128
RECALLED_AT_ONCE = 256


@dataclass(frozen=True)
class MOSEOptions(ReplayOptions):
    """Options of MOSE."""

    current: Annotated[int, Range(least=0, most=10_000, whole=True)] = 22
    """Images of the current task's classes that join the chunk, from the memory."""
    views: Literal["plain_crop", "two_crops", "plain_full", "two_full"] = "plain_crop"
    """The two views of each image: as it is, or cropped and sometimes grey, or with its colours changed too."""
    temperature: Positive = 0.07
    """What similarities are divided by."""
    distil: NotNegative = 1.0
    """Weight of the distillation from the earlier experts to the last one."""
    test: Literal["last", "all"] = "last"
    """Whether the last expert predicts, or all of them on average."""
    answer: Literal["means", "heads"] = "means"
    """What predicts: the nearest mean of the memory's features, or the heads."""


class MOSE(ReplayLearner):
    """Four experts, one per stage, each with its own cross entropy and supervised contrast.

    All of a step passes in one batch: images balanced over old and new classes, which compete with all, and the chunk
    with others of the current task, which compete among themselves.
    """

    name: ClassVar[str] = "mose"
    citation: ClassVar[str] = "Yan et al., Orchestrate Latent Expertise, CVPR 2024"
    uses_tasks: ClassVar[bool] = True
    Options: ClassVar[type] = MOSEOptions
    options: MOSEOptions

    def build(self, state: State) -> None:
        b, o = require_resnet(self.name, self.backbone), self.options
        exits = drawn_exits(b.stem_width, self.seed + 1)  # not the numbers that the network began with
        self.train_network(state, {name: _like(module, b) for name, module in exits.items()}, heads=EXPERTS)
        self._view = FULL if o.views.endswith("full") else CROP_GREY
        self._plain_too = o.views.startswith("plain")

    def draw(self, rows: Tensor) -> Drawn:
        first = self.clock.first_row
        stored = self.memory.places.rows[: len(self.memory)]
        known = torch.cat([rows, stored])
        picked = draw_balanced(known, first, len(self.classes), self.options.replay, self.random)
        of_task = (stored >= first).nonzero().flatten()
        current = self.memory.draw(self.options.current, self.random, of_task)
        views = len(picked) + len(rows) + len(current)
        return {
            # Those that come from the chunk need no slot, but shapes do not depend on how many they are.
            "slots": (picked - len(rows)).clamp(min=0),
            "picked": torch.where(picked < len(rows), picked, len(rows) + torch.arange(len(picked))),
            "picked_rows": known[picked],
            "current_slots": current,
            "current_rows": stored[current],
            "views": draw_views(self._view, views * (1 if self._plain_too else 2), self.size, self.random),
        }

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        balanced = torch.cat([images, self.recalled(drawn["slots"])])[drawn["picked"]]
        current = torch.cat([images, self.recalled(drawn["current_slots"])])
        seen = self._twice(torch.cat([balanced, current]), drawn["views"])
        features = self._experts(seen, "train")
        parts = [
            (0, len(balanced), drawn["picked_rows"].repeat(2), 0, 2.0),
            (
                len(balanced),
                len(seen) // 2,
                torch.cat([rows, drawn["current_rows"]]).repeat(2),
                self.clock.first_row,
                1.0,
            ),
        ]
        classify, contrast = [], []
        for expert, mine in enumerate(features):
            logits, projections = self.logits(mine, expert), self._projected(mine, expert)
            for start, end, labels, first_row, weight in parts:
                own = [torch.cat([x[start:end], x[len(x) // 2 :][start:end]]) for x in (logits, projections)]
                classify.append(weight * current_cross_entropy(own[0], labels, first_row))
                contrast.append(weight * supervised_contrast(own[1], labels, self.options.temperature))
        values = {
            "classify": torch.stack(classify).sum(),
            "contrast": torch.stack(contrast).sum(),
            "distil": self.options.distil * reverse_distillation(features),
        }
        return summed(values), {}

    def _twice(self, images: Tensor, views: Tensor) -> Tensor:
        """Both views of `[N, 3, S, S]`, all of the first and then all of the second."""
        if self._plain_too:
            return torch.cat([images, apply_views(self._view, images, views)])
        return apply_views(self._view, images.repeat(2, 1, 1, 1), views)

    def _experts(self, images: Tensor, norms: Norms = "eval") -> list[Tensor]:
        """Features `[N, D]` of each expert."""
        *earlier, last = self.network.stages(images, norms)
        with self.network.computing():
            aligned = [self.extras[f"align{i}"](stage, norms) for i, stage in enumerate(earlier)]
        return [given.to(self.backbone.dtype).mean((2, 3)) for given in (*aligned, last)]

    def _projected(self, features: Tensor, expert: int) -> Tensor:
        return F.normalize(self.extras[f"project{expert}"](features), dim=1)

    # Predicting.

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        features = self._experts(self.evaluation_input(pixels))
        voting = range(EXPERTS) if self.options.test == "all" else range(EXPERTS - 1, EXPERTS)
        if self.options.answer == "heads":
            logs = [self.heads[expert].logits(features[expert]).log_softmax(1) for expert in voting]
            return torch.stack(logs).logsumexp(0)
        means, known = self.latest(self._class_means)
        alike = torch.stack([cosine_to_all(features[expert], means[expert]) for expert in voting]).mean(0)
        return alike.masked_fill(~known, -torch.inf)  # nothing is stored of it

    def _class_means(self) -> tuple[list[Tensor], Tensor]:
        """Class means of the memory's unit features, `[C, D]` per expert, and which classes it has, bool `[C]`."""
        rows = self.memory.places.rows[: len(self.memory)].to(self.backbone.device)
        members = (rows == torch.arange(len(self.classes), device=rows.device).unsqueeze(1)).to(self.backbone.dtype)
        slots = torch.split(torch.arange(len(rows), device=rows.device), RECALLED_AT_ONCE)
        found = [self._experts(self.recalled(some)) for some in slots]
        none = members.new_zeros(0, self.backbone.width)
        units = [F.normalize(torch.cat([none, *(f[expert] for f in found)]), dim=1) for expert in range(EXPERTS)]
        counts = members.sum(1)
        # Products, which add in one order on a GPU too.
        return [members @ unit / counts.clamp(min=1).unsqueeze(1) for unit in units], counts > 0


class Alignment(nn.Module):
    """Brings a stage to the last one's shape, so that all have features of one width.

    Strided convolutions with norms, each of which halves the sides and doubles the width.
    """

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        widths = [width * 2**step for step in range(steps + 1)]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, 2 * before, 3, stride=2, padding=1, bias=False) for before in widths[:-1]
        )
        self.norms = nn.ModuleList(Norm(after) for after in widths[1:])

    def forward(self, x: Tensor, norms: Norms) -> Tensor:
        """`[B, W, H, H]` to `[B, W 2^steps, H / 2^steps, H / 2^steps]`."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.relu(norm(convolution(x), norms))
        return x


def drawn_exits(stem_width: int, seed: int) -> dict[str, nn.Module]:
    """What each expert has besides its stage and its head, with weights as torch draws them for such layers.

    `align0` to `align2` are of all stages but the last, `project0` to `project3` are linear maps to `PROJECTED`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        last = EXPERTS - 1
        alignments = {f"align{i}": Alignment(stem_width * 2**i, last - i) for i in range(last)}
        return alignments | {f"project{i}": nn.Linear(stem_width * 2**last, PROJECTED) for i in range(EXPERTS)}


def draw_balanced(known: Tensor, first_row: int, classes: int, count: int, random: torch.Generator) -> Tensor:
    """Positions in class rows `[N]` of samples, old and new ones in the proportion of old and new classes.

    Classes from `first_row` on are new. Where there are too few of one kind, the other makes up for it.
    """
    new, old = (known >= first_row).nonzero().flatten(), (known < first_row).nonzero().flatten()
    wanted = max(1, round(count * (classes - first_row) / classes)) if classes > first_row else 0
    of_old = min(count - min(wanted, len(new)), len(old))
    drawn = []
    for pool, size in ((old, of_old), (new, count - of_old)):
        drawn.append(pool[torch.randperm(len(pool), generator=random)[:size]])
    return torch.cat(drawn)


def _like(module: nn.Module, backbone: ResNet) -> nn.Module:
    placed = module.to(backbone.device, backbone.dtype)
    return placed.to(memory_format=torch.channels_last) if backbone.device.type == "cuda" else placed


def supervised_contrast(projections: Tensor, rows: Tensor, temperature: float) -> Tensor:
    """Samples of one class are to be nearer to each other than to the rest (Khosla et al. 2020).

    mean_i of -1/|P_i| sum_{j in P_i} log softmax_{k != i}(z_i . z_k / temperature)_j, where P_i are the others of i's
    class, for projections `[N, D]` of unit length and class rows `[N]`. A sample alone in its class counts as zero.
    """
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    similarity = (projections @ projections.T / temperature).masked_fill(itself, -torch.inf)
    mates = (rows == rows.unsqueeze(1)) & ~itself
    # A choice and not a product: the logarithm of a sample's likeness to itself is -inf.
    logs = torch.where(mates, similarity.log_softmax(1), 0)
    return -(logs.sum(1) / mates.sum(1).clamp(min=1)).mean()


def reverse_distillation(features: list[Tensor]) -> Tensor:
    """How far the last expert's features are from those of each one before it, which stay as they are.

    sum_e mean_i |f_last,i / |f_last,i| - f_e,i / |f_e,i||^2, each `[N, D]`.
    """
    *teachers, student = (F.normalize(one, dim=1) for one in features)
    return torch.stack([(student - one.detach()).square().sum(1).mean() for one in teachers]).sum()

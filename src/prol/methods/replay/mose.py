"""Multi-level online sequential experts: every stage of the network learns to answer, and teaches the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.backbones import Backbone, Norms, Pixels, evaluation_input
from prol.engine.similarity import cosine_to_all
from prol.labels import Label
from prol.methods.replay.experts import EXPERTS, drawn_exits
from prol.methods.replay.learner import Drawn, ReplayLearner, ReplayOptions
from prol.methods.replay.mose_losses import current_cross_entropy, reverse_distillation, supervised_contrast
from prol.methods.replay.views import CROP_GREY, FULL, apply_views, draw_views

RECALLED_AT_ONCE = 256


@dataclass(frozen=True)
class MOSEOptions(ReplayOptions):
    """Dials of MOSE."""

    current: int = 22
    """Images of the current task's classes that join the chunk, from the memory."""
    views: Literal["plain_crop", "two_crops", "plain_full", "two_full"] = "plain_crop"
    """The two of each image: as it is, or cropped and now and then grey, or with its colours changed too."""
    temperature: float = 0.07
    distil: float = 1.0
    """Weight of the earlier experts' lesson to the last one."""
    test: Literal["last", "all"] = "last"
    """Whether the last expert answers, or all of them on average."""
    answer: Literal["means", "heads"] = "means"
    """By the nearest mean of the memory's features, or by the heads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.current < 0:
            raise ValueError(f"current must be at least 0, got {self.current}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number above 0, got {self.temperature}")
        if not 0 <= self.distil < float("inf"):
            raise ValueError(f"distil must be a finite number of at least 0, got {self.distil}")


class MOSE(ReplayLearner):
    """Four experts, one a stage, each with cross entropy and supervised contrast of its own.

    All of a step passes in one batch: images balanced over old and new classes, which compete with all, and the chunk
    with others of the current task, which compete among themselves.
    """

    name: ClassVar[str] = "mose"
    citation: ClassVar[str] = "Yan et al., Orchestrate Latent Expertise, CVPR 2024"
    uses_tasks: ClassVar[bool] = True
    Options: ClassVar[type] = MOSEOptions
    options: MOSEOptions

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self._view = FULL if options.views.endswith("full") else CROP_GREY
        self._plain_too = options.views.startswith("plain")
        self._means: tuple[list[Tensor], Tensor] | None = None

    def _head_widths(self) -> list[int]:
        return [self.backbone.width] * EXPERTS

    def _make_extras(self) -> dict[str, nn.Module]:
        drawn = drawn_exits(self.backbone.stem_width, self.seed + 1)  # not the numbers that the network began with
        return {name: _like(module, self.backbone) for name, module in drawn.items()}

    def _draw(self, rows: Tensor) -> Drawn:
        first = self.clock.first_row
        kept = self.memory.places.rows[: len(self.memory)]
        known = torch.cat([rows, kept])
        picked = draw_balanced(known, first, len(self.classes), self.options.replay, self.random)
        of_task = (kept >= first).nonzero().flatten()
        current = self.memory.draw(self.options.current, self.random, of_task)
        views = len(picked) + len(rows) + len(current)
        return {
            # Those that come from the chunk need no slot, but shapes do not depend on how many they are.
            "slots": (picked - len(rows)).clamp(min=0),
            "picked": torch.where(picked < len(rows), picked, len(rows) + torch.arange(len(picked))),
            "picked_rows": known[picked],
            "current_slots": current,
            "current_rows": kept[current],
            "views": draw_views(self._view, views * (1 if self._plain_too else 2), self.size, self.random),
        }

    def _losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        balanced = torch.cat([images, self._recalled(drawn["slots"])])[drawn["picked"]]
        current = torch.cat([images, self._recalled(drawn["current_slots"])])
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
            logits, projections = self._logits(mine, expert), self._projected(mine, expert)
            for start, end, labels, first_row, weight in parts:
                own = [torch.cat([x[start:end], x[len(x) // 2 :][start:end]]) for x in (logits, projections)]
                classify.append(weight * current_cross_entropy(own[0], labels, first_row))
                contrast.append(weight * supervised_contrast(own[1], labels, self.options.temperature))
        values = {
            "classify": torch.stack(classify).sum(),
            "contrast": torch.stack(contrast).sum(),
            "distil": self.options.distil * reverse_distillation(features),
        }
        return values | {"total": torch.stack(list(values.values())).sum()}, {}

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

    # The answer.

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:  # noqa: ARG002
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        features, asked = self._experts(inputs), self._asked()
        if self.options.answer == "heads":
            logs = [self.heads[expert].logits(features[expert]).log_softmax(1) for expert in asked]
            return torch.stack(logs).logsumexp(0)
        means, known = self._class_means()
        alike = torch.stack([cosine_to_all(features[expert], means[expert]) for expert in asked]).mean(0)
        return alike.masked_fill(~known, -torch.inf)  # nothing is kept of it

    def _asked(self) -> range:
        return range(EXPERTS) if self.options.test == "all" else range(EXPERTS - 1, EXPERTS)

    def _class_means(self) -> tuple[list[Tensor], Tensor]:
        """Of the memory's features of unit length, `[C, D]` for each expert, and which classes it has, bool `[C]`.

        They follow from the memory and the weights: made when asked for, kept until either changes, never saved.
        """
        if self._means is None:
            rows = self.memory.places.rows[: len(self.memory)].to(self.backbone.device)
            members = (rows == torch.arange(len(self.classes), device=rows.device).unsqueeze(1)).to(self.backbone.dtype)
            slots = torch.split(torch.arange(len(rows), device=rows.device), RECALLED_AT_ONCE)
            found = [self._experts(self._recalled(some)) for some in slots]
            width = self.backbone.width
            none = members.new_zeros(0, width)
            units = [F.normalize(torch.cat([none, *(f[expert] for f in found)]), dim=1) for expert in range(EXPERTS)]
            counts = members.sum(1)
            # Products, which add in one order on a GPU too.
            self._means = [members @ unit / counts.clamp(min=1).unsqueeze(1) for unit in units], counts > 0
        return self._means

    def _register(self, names: list[Label]) -> None:
        self._means = None
        super()._register(names)

    def _learn_chunk(self, pixels: Pixels, rows: Tensor) -> None:
        self._means = None
        super()._learn_chunk(pixels, rows)

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self._means = None
        super()._load_state(tensors, meta)


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


def _like(module: nn.Module, backbone: Any) -> nn.Module:
    placed = module.to(backbone.device, backbone.dtype)
    return placed.to(memory_format=torch.channels_last) if backbone.device.type == "cuda" else placed

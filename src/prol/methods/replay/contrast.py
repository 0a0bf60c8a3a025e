"""Supervised contrast: members of a class are to be more similar to each other than to the rest of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.methods.replay.learner import Drawn, ReplayLearner, ReplayOptions
from prol.methods.replay.views import CROP_GREY, MOST_VERSIONS, apply_views, draw_views, pseudo_classes, versions
from prol.options import Count, Positive, Range


@dataclass(frozen=True)
class ContrastOptions(ReplayOptions):
    """Options of replay with a contrast between rotated images."""

    rotations: Annotated[int, Range(least=1, most=MOST_VERSIONS, whole=True)] = MOST_VERSIONS
    """Versions of each image, including itself; each makes two images per step."""
    per_class: Count = 7
    """The memory's share of a step is at most this many images for each class seen."""
    temperature: Positive = 0.07
    """What similarities are divided by."""
    projection: Count = 128
    """Width of the space of the contrast; at most that of the features."""


@dataclass(frozen=True)
class Seen:
    """A batch of rotated images, `plain` `[R * N, 3, S, S]`, and a view of each, as the network sees both halves."""

    plain: Tensor
    projections: Tensor
    """Unit, `[2 * R * N, d]`: of the plain images, version after version, then of their views."""
    slices: Tensor
    """Columns of the unit features, `[2 * R * N, d]`."""
    pseudo: Tensor
    """Numbers of class and version, `[R * N]`."""

    @property
    def same(self) -> Tensor:
        return same_class(torch.cat([self.pseudo, self.pseudo]))


class Contrast:
    """What OCM and OnPro share: a linear projector, and a pass over rotated images and their views."""

    def __init__(self, learner: ReplayLearner, options: ContrastOptions) -> None:
        b = learner.backbone
        self._learner, self._options = learner, options
        self.width = min(options.projection, b.width)
        self.projector = drawn_projector(b.width, self.width, learner.seed, b.device, b.dtype)

    def memory_share(self, rows: Tensor) -> int:
        """How many images of the memory a step takes, counting those of the chunk's class rows `[B]` as seen."""
        seen = (self._learner.learnt.rows > 0).index_fill(0, rows, True)
        return min(self._options.replay, self._options.per_class * int(seen.sum()))

    def draw(self, rows: Tensor) -> Drawn:
        """Which columns of the features take part in the likeness, one after the other `[d]`, and views of a chunk."""
        start = torch.randint(self._learner.backbone.width - self.width + 1, (), generator=self._learner.random)
        return {"columns": start + torch.arange(self.width), "turned": self.draw_turned(len(rows))}

    def draw_turned(self, count: int) -> Tensor:
        """Views of all versions of so many images."""
        return self.draw_views(self._options.rotations * count)

    def draw_views(self, count: int) -> Tensor:
        return draw_views(CROP_GREY, count, self._learner.size, self._learner.random)

    def projected(self, features: Tensor) -> Tensor:
        """Unit, `[N, d]`."""
        return F.normalize(self.projector(features))

    def see(self, images: Tensor, rows: Tensor, views: Tensor, columns: Tensor) -> Seen:
        """One pass over versions of `[N, 3, S, S]` and views of them, drawn as `views` `[R * N, NUMBERS]`."""
        plain = versions(images, self._options.rotations)
        features = self._learner.features(torch.cat([plain, apply_views(CROP_GREY, plain, views)]))
        slices = F.normalize(features).index_select(1, columns)
        return Seen(plain, self.projected(features), slices, pseudo_classes(rows, self._options.rotations))

    def of_chunk(self, seen: Seen, scale: float) -> Tensor:
        similarity = scale * likeness(seen.projections, seen.slices)
        return new_contrast(similarity, seen.same, self._options.temperature)

    def of_memory(self, seen: Seen, scale: float) -> Tensor:
        similarity = scale * likeness(seen.projections, seen.slices)
        return class_contrast(similarity, seen.same, self._options.temperature)

    def viewed_logits(self, images: Tensor, drawn: Drawn) -> Tensor:
        """`[N, C]` of views of images that are not rotated."""
        return self._learner.logits(self._learner.features(apply_views(CROP_GREY, images, drawn["views"])))


def drawn_projector(width: int, projected: int, seed: int, device: torch.device, dtype: torch.dtype) -> nn.Linear:
    """From `width` to `projected` numbers, drawn as torch does; the same for the same seed on every device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((seed + 1) % 2**63)  # not the numbers that the network's weights are drawn from
        return nn.Linear(width, projected).to(device, dtype)


def likeness(projections: Tensor, slices: Tensor) -> Tensor:
    """`S = Z Z^T + Z g^T`, `[N, N]`, of unit projections Z and columns g of unit features, both `[N, d]`."""
    return projections @ (projections + slices).T


def surprise(similarity: Tensor, temperature: float, without_self: bool) -> Tensor:
    """`-log softmax_j(S_ij / temperature)` of `[N, M]`; infinite for j = i where a sample is not compared to itself."""
    scaled = similarity / temperature
    if without_self:
        scaled = scaled.masked_fill(_diagonal(similarity), -torch.inf)
    return -F.log_softmax(scaled, 1)


def class_contrast(similarity: Tensor, same: Tensor, temperature: float, without_self: bool = False) -> Tensor:
    """The mean over i of the mean surprise of i's own class P_i: of j with `same[i, j]`, bool `[N, M]`.

    `without_self`: i itself is not in the softmax and adds no surprise, but P_i, which the mean is over, still has it.
    A sample that is alone in its class counts 0.
    """
    members = same.sum(1).clamp(min=1)
    if without_self:
        same = same & ~_diagonal(similarity)
    return (torch.where(same, surprise(similarity, temperature, without_self), 0).sum(1) / members).mean()


def pair_contrast(similarity: Tensor, temperature: float) -> Tensor:
    """The mean surprise of i's pair, which is N / 2 further on or back, of `[N, N]`; i itself does not count."""
    half = len(similarity) // 2
    surprises = surprise(similarity, temperature, without_self=True)
    return torch.cat([surprises.diagonal(half), surprises.diagonal(-half)]).mean()


def new_contrast(similarity: Tensor, same: Tensor, temperature: float) -> Tensor:
    """OCM's loss on the chunk: that of the pair, and twice that of the class, both without self."""
    pairs = pair_contrast(similarity, temperature)
    return pairs + 2 * class_contrast(similarity, same, temperature, without_self=True)


def same_class(rows: Tensor, others: Tensor | None = None) -> Tensor:
    """Whether two are of one class: bool `[N, M]` of rows `[N]` and `[M]`."""
    return rows.unsqueeze(1) == (rows if others is None else others)


def _diagonal(similarity: Tensor) -> Tensor:
    return torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)

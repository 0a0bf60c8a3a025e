"""What OCM and OnPro have in common: turned images and views of them, contrasted in a space of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.methods.replay.contrast import class_contrast, likeness, new_contrast, same_class
from prol.methods.replay.learner import Drawn, ReplayLearner, ReplayOptions
from prol.methods.replay.projector import drawn_projector
from prol.methods.replay.rotations import MOST, pseudo_classes, versions
from prol.methods.replay.views import CROP_GREY, apply_views, draw_views


@dataclass(frozen=True)
class ContrastOptions(ReplayOptions):
    """Dials of replay with a contrast between turned images."""

    rotations: int = MOST
    """Versions of each image, itself among them; each makes two images in a step."""
    per_class: int = 7
    """The memory's share of a step is at most this many images for each class seen."""
    temperature: float = 0.07
    projection: int = 128
    """Width of the space of the contrast; at most that of the features."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.rotations <= MOST:
            raise ValueError(f"rotations must be from 1 to {MOST}, got {self.rotations}")
        for name in ("per_class", "projection"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number above 0, got {self.temperature}")


@dataclass(frozen=True)
class Seen:
    """A batch of turned images, `plain` `[R * N, 3, S, S]`, and a view of each, as the network sees both halves."""

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


class ContrastLearner(ReplayLearner):
    """A linear projector beside the head, and a pass over turned images and their views."""

    uses_tasks: ClassVar[bool] = True
    Options: ClassVar[type] = ContrastOptions
    options: ContrastOptions

    def _projection_width(self) -> int:
        return min(self.options.projection, self.backbone.width)

    def _make_extras(self) -> dict[str, nn.Module]:
        width, device, dtype = self.backbone.width, self.backbone.device, self.backbone.dtype
        return {"projector": drawn_projector(width, self._projection_width(), self.seed, device, dtype)}

    def _memory_share(self, rows: Tensor) -> int:
        """How many images of the memory a step takes, with those of the chunk's class rows `[B]` seen too."""
        seen = (self.learnt.rows > 0).index_fill(0, rows, True)
        return min(self.options.replay, self.options.per_class * int(seen.sum()))

    def _draw_columns(self) -> Tensor:
        """Which columns of the features take part in the likeness, one after the other, `[d]`."""
        width = self._projection_width()
        start = torch.randint(self.backbone.width - width + 1, (), generator=self.random)
        return start + torch.arange(width)

    def _draw_views(self, count: int) -> Tensor:
        return draw_views(CROP_GREY, count, self.size, self.random)

    def _projected(self, features: Tensor) -> Tensor:
        """Unit, `[N, d]`."""
        return F.normalize(self.extras["projector"](features))

    def _seen_turned(self, images: Tensor, rows: Tensor, views: Tensor, columns: Tensor) -> Seen:
        """One pass over versions of `[N, 3, S, S]` and views of them, drawn as `views` `[R * N, NUMBERS]`."""
        plain = versions(images, self.options.rotations)
        features = self._features(torch.cat([plain, apply_views(CROP_GREY, plain, views)]))
        slices = F.normalize(features).index_select(1, columns)
        return Seen(plain, self._projected(features), slices, pseudo_classes(rows, self.options.rotations))

    def _new_contrast(self, seen: Seen, scale: float) -> Tensor:
        """Of what has just come."""
        similarity = scale * likeness(seen.projections, seen.slices)
        return new_contrast(similarity, seen.same, self.options.temperature)

    def _all_contrast(self, seen: Seen, scale: float) -> Tensor:
        """Of the memory."""
        similarity = scale * likeness(seen.projections, seen.slices)
        return class_contrast(similarity, seen.same, self.options.temperature)

    def _viewed_logits(self, images: Tensor, drawn: Drawn) -> Tensor:
        """`[N, C]` of views of images as they stand."""
        return self._logits(self._features(apply_views(CROP_GREY, images, drawn["views"])))

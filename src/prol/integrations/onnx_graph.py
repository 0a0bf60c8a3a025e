"""What goes into an ONNX file: from bytes of any size to scores, as one graph of fixed weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from prol.backbones.resampling import filter_weights, resample

if TYPE_CHECKING:
    from prol.backbones import Preprocessing
    from prol.learner import Learner

INPUT, OUTPUT = "images", "scores"


class Answering(nn.Module):
    """A learner as a function of bytes: uint8 RGB `[N, H, W, 3]` to float32 scores `[N, C]`."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, images: Tensor) -> Tensor:
        inputs = prepared(images, self.learner.preprocessing, self.learner.backbone.dtype)
        return self.learner.scores(inputs, None).float()


def traced(learner: Learner, images: Tensor) -> torch.export.ExportedProgram:
    """The operations of `learner.predict` on such images, whose number, height and width may then be any."""
    free = {axis: torch.export.Dim(name) for axis, name in enumerate(("count", "height", "width"))}
    with torch.no_grad():
        return torch.export.export(Answering(learner), (images,), dynamic_shapes=(free,), strict=False)


def prepared(images: Tensor, how: Preprocessing, dtype: torch.dtype) -> Tensor:
    """What `prol.backbones.evaluation_input` makes of a batch, `[N, 3, size, size]`, for sides that are not yet known.

    The box that is cut out is computed here by operations of the graph.
    """
    height, width = images.shape[1], images.shape[2]
    shorter = torch.minimum(_whole(height), _whole(width))
    rows, columns = (
        filter_weights(_central_part(_whole(side), shorter, how), side, how.size, how.interpolation, crop_first=False)
        for side in (height, width)
    )
    batch = images.permute(0, 3, 1, 2).to(dtype) / 255
    resized = resample(batch, rows.to(dtype), columns.to(dtype)).clamp(0, 1)
    mean, std = (torch.tensor(values, dtype=dtype).view(3, 1, 1) for values in (how.mean, how.std))
    return (resized - mean) / std


def _whole(side: Any) -> Tensor:
    """A side's length as a number of the graph."""
    return torch.scalar_tensor(side, dtype=torch.float64)


def _central_part(side: Tensor, shorter: Tensor, how: Preprocessing) -> Tensor:
    """Start and length along one side of what becomes the resized image's centre, `[1, 2]`.

    In whole pixels of the resized image, rounded as in `prol.backbones.preprocess`; float64 holds them exactly.
    """
    resized = torch.floor(side * math.floor(how.size / how.crop_pct) / shorter)
    start = torch.round((resized - how.size) / 2) * side / resized
    return torch.stack([start, how.size * side / resized]).unsqueeze(0)

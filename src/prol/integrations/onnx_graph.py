"""What an ONNX file computes: a learner as one traced function of a batch of uint8 images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from prol.backbones.resampling import filter_weights, resample
from prol.calibration import probabilities

if TYPE_CHECKING:
    from prol.backbones import Preprocessing
    from prol.learner import Learner

INPUT, SCORES, PROBABILITIES, UNKNOWN, FAMILIARITY = "images", "scores", "probabilities", "unknown", "familiarity"


class Predictions(nn.Module):
    """From uint8 RGB images `[N, H, W, 3]` to float32 scores and probabilities `[N, C]`.

    Then, if wanted, `unknown` and familiarity `[N]`: `unknown` alone says little where it is close to 0 or 1, and a
    comparison with the learner needs more. What is solved lazily must be solved before it is traced: call it once.
    """

    def __init__(self, learner: Learner, unknown: bool) -> None:
        super().__init__()
        self.learner, self.unknown = learner, unknown
        self.prior = learner.prior_temperature()
        self.solves = ConstantSolves()

    @property
    def names(self) -> list[str]:
        return [SCORES, PROBABILITIES, *([UNKNOWN, FAMILIARITY] if self.unknown else [])]

    @torch.no_grad()
    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        # `predict_with_familiarity` reads images and splits batches, which no graph can.
        learner = self.learner
        with self.solves:
            inputs = preprocess(images, learner.preprocessing, learner.backbone.dtype)
            encoded = learner.encoded(inputs) if self.unknown and learner.encoding != "none" else None
            scores = learner.scores(inputs, encoded).float()
            temperature = learner.calibration.temperature(self.prior, scores)
            outputs = scores, probabilities(scores, temperature).float()
            if not self.unknown:
                return outputs
            familiarity = learner.familiarity_of(inputs, encoded)
            assert familiarity is not None
            unknown = learner.calibration.unknown(familiarity.float())
            assert unknown is not None
        return *outputs, unknown, familiarity.float()


class ConstantSolves(TorchFunctionMode):
    """Systems with a constant triangular matrix are solved by a product with an inverse: ONNX has no solver.

    The inverses are computed in the first call, in float64, and found again by their matrices in later ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[Callable[..., Any], int], tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        named: Mapping[str, Any] = kwargs or {}
        if func is torch.linalg.solve_triangular and set(named) == {"upper"}:
            matrix, right = args
            return self._inverse(func, matrix, lambda a, eye: func(a, eye, **named)) @ right
        if func is torch.cholesky_solve and not named:
            right, lower = args
            return self._inverse(func, lower, lambda a, eye: func(eye, a)) @ right
        return func(*args, **named)

    def _inverse(self, func: Callable[..., Any], matrix: Tensor, solve: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        key = func, id(matrix)
        if key not in self.found:
            eye = torch.eye(matrix.shape[-1], dtype=torch.float64)
            # The matrix is stored too: its id is its own as long as it lives.
            self.found[key] = matrix, solve(matrix.double(), eye).to(matrix.dtype)
        return self.found[key][1]


def preprocess(images: Tensor, how: Preprocessing, dtype: torch.dtype) -> Tensor:
    """What `prol.backbones.evaluation_input` returns for a batch, `[N, 3, size, size]`.

    The crop is computed by operations of the graph, since height and width are dynamic.
    """
    height, width = images.shape[1], images.shape[2]
    shorter = torch.minimum(_scalar(height), _scalar(width))
    rows, columns = (
        filter_weights(_central_crop(_scalar(side), shorter, how), side, how.size, how.interpolation, crop_first=False)
        for side in (height, width)
    )
    batch = images.permute(0, 3, 1, 2).to(dtype) / 255
    resized = resample(batch, rows.to(dtype), columns.to(dtype)).clamp(0, 1)
    mean, std = (torch.tensor(values, dtype=dtype).view(3, 1, 1) for values in (how.mean, how.std))
    return (resized - mean) / std


def _scalar(side: Any) -> Tensor:
    return torch.scalar_tensor(side, dtype=torch.float64)


def _central_crop(side: Tensor, shorter: Tensor, how: Preprocessing) -> Tensor:
    """Start and length along one side of the crop, in pixels of the original image, `[1, 2]`.

    Both are whole pixels of the resized image, rounded as in `prol.backbones.preprocess`; float64 holds them exactly.
    """
    resized = torch.floor(side * math.floor(how.size / how.crop_pct) / shorter)
    start = torch.round((resized - how.size) / 2) * side / resized
    return torch.stack([start, how.size * side / resized]).unsqueeze(0)

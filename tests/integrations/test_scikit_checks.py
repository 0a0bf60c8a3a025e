"""scikit-learn's own checks of `PROLClassifier`, on a backbone that reads rows of features as images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

import prol.backbones
from prol.backbones import Preprocessing
from prol.backbones.base import PLAIN
from prol.integrations.scikit import PROLClassifier

SIDE = 16


class Reshaping:
    """Rows of at most 256 features become images `[1, 16, 16]`, filled up with zeros; their pixels are the features."""

    name, sha256, precision, width = "reshaping", "reshaping", "float64", SIDE * SIDE
    preprocessing, acceleration = Preprocessing(SIDE), PLAIN
    device, dtype = torch.device("cpu"), torch.float64

    def read(self, images: Any) -> Tensor:
        if isinstance(images, Tensor):
            return images
        rows = torch.zeros(len(images), self.width, dtype=torch.float64)
        rows[:, : images.shape[1]] = torch.tensor(images)
        return rows.view(-1, 1, SIDE, SIDE)

    def inputs(self, pixels: Tensor, *_: Any) -> Tensor:
        return pixels

    def features(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1)

    def frozen_pass(self, look: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return look

    def upload(self, tensor: Tensor) -> Tensor:
        return tensor


class RowClassifier(PROLClassifier):
    """Everything of `PROLClassifier`, over what scikit-learn's checks pass: rows of features in place of images."""

    def __init__(
        self,
        method: str = "slda",
        backbone: str = "reshaping",
        options: Any = None,
        chunk: int = 10,
        seed: int = 0,
        device: str = "cpu",
        precision: str = "auto",
    ) -> None:
        super().__init__(method, backbone, options, chunk, seed, device, precision)

    def fit(self, X: Any, y: Any) -> Self:
        return super().fit(validate_data(self, X, dtype=np.float64), y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        rows = validate_data(self, X, dtype=np.float64, reset=not self.__sklearn_is_fitted__())
        return super().partial_fit(rows, y, classes)

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        return super()._scores(validate_data(self, X, dtype=np.float64, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


@pytest.fixture(autouse=True)
def reshaping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backbone can be opened by its name, as clones and pickles do."""
    others = prol.backbones.open_backbone

    def opened(name: str = "builtin", **settings: Any) -> Any:
        return Reshaping() if name == Reshaping.name else others(name, **settings)

    for place in ("prol.backbones.open_backbone", "prol.creation.open_backbone"):
        monkeypatch.setattr(place, opened)


@pytest.mark.slow
@parametrize_with_checks([RowClassifier(), RowClassifier("ranpac", options={"features": 100})])
def test_it_passes_every_check_of_scikit_learn(estimator: RowClassifier, check: Any) -> None:
    check(estimator)

"""The interface of a backbone, for every method and any network."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from prol.backbones.acceleration import Acceleration
from prol.backbones.images import Pixels
from prol.backbones.preprocess import Preprocessing


@runtime_checkable
class Backbone(Protocol):
    """A network that turns images into features; frozen unless a fork says otherwise."""

    name: str
    """What `open_backbone` takes to open it again."""
    sha256: str
    """Hash of the stored weights, or of the network's form where there are none."""
    preprocessing: Preprocessing
    precision: str
    width: int
    """Length of a feature vector."""
    acceleration: Acceleration
    """How its device is driven, by methods too."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """Type of inputs, features and everything a method stores."""
        ...

    def read(self, images: Any) -> Pixels:
        """Validated uint8 images, which may share memory with what was passed."""
        ...

    def features(self, inputs: Tensor) -> Tensor:
        """One feature vector per image, `[B, width]`."""
        ...

    def fork(self, trainable: str) -> Self:
        """A network that shares every tensor but those it may train, which are copied.

        `trainable` is "none", "norms" (all LayerNorms) or "all".
        """
        ...

    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters this fork may train, by name."""
        ...


def trainable_names(model: nn.Module, trainable: str) -> set[str]:
    """Names of the parameters that a fork may train; a word that `fork` does not know is refused."""
    names = [name for name, _ in model.named_parameters()]
    kinds = {"none": [], "norms": [name for name in names if "norm" in name], "all": names}
    if trainable not in kinds:
        raise ValueError(f"trainable={trainable!r} is not known: use one of {', '.join(kinds)}")
    return set(kinds[trainable])

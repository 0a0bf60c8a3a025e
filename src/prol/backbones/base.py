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

        `trainable` is "none", "norms" (scales and shifts of all normalisation layers) or "all".
        """
        ...

    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters this fork may train, by name."""
        ...


@runtime_checkable
class Tapped(Backbone, Protocol):
    """A backbone whose last blocks or stages can be read out as well."""

    tap_widths: tuple[int, ...]
    """Length of what is read out of each block or stage, first to last."""

    def tapped(self, inputs: Tensor, last: int) -> tuple[Tensor, Tensor]:
        """`features`, and of the same pass the `last` blocks or stages, `[B, sum(tap_widths[-last:])]`."""
        ...


def require_tapped(method: str, backbone: Backbone) -> Tapped:
    """The backbone, if its blocks or stages can be read out."""
    if not isinstance(backbone, Tapped):
        raise ValueError(
            f"method {method} reads the last blocks or stages of a trained network, and {backbone.name} has to be "
            "trained first: use another backbone"
        )
    return backbone


def trainable_names(model: nn.Module, trainable: str) -> set[str]:
    """Names of the parameters that a fork may train; a word that `fork` does not know is refused."""
    if trainable not in ("none", "norms", "all"):
        raise ValueError(f"trainable={trainable!r} is not known: use one of none, norms, all")
    if trainable == "none":
        return set()
    # By the class's name: LayerNorm, RmsNorm, BatchNormAct2d and others have no base class in common.
    return {
        f"{place}.{name}" if place else name
        for place, module in model.named_modules()
        if trainable == "all" or "norm" in type(module).__name__.lower()
        for name, _ in module.named_parameters(recurse=False)
    }

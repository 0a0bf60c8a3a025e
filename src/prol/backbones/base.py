"""The interface of a backbone, for every method and any network, and what passes through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

Pixels = Tensor | list[Tensor]
"""Images as they were read: one uint8 tensor `[N, 3, H, W]`, or a list of `[3, H, W]` of any sizes."""
Staged = tuple[Tensor, ...]
"""Images on the device with what their transform needs, for `Backbone.render`; the first tensor is the images."""
InputRange = Literal["backbone", "unit", "symmetric"]
Augment = Literal["none", "crop_flip"]


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the network's input.

    The shorter side is resized to `size / crop_pct`, the centre `size` x `size` is taken, values are scaled to [0, 1]
    and then to `(x - mean) / std`.
    """

    size: int
    crop_pct: float = 1.0
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        if not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct must be above 0 and at most 1, got {self.crop_pct}")

    def overridden(self, input_range: InputRange = "backbone", crop_pct: float | None = None) -> Preprocessing:
        """The same with a method's own choice of value range and crop."""
        ranges = {"unit": ((0.0,) * 3, (1.0,) * 3), "symmetric": ((0.5,) * 3, (0.5,) * 3)}
        mean, std = ranges.get(input_range, (self.mean, self.std))
        return replace(self, mean=mean, std=std, crop_pct=self.crop_pct if crop_pct is None else crop_pct)


@dataclass(frozen=True)
class Acceleration:
    """How a device is driven. The numbers computed are the same up to rounding.

    Args:
        compiled: the network's blocks, and pieces of a method that are worth it, go through torch.compile.
        captured: whole steps are replayed as CUDA graphs.
    """

    compiled: bool = False
    captured: bool = False

    @classmethod
    def for_device(cls, device: torch.device) -> Acceleration:
        """Everything on a GPU, nothing elsewhere: a CPU gains nothing that would be worth the wait for a compiler."""
        gpu = device.type == "cuda"
        return cls(compiled=gpu, captured=gpu)


PLAIN = Acceleration()


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

    def inputs(self, pixels: Pixels, how: Preprocessing, random: torch.Generator | None = None) -> Tensor:
        """The network's input `[N, 3, size, size]`; with `random`, randomly cropped and flipped for training."""
        ...

    def stage(self, pixels: Pixels, how: Preprocessing, random: torch.Generator | None = None) -> Staged:
        """The part of `inputs` that needs the host: crops are drawn here, and bytes go to the device."""
        ...

    def render(self, staged: Staged, how: Preprocessing) -> Tensor:
        """The rest of it, operations of fixed shape on the device alone, accelerated for a training step."""
        ...

    def features(self, inputs: Tensor) -> Tensor:
        """One feature vector per image, `[B, width]`."""
        ...

    def frozen_pass(self, look: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """`look`, from inputs `[B, 3, size, size]` to `[B, ...]`, without gradients and accelerated.

        Tensors that it reads may change in place, but must stay where they are.
        """
        ...

    def upload(self, tensor: Tensor) -> Tensor:
        """The tensor on the device. What it holds now is sent, whatever becomes of it afterwards."""
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

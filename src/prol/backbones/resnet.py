"""A ResNet-18 for small images, trained from scratch: the network of the methods that store samples."""

from __future__ import annotations

import copy
import hashlib
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.backbones.base import Acceleration, Preprocessing, trainable_names
from prol.backbones.preprocess import ReadsImages

NAME = "resnet18_cifar"
WIDTH, SIZE = 64, 32
MAX_WIDTH = 512
MOMENTUM = 0.1

Norms = Literal["train", "batch", "eval"]
"""Batch norm by the batch's own statistics, moving the running ones along or not; or by the running ones."""


class Norm(nn.Module):
    """Batch norm whose mode is an argument of each pass."""

    mean: Tensor
    variance: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor, norms: Norms) -> Tensor:
        mean, variance = (None, None) if norms == "batch" else (self.mean, self.variance)
        return F.batch_norm(x, mean, variance, self.weight, self.bias, norms != "eval", MOMENTUM)


class Block(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _convolution(before, width, stride), Norm(width)
        self.conv2, self.norm2 = _convolution(width, width, 1), Norm(width)
        self.around: nn.Conv2d | None = None
        self.norm3: Norm | None = None
        if stride != 1 or before != width:
            self.around, self.norm3 = nn.Conv2d(before, width, 1, stride, bias=False), Norm(width)

    def forward(self, x: Tensor, norms: Norms) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x), norms))
        out = self.norm2(self.conv2(out), norms)
        if self.around is not None and self.norm3 is not None:
            x = self.norm3(self.around(x), norms)
        return F.relu(out + x)


class Trunk(nn.Module):
    """A 3x3 stem without pooling, and four stages of two blocks each with 1, 2, 4 and 8 times the stem's width."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.conv, self.norm = _convolution(3, width, 1), Norm(width)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.ModuleList(
            nn.ModuleList([Block(before, after, 1 if i == 0 else 2), Block(after, after, 1)])
            for i, (before, after) in enumerate(pairwise(widths))
        )

    def forward(self, images: Tensor, norms: Norms) -> list[Tensor]:
        """The output of each stage, `[B, W, H, H]`."""
        x, given = F.relu(self.norm(self.conv(images), norms)), []
        for stage in self.stages:
            assert isinstance(stage, nn.ModuleList)
            for block in stage:
                x = block(x, norms)
            given.append(x)
        return given


class ResNet(ReadsImages, nn.Module):
    """The network as a backbone; a learner draws its weights from its own seed."""

    model: Trunk

    def __init__(
        self, width: int = WIDTH, *, size: int = SIZE, device: torch.device | None = None, precision: str = "float32"
    ) -> None:
        super().__init__()
        self.name = NAME if width == WIDTH else f"{NAME}@{width}"
        self.stem_width, self.width = width, 8 * width
        # Values from 0 to 1: the network's own norms do the rest.
        self.preprocessing = Preprocessing(size=size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        self.precision = precision
        self.model = drawn_trunk(width, seed=0).requires_grad_(False)
        self.sha256 = _shapes_sha256(self.model)
        self.model = self.model.to(device or torch.device("cpu"), torch.float64 if precision == "float64" else None)
        self.acceleration = Acceleration.for_device(self.device)
        if self.device.type == "cuda":
            self.model = self.model.to(memory_format=torch.channels_last)

    @property
    def device(self) -> torch.device:
        return self.model.conv.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """bf16 is what convolutions are computed in; weights and features are float32 then too."""
        return self.model.conv.weight.dtype

    def features(self, inputs: Tensor, norms: Norms = "eval") -> Tensor:
        """The last stage, averaged over the image: `[B, width]`."""
        return self.stages(inputs, norms)[-1].mean((2, 3))

    def stages(self, inputs: Tensor, norms: Norms = "eval") -> list[Tensor]:
        """The output of each of the four stages, `[B, W, H, H]`."""
        with self.computing():
            given = self.model(inputs.to(self.dtype), norms)
        return [stage.to(self.dtype) for stage in given]

    def computing(self) -> AbstractContextManager[Any]:
        """The precision of convolutions, for modules that methods put on stages."""
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def fork(self, trainable: str) -> Self:
        names = trainable_names(self.model, trainable)
        twin = copy.copy(self)
        twin._modules = dict(self._modules)
        twin.model = copy.deepcopy(self.model)
        for name, parameter in twin.model.named_parameters():
            parameter.requires_grad_(name in names)
        return twin

    def trained(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def draw_weights(self, seed: int) -> None:
        """Fresh weights, the same for the same seed on every device."""
        fresh = drawn_trunk(self.stem_width, seed).state_dict()
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            tensor.copy_(fresh[name])

    def running(self) -> dict[str, Tensor]:
        """The norms' running statistics, by name."""
        return dict(self.model.named_buffers())


def drawn_trunk(width: int, seed: int) -> Trunk:
    """A network with weights as torch draws them for such layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Trunk(width)


def open_resnet(name: str, device: torch.device, precision: str) -> ResNet:
    """`resnet18_cifar`, or `resnet18_cifar@WIDTH` for another width of its stem."""
    return ResNet(resnet_width(name), device=device, precision=precision)


def resnet_width(name: str) -> int:
    """The width of the stem that a name gives."""
    given = name.partition("@")[2] or str(WIDTH)
    if not (given.isascii() and given.isdigit() and len(given) < 6) or not 1 <= int(given) <= MAX_WIDTH:
        raise ValueError(
            f"backbone {name!r} is not known: {NAME} is trained from scratch and takes no weights; write {NAME}, or "
            f"{NAME}@8 for one whose stem is 8 channels wide instead of {WIDTH}, at most {MAX_WIDTH}"
        )
    return int(given)


def _convolution(before: int, after: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride, padding=1, bias=False)


def _shapes_sha256(model: nn.Module) -> str:
    """There are no stored weights: what must be the same is the network's form."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
    return digest.hexdigest()


def require_resnet(method: str, backbone: Any) -> ResNet:
    """The backbone, if it is the network that is trained from scratch."""
    if not isinstance(backbone, ResNet):
        raise ValueError(
            f"method {method} trains a network from scratch and needs backbone resnet18_cifar, got {backbone.name}: "
            "leave the backbone out"
        )
    return backbone

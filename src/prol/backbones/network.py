"""Any timm network as a backbone: a pooled feature, the last blocks or stages, and tunable normalisation layers."""

from __future__ import annotations

import copy
import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from prol.backbones.base import PLAIN, Preprocessing, trainable_names
from prol.backbones.preprocess import ReadsImages


class Network(ReadsImages, nn.Module):
    """A timm network, frozen, in evaluation mode: BatchNorms use their running statistics, which never change.

    Steps on it are neither compiled nor captured, since not every network allows that.
    """

    model: Any  # timm's networks share no type; their attributes carry none

    def __init__(
        self, model: nn.Module, *, name: str, sha256: str, preprocessing: Preprocessing, precision: str = "float32"
    ) -> None:
        super().__init__()
        self.model = model.requires_grad_(False).eval()
        self.name, self.sha256 = name, sha256
        self.preprocessing, self.precision = preprocessing, precision
        self.acceleration = PLAIN
        self.width, self.tap_widths = self._widths()

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """bf16 is what products are computed in; weights and features are float32 then too."""
        dtype: torch.dtype = next(self.model.parameters()).dtype
        return dtype

    def features(self, inputs: Tensor) -> Tensor:
        """timm's pooled feature, which its classifier would take."""
        with self._computing():
            pooled: Tensor = self.model.forward_head(
                self.model.forward_features(inputs.to(self.dtype)), pre_logits=True
            )
        return pooled.flatten(1).to(self.dtype)

    def tapped(self, inputs: Tensor, last: int) -> tuple[Tensor, Tensor]:
        with self._computing():
            feature, taps = read_taps(self.model, inputs.to(self.dtype))
        return feature.to(self.dtype), torch.cat(taps[-last:], dim=1).to(self.dtype)

    def _computing(self) -> AbstractContextManager[Any]:
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _widths(self) -> tuple[int, tuple[int, ...]]:
        """The widths of the feature and of the taps, by a pass that computes shapes alone."""
        reader, size = _Reader(self.model), self.preprocessing.size
        tensors = {name: t.to("meta") for name, t in (*reader.named_parameters(), *reader.named_buffers())}
        try:
            with torch.no_grad():
                image = torch.empty(1, 3, size, size, device="meta", dtype=self.dtype)
                feature, taps = functional_call(reader, tensors, (image,))
        except (RuntimeError, AssertionError) as error:
            first = (str(error).splitlines() or [""])[0]
            raise ValueError(f"backbone {self.name!r} does not take images of {size} pixels: {first}") from None
        return feature.shape[1], tuple(tap.shape[1] for tap in taps)

    def fork(self, trainable: str) -> Self:
        names = trainable_names(self.model, trainable)
        # Deep copies share whatever the memo already holds: the frozen tensors are stored once.
        shared: dict[int, Tensor] = {
            id(p): p for name, p in self.model.named_parameters() if name not in names and not p.requires_grad
        }
        shared |= {id(buffer): buffer for buffer in self.model.buffers()}
        twin = copy.copy(self)
        twin._modules = dict(self._modules)
        twin.model = copy.deepcopy(self.model, memo=shared)
        for name, parameter in twin.model.named_parameters():
            parameter.requires_grad_(name in names)
        return twin

    def trained(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}


class _Reader(nn.Module):
    """A network whose forward pass is `read_taps`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        return read_taps(self.model, inputs)


def read_taps(model: Any, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The pooled feature `[B, D]`, and what is read out of each block or stage, `[B, W]` each.

    Of blocks with a class token: that token and the mean of the patches, interleaved. Of others the mean over the
    image; the pooled feature itself then takes the place of the last of these, or follows it if its width differs.
    """
    if not hasattr(model, "forward_intermediates"):
        feature = model.forward_head(model.forward_features(inputs), pre_logits=True).flatten(1)
        return feature, [feature]
    has_class_token = getattr(model, "cls_token", None) is not None
    asks = "return_prefix_tokens" in inspect.signature(model.forward_intermediates).parameters
    more = {"return_prefix_tokens": True} if has_class_token and asks else {}
    final, stages = model.forward_intermediates(inputs, **more)
    feature = model.forward_head(final, pre_logits=True).flatten(1)
    if more:
        pairs = ((first[:, 0], image.mean((2, 3))) for image, first in stages)
        return feature, [torch.stack(pair, dim=2).flatten(1) for pair in pairs]
    taps = [image.mean((2, 3)) for image in stages]
    if taps and taps[-1].shape[1] == feature.shape[1]:
        taps.pop()
    return feature, [*taps, feature]

"""Exits of a ResNet: each stage brought to the last one's shape, so that all give features of one width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.backbones import Norms
from prol.backbones.resnet import Norm

EXPERTS = 4
PROJECTED = 128


class Alignment(nn.Module):
    """Strided convolutions with norms, each of which halves the sides and doubles the width."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        widths = [width * 2**step for step in range(steps + 1)]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, 2 * before, 3, stride=2, padding=1, bias=False) for before in widths[:-1]
        )
        self.norms = nn.ModuleList(Norm(after) for after in widths[1:])

    def forward(self, x: Tensor, norms: Norms) -> Tensor:
        """`[B, W, H, H]` to `[B, W 2^steps, H / 2^steps, H / 2^steps]`."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.relu(norm(convolution(x), norms))
        return x


def drawn_exits(stem_width: int, seed: int) -> dict[str, nn.Module]:
    """What each expert has besides its stage and its head, with weights as torch draws them for such layers.

    `align0` to `align2` are of all stages but the last, `project0` to `project3` are linear maps to `PROJECTED`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        last = EXPERTS - 1
        alignments = {f"align{i}": Alignment(stem_width * 2**i, last - i) for i in range(last)}
        return alignments | {f"project{i}": nn.Linear(stem_width * 2**last, PROJECTED) for i in range(EXPERTS)}

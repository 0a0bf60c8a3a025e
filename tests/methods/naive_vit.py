"""The ViT with prefixes written out, one image and one head at a time: what prompt methods are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import ViT, evaluation_input
from prol.learner import Learner

PrefixOf = Callable[[int, Tensor], tuple[Tensor, Tensor] | None]
"""Keys and values `[H, l, d]` of a block, from its number and the class token `[D]` that enters it."""


def tokens_of(learner: Learner, images: object) -> list[Tensor]:
    """The embedded tokens `[N, D]` of each image."""
    vit = learner.backbone
    assert isinstance(vit, ViT)
    inputs = evaluation_input(vit.read(images), learner.preprocessing, vit.device, vit.dtype)
    return list(vit.embed(inputs).detach())


@torch.no_grad()
def outputs(vit: ViT, tokens: Tensor, prefix_of: PrefixOf | None = None) -> Tensor:
    """All output tokens `[N, D]` of one image after the final LayerNorm."""
    for number, block in enumerate(vit.model.blocks):
        prefix = prefix_of(number, tokens[0]) if prefix_of else None
        attention, width = block.attn, vit.width // vit.heads
        q, k, v = F.linear(block.norm1(tokens), attention.qkv.weight, attention.qkv.bias).chunk(3, dim=1)
        answers = []
        for head in range(vit.heads):
            own = slice(head * width, (head + 1) * width)
            keys, values = k[:, own], v[:, own]
            if prefix is not None:
                keys, values = torch.cat([prefix[0][head], keys]), torch.cat([prefix[1][head], values])
            answers.append((q[:, own] @ keys.T / width**0.5).softmax(1) @ values)
        tokens = tokens + attention.proj(torch.cat(answers, dim=1))
        tokens = tokens + block.mlp(block.norm2(tokens))
    normed: Tensor = vit.model.norm(tokens)
    return normed


def fixed_prefixes(prefixes: Mapping[int, Tensor]) -> PrefixOf:
    """Prefixes `[2, H, l, d]` by block, whatever the class token is."""
    return lambda block, _: (prefixes[block][0], prefixes[block][1]) if block in prefixes else None

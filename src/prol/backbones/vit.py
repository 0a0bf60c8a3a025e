"""A timm ViT, run through its own blocks so that prefixes, adapters and taps are arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from prol.backbones.acceleration import fast
from prol.backbones.base import Acceleration, Preprocessing
from prol.backbones.blocks import Additions, Change, Encoded, Prefix
from prol.backbones.network import Network


class ViT(Network):
    """A plain ViT (class token, learned positions, standard blocks; registers or not) as a backbone."""

    def __init__(
        self, model: nn.Module, *, name: str, sha256: str, preprocessing: Preprocessing, precision: str = "float32"
    ) -> None:
        reason = not_plain(model)
        if reason:
            raise ValueError(f"backbone {name!r} is not a plain ViT: {reason}")
        super().__init__(model, name=name, sha256=sha256, preprocessing=preprocessing, precision=precision)
        self.depth = len(self.model.blocks)
        self.heads = int(self.model.blocks[0].attn.num_heads)
        self.acceleration = Acceleration.for_device(self.device)

    def _widths(self) -> tuple[int, tuple[int, ...]]:
        width = int(self.model.embed_dim)
        return width, (2 * width,) * len(self.model.blocks)

    @property
    def class_position(self) -> Tensor | None:
        return None if self.model.no_embed_class else self.model.pos_embed[:, :1]

    def features(self, inputs: Tensor) -> Tensor:
        return self.encode(self.embed(inputs)).feature

    def embed(self, inputs: Tensor) -> Tensor:
        return fast(self.acceleration, _embed)(self.model, inputs, self.dtype)

    def tapped(self, inputs: Tensor, last: int) -> tuple[Tensor, Tensor]:
        encoded = self.encode(self.embed(inputs), taps=range(self.depth - last, self.depth))
        return encoded.feature, encoded.interleaved()

    def encode(
        self,
        tokens: Tensor,
        prefixes: Mapping[int, Prefix] | None = None,
        taps: Sequence[int] = (),
        *,
        additions: Mapping[int, Additions] | None = None,
        rows: int = 1,
    ) -> Encoded:
        inside = {i: Additions(prefix) for i, prefix in (prefixes or {}).items()} | dict(additions or {})
        last, first_patch = self.depth - 1, self.model.num_prefix_tokens
        class_taps, patch_taps = {}, {}
        for i, block in enumerate(self.model.blocks):
            first = rows if i == last and last not in taps else None
            added = inside.get(i, Additions())
            if added.only_a_prefix():
                assert not callable(added.prefix)
                tokens = fast(self.acceleration, _prefixed_block)(block, tokens, added.prefix, first)
            else:
                tokens = _block(block, tokens, added, first)
            if i in taps:
                class_taps[i], patch_taps[i] = tokens[:, 0], tokens[:, first_patch:].mean(1)
        class_token = tokens[:, 0]
        return Encoded(
            feature=self.model.norm(class_token),
            class_token=class_token,
            class_taps=tuple(class_taps[i] for i in taps),
            patch_taps=tuple(patch_taps[i] for i in taps),
            rows=self.model.norm(tokens[:, :rows]) if rows > 1 else None,
        )

    def token_prefix(self, block: int, tokens: Tensor) -> Prefix:
        inside, (batch, length, width) = self.model.blocks[block], tokens.shape
        weight, bias = inside.attn.qkv.weight[width:], inside.attn.qkv.bias
        x = inside.norm1(tokens).to(weight.dtype)
        mapped = F.linear(x, weight, None if bias is None else bias[width:])
        keys, values = mapped.view(batch, length, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        return inside.attn.k_norm(keys), values

    def final_norm(self, tokens: Tensor) -> Tensor:
        normed: Tensor = self.model.norm(tokens)
        return normed


def _embed(model: Any, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    patches = model.patch_embed.norm(_linear_patches(model.patch_embed.proj, inputs)).to(dtype)
    first = [
        token.expand(patches.shape[0], -1, -1) for token in (model.cls_token, model.reg_token) if token is not None
    ]
    if model.no_embed_class:
        tokens = torch.cat([*first, patches + model.pos_embed], dim=1)
    else:
        tokens = torch.cat([*first, patches], dim=1) + model.pos_embed
    out: Tensor = model.norm_pre(tokens)
    return out


def _linear_patches(projection: Any, images: Tensor) -> Tensor:
    """A convolution whose kernels do not overlap, as one product: `[B, 3, S, S]` to `[B, patches, D]`."""
    weight, (height, width) = projection.weight, projection.kernel_size
    patches = images.to(weight.dtype).unfold(2, height, height).unfold(3, width, width)
    patches = patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)  # [B, patches, 3 * height * width]
    return F.linear(patches, weight.flatten(1), projection.bias)


def _block(block: Any, tokens: Tensor, added: Additions, first: int | None) -> Tensor:
    """One pre-norm block on `[B, N, D]`; returns `[B, first, D]` when only the first rows are needed."""
    rows = tokens if first is None else tokens[:, :first]
    prefix = added.prefix(tokens[:, 0]) if callable(added.prefix) else added.prefix
    attended = prefix_attention(block.attn, block.norm1(tokens), prefix, rows.shape[1], added.low_rank)
    rows = rows + block.ls1(attended).to(rows.dtype)
    hidden = block.norm2(rows).to(block.mlp.fc1.weight.dtype)
    out: Tensor = rows + block.ls2(block.mlp(hidden)).to(rows.dtype)
    return out if added.adapter is None else out + added.adapter(rows).to(out.dtype)


def _prefixed_block(block: Any, tokens: Tensor, prefix: Prefix | None, first: int | None) -> Tensor:
    """What is compiled: all blocks share its few shapes, so that the compiler sees each of them once."""
    return _block(block, tokens, Additions(prefix), first)


def prefix_attention(
    attention: Any,
    x: Tensor,
    prefix: Prefix | None = None,
    queries: int | None = None,
    low_rank: Change | None = None,
) -> Tensor:
    """Multi-head attention of `x` `[B, N, D]` with `prefix` before its keys and values.

    Only the first `queries` rows are queries (all by default): `[B, queries, D]`. `low_rank` adds to q, k and v.
    """
    heads, weight, bias = attention.num_heads, attention.qkv.weight, attention.qkv.bias
    batch, length, width = x.shape
    x = x.to(weight.dtype)
    if low_rank is not None:
        mapped = F.linear(x, weight, bias) + low_rank(x).to(x.dtype)
        q, k, v = mapped.view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        q = q[:, :, :queries]
    elif queries is None or queries == length:
        q, k, v = F.linear(x, weight, bias).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
    else:
        asking = F.linear(x[:, :queries], weight[:width], None if bias is None else bias[:width])
        q = asking.view(batch, queries, heads, -1).transpose(1, 2)
        keys_values = F.linear(x, weight[width:], None if bias is None else bias[width:])
        k, v = keys_values.view(batch, length, 2, heads, -1).permute(2, 0, 3, 1, 4)
    q, k = attention.q_norm(q), attention.k_norm(k)
    if prefix is not None:
        k = torch.cat([prefix[0].to(k.dtype), k], dim=2)
        v = torch.cat([prefix[1].to(v.dtype), v], dim=2)
    with _repeatable_attention(q):
        mixed = F.scaled_dot_product_attention(q, k, v, scale=attention.scale)
    mixed = mixed.transpose(1, 2).reshape(batch, -1, width)
    out: Tensor = attention.proj(attention.norm(mixed))
    return out


def _repeatable_attention(q: Tensor) -> AbstractContextManager[None]:
    """On a GPU in float32, the fused kernel's gradients differ from call to call: plain products do not."""
    if q.is_cuda and q.dtype == torch.float32 and torch.is_grad_enabled():
        return sdpa_kernel(SDPBackend.MATH)
    return nullcontext()


def not_plain(model: Any) -> str | None:
    """Why a network's forward pass is not the one above, which prompts and adapters need; None where it is."""
    from timm.models.vision_transformer import Attention, Block, VisionTransformer

    if type(model) is not VisionTransformer:
        rotary = getattr(model, "rope", None) is not None
        relative = any("rel_pos" in name or "relative_position" in name for name, _ in model.named_parameters())
        why = ", whose positions are rotary" if rotary else ", whose positions are relative" if relative else ""
        return f"it is a network of class {type(model).__name__}{why}"
    if model.cls_token is None:
        return "it has no class token"
    if model.pos_embed is None:
        return "it has no learned positions"
    if model.global_pool != "token":
        return f"it pools by {model.global_pool!r} instead of the class token"
    if not isinstance(model.norm, nn.LayerNorm) or not isinstance(model.fc_norm, nn.Identity):
        return "it has no final LayerNorm on the class token"
    if model.patch_embed.proj.stride != model.patch_embed.proj.kernel_size:
        return "its patches overlap"
    for block in model.blocks:
        if type(block) is not Block or type(block.attn) is not Attention:
            return f"its blocks are {type(block).__name__}"
        if getattr(block.attn, "gate", None) is not None or block.attn.qkv.out_features != 3 * model.embed_dim:
            return "its attention is gated or has another width"
        if not hasattr(block.mlp, "fc1"):
            return f"its blocks hold a {type(block.mlp).__name__}"
    return None

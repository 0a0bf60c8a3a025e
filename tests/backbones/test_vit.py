"""The ViT run through its own blocks, against timm's own forward pass."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from golden_files import golden, tiny_vit
from prol.backbones import Additions, Backbone, Prefix, Preprocessing, ViT, open_backbone, prefix_attention

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def images(vit: ViT, count: int = 3) -> Tensor:
    size = vit.preprocessing.size
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(
        vit.dtype
    )


def random_prefixes(vit: ViT, blocks: range, length: int, batch: int = 3) -> dict[int, Prefix]:
    random = torch.Generator().manual_seed(2)
    shape = (2, batch, vit.heads, length, vit.width // vit.heads)
    drawn = {i: torch.randn(shape, generator=random, dtype=torch.float64).to(vit.dtype) for i in blocks}
    return {i: (both[0], both[1]) for i, both in drawn.items()}


def small(architecture: str, **more: Any) -> ViT:
    """A small network of a timm architecture, with random weights far from their initial ones."""
    sizes = {"embed_dim": 48, "depth": 3, "num_heads": 3, "img_size": 32, "patch_size": 8, "num_classes": 0}
    model = timm.create_model(architecture, pretrained=False, **{**sizes, **more}).double()
    random = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=random, dtype=torch.float64) * 0.3
    return ViT(model, name=architecture, sha256="", preprocessing=Preprocessing(size=32), precision="float64")


@pytest.fixture(scope="module")
def built_in() -> ViT:
    return open_backbone("tiny", device="cpu")


# Equal to timm


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", ["golden", "tiny", "small"])
@torch.no_grad()
def test_without_a_prefix_the_feature_is_timms_output(name: str, dtype: torch.dtype) -> None:
    precision = "float64" if dtype == torch.float64 else "float32"
    vit = tiny_vit(dtype) if name == "golden" else open_backbone(name, device="cpu", precision=precision)
    assert vit.dtype == dtype
    inputs = images(vit)
    expected = vit.model(inputs)
    torch.testing.assert_close(vit.features(inputs), expected, rtol=0, atol=TOLERANCE[dtype])
    empty = random_prefixes(vit, range(vit.depth), 0)
    prefixed = vit.encode(vit.embed(inputs), empty).feature
    torch.testing.assert_close(prefixed, expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("architecture", "more"),
    [
        ("vit_base_patch16_224", {}),
        ("vit_base_patch16_clip_224", {}),
        ("vit_base_patch16_clip_quickgelu_224", {}),
        ("vit_small_patch14_dinov2", {}),
        ("vit_small_patch14_reg4_dinov2", {}),
        ("vit_base_patch16_224", {"reg_tokens": 2}),
        ("deit3_base_patch16_224", {}),
        ("vit_base_patch16_224", {"qk_norm": True}),
        ("vit_base_patch16_224", {"qkv_bias": False}),
        ("vit_base_patch16_224", {"dynamic_img_size": True}),
        ("vit_base_patch16_224", {"scale_attn_norm": True, "scale_mlp_norm": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value) or "plain",
)
@torch.no_grad()
def test_every_kind_of_plain_vit_gives_timms_output(architecture: str, more: dict[str, Any]) -> None:
    vit = small(architecture, **more)
    inputs = images(vit)
    torch.testing.assert_close(vit.features(inputs), vit.model(inputs), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_the_class_row_alone_equals_the_last_block_in_full(tiny: ViT) -> None:
    tokens, prefixes = tiny.embed(images(tiny)), random_prefixes(tiny, range(tiny.depth), 5)
    row_only, in_full = tiny.encode(tokens, prefixes), tiny.encode(tokens, prefixes, taps=[tiny.depth - 1])
    torch.testing.assert_close(row_only.feature, in_full.feature, rtol=0, atol=1e-12)
    torch.testing.assert_close(row_only.class_token, in_full.class_token, rtol=0, atol=1e-12)


@torch.no_grad()
def test_taps_equal_hooks_on_timms_blocks(tiny: ViT) -> None:
    inputs = images(tiny)
    seen: dict[int, Tensor] = {}
    handles = [
        block.register_forward_hook(lambda _module, _inputs, output, i=i: seen.update({i: output}))
        for i, block in enumerate(tiny.model.blocks)
    ]
    tiny.model(inputs)
    for handle in handles:
        handle.remove()
    taps = [2, 0, 3]
    encoded = tiny.encode(tiny.embed(inputs), taps=taps)
    assert len(encoded.class_taps) == len(encoded.patch_taps) == 3
    for i, class_tap, patch_tap in zip(taps, encoded.class_taps, encoded.patch_taps, strict=True):
        torch.testing.assert_close(class_tap, seen[i][:, 0], rtol=0, atol=1e-12)
        torch.testing.assert_close(patch_tap, seen[i][:, 1:].mean(1), rtol=0, atol=1e-12)
    torch.testing.assert_close(encoded.class_token, seen[3][:, 0], rtol=0, atol=1e-12)


@torch.no_grad()
def test_registers_are_no_patches() -> None:
    vit = small("vit_small_patch14_reg4_dinov2")
    inputs = images(vit)
    tokens = vit.embed(inputs)
    assert tokens.shape[1] == 1 + 4 + 16
    _, (patches,) = vit.model.forward_intermediates(inputs, indices=[1])
    found = vit.encode(tokens, taps=[1])
    torch.testing.assert_close(found.patch_taps[0], patches.mean((2, 3)), rtol=0, atol=1e-9)


@torch.no_grad()
def test_the_feature_is_the_class_token_after_the_final_norm(tiny: ViT) -> None:
    encoded = tiny.encode(tiny.embed(images(tiny)))
    torch.testing.assert_close(encoded.feature, tiny.model.norm(encoded.class_token), rtol=0, atol=0)
    assert not torch.allclose(encoded.feature, encoded.class_token)


# Prefixes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@torch.no_grad()
def test_prefix_attention_gives_the_golden_output(dtype: torch.dtype) -> None:
    recorded, vit = golden("prefix_attention"), tiny_vit(dtype)
    attention, x = vit.model.blocks[0].attn, recorded["x"].to(dtype)
    # Recorded as [sample, K/V, position, head, d]; a block takes [sample, head, position, d] each.
    keys, values = recorded["prefix"].to(dtype).transpose(2, 3).unbind(1)
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}[dtype]
    with_prefix = prefix_attention(attention, x, (keys, values))
    torch.testing.assert_close(with_prefix.double(), recorded["out"].double(), rtol=0, atol=tolerance)
    without = prefix_attention(attention, x)
    torch.testing.assert_close(without.double(), recorded["out_no_prefix"].double(), rtol=0, atol=tolerance)
    first_rows = prefix_attention(attention, x, (keys, values), queries=2)
    torch.testing.assert_close(first_rows.double(), recorded["out"][:, :2].double(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("block", range(4))
@torch.no_grad()
def test_a_prefix_before_any_block_changes_the_feature(tiny: ViT, block: int) -> None:
    tokens = tiny.embed(images(tiny))
    plain = tiny.encode(tokens).feature
    prefixed = tiny.encode(tokens, random_prefixes(tiny, range(block, block + 1), 5)).feature
    assert (prefixed - plain).abs().amax(1).min() > 1e-3


@torch.no_grad()
def test_a_samples_prefix_acts_on_that_sample_only(tiny: ViT) -> None:
    tokens, prefixes = tiny.embed(images(tiny)), random_prefixes(tiny, range(2), 5)
    changed = {i: (keys.clone(), values.clone()) for i, (keys, values) in prefixes.items()}
    for keys, values in changed.values():
        keys[1] += 1
        values[1] -= 1
    before, after = tiny.encode(tokens, prefixes).feature, tiny.encode(tokens, changed).feature
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])


@pytest.mark.parametrize("more", [{}, {"qk_norm": True}, {"qkv_bias": False}], ids=["plain", "qk_norm", "no bias"])
@torch.no_grad()
def test_the_prefix_of_tokens_equals_tokens_beside_the_input_that_are_cut_off_again(more: dict[str, Any]) -> None:
    vit = small("vit_base_patch16_224", **more)
    tokens = vit.embed(images(vit))
    added = torch.randn(3, 4, vit.width, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x = tokens
    for number, block in enumerate(vit.model.blocks):
        x = block(torch.cat([x, added], dim=1) if number < 2 else x)[:, : tokens.shape[1]]
    prefixed = vit.encode(tokens, {number: vit.token_prefix(number, added) for number in range(2)}).feature
    torch.testing.assert_close(prefixed, vit.model.norm(x)[:, 0], rtol=0, atol=1e-9)


@torch.no_grad()
def test_the_order_of_prefix_positions_does_not_matter(tiny: ViT) -> None:
    tokens, prefixes = tiny.embed(images(tiny)), random_prefixes(tiny, range(3), 5)
    turned = {i: (keys.flip(2), values.flip(2)) for i, (keys, values) in prefixes.items()}
    torch.testing.assert_close(
        tiny.encode(tokens, prefixes).feature, tiny.encode(tokens, turned).feature, rtol=0, atol=1e-12
    )


# Forks: what may be trained, and what is shared


def test_a_backbone_is_frozen_and_says_what_the_protocol_asks(tiny: ViT) -> None:
    assert isinstance(tiny, Backbone)
    assert tiny.trained() == {}
    assert not any(p.requires_grad for p in tiny.parameters())
    assert (tiny.width, tiny.heads, tiny.depth) == (64, 4, 4)


def test_a_fork_for_norms_shares_frozen_tensors_and_copies_the_norms(tiny: ViT) -> None:
    fork = tiny.fork("norms")
    originals = dict(tiny.model.named_parameters())
    norms = {name for name in originals if "norm" in name}
    assert len(norms) == 18
    assert set(fork.trained()) == norms
    for name, parameter in fork.model.named_parameters():
        assert (parameter.data_ptr() == originals[name].data_ptr()) == (name not in norms), name
        assert torch.equal(parameter, originals[name])


def test_a_fork_for_nothing_shares_everything_and_one_for_all_nothing(tiny: ViT) -> None:
    originals = dict(tiny.model.named_parameters())
    nothing, everything = tiny.fork("none"), tiny.fork("all")
    assert nothing.trained() == {}
    assert all(p.data_ptr() == originals[name].data_ptr() for name, p in nothing.model.named_parameters())
    assert set(everything.trained()) == set(originals)
    assert all(p.data_ptr() != originals[name].data_ptr() for name, p in everything.model.named_parameters())


@pytest.mark.parametrize("trainable", ["norms", "all"])
def test_training_a_fork_leaves_the_original_untouched(tiny: ViT, trainable: str) -> None:
    inputs = images(tiny)
    before, weights = tiny.features(inputs), {name: p.clone() for name, p in tiny.model.named_parameters()}
    fork = tiny.fork(trainable)
    optimiser = torch.optim.Adam(fork.trained().values(), lr=0.01)
    fork.features(inputs).square().sum().backward()
    optimiser.step()
    assert not torch.allclose(fork.features(inputs), before)
    assert torch.equal(tiny.features(inputs), before)
    assert all(torch.equal(p, weights[name]) for name, p in tiny.model.named_parameters())
    assert tiny.trained() == {}
    assert all(p.grad is None for p in tiny.model.parameters())


@pytest.mark.parametrize("second", ["none", "norms", "all"])
@pytest.mark.parametrize("first", ["norms", "all"])
def test_forking_a_fork_leaves_it_trainable(tiny: ViT, first: str, second: str) -> None:
    fork = tiny.fork(first)
    before = set(fork.trained())
    fork.fork(second)
    assert set(fork.trained()) == before


def test_two_forks_train_apart(tiny: ViT) -> None:
    one, other = tiny.fork("norms"), tiny.fork("norms")
    with torch.no_grad():
        one.trained()["norm.weight"].fill_(3.0)
    assert not torch.equal(one.trained()["norm.weight"], other.trained()["norm.weight"])


def test_gradients_reach_the_prefixes_of_the_first_block(tiny: ViT) -> None:
    keys, values = (t.requires_grad_() for t in random_prefixes(tiny, range(1), 5)[0])
    tiny.encode(tiny.embed(images(tiny)), {0: (keys, values)}).feature.sum().backward()
    assert keys.grad is not None
    assert values.grad is not None
    assert keys.grad.abs().max() > 0
    assert values.grad.abs().max() > 0


def test_an_unknown_kind_of_fork_is_refused(tiny: ViT) -> None:
    with pytest.raises(ValueError, match=r"trainable='heads'.*none, norms, all"):
        tiny.fork("heads")


# Networks that are not plain ViTs


@pytest.mark.parametrize(
    ("architecture", "more", "says"),
    [
        (
            "deit_tiny_distilled_patch16_224",
            {"embed_dim": 48, "depth": 1, "num_heads": 3},
            "VisionTransformerDistilled",
        ),
        ("vit_base_patch16_siglip_224", {"embed_dim": 48, "depth": 1, "num_heads": 3}, "no class token"),
        ("vit_base_patch16_224", {"embed_dim": 48, "depth": 1, "num_heads": 3, "global_pool": "avg"}, "pools by 'avg'"),
        ("vit_base_patch16_224", {"embed_dim": 48, "depth": 1, "num_heads": 3, "pos_embed": "none"}, "positions"),
        ("vit_small_patch16_18x2_224", {"embed_dim": 48, "depth": 1, "num_heads": 3}, "ParallelThingsBlock"),
        ("beit_base_patch16_224", {"embed_dim": 48, "depth": 1, "num_heads": 3}, "Beit, whose positions are relative"),
        ("swin_tiny_patch4_window7_224", {"embed_dim": 24, "depths": (1, 1), "num_heads": (1, 1)}, "SwinTransformer"),
        ("eva02_tiny_patch14_224", {"embed_dim": 48, "depth": 1, "num_heads": 3}, "Eva, whose positions are rotary"),
        ("resnet10t", {}, "ResNet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_network_that_is_not_a_plain_vit_is_refused_with_the_reason(
    architecture: str, more: dict[str, Any], says: str
) -> None:
    model = timm.create_model(architecture, pretrained=False, **{"num_classes": 0, **more})
    with pytest.raises(ValueError, match=f"{architecture}.*not a plain ViT.*{says}") as refusal:
        ViT(model, name=architecture, sha256="", preprocessing=Preprocessing(size=224))
    assert "\n" not in str(refusal.value)


def test_the_tiny_built_in_backbone_is_a_vit_on_128_pixels(built_in: ViT) -> None:
    assert (built_in.width, built_in.heads, built_in.depth) == (192, 3, 12)
    assert built_in.preprocessing.size == 128
    assert built_in.embed(images(built_in, 1)).shape == (1, 65, 192)


# What is added inside blocks


@torch.no_grad()
def test_additions_that_add_nothing_change_nothing(tiny: ViT) -> None:
    tokens = tiny.embed(images(tiny))
    nothing = Additions(
        adapter=torch.zeros_like, low_rank=lambda x: torch.zeros(*x.shape[:2], 3 * tiny.width, dtype=x.dtype)
    )
    added = tiny.encode(tokens, additions=dict.fromkeys(range(tiny.depth), nothing))
    torch.testing.assert_close(added.feature, tiny.encode(tokens).feature, rtol=0, atol=1e-12)


@torch.no_grad()
def test_an_adapter_sees_the_residual_stream_and_adds_to_the_mlp(tiny: ViT) -> None:
    tokens, block = tiny.embed(images(tiny)), tiny.model.blocks[1]
    entering = tiny.model.blocks[0](tokens)
    attended = entering + block.attn(block.norm1(entering))
    expected = attended + block.mlp(block.norm2(attended)) + 0.3 * attended.tanh()
    for later in tiny.model.blocks[2:]:
        expected = later(expected)
    given = tiny.encode(tokens, additions={1: Additions(adapter=lambda x: 0.3 * x.tanh())})
    torch.testing.assert_close(given.class_token, expected[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("block", [0, -1])
@torch.no_grad()
def test_a_low_rank_change_equals_a_changed_weight(tiny: ViT, block: int) -> None:
    tokens, changed = tiny.embed(images(tiny)), tiny.fork("all")
    change = torch.randn(3 * tiny.width, tiny.width, generator=torch.Generator().manual_seed(4), dtype=tiny.dtype)
    changed.model.blocks[block].attn.qkv.weight += 0.1 * change
    additions = {block % tiny.depth: Additions(low_rank=lambda x: x @ (0.1 * change).T)}
    given = tiny.encode(tokens, additions=additions).feature
    torch.testing.assert_close(given, changed.encode(tokens).feature, rtol=0, atol=1e-12)
    assert not torch.allclose(given, tiny.encode(tokens).feature)


@torch.no_grad()
def test_a_prefix_may_be_made_from_the_class_token_that_enters_the_block(tiny: ViT) -> None:
    tokens, prefixes, seen = tiny.embed(images(tiny)), random_prefixes(tiny, range(2), 3), []

    def make(token: Tensor) -> Prefix:
        seen.append(token)
        return prefixes[1]

    given = tiny.encode(tokens, additions={0: Additions(prefixes[0]), 1: Additions(make)})
    torch.testing.assert_close(given.feature, tiny.encode(tokens, prefixes).feature, rtol=0, atol=0)
    torch.testing.assert_close(seen[0], tiny.encode(tokens, {0: prefixes[0]}, taps=[0]).class_taps[0], rtol=0, atol=0)


@torch.no_grad()
def test_the_first_rows_are_those_of_the_whole(tiny: ViT) -> None:
    tokens = tiny.embed(images(tiny))
    whole = tokens
    for block in tiny.model.blocks:
        whole = block(whole)
    rows = tiny.encode(tokens, rows=4).rows
    assert rows is not None
    torch.testing.assert_close(rows, tiny.final_norm(whole[:, :4]), rtol=0, atol=1e-12)
    assert tiny.encode(tokens).rows is None

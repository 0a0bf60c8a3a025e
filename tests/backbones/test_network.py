"""Networks of timm that are no plain ViTs: features, taps, norms, image sizes, and what methods say to them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from timm.layers import resample_abs_pos_embed
from torch import Tensor, nn

import prol
from prol import registry
from prol.backbones import Network, Preprocessing, ViT, open_backbone, with_image_size
from prol.cli.arguments import PlanFlags

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import check_networks

BLOCKS = {"embed_dim": 48, "depth": 3, "num_heads": 3, "img_size": 32, "patch_size": 8}
SMALL: dict[str, dict[str, Any]] = {
    "vit_small_patch16_dinov3": BLOCKS,
    "eva02_tiny_patch14_224": BLOCKS,
    "beit_base_patch16_224": BLOCKS,
    "vit_base_patch16_siglip_224": BLOCKS,
    "swin_tiny_patch4_window7_224": {"embed_dim": 24, "depths": (1, 2), "num_heads": (1, 2), "img_size": 32},
    "convnext_tiny": {"dims": (8, 16, 24, 32), "depths": (1, 1, 1, 1)},
    "resnet50": {"layers": (1, 1, 1, 1)},
    "tf_efficientnet_lite0": {},
    "mobilenetv4_conv_small": {},
}
"""Smaller than published, with the same kinds of layers."""
FEATURE_LEARNERS = [
    *("prol_plus", "ncm", "slda", "ranpac", "randumb", "foal", "layup", "klda", "lr_rgda", "knn", "logreg"),
    *("head_only", "finetune"),
]


def small(architecture: str) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = timm.create_model(architecture, pretrained=False, num_classes=0, **SMALL[architecture])
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
                nn.init.normal_(module.running_mean)
    return Network(model, name=architecture, sha256="", preprocessing=Preprocessing(size=32))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pictures(count: int = 4) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 256, (count, 20, 24, 3), dtype=np.uint8)


# Features and taps


@pytest.mark.parametrize("architecture", SMALL)
@torch.no_grad()
def test_features_are_timms_pooled_ones_and_taps_those_of_its_last_stages(architecture: str) -> None:
    network, inputs = small(architecture), noise(3, 3, 32, 32)
    model = network.model
    pooled = model.forward_head(model.forward_features(inputs), pre_logits=True)
    feature, taps = network.tapped(inputs, 2)
    for found in (network.features(inputs), feature):
        torch.testing.assert_close(found, pooled, rtol=0, atol=1e-5)
    assert pooled.shape == (3, network.width)
    assert taps.shape == (3, sum(network.tap_widths[-2:]))
    stages = model.forward_intermediates(inputs, intermediates_only=True)
    means = [stage.mean((2, 3)) for stage in stages]
    if getattr(model, "cls_token", None) is not None:  # class token and patches take turns
        torch.testing.assert_close(taps[:, 1::2], torch.cat(means[-2:], dim=1), rtol=0, atol=1e-5)
        class_token = model.forward_intermediates(inputs, return_prefix_tokens=True)[1][-1][1][:, 0]
        torch.testing.assert_close(taps[:, 96::2], class_token, rtol=0, atol=1e-5)
    else:
        behind = means[-2] if means[-1].shape[1] == network.width else means[-1]
        torch.testing.assert_close(taps, torch.cat([behind, pooled], dim=1), rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_network_without_intermediate_features_has_its_pooled_one_as_only_tap() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 5, 8, 8)

        def forward_features(self, x: Tensor) -> Tensor:
            out: Tensor = self.stem(x)
            return out

        def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
            assert pre_logits
            return x.mean((2, 3))

    network = Network(Bare(), name="bare", sha256="", preprocessing=Preprocessing(size=16))
    assert (network.width, network.tap_widths) == (5, (5,))
    inputs = noise(2, 3, 16, 16)
    assert torch.equal(network.tapped(inputs, 1)[1], network.features(inputs))


def test_an_image_too_small_for_the_network_is_refused_with_its_size() -> None:
    model = timm.create_model("swin_tiny_patch4_window7_224", **SMALL["swin_tiny_patch4_window7_224"])
    with pytest.raises(ValueError, match=r"swin.* does not take images of 24 pixels"):
        Network(model, name="swin", sha256="", preprocessing=Preprocessing(size=24))


# What may be trained


@pytest.mark.parametrize("architecture", ["resnet50", "convnext_tiny", "vit_small_patch16_dinov3"])
def test_tuned_norms_have_copies_and_running_statistics_stay(architecture: str) -> None:
    network, inputs = small(architecture), noise(4, 3, 32, 32)
    before, buffers = network.features(inputs), {name: b.clone() for name, b in network.model.named_buffers()}
    fork = network.fork("norms")
    kinds = (nn.LayerNorm, nn.BatchNorm2d)
    expected = {id(p) for module in fork.model.modules() if isinstance(module, kinds) for p in module.parameters()}
    assert expected
    assert {id(p) for p in fork.trained().values()} == expected
    shared = {p.data_ptr() for p in (*network.model.parameters(), *network.model.buffers())}
    assert all(p.data_ptr() not in shared for p in fork.trained().values())
    frozen = [p for p in fork.model.parameters() if not p.requires_grad]
    assert all(t.data_ptr() in shared for t in (*frozen, *fork.model.buffers()))
    optimiser = torch.optim.Adam(fork.trained().values(), lr=0.1)
    fork.features(inputs).square().sum().backward()
    optimiser.step()
    assert not torch.allclose(fork.features(inputs), before)
    assert torch.equal(network.features(inputs), before)
    assert all(torch.equal(b, buffers[name]) for name, b in fork.model.named_buffers())


def test_rms_norms_count_as_norms() -> None:
    class Rms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = timm.layers.RmsNorm(3)
            self.map = nn.Linear(3, 3)

    from prol.backbones.base import trainable_names

    assert trainable_names(Rms(), "norms") == {"scale.weight"}


# From opening to ONNX


@pytest.mark.parametrize("architecture", ["mobilenetv4_conv_small", "tf_efficientnet_lite0"])
def test_the_smallest_networks_learn_predict_save_load_and_resume(architecture: str, tmp_path: Path) -> None:
    network = open_backbone(f"{architecture}:64px@random", device="cpu")
    assert type(network) is Network
    assert check_networks.features_equal_timms(network) <= 1e-5
    for method in ("ncm", "prol_plus"):
        check_networks.life_of(method, network, tmp_path / method)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ncm", "ranpac", "prol_plus"])
def test_a_small_network_is_exported(method: str, tmp_path: Path) -> None:
    network = open_backbone("mobilenetv4_conv_small:64px@random", device="cpu")
    assert isinstance(network, Network)
    assert check_networks.exported(method, network, tmp_path)["relative difference"] < 1e-3


@pytest.mark.parametrize("method", FEATURE_LEARNERS)
def test_every_method_that_needs_features_alone_takes_a_convolutional_network(
    method: str, resnet: Network, tmp_path: Path
) -> None:
    check_networks.life_of(method, resnet, tmp_path)


@pytest.fixture(scope="module")
def resnet() -> Network:
    network = open_backbone("resnet10t:64px@random", device="cpu")
    assert isinstance(network, Network)
    return network


@pytest.mark.parametrize("method", [name for name in registry.names("methods") if name not in FEATURE_LEARNERS])
def test_every_other_method_refuses_it_and_names_those_that_do_not(method: str) -> None:
    network = small("convnext_tiny")
    if registry.method(method).from_scratch:
        with pytest.raises(ValueError, match="trains a network from scratch"):
            prol.create(method, network)
        return
    says = f"method {method} .*class ConvNeXt; methods that work with it: {', '.join(FEATURE_LEARNERS)}$"
    with pytest.raises(ValueError, match=says):
        prol.create(method, network)


def test_the_page_of_backbones_lists_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "backbones.md").read_text()
    assert f"| {', '.join(f'`{name}`' for name in FEATURE_LEARNERS)} | all of timm" in page


@pytest.mark.parametrize("architecture", ["vit_small_patch16_dinov3", "beit_base_patch16_224"])
@pytest.mark.parametrize("method", ["prol", "l2p"])
def test_a_vit_that_takes_no_prefix_is_refused_with_the_reason(architecture: str, method: str) -> None:
    says = "positions are rotary" if "dinov3" in architecture else "positions are relative"
    with pytest.raises(ValueError, match=f"{architecture}.*{says}; methods that work with it: prol_plus, ncm"):
        prol.create(method, small(architecture))


# Image sizes


@pytest.mark.parametrize(
    ("name", "sized"),
    [
        ("builtin", "builtin:96px"),
        ("builtin:64px", "builtin:96px"),
        ("vit_tiny_patch16_224.augreg_in21k", "vit_tiny_patch16_224.augreg_in21k:96px"),
        ("convnext_tiny@random:3", "convnext_tiny:96px@random:3"),
        ("convnext_tiny@/a:1px@b.pth", "convnext_tiny:96px@/a:1px@b.pth"),
        ("hf-hub:me/mine", "hf-hub:me/mine:96px"),
    ],
)
def test_an_image_size_is_part_of_the_name(name: str, sized: str) -> None:
    assert with_image_size(name, 96) == sized


def test_the_flag_becomes_part_of_the_backbones_name() -> None:
    assert PlanFlags(image_size=96).given() == {"backbone": "builtin:96px"}
    plan = PlanFlags(backbone="convnext_tiny@random", image_size=96).plan("ncm", "digits", {})
    assert plan.backbone == "convnext_tiny:96px@random"


def test_positions_are_resampled_and_all_other_weights_stay() -> None:
    usual, other = (open_backbone(name, device="cpu") for name in ("builtin", "builtin:96px"))
    assert isinstance(usual, ViT)
    assert isinstance(other, ViT)
    assert (other.name, other.sha256) == (with_image_size(usual.name, 96), usual.sha256)
    assert other.preprocessing == replace(usual.preprocessing, size=96)
    grid = [96 // usual.model.patch_embed.patch_size[0]] * 2
    expected = resample_abs_pos_embed(usual.model.pos_embed, new_size=grid, num_prefix_tokens=1)
    mine, theirs = other.model.state_dict(), usual.model.state_dict() | {"pos_embed": expected}
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())
    assert other.features(noise(1, 3, 96, 96)).shape == (1, usual.width)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["swin_tiny_patch4_window7_224", "beit_base_patch16_224"])
@torch.no_grad()
def test_networks_that_are_built_anew_keep_every_weight_but_their_tables_of_positions(architecture: str) -> None:
    usual, other = (open_backbone(f"{architecture}{size}@random", device="cpu") for size in ("", ":64px"))
    assert isinstance(usual, Network)
    assert isinstance(other, Network)
    mine, theirs = other.model.state_dict(), usual.model.state_dict()
    assert mine.keys() == theirs.keys()
    differing = {name for name in mine if not torch.equal(mine[name], theirs[name])}
    assert differing
    assert all("relative_position_bias_table" in name for name in differing)
    assert other.features(noise(1, 3, 64, 64)).isfinite().all()


def test_the_usual_size_is_not_named() -> None:
    usual = open_backbone("builtin", shapes_only=True)
    assert open_backbone(f"builtin:{usual.preprocessing.size}px", shapes_only=True).name == usual.name


@pytest.mark.parametrize(
    ("name", "width"), [("swin_tiny_patch4_window7_224", 768), ("beit_base_patch16_224", 768), ("resnet50", 2048)]
)
def test_a_size_can_be_set_without_weights(name: str, width: int) -> None:
    network = open_backbone(f"{name}:64px@random", shapes_only=True)
    assert (network.preprocessing.size, network.width) == (64, width)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vit_small_patch14_dinov2:64px@random", "no multiple of the patch size of .*, 14: use 70"),
        ("vit_tiny_patch16_224:0px@random", "use 16"),
        ("resnet18_cifar:64px", "takes images of 32 pixels alone"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        open_backbone(name, shapes_only=name.startswith("vit"))

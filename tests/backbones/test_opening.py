"""Opening a backbone by name: random, from a file, from the hub's cache, and every refusal."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

import prol
from prol.backbones import PAPER, Preprocessing, ViT, open_backbone
from prol.backbones.processor import bf16_trial

ARCHITECTURE = "vit_tiny_patch16_224"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, so that the terms of the weights are told anew."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """A ViT-Tiny of 32 pixels in patches of 8, with a classifier of seven classes."""
    torch.manual_seed(5)
    model = timm.create_model(ARCHITECTURE, pretrained=False, num_classes=7, img_size=32, patch_size=8)
    return {name: tensor.contiguous() for name, tensor in model.state_dict().items()}


@pytest.fixture
def file(weights: dict[str, Tensor], tmp_path: Path) -> Path:
    save_file(weights, tmp_path / "mine.safetensors")
    return tmp_path / "mine.safetensors"


def opened(name: str, **more: Any) -> ViT:
    return open_backbone(name, **{"device": "cpu", **more})


def refusal(kind: type[Exception], name: str, **more: Any) -> str:
    with pytest.raises(kind) as caught:
        opened(name, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same_weights(a: ViT, b: ViT) -> bool:
    mine, other = a.model.state_dict(), b.model.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)


# Random weights


def test_random_weights_are_the_same_for_a_seed_and_so_is_their_hash() -> None:
    first, again, other = (opened(f"{ARCHITECTURE}@random{seed}") for seed in ("", ":0", ":1"))
    assert same_weights(first, again)
    assert first.sha256 == again.sha256
    assert len(first.sha256) == 64
    assert not same_weights(first, other)
    assert first.sha256 != other.sha256


def test_random_weights_neither_use_nor_move_the_global_random_numbers() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = opened(f"{ARCHITECTURE}@random")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same_weights(first, opened(f"{ARCHITECTURE}@random"))


def test_a_seed_that_is_no_number_is_refused() -> None:
    assert "'x'" in refusal(ValueError, f"{ARCHITECTURE}@random:x")


def test_preprocessing_comes_from_the_name() -> None:
    how = opened("vit_tiny_patch16_224.augreg_in21k@random").preprocessing
    expected = timm.get_pretrained_cfg("vit_tiny_patch16_224.augreg_in21k")
    assert how == Preprocessing(224, expected.crop_pct, expected.interpolation, expected.mean, expected.std)


def test_the_papers_weights_are_named_with_their_tag() -> None:
    assert PAPER == "vit_base_patch16_224.augreg_in21k"
    how = opened(PAPER, shapes_only=True).preprocessing
    assert (how.mean, how.std, how.crop_pct) == ((0.5,) * 3, (0.5,) * 3, 0.9)


# From a file


def test_weights_come_from_a_file_whose_sizes_are_read_off_and_whose_classifier_is_dropped(
    file: Path, weights: dict[str, Tensor]
) -> None:
    vit = opened(f"{ARCHITECTURE}@{file}")
    assert vit.preprocessing.size == 32
    assert vit.model.patch_embed.patch_size == (8, 8)
    assert vit.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    loaded = vit.model.state_dict()
    assert set(loaded) == {name for name in weights if not name.startswith("head.")}
    assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.items())
    assert vit.features(torch.rand(2, 3, 32, 32)).shape == (2, 192)


def test_a_file_without_a_classifier_opens_too(weights: dict[str, Tensor], tmp_path: Path) -> None:
    bare = {name: tensor for name, tensor in weights.items() if not name.startswith("head.")}
    save_file(bare, tmp_path / "bare.safetensors")
    assert opened(f"{ARCHITECTURE}@{tmp_path / 'bare.safetensors'}").width == 192


def test_a_file_backbone_is_named_by_its_absolute_path(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(file.parent)
    name = opened(f"{ARCHITECTURE}@{file.name}").name
    monkeypatch.chdir(tmp_path.parent)
    assert same_weights(opened(name), opened(f"{ARCHITECTURE}@{file}"))


def test_a_float16_file_gives_float32_weights(weights: dict[str, Tensor], tmp_path: Path) -> None:
    save_file({name: t.half() for name, t in weights.items()}, tmp_path / "half.safetensors")
    vit = opened(f"{ARCHITECTURE}@{tmp_path / 'half.safetensors'}")
    assert {t.dtype for t in vit.model.state_dict().values()} == {torch.float32}


def test_weights_in_use_do_not_follow_their_file(weights: dict[str, Tensor], tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    save_file(weights, file)
    before = torch.get_rng_state()
    vit = opened(f"{ARCHITECTURE}@{file}")
    assert torch.equal(torch.get_rng_state(), before)
    with file.open("r+b") as written:
        written.seek(-100_000, 2)
        written.write(b"\0" * 100_000)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in vit.model.state_dict().items())


def test_a_path_may_hold_the_separator(weights: dict[str, Tensor], tmp_path: Path) -> None:
    (tmp_path / "me@home").mkdir()
    save_file(weights, tmp_path / "me@home" / "w.safetensors")
    assert opened(f"{ARCHITECTURE}@{tmp_path}/me@home/w.safetensors").width == 192


def test_a_missing_file_is_named() -> None:
    assert "/nowhere/w.safetensors" in refusal(FileNotFoundError, f"{ARCHITECTURE}@/nowhere/w.safetensors")


def test_a_file_that_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"\x80\x04 a pickle, or anything else")
    assert "not a safetensors file" in refusal(ValueError, f"{ARCHITECTURE}@{tmp_path}/w.safetensors")


def test_an_empty_or_cut_off_file_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for cut in (0, 8, 1000, len(whole) - 1):
        file.write_bytes(whole[:cut])
        assert str(file) in refusal(ValueError, f"{ARCHITECTURE}@{file}")


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(OSError, f"{ARCHITECTURE}@{tmp_path}")


@pytest.mark.parametrize(
    "architecture",
    ["vit_small_patch16_224", "deit3_small_patch16_224", "resnet18", "swin_tiny_patch4_window7_224"],
)
def test_weights_of_another_architecture_are_refused_with_the_file_and_the_name(file: Path, architecture: str) -> None:
    text = refusal(ValueError, f"{architecture}@{file}")
    assert architecture in text
    assert str(file) in text


def test_a_missing_tensor_is_named(weights: dict[str, Tensor], tmp_path: Path) -> None:
    part = {name: tensor for name, tensor in weights.items() if name != "blocks.3.attn.qkv.bias"}
    save_file(part, tmp_path / "w.safetensors")
    assert "blocks.3.attn.qkv.bias" in refusal(ValueError, f"{ARCHITECTURE}@{tmp_path}/w.safetensors")


def test_a_tensor_of_the_wrong_shape_is_named(weights: dict[str, Tensor], tmp_path: Path) -> None:
    save_file({**weights, "norm.bias": torch.zeros(191)}, tmp_path / "w.safetensors")
    assert "norm.bias" in refusal(ValueError, f"{ARCHITECTURE}@{tmp_path}/w.safetensors")


@pytest.mark.parametrize(
    "content",
    [
        {"weight": torch.zeros(3)},
        {"patch_embed.proj.weight": torch.zeros(192, 3, 8, 8), "pos_embed": torch.zeros(17)},
        {"patch_embed.proj.weight": torch.zeros(192, 3, 8, 8), "pos_embed": torch.zeros(1, 0, 192)},
    ],
    ids=["another network", "flat positions", "no positions"],
)
def test_a_file_that_holds_no_vit_is_refused(content: dict[str, Tensor], tmp_path: Path) -> None:
    save_file(content, tmp_path / "w.safetensors")
    assert "w.safetensors" in refusal(ValueError, f"{ARCHITECTURE}@{tmp_path}/w.safetensors")


# From the hub


@pytest.fixture(scope="module")
def offline_answers(
    weights: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """What a process without network says: one name is in the hub's cache, the other is not."""
    folder = tmp_path_factory.mktemp("offline")
    stored = folder / "hub" / f"models--timm--{ARCHITECTURE}.augreg_in21k"
    snapshot = stored / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("0123abc")
    save_file(weights, snapshot / "model.safetensors")
    code = f"""
import json
from prol.backbones import PAPER, open_backbone
vit = open_backbone("{ARCHITECTURE}.augreg_in21k", device="cpu")
how = vit.preprocessing
try:
    open_backbone(PAPER, device="cpu")
except OSError as error:
    absent = str(error)
print(json.dumps(dict(name=vit.name, sha256=vit.sha256, size=how.size, mean=how.mean, absent=absent)))
"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env = {**clean, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = str(Path(prol.__file__).parents[1])
    answer = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout), snapshot / "model.safetensors"


def test_a_hub_name_opens_from_the_hubs_cache_without_a_network(
    offline_answers: tuple[dict[str, Any], Path], weights: dict[str, Tensor]
) -> None:
    answers, stored = offline_answers
    assert answers["name"] == f"{ARCHITECTURE}.augreg_in21k"
    assert answers["sha256"] == hashlib.sha256(stored.read_bytes()).hexdigest()
    assert answers["size"] == 8 * int((weights["pos_embed"].shape[1] - 1) ** 0.5) == 32
    assert answers["mean"] == [0.5, 0.5, 0.5]


def test_without_network_and_cache_the_message_says_what_to_fetch(
    offline_answers: tuple[dict[str, Any], Path],
) -> None:
    message = offline_answers[0]["absent"]
    assert "\n" not in message
    for word in (PAPER, "hub", "model.safetensors", f"{PAPER}@"):
        assert word in message


# Names, devices, precisions


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("vit_bas_patch16_224", "vit_base_patch16_224"),
        ("Convnext_tini", "convnext_tiny"),
        ("vit_small_patch14_dino", "vit_small_patch14_dinov2"),
        ("mobilenetv4_conv_smal@random", "mobilenetv4_conv_small"),
        ("smal", "small"),
        ("tinny", "tiny"),
        ("Builtin", "builtin"),
        ("vit_small_patch16_128", "vit_small_patch16_128.distilled"),
        ("vit_tiny_patch8_64.tinyimagenet", "vit_tiny_patch8_64.tiny_imagenet"),
        ("efficientnet-lite0", "efficientnet_lite0"),
        ("resnet18-cifar", "resnet18_cifar"),
        ("dinov2-small", "vit_small_patch14_dinov2"),
        ("swin-tiny", "swin_tiny_patch4_window7_224"),
        ("mobilenet_v4_small", "mobilenetv4_conv_small"),
    ],
)
def test_an_unknown_architecture_is_refused_with_near_names(name: str, near: str) -> None:
    assert near in refusal(ValueError, name).partition("not known to timm; near it: ")[2].split(", ")


@pytest.mark.parametrize("name", ["nonsense", "nonsense@random", "", "@random", "some/path", "ftp:x", "vitb"])
def test_no_names_are_offered_that_are_not_near(name: str) -> None:
    assert "not known to timm; timm.list_models() has all names" in refusal(ValueError, name)


def test_a_torch_file_without_architecture_is_named_as_one() -> None:
    assert "name its architecture, ARCH@some/net.pth" in refusal(ValueError, "some/net.pth")


def test_a_repository_of_the_hub_is_named_as_one() -> None:
    assert "hf-hub:facebook/dinov2-small opens a repository" in refusal(ValueError, "facebook/dinov2-small")


@pytest.mark.parametrize("name", ["small@random", "vit_tiny_patch16_128.distilled@w.safetensors"])
def test_a_built_in_network_takes_no_other_weights(name: str) -> None:
    architecture, _, source = name.partition("@")
    assert f"{architecture!r} has weights: name it without @{source}" in refusal(ValueError, name)


def test_tags_are_offered_for_an_unknown_one() -> None:
    assert "augreg_in21k" in refusal(ValueError, "vit_tiny_patch16_224.augreg").partition("tags of")[2]


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224.nonsense", "vit_tiny_patch16_224.nonsense@random"])
@pytest.mark.parametrize("shapes_only", [False, True])
def test_an_unknown_tag_is_refused(name: str, shapes_only: bool) -> None:
    assert "nonsense" in refusal(ValueError, name, shapes_only=shapes_only)


@pytest.mark.parametrize("device", [f"cuda:{torch.cuda.device_count()}", "cuda:99"])
def test_a_gpu_asked_for_where_none_is_is_refused_with_what_to_use(device: str) -> None:
    text = refusal(ValueError, "tiny", device=device)
    assert device in text
    assert "cpu" in text


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", "meta", "mps"])
def test_an_unknown_device_is_refused_with_the_known_ones(device: str) -> None:
    assert "auto, cpu, cuda" in refusal(ValueError, "tiny", device=device)


@pytest.mark.slow
def test_bf16_on_a_processor_works_or_is_refused_but_never_ends_the_process() -> None:
    if bf16_trial():
        assert "use float32" in refusal(ValueError, "tiny", precision="bf16")
        return
    images = torch.randn(3, 3, 128, 128, generator=torch.Generator().manual_seed(0))
    exact, rounded = (open_backbone("tiny", device="cpu", precision=p).features(images) for p in ("float32", "bf16"))
    assert F.cosine_similarity(exact, rounded.float()).min() > 0.99


@pytest.mark.parametrize(("ended", "says"), [(-4, "ended with signal 4"), (3, "failed")])
def test_a_processor_that_fails_the_trial_is_refused(ended: int, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prol.backbones.processor.bf16_trial", lambda: ended)
    assert f"a trial product {says}; use float32" in refusal(ValueError, "tiny", precision="bf16")


@pytest.mark.parametrize("precision", ["half", "float16", ""])
def test_an_unknown_precision_is_refused_with_the_known_ones(precision: str) -> None:
    assert "auto, float32, float64, bf16" in refusal(ValueError, "tiny", precision=precision)


@pytest.mark.parametrize(
    ("precision", "resolved", "dtype"),
    [("auto", "float32", torch.float32), ("float32", "float32", torch.float32), ("float64", "float64", torch.float64)],
)
def test_precision_on_a_processor_is_resolved_and_kept(precision: str, resolved: str, dtype: torch.dtype) -> None:
    vit = opened("tiny", precision=precision)
    assert (vit.precision, vit.dtype) == (resolved, dtype)
    assert {parameter.dtype for parameter in vit.model.parameters()} == {dtype}


def test_shapes_only_needs_no_weights_and_takes_no_memory(tmp_path: Path) -> None:
    vit = opened(PAPER, shapes_only=True)
    assert {parameter.device.type for parameter in vit.model.parameters()} == {"meta"}
    assert (vit.width, vit.heads, vit.depth) == (768, 12, 12)
    assert sum(parameter.numel() for parameter in vit.model.parameters()) == 85_798_656
    assert opened("tiny", shapes_only=True).width == 192
    assert opened("vit_large_patch16_224@random", shapes_only=True).width == 1024
    assert not (tmp_path / "home").exists(), "counting says nothing about terms"

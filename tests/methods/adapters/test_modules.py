"""Adapters, low-rank changes and prefixes: what they add inside the blocks, and one module a task."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import ViT
from prol.methods.adapters.modules import Adapter, FixedPrefix, LowRank, Module, TaskModules, move_towards
from prol.state import State

WIDTH, DEPTH, HEADS = 64, 4, 4
MODULES: dict[str, Module] = {
    "adapter": Adapter(WIDTH, DEPTH, bottleneck=5, scale=0.3),
    "lora": LowRank(WIDTH, DEPTH, rank=3, targets="qkv"),
    "lora on keys and values": LowRank(WIDTH, DEPTH, rank=3, targets="kv"),
    "prefix": FixedPrefix(WIDTH, HEADS, DEPTH, length=2),
}


def images(vit: ViT, count: int = 3) -> Tensor:
    size = vit.preprocessing.size
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(1), dtype=vit.dtype)


def drawn(module: Module, seed: int = 0) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {name: tensor.double() for name, tensor in module.draw(random).items()}


def far(module: Module, seed: int = 0) -> dict[str, Tensor]:
    """Tensors far from where training starts."""
    random = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(t.shape, generator=random, dtype=torch.float64) * 0.3 for name, t in drawn(module).items()
    }


@pytest.mark.parametrize("kind", ["adapter", "lora", "lora on keys and values"])
@torch.no_grad()
def test_a_fresh_module_leaves_the_plain_network(tiny: ViT, kind: str) -> None:
    module, tokens = MODULES[kind], tiny.embed(images(tiny))
    fresh = drawn(module)
    assert (fresh["down"] != 0).all()
    given = tiny.encode(tokens, additions=module.additions(fresh)).feature
    torch.testing.assert_close(given, tiny.encode(tokens).feature, rtol=0, atol=1e-12)


def test_down_projections_start_uniform_within_the_square_root_of_the_width() -> None:
    down = Adapter(WIDTH, DEPTH, bottleneck=50, scale=1.0).draw(torch.Generator().manual_seed(0))["down"]
    assert 0.124 < down.abs().max() <= 0.125
    assert abs(down.std() - 0.125 / 3**0.5) < 0.001


@torch.no_grad()
def test_an_adapter_is_its_formula_in_every_block() -> None:
    module, x = MODULES["adapter"], torch.randn(2, 7, WIDTH, generator=torch.Generator().manual_seed(3)).double()
    tensors = far(module)
    additions = module.additions(tensors)
    assert list(additions) == list(range(DEPTH))
    for i, added in additions.items():
        hidden = F.relu(F.linear(x, tensors["down"][i], tensors["down_bias"][i]))
        expected = 0.3 * F.linear(hidden, tensors["up"][i], tensors["up_bias"][i])
        assert added.adapter is not None
        torch.testing.assert_close(added.adapter(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("targets", ["q", "kv", "qv", "qkv"])
@torch.no_grad()
def test_a_low_rank_change_is_the_product_of_its_maps_on_its_targets_alone(targets: str) -> None:
    module, x = LowRank(WIDTH, DEPTH, 3, targets), torch.randn(2, 7, WIDTH, dtype=torch.float64)
    tensors = far(module)
    for i, added in module.additions(tensors).items():
        assert added.low_rank is not None
        for target, part in zip("qkv", added.low_rank(x).split(WIDTH, dim=-1), strict=True):
            if target in targets:
                j = targets.index(target)
                weight = tensors["up"][i, j] @ tensors["down"][i, j]
                torch.testing.assert_close(part, x @ weight.T, rtol=0, atol=1e-12)
            else:
                assert torch.equal(part, torch.zeros_like(part))


@torch.no_grad()
def test_a_fixed_prefix_is_the_same_for_every_sample(tiny: ViT) -> None:
    module, tokens = MODULES["prefix"], tiny.embed(images(tiny))
    tensors = far(module)
    prefixes = {
        i: (tensors["keys"][i].expand(3, -1, -1, -1), tensors["values"][i].expand(3, -1, -1, -1)) for i in range(DEPTH)
    }
    given = tiny.encode(tokens, additions=module.additions(tensors)).feature
    assert torch.equal(given, tiny.encode(tokens, prefixes).feature)
    assert not torch.allclose(given, tiny.encode(tokens).feature)


@pytest.mark.parametrize("kind", MODULES)
def test_gradients_reach_every_tensor_in_every_block(tiny: ViT, kind: str) -> None:
    tensors = {name: tensor.requires_grad_() for name, tensor in far(MODULES[kind]).items()}
    tiny.encode(tiny.embed(images(tiny)), additions=MODULES[kind].additions(tensors)).feature.sum().backward()
    for name, tensor in tensors.items():
        assert tensor.grad is not None
        assert (tensor.grad.flatten(1).abs().amax(1) > 0).all(), name


def stored(tasks: TaskModules) -> dict[str, Tensor]:
    return {name: table.rows for name, table in tasks.tables.items()}


@torch.no_grad()
def test_samples_may_have_adapters_of_their_own(tiny: ViT) -> None:
    module, tokens = MODULES["adapter"], tiny.embed(images(tiny))
    tasks = TaskModules(State(), tiny, module)
    for seed in range(2):
        tasks.append(far(module, seed))
    choice = torch.tensor([1, 0, 1])
    mixed = tiny.encode(tokens, additions=module.additions(tasks.of(choice))).feature
    for sample, task in enumerate(choice.tolist()):
        alone = tiny.encode(tokens[sample : sample + 1], additions=module.additions(tasks.of(task))).feature
        torch.testing.assert_close(mixed[sample : sample + 1], alone, rtol=0, atol=1e-12)


def test_only_the_last_tasks_module_is_trained_and_the_mean_is_of_those_before(tiny: ViT) -> None:
    module, tasks = MODULES["adapter"], TaskModules(State(), tiny, MODULES["adapter"])
    for seed in range(3):
        tasks.append(far(module, seed))
    assert tasks.count == 3
    before = {name: tensor.clone() for name, tensor in stored(tasks).items()}
    mean = tasks.mean_of_earlier()
    for name, part in tasks.trained().items():
        part.home.add_(1.0)
        assert torch.equal(stored(tasks)[name][:2], before[name][:2])
        assert torch.equal(stored(tasks)[name][2], before[name][2] + 1.0)
        torch.testing.assert_close(mean[name], (before[name][0] + before[name][1]) / 2)


def test_a_task_may_begin_with_a_copy_of_the_last_module(tiny: ViT) -> None:
    module, tasks = MODULES["adapter"], TaskModules(State(), tiny, MODULES["adapter"])
    tasks.append(far(module))
    for _ in range(3):
        tasks.append(tasks.of(-1))
    assert all(torch.equal(tensor[3], far(module)[name]) for name, tensor in stored(tasks).items())
    tasks.of(-1)["down"].zero_()
    assert bool((tasks.of(-2)["down"] != 0).all())


def test_moving_towards_a_goal_is_a_weighted_mean() -> None:
    tensors, goal = {"a": torch.tensor([1.0, 4.0])}, {"a": torch.tensor([11.0, -6.0]), "unused": torch.zeros(1)}
    move_towards(tensors, goal, 0.1)
    torch.testing.assert_close(tensors["a"], torch.tensor([2.0, 3.0]))

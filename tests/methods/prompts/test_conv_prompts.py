"""ConvPrompt's prefixes: convolutions of shared maps, mixed by keys."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prol.engine.adam import Adam, part_gradients
from prol.methods.prompts.convprompt import (
    KERNEL,
    ConvPrompts,
    generated,
    generators_by_likeness,
    match,
    mixing_blocks,
)
from prol.state import State

WIDTH, HEADS, BLOCKS, LENGTH = 16, 2, 3, 4


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(*counts: int) -> ConvPrompts:
    return made(*counts)[0]


def made(*counts: int) -> tuple[ConvPrompts, State]:
    state, random = State(), torch.Generator().manual_seed(0)
    source = ConvPrompts(state, WIDTH, HEADS, BLOCKS, LENGTH, random, torch.float64)
    for task, count in enumerate(counts):
        source.begin_task(first=task == 0)
        source.add_generators(count, random)
    return source, state


def stored(state: State) -> dict[str, Tensor]:
    return {name.removeprefix("source/"): tensor for name, tensor in state.snapshot()[0].items()}


def test_shapes_are_those_of_the_papers_count() -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in stored(made(5)[1]).items()}
    assert shapes == {
        "base": (BLOCKS, 2, HEADS, LENGTH + 16, WIDTH // HEADS + 16),
        "matcher.in.weight": (8, 16),
        "matcher.in.bias": (8,),
        "matcher.out.weight": (4, 8),
        "matcher.out.bias": (4,),
        "generator.weight": (5, BLOCKS, 2, HEADS, 17, 17),
        "generator.bias": (5, BLOCKS, 2, HEADS),
        "keys": (5, 4),
    }


def test_each_generator_convolves_the_map_of_its_own_block_head_and_side() -> None:
    base, weight, bias = drawn(2, 2, 3, 20, 22), drawn(4, 2, 2, 3, KERNEL, KERNEL, seed=1), drawn(4, 2, 2, 3, seed=2)
    found = generated(base, weight, bias)
    assert found.shape == (2, 2, 3, 4, 4, 6)
    for at in torch.cartesian_prod(*map(torch.arange, (2, 2, 3, 4))).tolist():
        block, side, head, j = at
        kernel = weight[j, block, side, head]
        expected = F.conv2d(base[block, side, head][None, None], kernel[None, None], bias[j, block, side, head][None])
        torch.testing.assert_close(found[block, side, head, j], expected[0, 0])


def test_weights_are_cosines_of_the_mapped_class_token_to_the_keys() -> None:
    source, tokens = make(5), drawn(3, WIDTH)
    s = source.shared
    hidden = F.relu(F.linear(tokens, s["matcher.in.weight"], s["matcher.in.bias"]))
    mapped = F.linear(hidden, s["matcher.out.weight"], s["matcher.out.bias"])
    expected = F.cosine_similarity(mapped[:, None], source.keys.rows[None], dim=-1)
    torch.testing.assert_close(match(tokens, s, source.keys.rows), expected)


def test_a_blocks_prefix_is_its_mixture_plus_the_raw_mixture_of_the_block_before() -> None:
    made, tokens = drawn(3, 2, 2, 4, 5, 6), [drawn(7, 4, seed=block + 1) for block in range(3)]
    additions = mixing_blocks(made, lambda token: token)
    raw = [torch.einsum("bj,khjld->bkhld", tokens[block], made[block]) for block in range(3)]
    for block in range(3):
        prefix = additions[block].prefix
        assert callable(prefix)
        keys, values = prefix(tokens[block])
        expected = raw[block] + (raw[block - 1] if block else 0)
        torch.testing.assert_close(keys, expected[:, 0])
        torch.testing.assert_close(values, expected[:, 1])


def test_new_keys_are_orthonormal_to_all() -> None:
    keys = make(2, 2).keys.rows
    torch.testing.assert_close(keys @ keys.T, torch.eye(4).double())


def prefixes(source: ConvPrompts, live: dict | None = None) -> Tensor:
    """Keys and values of all blocks for the same class tokens."""
    found = []
    for addition in source.additions(live).values():
        assert callable(addition.prefix)
        found.append(torch.stack(addition.prefix(drawn(3, WIDTH, seed=9)), dim=1))
    return torch.stack(found)


def test_leaves_stand_for_the_current_tasks_rows() -> None:
    source = make(2, 1)
    assert torch.equal(prefixes(source, source.trained(keys=True)), prefixes(source))


@pytest.mark.parametrize("train_keys", [False, True])
def test_training_leaves_old_generators_and_keys_to_the_bit(train_keys: bool) -> None:
    (source, state), adam = made(2, 2), Adam(State())
    before = stored(state)
    for _ in range(3):
        parts = source.trained(train_keys)
        gradients = part_gradients(prefixes(source, parts).square().sum(), parts)
        adam.begin_step()
        adam.update_all(parts, gradients, 0.01)
    after = stored(state)
    for name in ("generator.weight", "generator.bias", "keys"):
        assert torch.equal(after[name][:2], before[name][:2]), name
        moved = not torch.equal(after[name][2:], before[name][2:])
        assert moved == (name != "keys" or train_keys), name
    assert all(torch.equal(after[name], before[name]) for name in after if name.startswith("anchor."))
    assert not torch.equal(after["base"], before["base"])


def test_the_drift_is_the_absolute_distance_from_where_the_task_began() -> None:
    first, source = make(2), make(2, 1)
    assert first.drift(first.trained(keys=False)) == 0
    assert source.drift(source.trained(keys=False)) == 0
    source.shared["base"][0, 0, 0, 0, 0] += 3
    source.shared["matcher.in.bias"][1] -= 2
    torch.testing.assert_close(source.drift(source.trained(keys=False)), torch.tensor(5.0).double())


def test_a_loaded_source_gives_the_same_prefixes_and_drift() -> None:
    (source, state), (other, other_state) = made(2, 1), made(1)
    source.shared["base"] += 1
    other_state.load(state.snapshot()[0], state.saved_values(), 0)
    assert torch.equal(prefixes(other), prefixes(source))
    assert torch.equal(other.drift(other.trained(keys=False)), source.drift(source.trained(keys=False)))
    assert len(other.trained(keys=True)["keys"].leaf) == 1
    first_task = made(1)[1]
    other_state.load(first_task.snapshot()[0], first_task.saved_values(), 0)
    assert not other.anchor


def test_a_task_that_is_rolled_back_leaves_no_trace() -> None:
    source, state = made(2, 1)
    source.shared["base"] += 1
    before, values = stored(state), state.saved_values()
    record = state.record()
    source.begin_task(first=False)
    source.add_generators(2, torch.Generator())
    assert source.drift(source.trained(keys=False)) == 0
    state.roll_back(record)
    after = stored(state)
    assert state.saved_values() == values
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


# How many generators


def count_for(old: list[list[float]], new: list[list[float]], most: int = 5, seen: int = 10) -> int:
    """Class means given, each class `seen` times."""
    means = torch.tensor([*old, *new]).double()
    counts = torch.full((len(means),), float(seen)).double()
    return generators_by_likeness(means * counts.unsqueeze(1), counts, len(old), most)


def test_classes_like_old_ones_need_one_generator_and_classes_unlike_all_need_most() -> None:
    assert count_for([[1, 0, 0], [0, 1, 0]], [[1.001, 0, 0], [0, 1.001, 0]]) == 1
    assert count_for([[1, 0], [0.9, 0.1]], [[-1, 0], [-0.9, -0.1]]) == 5


def test_the_mean_of_all_is_taken_off_first() -> None:
    old, new = [[1.0, 0.0], [0.9, 0.1]], [[-1.0, 0.0], [-0.9, -0.1]]
    shifted = [[[x + 100 for x in mean] for mean in means] for means in (old, new)]
    assert count_for(*shifted) == count_for(old, new) == 5


def test_the_rule_is_the_ceiling_of_what_is_unlike() -> None:
    old, new = [[2.0, 0.0], [-1.0, 1.0]], [[1.0, 1.0], [0.0, -2.0]]
    mean = torch.tensor([*old, *new]).mean(0)
    a, b = torch.tensor(old) - mean, torch.tensor(new) - mean
    likeness = F.cosine_similarity(b[:, None], a[None], dim=-1).amax(1).mean().clamp(0, 1).item()
    for most in (1, 5, 20):
        assert count_for(old, new, most) == max(1, math.ceil((1 - likeness) * most))


def test_classes_announced_but_not_seen_do_not_count() -> None:
    sums = torch.tensor([[10.0, 0.0], [0.0, 0.0], [-10.0, 0.0], [0.0, 0.0]]).double()
    counts = torch.tensor([10.0, 0.0, 10.0, 0.0]).double()
    assert generators_by_likeness(sums, counts, 2, 5) == 5
    assert generators_by_likeness(sums, counts * 0, 2, 5) == 5

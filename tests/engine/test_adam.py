"""Adam over the rows in play, against torch's own Adam over the whole table."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.engine.adam import Adam, Part, part_gradients
from prol.engine.sgd import SGD
from prol.state import State

ROWS, WIDTH = 7, 3

Schedule = list[tuple[set[int], float]]
"""For each step the rows that have a gradient, and the rate."""

schedules = st.lists(
    st.tuples(st.sets(st.integers(0, ROWS - 1), max_size=4), st.sampled_from([0.01, 0.002, 0.1])),
    min_size=1,
    max_size=12,
)


def random_table(seed: int) -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drawn(rows: set[int], random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows in some order, and a gradient for each."""
    order = torch.tensor(sorted(rows, key=lambda row: row * 5 % ROWS), dtype=torch.long)
    return order, torch.randn(len(rows), WIDTH, generator=random, dtype=torch.float64)


def make(**options: float) -> Adam:
    return Adam(State(), **options)


def saved(adam: Adam) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in adam._read().items()}


def update(adam: Adam, name: str, part: Part, gradient: Tensor, lr: float) -> None:
    """One part by itself."""
    adam.update_all({name: part}, {name: gradient}, lr)


class Both:
    """The table trained by rows in play, and a dense copy trained by torch."""

    def __init__(self, seed: int) -> None:
        self.table, self.dense = random_table(seed), random_table(seed).requires_grad_()
        self.mine, self.theirs = make(), torch.optim.Adam([self.dense])

    def reset(self) -> None:
        self.mine.reset()
        self.theirs = torch.optim.Adam([self.dense])

    def step(self, rows: set[int], lr: float, random: torch.Generator) -> None:
        order, gradient = drawn(rows, random)
        self.mine.begin_step()
        update(self.mine, "table", Part.of_rows(self.table, order), gradient, lr)
        self.dense.grad = torch.zeros_like(self.dense)
        self.dense.grad[order] = gradient
        self.theirs.param_groups[0]["lr"] = lr
        self.theirs.step()

    def check(self) -> None:
        torch.testing.assert_close(self.table, self.dense.detach(), rtol=0, atol=1e-13)


@given(schedule=schedules, seed=st.integers(0, 99), reset_at=st.integers(0, 12))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_rows_in_play_move_as_in_the_dense_table(schedule: Schedule, seed: int, reset_at: int) -> None:
    both, random = Both(seed), torch.Generator().manual_seed(seed)
    for number, (rows, lr) in enumerate(schedule):
        if number == reset_at:
            both.reset()
        both.step(rows, lr, random)
        both.check()


@given(schedule=schedules, seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_rows_never_in_play_do_not_move_at_all(schedule: Schedule, seed: int) -> None:
    both, random = Both(seed), torch.Generator().manual_seed(seed)
    for rows, lr in schedule:
        both.step(rows, lr, random)
    played = set().union(*(rows for rows, _ in schedule))
    in_play = both.mine.rows_in_play("table")
    assert in_play is not None
    assert set(in_play.tolist()) | {0} == played | {0}  # places not taken say row 0
    still = [row for row in range(ROWS) if row not in played]
    assert torch.equal(both.table[still], random_table(seed)[still])


@given(schedule=schedules, seed=st.integers(0, 99), cut=st.integers(0, 12))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_state_taken_midway_resumes_bit_for_bit(schedule: Schedule, seed: int, cut: int) -> None:
    both, random = Both(seed), torch.Generator().manual_seed(seed)
    for rows, lr in schedule[:cut]:
        both.step(rows, lr, random)
    state = State()
    twin = Adam(state)
    state.load(
        {f"adam/{name}": tensor for name, tensor in saved(both.mine).items()}, {"adam": {"step": both.mine.step}}, 0
    )
    table = both.table.clone()
    for rows, lr in schedule[cut:]:
        order, gradient = drawn(rows, random)
        for adam, home in ((both.mine, both.table), (twin, table)):
            adam.begin_step()
            update(adam, "table", Part.of_rows(home, order), gradient, lr)
    assert torch.equal(table, both.table)


def test_a_table_may_grow_between_steps() -> None:
    torch.manual_seed(0)
    small, large = random_table(0)[:2].clone(), random_table(0)
    mine, dense = make(), random_table(0).requires_grad_()
    theirs = torch.optim.Adam([dense], lr=0.01)
    for home, rows in ((small, [0, 1]), (large, [6, 0]), (large, [3])):
        gradient = torch.randn(len(rows), WIDTH, dtype=torch.float64)
        mine.begin_step()
        if home is large and rows == [6, 0]:
            large[:2] = small
        update(mine, "table", Part.of_rows(home, torch.tensor(rows)), gradient, 0.01)
        dense.grad = torch.zeros_like(dense)
        dense.grad[rows] = gradient
        theirs.step()
    torch.testing.assert_close(large, dense.detach(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4)], ids=str)
def test_a_whole_tensor_moves_as_by_torchs_adam(shape: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(1)
    home = torch.randn(shape, generator=random, dtype=torch.float64)
    dense, mine = home.clone().requires_grad_(), make()
    theirs = torch.optim.Adam([dense], lr=0.02)
    for _ in range(8):
        gradient = torch.randn(shape, generator=random, dtype=torch.float64)
        mine.begin_step()
        update(mine, "whole", Part.whole(home), gradient, 0.02)
        dense.grad = gradient.clone()
        theirs.step()
        torch.testing.assert_close(home, dense.detach(), rtol=0, atol=1e-13)


def test_parts_of_several_names_share_the_step_count_but_not_the_moments() -> None:
    mine = make()
    homes = {name: torch.zeros(2, dtype=torch.float64) for name in "ab"}
    mine.begin_step()
    update(mine, "a", Part.whole(homes["a"]), torch.ones(2, dtype=torch.float64), 0.1)
    mine.begin_step()
    update(mine, "b", Part.whole(homes["b"]), torch.ones(2, dtype=torch.float64), 0.1)
    torch.testing.assert_close(homes["a"], torch.full((2,), -0.1, dtype=torch.float64), rtol=1e-6, atol=0)
    # As torch would move a parameter whose first gradient was zero and whose second was one.
    dense = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    theirs = torch.optim.Adam([dense], lr=0.1)
    for gradient in (torch.zeros_like(dense), torch.ones_like(dense)):
        dense.grad = gradient.detach()
        theirs.step()
    torch.testing.assert_close(homes["b"], dense.detach(), rtol=0, atol=1e-13)


def test_a_reset_forgets_moments_steps_and_rows_in_play() -> None:
    table, adam = random_table(0), make()
    adam.begin_step()
    update(adam, "table", Part.of_rows(table, torch.tensor([1, 2])), torch.ones(2, WIDTH, dtype=torch.float64), 0.1)
    adam.reset()
    in_play = adam.rows_in_play("table")
    assert in_play is not None
    assert not in_play.any()
    assert (adam.step, saved(adam)) == (0, {})


def test_gradients_are_those_of_the_leaves_and_zero_where_the_loss_does_not_reach() -> None:
    home = random_table(3)
    parts = {
        "used": Part.of_rows(home, torch.tensor([4, 1])),
        "whole": Part.whole(home[0]),
        "unused": Part.of_rows(home, torch.tensor([5])),
    }
    loss = (parts["used"].leaf ** 2).sum() + 3 * parts["whole"].leaf.sum()
    found = part_gradients(loss, parts)
    torch.testing.assert_close(found["used"], 2 * home[[4, 1]])
    torch.testing.assert_close(found["whole"], torch.full((WIDTH,), 3.0, dtype=torch.float64))
    assert torch.equal(found["unused"], torch.zeros(1, WIDTH, dtype=torch.float64))


def test_a_leaf_is_a_copy_of_the_rows_and_leaves_the_table_without_gradients() -> None:
    table = random_table(4)
    part = Part.of_rows(table, torch.tensor([2, 0]))
    assert torch.equal(part.leaf.detach(), table[[2, 0]])
    assert part.leaf.requires_grad
    assert not table.requires_grad


def test_a_step_that_is_not_valid_moves_and_counts_nothing() -> None:
    table, whole, adam = random_table(0), random_table(1), make()
    parts = {"whole": Part.whole(whole), "rows": Part.of_rows(table, torch.tensor([1, 4]))}
    parts["fixed"] = Part.of_rows(table, torch.tensor([2, -1]), fixed=True)
    for valid in (True, False, True, False):
        before, tensors = [table.clone(), whole.clone()], saved(adam)
        adam.begin_step(torch.tensor(valid))
        for name, part in parts.items():
            update(adam, name, part, torch.full_like(part.leaf, 1.0 if valid else torch.nan), 0.1)
        same = torch.equal(before[0], table) and torch.equal(before[1], whole)
        assert same is not valid
        if not valid:
            assert all(torch.equal(tensor, tensors[name]) for name, tensor in saved(adam).items())
    assert adam.step == 2
    assert torch.equal(table[[0, 3, 5, 6]], random_table(0)[[0, 3, 5, 6]])


def test_an_empty_position_moves_no_row_even_at_an_endless_rate() -> None:
    table, adam = random_table(0), make()
    part = Part.of_rows(table, torch.tensor([3, -1]), fixed=True)
    adam.begin_step()
    update(adam, "table", part, torch.stack([torch.ones(WIDTH), torch.zeros(WIDTH)]).double(), torch.inf)
    assert torch.equal(table[[0, 1, 2, 4, 5, 6]], random_table(0)[[0, 1, 2, 4, 5, 6]])


def test_a_row_that_comes_twice_gets_the_sum_of_its_gradients() -> None:
    once, twice, gradients = random_table(0), random_table(0), random_table(5)[:3]
    one, two = make(), make()
    for step in range(3):
        one.begin_step(), two.begin_step()
        summed = torch.stack([gradients[0] + gradients[2], gradients[1]]) * (step + 1)
        update(one, "table", Part.of_rows(once, torch.tensor([4, 2])), summed, 0.01)
        update(two, "table", Part.of_rows(twice, torch.tensor([4, 2, 4])), gradients * (step + 1), 0.01)
    torch.testing.assert_close(once, twice, rtol=0, atol=1e-13)


def test_many_tensors_together_move_as_one_by_one() -> None:
    apart, together = ([torch.ones(3, 2), torch.zeros(4), torch.full((), 2.0)] for _ in range(2))
    one, all_at_once = make(), make()
    for step in range(4):
        gradients = [torch.sin(tensor + step) for tensor in apart]
        one.begin_step(), all_at_once.begin_step()
        for number, tensor in enumerate(apart):
            update(one, str(number), Part.whole(tensor), gradients[number], 0.1)
        all_at_once.update_together("all", [Part.whole(tensor) for tensor in together], gradients, 0.1)
        for left, right in zip(apart, together, strict=True):
            assert torch.equal(left, right)


def test_tensors_that_move_together_may_not_change() -> None:
    adam = make()
    adam.begin_step()
    adam.update_together("all", [Part.whole(torch.ones(3))], [torch.ones(3)], 0.1)
    with pytest.raises(ValueError, match="tensors that move together, 'all', must stay the same"):
        adam.update_together("all", [Part.whole(torch.ones(4))], [torch.ones(4)], 0.1)


def test_with_decay_and_beta2_whole_tensors_move_as_by_torchs_adamw() -> None:
    random = torch.Generator().manual_seed(2)
    shapes = {"a": (), "b": (4,), "c": (2, 3)}
    homes = {name: torch.randn(shape, generator=random, dtype=torch.float64) for name, shape in shapes.items()}
    dense = {name: home.clone().requires_grad_() for name, home in homes.items()}
    mine = make(decay=0.3, beta2=0.99)
    theirs = torch.optim.AdamW(dense.values(), lr=0.02, betas=(0.9, 0.99), weight_decay=0.3)
    for step in range(8):
        gradients = {n: torch.randn(shapes[n], generator=random, dtype=torch.float64) for n in homes}
        mine.begin_step(torch.tensor(True) if step % 2 else None)
        together = ["a", "c"]  # some end to end under one name, some by themselves, all the same
        mine.update_together("net", [Part.whole(homes[n]) for n in together], [gradients[n] for n in together], 0.02)
        update(mine, "b", Part.whole(homes["b"]), gradients["b"], 0.02)
        for name, parameter in dense.items():
            parameter.grad = gradients[name].clone()
        theirs.step()
        for name, home in homes.items():
            torch.testing.assert_close(home, dense[name].detach(), rtol=0, atol=1e-13)


def test_a_head_that_grows_has_moments_of_zero_for_its_new_rows() -> None:
    """As torch's AdamW would go on if its table had had those rows from the start, without gradient and decay."""
    random = torch.Generator().manual_seed(3)
    table = random_table(0)
    dense = table.clone().requires_grad_()
    mine, theirs = make(decay=0.2), torch.optim.AdamW([dense], lr=0.05, weight_decay=0.2)
    for rows in (2, 2, 5, 5, 7):
        gradient = torch.randn(rows, WIDTH, generator=random, dtype=torch.float64)
        mine.begin_step()
        update(mine, "head", Part.whole(table[:rows]), gradient, 0.05)
        dense.grad = torch.zeros_like(dense)
        dense.grad[:rows] = gradient
        theirs.step()
        with torch.no_grad():
            dense[rows:] = random_table(0)[rows:]  # decay must not have touched what was not there
        torch.testing.assert_close(table, dense.detach(), rtol=0, atol=1e-13)


def test_a_bad_step_does_not_even_decay() -> None:
    homes = [random_table(0), random_table(1)]
    adam = make(decay=0.5, beta2=0.99)
    for valid in (True, False):
        before = [home.clone() for home in homes], saved(adam)
        adam.begin_step(torch.tensor(valid))
        bad = torch.full_like(homes[0], 1.0 if valid else torch.nan)
        adam.update_together("net", [Part.whole(homes[0])], [bad], 0.1)
        update(adam, "head", Part.whole(homes[1]), bad, 0.1)
        same = [torch.equal(now, then) for now, then in zip(homes, before[0], strict=True)]
        assert same == [not valid] * 2
    assert adam.step == 1
    assert all(torch.equal(tensor, before[1][name]) for name, tensor in saved(adam).items())


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_the_layout_changes_when_moments_move_and_only_then(optimiser: str) -> None:
    """A captured step writes to the buffers it was captured with."""
    state, table = State(), random_table(0)
    adam, sgd = Adam(state), SGD(state)

    def step(rows: int) -> None:
        part = Part.whole(table[:rows])
        if optimiser == "sgd":
            sgd.update("w", part, torch.ones_like(part.leaf), 0.1)
        else:
            adam.begin_step()
            update(adam, "w", part, torch.ones_like(part.leaf), 0.1)

    empty = state.layout()
    step(4)
    first = state.layout()
    step(4)
    assert state.layout() == first != empty
    step(ROWS)
    assert state.layout() != first

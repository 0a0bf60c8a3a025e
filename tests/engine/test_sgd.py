"""Momentum over whole tensors and over rows of growing tables, against torch's own SGD."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.engine.adam import Part
from prol.engine.sgd import SGD
from prol.state import State
from prol.tables import Table

ROWS, WIDTH = 6, 3


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_whole_tensors_move_as_under_torchs_sgd(decay: float) -> None:
    home, theirs = drawn(4, WIDTH), drawn(4, WIDTH).requires_grad_()
    mine, optimiser = SGD(State()), torch.optim.SGD([theirs], lr=0.1, momentum=0.9, weight_decay=decay)
    for step in range(6):
        gradient = drawn(4, WIDTH, seed=step + 1)
        theirs.grad = gradient.clone()
        optimiser.step()
        mine.update("w", Part.whole(home), gradient, 0.1, decay)
        torch.testing.assert_close(home, theirs.detach(), rtol=0, atol=1e-13)


@given(chunks=st.lists(st.sets(st.integers(0, ROWS - 1), max_size=4), min_size=1, max_size=8), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_rows_move_as_in_the_dense_table_and_others_not_at_all(chunks: list[set[int]], seed: int) -> None:
    home, theirs = drawn(ROWS, WIDTH, seed=seed), drawn(ROWS, WIDTH, seed=seed).requires_grad_()
    mine, optimiser = SGD(State()), torch.optim.SGD([theirs], lr=0.1, momentum=0.9)
    for step, rows in enumerate(chunks):
        order = torch.tensor(sorted(rows), dtype=torch.long)
        gradient = drawn(len(rows), WIDTH, seed=step + 100)
        theirs.grad = torch.zeros_like(theirs)
        theirs.grad[order] = gradient
        optimiser.step()
        mine.update("table", Part.of_rows(home, order), gradient, 0.1)
        torch.testing.assert_close(home, theirs.detach(), rtol=0, atol=1e-13)
    still = sorted(set(range(ROWS)) - set().union(*chunks))
    assert torch.equal(home[still], drawn(ROWS, WIDTH, seed=seed)[still])


def test_a_table_may_grow_between_steps() -> None:
    table, sgd = Table((WIDTH,), torch.device("cpu"), torch.float64), SGD(State())
    table.append(torch.ones(2, WIDTH))
    sgd.update("table", Part.of_rows(table.rows, torch.tensor([0, 1])), torch.ones(2, WIDTH, dtype=torch.float64), 0.1)
    table.append(torch.ones(3, WIDTH))
    sgd.update("table", Part.of_rows(table.rows, torch.tensor([1, 4])), torch.ones(2, WIDTH, dtype=torch.float64), 0.1)
    expected = torch.tensor([1 - 0.1 - 0.09, 1 - 0.1 - 0.19, 1, 1, 1 - 0.1], dtype=torch.float64)
    torch.testing.assert_close(table.rows, expected.unsqueeze(1).expand(-1, WIDTH))


def test_a_state_goes_on_like_the_one_saved_and_a_reset_forgets() -> None:
    home, state, copy = drawn(4, WIDTH), State(), State()
    sgd, other = SGD(state), SGD(copy)
    sgd.update("w", Part.whole(home), drawn(4, WIDTH, seed=1), 0.1)
    twin = home.clone()
    copy.load({name: tensor.clone() for name, tensor in state.saved_tensors().items()}, {}, 0)
    for tensor, one in ((home, sgd), (twin, other)):
        one.update("w", Part.whole(tensor), drawn(4, WIDTH, seed=2), 0.1)
    assert torch.equal(home, twin)
    sgd.reset()
    assert state.saved_tensors() == {}


@pytest.mark.parametrize("rows", [None, [0, 2]], ids=["whole", "rows"])
def test_a_step_that_is_not_valid_moves_nothing(rows: list[int] | None) -> None:
    def part(home: Tensor) -> Part:
        return Part.whole(home) if rows is None else Part.of_rows(home, torch.tensor(rows))

    homes, states = (drawn(4, WIDTH), drawn(4, WIDTH)), (State(), State())
    sgds = [SGD(state) for state in states]
    gradient = drawn(4 if rows is None else 2, WIDTH, seed=1)
    bad = torch.full_like(gradient, torch.nan)
    for _ in range(3):
        sgds[0].update("w", part(homes[0]), bad, 0.1, 0.05, torch.tensor(False))
        sgds[0].update("w", part(homes[0]), gradient, 0.1, 0.05, torch.tensor(True))
        sgds[1].update("w", part(homes[1]), gradient, 0.1, 0.05)
    sgds[0].update("w", part(homes[0]), bad, 0.1, 0.05, torch.tensor(False))
    assert torch.equal(*homes)
    assert torch.equal(*(state.saved_tensors()["sgd/w"] for state in states))


def test_velocities_stay_where_they_are_until_they_grow_or_are_loaded() -> None:
    home, state = drawn(4, WIDTH), State()
    sgd = SGD(state)
    sgd.update("w", Part.whole(home), drawn(4, WIDTH, seed=1), 0.1)
    place, moves = state.saved_tensors()["sgd/w"].data_ptr(), sgd.moves
    sgd.reset()
    sgd.update("w", Part.whole(home), drawn(4, WIDTH, seed=2), 0.1)
    assert state.saved_tensors()["sgd/w"].data_ptr() == place
    assert sgd.moves == moves
    assert torch.equal(state.saved_tensors()["sgd/w"], drawn(4, WIDTH, seed=2))
    sgd.update("w", Part.whole(drawn(6, WIDTH)), drawn(6, WIDTH), 0.1)
    assert sgd.moves == moves + 1
    state.load(state.saved_tensors(), {}, 0)
    assert sgd.moves == moves + 2

"""Class means by running sums, and means made up in feature spaces that came after the class."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.engine.similarity import classmates
from prol.methods.adapters.class_statistics import Prototypes
from prol.methods.adapters.ease import complete
from prol.state import State

WIDTH = 4


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_sums_are_those_of_each_class() -> None:
    features, rows = drawn(5, WIDTH), torch.tensor([3, 1, 3, 3, 0])
    mates, first = classmates(rows)
    assert first.tolist() == [True, True, False, False, True]
    assert mates.sum(1).tolist() == [3, 1, 3, 3, 1]
    thrice = features[[0, 2, 3]].sum(0)
    torch.testing.assert_close(mates @ features, torch.stack([thrice, features[1], thrice, thrice, features[4]]))


@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=20), cuts=st.sets(st.integers(1, 19), max_size=5))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_means_are_the_same_for_any_chunking(labels: list[int], cuts: set[int]) -> None:
    features, rows = drawn(len(labels), WIDTH, seed=len(labels)), torch.tensor(labels)
    state = State()
    prototypes = Prototypes(state, WIDTH)
    state.add_classes(3)
    state.add_classes(2)
    ends = [0, *sorted(cut for cut in cuts if cut < len(labels)), len(labels)]
    for first, end in pairwise(ends):
        prototypes.add(features[first:end], rows[first:end])
    for row in range(5):
        own = features[rows == row]
        assert bool(prototypes.measured()[row]) == bool(len(own))
        expected = own.mean(0) if len(own) else torch.zeros(WIDTH).double()
        torch.testing.assert_close(prototypes.means()[row], expected)


def test_nothing_is_taken_from_a_step_that_is_not_valid() -> None:
    state, rows = State(), torch.tensor([2, 0, 2])
    prototypes = Prototypes(state, WIDTH)
    state.add_classes(3)
    prototypes.add(drawn(3, WIDTH), rows)
    before = {name: tensor.clone() for name, tensor in state.saved_tensors().items()}
    prototypes.add(torch.full((3, WIDTH), torch.nan), rows, torch.tensor(False))
    assert all(torch.equal(tensor, before[name]) for name, tensor in state.saved_tensors().items())
    prototypes.add(drawn(3, WIDTH), rows, torch.tensor(True))
    assert all(torch.equal(tensor, 2 * before[name]) for name, tensor in state.saved_tensors().items())


def test_a_missing_mean_is_the_mean_of_alike_classes_there() -> None:
    # Spaces 0 and 1; class 0 belongs to space 0 and was never seen in space 1, classes 1 and 2 belong to space 1.
    means = torch.zeros(2, 3, 2, dtype=torch.float64)
    means[0] = torch.tensor([[2.0, 0.0], [3.0, 0.0], [0.0, 5.0]])
    means[1, 1:] = torch.tensor([[1.0, 1.0], [4.0, -2.0]])
    measured, own = torch.tensor([[True, True, True], [False, True, True]]), torch.tensor([0, 1, 1])
    found = complete(means, measured, own)
    alike = math.e / (math.e + 1)  # cosines 1 and 0 through a softmax
    torch.testing.assert_close(found[1, 0], alike * means[1, 1] + (1 - alike) * means[1, 2])
    assert torch.equal(found[0], means[0])
    assert torch.equal(found[1, 1:], means[1, 1:])


def test_likeness_is_judged_in_the_classs_own_space() -> None:
    means, own = drawn(3, 5, WIDTH), torch.tensor([0, 1, 1, 2, 2])
    measured = torch.tensor([[True] * 5, [False, True, True, True, True], [False, False, False, True, True]])
    found = complete(means, measured, own)
    for space, row in ((1, 0), (2, 0), (2, 1), (2, 2)):
        others = measured[space].nonzero().squeeze(1)
        home = own[row]
        weights = torch.softmax(torch.cosine_similarity(means[home, row].unsqueeze(0), means[home, others]), 0)
        torch.testing.assert_close(found[space, row], weights @ means[space, others])


def test_what_came_again_is_measured_and_an_empty_space_or_class_is_left_alone() -> None:
    means, own = drawn(3, 3, WIDTH), torch.tensor([0, 1, 1])
    measured = torch.tensor([[True, True, False], [True, True, False], [False, False, False]])
    assert torch.equal(complete(means, measured, own), means)

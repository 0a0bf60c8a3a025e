"""Class covariances against plain outer products, and their terms against torch's Gaussians."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal

from largest import Largest, homes
from methods.prol_plus.small_prol_plus import expected_gains
from prol.methods.prol_plus import class_covariances
from prol.methods.prol_plus.class_covariances import (
    DOUBT,
    FLOOR,
    NUMBERS_AT_ONCE,
    ROUNDING,
    SAMPLES_AT_ONCE,
    ClassCovariances,
    classes_at_once,
    packed_length,
    unpacked_products,
    widest,
)
from prol.state import State

WIDTH, CLASSES, COUNT = 4, 3, 40
PLENTY = 10**9


def samples(count: int = COUNT, width: int = WIDTH, classes: int = CLASSES, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Each class has a mean and a covariance of its own."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.randint(classes, (count,), generator=random)
    means = torch.randn(classes, width, generator=random, dtype=torch.float64)
    mixes = torch.randn(classes, width, width, generator=random, dtype=torch.float64)
    noise = torch.randn(count, width, generator=random, dtype=torch.float64)
    return means[rows] + torch.einsum("bij,bj->bi", mixes[rows], noise), rows


U, ROWS = samples()


def make(
    width: int = WIDTH, room: int = PLENTY, classes: int = CLASSES, dtype: torch.dtype = torch.float64
) -> ClassCovariances:
    state = State()
    own = ClassCovariances(state, width, room, dtype)
    state.add_classes(classes)
    return own


def taught(u: Tensor = U, rows: Tensor = ROWS, classes: int = CLASSES) -> ClassCovariances:
    own = make(u.shape[1], classes=classes)
    own.add(u, rows)
    return own


def outer_products(u: Tensor, rows: Tensor, classes: int = CLASSES) -> Tensor:
    """`[C, 1 + K, 1 + K]`, a sample at a time."""
    total = torch.zeros(classes, u.shape[1] + 1, u.shape[1] + 1, dtype=torch.float64)
    for sample, row in zip(u, rows.tolist(), strict=True):
        extended = torch.cat([torch.ones(1).double(), sample])
        total[row] += extended.outer(extended)
    return total


@given(cuts=st.sets(st.integers(1, COUNT - 1), max_size=9), order=st.permutations(range(COUNT)))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_rows_are_outer_products_whatever_the_chunks_and_their_order(cuts: set[int], order: list[int]) -> None:
    own = make()
    for start, end in pairwise([0, *sorted(cuts), COUNT]):
        own.add(U[order[start:end]], ROWS[order[start:end]])
    torch.testing.assert_close(unpacked_products(own.table.rows, WIDTH), outer_products(U, ROWS))


def test_a_row_has_the_products_of_the_first_coordinates_first() -> None:
    whole = taught().table.rows
    for width in range(1, WIDTH):
        torch.testing.assert_close(whole[:, : packed_length(width)], taught(U[:, :width]).table.rows)


@given(st.integers(-5, 2000))
@settings(derandomize=True)
def test_the_widest_that_fits_is_followed_by_one_that_does_not(numbers: int) -> None:
    width = widest(numbers)
    assert width == 0 or packed_length(width) <= numbers
    assert packed_length(width + 1) > numbers
    assert packed_length(width) == sum(range(1, width + 2))


@given(room=st.integers(0, 8 * 12 * packed_length(WIDTH)), later=st.integers(0, 9))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_when_classes_take_too_much_room_the_last_directions_were_never_there(room: int, later: int) -> None:
    half, classes = COUNT // 2, CLASSES + later
    own = make(room=room, classes=CLASSES)
    before = own.width
    own.add(U[:half], ROWS[:half])
    own._state.add_classes(later)
    own.add(U[half:], ROWS[half:])
    fitting = [width for width in range(1, WIDTH + 1) if 8 * classes * packed_length(width) <= room]
    assert own.width == (max(fitting) if fitting else 1) <= before
    narrow = taught(U[:, : own.width], classes=classes)
    torch.testing.assert_close(own.table.rows, narrow.table.rows)
    if own.width > 1:
        assert 8 * own.table.rows.numel() <= room
    scores, expected = torch.zeros(2, COUNT, classes)
    own.terms(5.0, 0.1).add_to(scores, U)
    narrow.terms(5.0, 0.1).add_to(expected, U[:, : own.width])
    torch.testing.assert_close(scores, expected)


def test_rows_can_be_taken_over_by_one_of_another_width() -> None:
    one, other = make(), make(room=PLENTY, width=WIDTH + 3, classes=1)
    one.add(U[:25], ROWS[:25])
    other._state.load(one._state.saved_tensors(), {}, CLASSES)
    assert other.width == WIDTH
    for own in (one, other):
        own.add(U[25:], ROWS[25:])
        own._state.add_classes(2)
    assert torch.equal(one.table.rows, other.table.rows)


def covariances(u: Tensor, rows: Tensor, trust: float, floor: float, classes: int) -> tuple[Tensor, list[Tensor]]:
    """The shared covariance P, and each class's own A, with divisions by n."""
    scatters, counts = [], []
    for row in range(classes):
        apart = u[rows == row] - u[rows == row].mean(0) if bool((rows == row).any()) else u[:0]
        scatters.append(apart.T @ apart)
        counts.append(len(apart))
    pooled = torch.stack(scatters).sum(0) / sum(counts)
    least = floor * pooled.diagonal().mean() + ROUNDING * u.square().mean()
    pooled = pooled + least * torch.eye(u.shape[1]).double()
    shares = [count / (count + trust * u.shape[1]) * count / (count + DOUBT) for count in counts]
    return pooled, [
        share * scatter / max(count, 1) + (1 - share) * pooled
        for share, scatter, count in zip(shares, scatters, counts, strict=True)
    ]


def expected_terms(u: Tensor, rows: Tensor, probes: Tensor, trust: float, floor: float, classes: int) -> Tensor:
    pooled, own = covariances(u, rows, trust, floor, classes)
    terms = torch.zeros(len(probes), classes, dtype=torch.float64)
    for row in range(classes):
        if int((rows == row).sum()) > 1:
            mean = u[rows == row].mean(0)
            gaussians = MultivariateNormal(mean, own[row]), MultivariateNormal(mean, pooled)
            terms[:, row] = gaussians[0].log_prob(probes) - gaussians[1].log_prob(probes)
    counts = torch.bincount(rows, minlength=classes).tolist()
    some = [row for row in range(classes) if counts[row] > 1]
    shares = [counts[row] / (counts[row] + trust * u.shape[1]) * counts[row] / (counts[row] + DOUBT) for row in some]
    gains = expected_gains([own[row] for row in some], pooled, shares, [counts[row] for row in some])
    terms[:, some] -= torch.tensor(gains).double()
    return terms


@pytest.mark.parametrize("trust", [1e-6, 2.0, 50.0])
@pytest.mark.parametrize("floor", [FLOOR, 0.3])
def test_terms_are_differences_of_two_gaussians_less_what_is_expected_of_them(trust: float, floor: float) -> None:
    probes, scores = samples(17, seed=1)[0], torch.full((17, CLASSES), 3.0)
    taught().terms(trust, floor).add_to(scores, probes)
    expected = expected_terms(U, ROWS, probes, trust, floor, CLASSES)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(scores.double(), 3 + expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("count", "share"), [(2, 2 / 152), (50, 0.25), (150, 0.5), (1350, 0.9)])
@pytest.mark.parametrize("trust", [1e-9, 25.0])
def test_what_a_covariance_weighs_is_halved_for_a_class_of_150_samples(count: int, share: float, trust: float) -> None:
    """Copies have a covariance of nothing, so what is left is the shared one's part."""
    u = torch.cat([U, U[:1].expand(count, -1)])
    terms = taught(u, torch.cat([ROWS, torch.full((count,), CLASSES)]), CLASSES + 1).terms(trust, 0.1)
    expected = 1 - share * count / (count + trust * WIDTH)
    torch.testing.assert_close(terms.inverses[-1], torch.eye(WIDTH) * expected**-0.5, rtol=1e-5, atol=1e-5)


def test_a_floor_of_nothing_is_a_little() -> None:
    with_none, with_little = (taught().terms(2.0, floor) for floor in (0.0, FLOOR))
    assert torch.equal(with_none.inverses, with_little.inverses)


@given(numbers=st.integers(1, 10**6), width=st.integers(0, 300))
@settings(derandomize=True)
def test_as_many_classes_are_worked_on_at_once_as_numbers_allow_and_at_least_one(numbers: int, width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_covariances, "NUMBERS_AT_ONCE", numbers)
        found = classes_at_once(width)
    assert found >= 1
    assert found == 1 or found * width * width <= numbers
    assert (found + 1) * max(1, width) ** 2 > numbers


MANY = 71
"""Classes; some of them have no sample, some one, and most a covariance of their own."""


@pytest.mark.parametrize("numbers", [1, 3 * WIDTH**2, 70 * WIDTH**2, NUMBERS_AT_ONCE], ids="{} at once".format)
@pytest.mark.parametrize("probed", [1, 2, 9])
def test_many_classes_are_as_if_each_were_alone(monkeypatch: pytest.MonkeyPatch, numbers: int, probed: int) -> None:
    """However many of them are worked on at once: one, three, all but one, all."""
    u, rows = samples(3 * MANY, classes=MANY)
    counts = torch.bincount(rows, minlength=MANY)
    assert [(counts == few).any() for few in (0, 1, 2)] == [True, True, True]
    probes = samples(probed, seed=1)[0]
    monkeypatch.setattr(class_covariances, "NUMBERS_AT_ONCE", numbers)
    terms, scores = taught(u, rows, MANY).terms(5.0, 0.1), torch.zeros(probed, MANY)
    terms.add_to(scores, probes)
    assert terms.classes.tolist() == (counts > 1).nonzero().flatten().tolist()
    expected = expected_terms(u, rows, probes, 5.0, 0.1, MANY)
    torch.testing.assert_close(scores.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("probed", [1, 50])
def test_what_solving_and_scoring_take_does_not_grow_with_the_classes(
    monkeypatch: pytest.MonkeyPatch, probed: int
) -> None:
    """But for what is kept: neither where there are more directions than probes, nor the other way round."""
    u, rows = samples(30 * MANY, classes=10 * MANY)
    own, probes = taught(u, rows, 10 * MANY), samples(probed, seed=1)[0].float()
    monkeypatch.setattr(class_covariances, "NUMBERS_AT_ONCE", 4 * WIDTH**2)
    with Largest(homes([own.table.buffer])) as largest:
        terms = own.terms(5.0, 0.1)
    assert largest.numbers == terms.inverses.numel() > 5 * MANY * WIDTH**2
    room, scores = 4 * max(WIDTH, probed) ** 2, torch.zeros(probed, 10 * MANY)
    monkeypatch.setattr(class_covariances, "NUMBERS_AT_ONCE", room)
    with Largest(homes([scores, *vars(terms).values()])) as largest:
        terms.add_to(scores, probes)
    assert 0 < largest.numbers <= room


def test_by_the_chain_rule_a_score_becomes_that_of_a_gaussian_with_another_block() -> None:
    """The rest r of a feature (u, r), given u, is N(c + B u, D) for every class, before and after."""
    random = torch.Generator().manual_seed(3)
    slope, conditional = torch.randn(2, WIDTH, generator=random).double(), torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    pooled, own = covariances(U, ROWS, trust=2.0, floor=0.2, classes=CLASSES)

    def joint(block: Tensor) -> Tensor:
        rest = slope @ block @ slope.T + conditional
        return torch.cat([torch.cat([block, block @ slope.T], 1), torch.cat([slope @ block, rest], 1)])

    features = torch.randn(11, WIDTH + 2, generator=random).double()
    in_u = [U[row == ROWS].mean(0) for row in range(CLASSES)]
    means = [torch.cat([mean, torch.randn(2, generator=random).double()]) for mean in in_u]
    scores = torch.stack([MultivariateNormal(mean, joint(pooled)).log_prob(features) for mean in means], 1)
    expected = [MultivariateNormal(m, joint(a)).log_prob(features) for m, a in zip(means, own, strict=True)]
    terms = taught().terms(2.0, 0.2)
    volumes = torch.stack([(torch.linalg.slogdet(a)[1] - torch.linalg.slogdet(pooled)[1]) / 2 for a in own])
    terms.add_to(scores, features[:, :WIDTH])
    scores += terms.offsets - volumes  # but for what is expected of a class, the densities themselves
    torch.testing.assert_close(scores, torch.stack(expected, 1), rtol=1e-4, atol=1e-4)


def imbalanced(seed: int) -> tuple[float, float]:
    """How often rare classes are found, with what is expected of a class taken off and without."""
    random, width, counts = torch.Generator().manual_seed(seed), 20, [2000] * 4 + [3] * 4
    centres = torch.randn(8, width, generator=random).double()
    mixing = torch.eye(width).double() + 0.5 * torch.randn(8, width, width, generator=random).double()

    def drawn(numbers: list[int]) -> tuple[Tensor, Tensor]:
        rows = torch.repeat_interleave(torch.arange(8), torch.tensor(numbers))
        noise = torch.randn(len(rows), width, generator=random).double()
        return centres[rows] + torch.einsum("bk,bkj->bj", noise, mixing[rows]), rows

    own = taught(*drawn(counts), 8)
    probes, rows = drawn([0] * 4 + [200] * 4)
    terms = own.terms(2.0, 0.01)
    pooled = torch.linalg.inv(terms.whiten.double().T @ terms.whiten.double())
    scores = torch.stack([MultivariateNormal(centre, pooled).log_prob(probes) for centre in centres], 1)
    without = replace(terms, offsets=-terms.inverses.diagonal(dim1=1, dim2=2).log().sum(1))
    found = []
    for some in (terms, without):
        raised = scores.clone()
        some.add_to(raised, probes)
        found.append(float((raised.argmax(1) == rows).double().mean()))
    return found[0], found[1]


def test_a_class_is_not_predicted_for_being_known_well() -> None:
    """Rare classes cannot know their covariance; against those that do they would be at a disadvantage."""
    pairs = [imbalanced(seed) for seed in range(8)]
    assert all(less > without for less, without in pairs)
    assert sum(less - without for less, without in pairs) / len(pairs) > 0.02


def test_classes_that_spread_alike_may_expect_nothing() -> None:
    u = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0)).double()
    terms = taught(u, torch.arange(4000) % 4, 4).terms(2.0, 0.01)
    volumes = -terms.inverses.diagonal(dim1=1, dim2=2).log().sum(1)
    torch.testing.assert_close(terms.offsets, volumes, rtol=0, atol=0.02)


def test_coordinates_that_are_not_stored_are_not_looked_at() -> None:
    probes = samples(5, seed=1)[0]
    wide, own, scores = torch.cat([U, U.flip(1)], 1), make(), torch.zeros(2, 5, CLASSES)
    own.add(wide, ROWS)
    assert torch.equal(own.table.rows, taught().table.rows)
    own.terms(2.0, 0.1).add_to(scores[0], probes)
    own.terms(2.0, 0.1).add_to(scores[1], torch.cat([probes, probes], 1))
    assert torch.equal(scores[0], scores[1])


def test_classes_with_less_than_two_samples_have_no_term_and_the_impossible_stays_so() -> None:
    own = make(classes=6)
    own.add(torch.cat([U, U[:1]]), torch.cat([ROWS, torch.tensor([4])]))
    scores = torch.zeros(5, 6).index_fill(1, torch.tensor([1, 3]), -torch.inf)
    own.terms(2.0, 0.1).add_to(scores, U[:5])
    assert not scores[:, [4, 5]].any()
    assert (scores[:, [1, 3]] == -torch.inf).all()
    assert scores[:, [0, 2]].abs().min() > 0


def test_much_trust_in_what_is_shared_leaves_nothing_of_ones_own() -> None:
    scores = torch.zeros(COUNT, CLASSES)
    taught().terms(1e12, 0.1).add_to(scores, U)
    assert scores.abs().max() < 1e-4


def test_no_classes_may_be_added() -> None:
    assert make(4, room=10_000, classes=0).width == 4


@pytest.mark.parametrize("spread", [0.0, 1e-4, 1e-3])
@pytest.mark.parametrize("floor", [FLOOR, 0.1])
def test_classes_of_near_copies_have_finite_terms(spread: float, floor: float) -> None:
    means, rows = 3 * samples(CLASSES, seed=5)[0], torch.arange(60) % CLASSES
    table = make(means.shape[1], dtype=torch.float32)
    table.add((means[rows] + spread * samples(60, seed=6)[0]).float(), rows)
    scores = torch.zeros(CLASSES, CLASSES)
    table.terms(2.0, floor).add_to(scores, means)
    assert scores.isfinite().all()


def test_large_chunks_are_as_many_small_ones() -> None:
    u, rows = samples(3 * SAMPLES_AT_ONCE + 5)
    whole, bits = make(u.shape[1]), make(u.shape[1])
    whole.add(u, rows)
    for start in range(0, len(u), 7):
        bits.add(u[start : start + 7], rows[start : start + 7])
    torch.testing.assert_close(whole.table.rows, bits.table.rows)

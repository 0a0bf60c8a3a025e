"""Scores from 0 to 1 out of familiarity that has no scale: calibrated, followed as it moves, bounded, kept exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.novelty import BINS, ENOUGH, HALF_LIFE, Novelty, together

FINITE = st.floats(-(2.0**100), 2.0**100, width=32)
MANY = st.lists(FINITE, min_size=ENOUGH, max_size=300)
PROPERTY = settings(max_examples=50, deadline=None, derandomize=True)


def observed(values: Tensor | list[float]) -> Novelty:
    novelty, familiarity = Novelty(), torch.as_tensor(values)
    novelty.observe(familiarity, torch.ones(len(familiarity), dtype=torch.bool))
    return novelty


def scores(novelty: Novelty, values: Tensor | list[float]) -> Tensor:
    found = novelty.unknown(torch.as_tensor(values))
    assert found is not None
    return found


def drawn(count: int, seed: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


@PROPERTY
@given(seen=MANY, asked=st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_scores_lie_between_0_and_1_and_fall_with_familiarity(seen: list[float], asked: list[float]) -> None:
    ordered = torch.tensor(asked).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf).sort().values
    found = scores(observed(seen), ordered)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found.diff() <= 0).all()


@PROPERTY
@given(seen=MANY)
def test_what_is_as_familiar_as_the_most_familiar_is_not_unknown_at_all(seen: list[float]) -> None:
    assert scores(observed(seen), [max(seen)]).item() == pytest.approx(0, abs=1e-6)


@PROPERTY
@given(seen=st.lists(FINITE, min_size=ENOUGH, max_size=120))
def test_it_is_the_conformal_p_value_of_weighted_observations(seen: list[float]) -> None:
    values = torch.tensor(seen).double()
    weights = torch.exp2(-torch.arange(len(values) - 1, -1, -1).double() / HALF_LIFE)
    at_most = (weights * (values <= values.unsqueeze(1))).sum(1)
    expected = 1 - (1 + at_most) / (1 + weights.sum())
    torch.testing.assert_close(scores(observed(seen), values.float()), expected.float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "shape",
    [lambda x: x, torch.exp, lambda x: 1e6 * x - 3, lambda x: x.round()],
    ids=["as they are", "skew", "large", "with ties"],
)
def test_of_known_images_as_many_score_high_as_should(seed: int, shape: Any) -> None:
    novelty = observed(shape(drawn(3000, seed)))
    found = scores(novelty, shape(drawn(20_000, seed + 100)))
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):
        # Of some 720 observations that count, a share is known to about this.
        doubt = 4 * (level * (1 - level) * 2 / HALF_LIFE) ** 0.5 + 1 / BINS
        share = (found > level).double().mean().item()
        assert share < 1 - level + doubt
        if shape(torch.tensor(0.3)) != 0:  # not where many are equal
            assert share > 1 - level - doubt


def test_on_average_over_many_streams_one_in_twenty_scores_above_95_percent() -> None:
    shares = [(scores(observed(drawn(200, s)), drawn(2000, s + 1000)) > 0.95).double().mean() for s in range(60)]
    assert 0.035 < float(torch.stack(shares).mean()) <= 0.052


@pytest.mark.parametrize(("scale", "shift"), [(100.0, 0.0), (0.01, 0.0), (1.0, 500.0), (1.0, -500.0), (-3.0, 7.0)])
def test_a_scale_that_changes_is_followed(scale: float, shift: float) -> None:
    novelty = observed(drawn(2000, 0))
    novelty.observe(scale * drawn(8 * HALF_LIFE, 1) + shift, torch.ones(8 * HALF_LIFE, dtype=torch.bool))
    found = scores(novelty, scale * drawn(5000, 2) + shift)
    assert (found > 0.95).double().mean().item() == pytest.approx(0.05, abs=0.03)
    assert (found > 0.5).double().mean().item() == pytest.approx(0.5, abs=0.08)


def test_only_known_images_count_and_nothing_is_said_before_enough_of_them() -> None:
    novelty, known = Novelty(), torch.arange(2 * ENOUGH - 2) % 2 == 0
    novelty.observe(torch.where(known, 1.0, -100.0), known)
    assert novelty.observed == ENOUGH - 1
    assert novelty.unknown(torch.zeros(3)) is None
    novelty.observe(torch.tensor([1.0]), torch.tensor([True]))
    assert scores(novelty, [1.0, 0.5]).tolist() == pytest.approx([0.0, 0.98], abs=0.005)
    assert scores(novelty, []).shape == (0,)


def test_values_that_are_no_numbers_are_not_observed_and_are_like_nothing() -> None:
    bad = torch.tensor([torch.nan, torch.inf, -torch.inf])
    novelty = observed(drawn(100, 0))
    before = novelty.state()
    novelty.observe(bad, torch.ones(3, dtype=torch.bool))
    assert novelty.state() == before
    lowest, best = scores(novelty, [-1e9, 1e9]).tolist()
    assert scores(novelty, bad).tolist() == [lowest, best, lowest]


@pytest.mark.parametrize(("familiarity", "known"), [((3,), (2,)), ((2, 1), (2, 1)), ((), ())])
def test_shapes_that_do_not_fit_are_refused(familiarity: tuple[int, ...], known: tuple[int, ...]) -> None:
    novelty = Novelty()
    with pytest.raises(ValueError, match="one value per image"):
        novelty.observe(torch.zeros(familiarity), torch.ones(known, dtype=torch.bool))
    assert novelty.observed == 0


@PROPERTY
@given(chunks=st.lists(st.lists(FINITE, max_size=700), max_size=6), later=MANY)
def test_a_state_goes_through_json_and_resumes_bit_for_bit(chunks: list[list[float]], later: list[float]) -> None:
    novelty = Novelty()
    for chunk in chunks:
        novelty.observe(torch.tensor(chunk), torch.ones(len(chunk), dtype=torch.bool))
    twin = Novelty.from_state(json.loads(json.dumps(novelty.state())))
    assert twin.state() == novelty.state()
    for one in (novelty, twin):
        one.observe(torch.tensor(later), torch.ones(len(later), dtype=torch.bool))
    assert twin.state() == novelty.state()
    assert torch.equal(scores(twin, later), scores(novelty, later))


def test_its_size_does_not_grow_with_the_stream() -> None:
    novelty = Novelty()
    for step in range(60):
        count = 1 + 37 * step
        novelty.observe(drawn(count, step) * 10.0 ** (step - 30), torch.ones(count, dtype=torch.bool))
        assert len(novelty.values) == len(novelty.weights) <= 2 * BINS
    assert len(json.dumps(novelty.state())) < 50 * 2 * BINS
    assert float(novelty.weights.sum()) < 1.5 * HALF_LIFE


def test_equal_values_stay_equal_when_they_are_put_together() -> None:
    values, _ = together(torch.full((600,), 0.1).double(), torch.rand(600).double() + 0.1, BINS)
    assert len(values) <= BINS
    assert (values == torch.tensor(0.1).double()).all()
    novelty = observed(torch.full((5000,), 0.1))
    assert scores(novelty, [0.1]).item() == pytest.approx(0, abs=1e-6)
    assert scores(novelty, [0.0999]).item() > 0.99


@PROPERTY
@given(values=st.lists(FINITE, min_size=1, max_size=400), lumps=st.integers(1, 50))
def test_putting_together_keeps_weight_order_and_mean(values: list[float], lumps: int) -> None:
    ordered = torch.tensor(values).double().sort().values
    weights = torch.rand(len(ordered), generator=torch.Generator().manual_seed(1)).double() + 0.01
    fewer, heavier = together(ordered, weights, lumps)
    assert len(fewer) <= lumps
    assert (fewer.diff() >= 0).all()
    torch.testing.assert_close(heavier.sum(), weights.sum())
    size = float(ordered.abs().max()) + 1e-300
    torch.testing.assert_close((heavier * fewer / size).sum(), (weights * ordered / size).sum())


GOOD = {"observed": 3, "values": [0.0, 1.0], "weights": [1.0, 1.0]}


@pytest.mark.parametrize(
    "change",
    [
        {"values": [1.0, 0.0]},
        {"values": [0.0]},
        {"weights": [1.0, -1.0]},
        {"weights": [1.0, float("nan")]},
        {"values": [0.0, float("inf")]},
        {"values": [[0.0], [1.0]]},
        {"values": "text"},
        {"values": None},
        {"observed": 1},
        {"observed": "many"},
        {"values": [], "weights": []},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused(change: dict[str, Any]) -> None:
    assert Novelty.from_state(GOOD).observed == 3
    with pytest.raises(ValueError, match=r"Novelty\(\)"):
        Novelty.from_state(GOOD | change)
    with pytest.raises(ValueError, match=r"Novelty\(\)"):
        Novelty.from_state({name: value for name, value in GOOD.items() if name not in change})

"""Calibration: temperatures against a direct fit, prior temperatures, saving, merging and what may not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import prol
from methods.small_streams import pictures
from prol.backbones import ViT
from prol.calibration import FACTORS, GROWTH, Calibration, Prior, brier_score, observe, probabilities, relative_spread
from prol.state import State

KINDS = [number % 3 for number in range(12)]


def noisy_scores(count: int, classes: int, sharpness: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores whose best temperature is `sharpness`: labels are drawn from their softmax at it."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=random, dtype=torch.float64)
    rows = torch.multinomial(logits.softmax(1), 1, generator=random).squeeze(1)
    return logits * sharpness, rows


def learn_chunks(calibration: Calibration, scores: torch.Tensor, rows: torch.Tensor, prior: float | None) -> None:
    """What is observed of scores `[N, 5]`, ten images at a time."""
    units = None if prior is None else torch.full((5,), prior)
    usual, known = float(scores.std(1, correction=0).mean()), torch.ones(10, dtype=torch.bool)
    for some, labels in zip(scores.split(10), rows.split(10), strict=True):
        calibration.learnt(10, observe(some, labels, known, units, None, usual))


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("prior", [1.0, None])
def test_the_temperature_is_that_of_least_brier_score(sharpness: float, prior: float | None) -> None:
    calibration = Calibration(State())
    scores, rows = noisy_scores(4000, 5, sharpness)
    learn_chunks(calibration, scores, rows, prior)
    relative = relative_spread(scores, scores.std(1, correction=0).mean().item()).unsqueeze(1)
    found = float((calibration.temperature(None if prior is None else Prior(prior), scores) / relative)[0])
    assert found == pytest.approx(sharpness, rel=0.1)
    direct = min(
        (float(brier_score(scores / relative / t, rows).sum()), t) for t in torch.logspace(-2, 2, 400).tolist()
    )[1]
    assert found == pytest.approx(direct, rel=0.05)


def test_without_predictions_the_prior_temperature_holds_and_nothing_is_certain() -> None:
    calibration, scores = Calibration(State()), 1000 * torch.tensor([[3.0, 1.0, -2.0]])
    assert float(calibration.temperature(Prior(2.5), scores)) == pytest.approx(2.5)
    assert 0.5 < float(probabilities(scores, calibration.temperature(None, scores)).max()) < 0.9


def test_evidence_moves_the_temperature_from_the_expected_factor_to_what_it_shows() -> None:
    calibration = Calibration(State())
    assert calibration.usual_temperature(Prior(2.0, 1.5)) == pytest.approx(3.0)
    found = [3.0]
    for _ in range(3):
        learn_chunks(calibration, *noisy_scores(100, 5, 1.0), 2.0)
        found.append(calibration.usual_temperature(Prior(2.0, 1.5)) or 0.0)
    assert sorted(found, reverse=True) == found
    assert 0.9 < found[-1] < 1.6


def test_classes_that_are_not_known_or_not_learnt_take_no_part() -> None:
    scores, rows = noisy_scores(50, 4, 1.0)
    known = torch.ones(50, dtype=torch.bool)
    extended = torch.cat([scores, torch.full((50, 1), -torch.inf)], dim=1)
    alone, beside = (observe(some, rows, known, torch.ones(some.shape[1]), None) for some in (scores, extended))
    assert alone is not None
    assert beside is not None
    assert alone.losses == pytest.approx(beside.losses)
    half = torch.arange(50) < 25
    some = observe(scores, torch.where(half, rows, -1), half, torch.ones(4), None)
    assert some is not None
    assert some.count == 25
    assert observe(scores, rows, torch.zeros(50, dtype=torch.bool), torch.ones(4), None) is None
    assert observe(scores[:, :1], torch.zeros(50, dtype=torch.long), known, torch.ones(1), None) is None


def test_each_image_is_measured_by_the_temperature_of_its_class_and_the_spread_of_its_scores() -> None:
    scores, rows = noisy_scores(400, 4, 1.0)
    found = observe(scores, rows, torch.ones(400, dtype=torch.bool), torch.tensor([1.0, 5.0, 1.0, 2.0]), None, 1.7)
    assert found is not None
    units = torch.tensor([1.0, 5.0, 1.0, 2.0], dtype=torch.float64)[rows]
    units *= (scores.std(1, correction=0) / 1.7) ** (4 / 34)
    weights = 2 / (1 + 0.15 * (rows.bincount()[rows].double() - 1))  # images of one class tell less each
    for factor, loss in zip(FACTORS, found.losses, strict=True):
        wrong = (scores / (factor * units[:, None])).softmax(1) - F.one_hot(rows, 4)
        assert loss == pytest.approx(float(weights @ wrong.square().sum(1)))


def test_the_usual_spread_is_the_methods_own_where_it_has_one() -> None:
    calibration, (scores, rows) = Calibration(State()), noisy_scores(100, 5, 1.0)
    learn_chunks(calibration, scores, rows, 1.0)
    assert calibration.usual_spread(Prior(1.0)) == pytest.approx(float(scores.std(1, correction=0).mean()), rel=0.05)
    one, two = (calibration.temperature(Prior(1.0, spread=usual), scores[:1]).item() for usual in (1.0, 2.0))
    assert one / two == pytest.approx(2 ** (5 / 35))


def test_an_image_whose_scores_spread_more_is_less_certain_of_the_same_gap() -> None:
    narrow = torch.tensor([[3.0, 1.0, 0.9, 1.1]], dtype=torch.float64)
    wide = torch.tensor([[3.0, 1.0, -3.0, -2.0]], dtype=torch.float64)
    low, high = (float(relative_spread(scores, 1.0)) for scores in (narrow, wide))
    assert low < 1 < high
    assert relative_spread(torch.cat([narrow, torch.tensor([[-torch.inf]])], 1), 1.0).item() == low


def test_a_class_of_which_nothing_was_learnt_has_no_probability() -> None:
    found = probabilities(torch.tensor([[1.0, -torch.inf, 0.0]]), 1.0)
    assert found[0, 1] == 0
    assert float(found.sum()) == pytest.approx(1)


def learner_of(vit: ViT, method: str = "slda", steps: int = 8) -> prol.Learner:
    learner = prol.create(method, vit)
    for step in range(steps):
        learner.learn(pictures(KINDS, seed=step), KINDS)
    return learner


def test_it_is_due_at_growing_distances(tiny: ViT) -> None:
    learner, due = prol.create("ncm", tiny), []
    for step in range(30):
        due += [step] if learner.calibration.due else []
        learner.learn(pictures(KINDS, seed=step), KINDS)
    assert due[0] == 1
    gaps = np.diff(due)
    assert gaps[0] <= 2
    assert gaps[-1] > 3
    assert len(due) <= 2 + np.log(30) / np.log(GROWTH)


@pytest.mark.parametrize("method", ["ncm", "slda", "finetune"])
def test_saved_and_loaded_it_says_the_same(tiny: ViT, method: str) -> None:
    learner = learner_of(tiny, method)
    twin = learner.clone()
    images = pictures([0, 1, 2], seed=99)
    assert learner.calibration.count > 0
    assert torch.equal(learner.classify(images).probabilities, twin.classify(images).probabilities)
    for one in (learner, twin):
        one.learn(pictures(KINDS, seed=50), KINDS)
    assert learner.state()[1] == twin.state()[1]


def test_files_of_earlier_versions_have_no_calibration(tiny: ViT) -> None:
    learner = learner_of(tiny)
    tensors, meta = learner.state()
    del meta["method"]["calibration"]
    fresh = prol.create("slda", tiny)
    fresh.load_state(tensors, meta)
    assert fresh.calibration.count == 0
    assert torch.equal(fresh.predict(pictures([0])), learner.predict(pictures([0])))
    assert fresh.classify(pictures([0])).labels == [0]


def test_merged_sums_add_up(tiny: ViT) -> None:
    one, two = learner_of(tiny), learner_of(tiny)
    merged = prol.merge([one, two])
    assert merged.calibration.count == pytest.approx(one.calibration.count + two.calibration.count)
    assert merged.calibration.losses == pytest.approx(
        [a + b for a, b in zip(one.calibration.losses, two.calibration.losses, strict=True)]
    )


def test_a_refused_chunk_leaves_it_as_it_was(tiny: ViT, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(tiny)
    learner.calibration.next = 0
    before = learner.state()[1]

    def fail(*_: Any) -> None:
        raise ValueError("no")

    monkeypatch.setattr(learner, "update", fail)
    with pytest.raises(ValueError, match="no"):
        learner.learn(pictures(KINDS), KINDS)
    assert learner.state()[1] == before


def test_observing_changes_nothing_that_is_learnt(tiny: ViT) -> None:
    """As if no chunk had ever been predicted before it was learnt."""
    learner, blind = prol.create("finetune", tiny), prol.create("finetune", tiny)
    for step in range(4):
        blind.calibration.next = 10**9
        for one in (learner, blind):
            one.learn(pictures(KINDS, seed=step), KINDS)
    assert learner.calibration.count > 0
    assert blind.calibration.count == 0
    for name, tensor in learner.state()[0].items():
        assert torch.equal(tensor, blind.state()[0][name]), name


def test_it_classifies(tiny: ViT) -> None:
    learner = learner_of(tiny, steps=20)
    found = learner.classify(pictures([0, 1, 2, 1], seed=77))
    assert found.labels == [0, 1, 2, 1]
    assert found.probabilities.shape == (4, 3)
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(4, dtype=torch.float64))
    assert found.unknown is not None
    assert found.unknown.shape == (4,)
    with pytest.raises(ValueError, match="nothing was learnt yet"):
        prol.create("ncm", tiny).classify(pictures([0]))


def watched(chunks: list[torch.Tensor], known: bool = True) -> Calibration:
    """Has learnt chunks of 3 classes whose images had this familiarity, of which it observed those that were due."""
    calibration = Calibration(State())
    for number, familiarity in enumerate(chunks):
        scores, rows = noisy_scores(len(familiarity), 3, 1.0, seed=number)
        fair = torch.full((len(familiarity),), known)
        observed = observe(scores, rows, fair, torch.ones(3), familiarity) if calibration.due else None
        calibration.learnt(len(familiarity), observed)
    return calibration


def drawn(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def shares(calibration: Calibration, familiarity: torch.Tensor) -> torch.Tensor:
    found = calibration.unknown(familiarity)
    assert found is not None
    return found


def false_alarms(of_chunk: Callable[[int], torch.Tensor], chunks: int = 100) -> float:
    """Of several streams, on images of the next chunks."""
    found = []
    for seed in range(12):
        learnt = [of_chunk(1000 * seed + number) for number in range(chunks)]
        later = torch.cat([of_chunk(1000 * seed + chunks + number) for number in range(20)])
        found.append((shares(watched(learnt), later) > 0.95).double().mean())
    return float(torch.stack(found).mean())


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e6, -3.0), (0.01, 500.0), (-3.0, 7.0)])
def test_one_in_twenty_known_images_is_called_unknown_and_others_always(scale: float, shift: float) -> None:
    assert false_alarms(lambda seed: scale * drawn(10, seed) + shift) == pytest.approx(0.05, abs=0.02)
    calibration = watched([scale * drawn(10, seed) + shift for seed in range(100)])
    assert shares(calibration, torch.tensor([shift - 10 * abs(scale)])) > 0.999
    assert shares(calibration, torch.tensor([shift + 10 * abs(scale)])) < 0.001


@pytest.mark.parametrize("chunks", [30, 100, 300])
def test_familiarity_that_drifts_as_the_learner_learns_is_followed(chunks: int) -> None:
    """Its mean rises, and its spread falls by a fifth whenever the images have doubled, as PROL+'s does.

    Without the residuals there would be hardly an alarm: expectations lag behind.
    """

    def drifting(seed: int) -> torch.Tensor:
        images = 10.0 * (seed % 1000 + 1)
        return 1 - 50 / images + drawn(10, seed) * 2 * images**-0.3

    assert 0.03 < false_alarms(drifting, chunks) < 0.11


@pytest.mark.parametrize("shape", [torch.exp, lambda x: -torch.exp(x), lambda x: x.round()])
def test_skew_familiarity_is_called_unknown_about_as_often(shape: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert false_alarms(lambda seed: shape(drawn(10, seed) / 2)) == pytest.approx(0.05, abs=0.055)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seen=st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=60, max_size=60),
    asked=st.lists(st.floats(width=32), min_size=1, max_size=50),
)
def test_unknown_lies_between_0_and_1_and_falls_with_familiarity(seen: list[float], asked: list[float]) -> None:
    ordered = torch.tensor(asked).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf).sort().values
    found = shares(watched(list(torch.tensor(seen).split(10))), ordered)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found.diff() <= 0).all()


def test_nothing_is_called_unknown_before_enough_known_images_were_observed() -> None:
    assert watched([drawn(10)]).unknown(drawn(3)) is None
    assert watched([drawn(10, seed) for seed in range(2)]).unknown(drawn(3)) is not None
    assert watched([drawn(10, seed) for seed in range(50)], known=False).unknown(drawn(3)) is None
    assert watched([drawn(1, seed) for seed in range(50)]).unknown(drawn(3)) is None
    assert shares(watched([drawn(1, seed) for seed in range(120)]), drawn(0)).shape == (0,)


def test_what_is_no_number_is_not_observed_and_is_like_nothing_known() -> None:
    chunks = [drawn(10, seed) for seed in range(30)]
    bad = [torch.where(torch.arange(10) == 3, torch.nan if seed % 2 else torch.inf, drawn(10)) for seed in range(30)]
    assert watched(bad).unknown(drawn(3)) is None
    assert shares(watched(chunks + bad), drawn(5)).isfinite().all()
    assert shares(watched(chunks), torch.tensor([torch.nan, torch.inf, -torch.inf])).tolist() == [1, 0, 1]


@pytest.mark.parametrize("number", [3, 50, 99])
def test_a_chunk_far_off_does_not_spoil_later_answers(number: int) -> None:
    def once_far_off(seed: int) -> torch.Tensor:
        return drawn(10, seed) - (1e6 if seed % 1000 == number else 0)

    assert watched([once_far_off(seed) for seed in range(100)]).familiarity_squares < 1000
    assert false_alarms(once_far_off) == pytest.approx(0.05, abs=0.03)


def test_factors_reach_from_sharp_to_flat() -> None:
    assert FACTORS[0] == pytest.approx(1 / 32)
    assert FACTORS[-1] == pytest.approx(32)
    assert FACTORS[len(FACTORS) // 2] == 1


def test_without_a_known_class_in_the_chunk_nothing_is_predicted(tiny: ViT, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(tiny)
    learner.calibration.next = 0
    asked: list[int] = []
    real = learner.predict_with_familiarity
    monkeypatch.setattr(
        learner, "predict_with_familiarity", lambda images: (asked.append(len(images)), real(images))[1]
    )
    learner.learn(pictures([3, 4]), [3, 4])
    assert asked == []
    learner.learn(pictures([3, 5]), [3, 5])
    assert asked == [2]

"""Calibration: temperatures against a direct fit, prior temperatures, saving, merging and what may not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import prol
from methods.small_streams import pictures
from prol.backbones import ViT
from prol.calibration import FACTORS, GROWTH, Calibration, observe, probabilities
from prol.state import State

KINDS = [number % 3 for number in range(12)]


def noisy_scores(count: int, classes: int, sharpness: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores whose best temperature is `sharpness`: labels are drawn from their softmax at it."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=random, dtype=torch.float64)
    rows = torch.multinomial(logits.softmax(1), 1, generator=random).squeeze(1)
    return logits * sharpness, rows


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("prior", [1.0, None])
def test_the_temperature_is_that_of_least_log_loss(sharpness: float, prior: float | None) -> None:
    calibration = Calibration(State())
    scores, rows = noisy_scores(4000, 5, sharpness)
    units = None if prior is None else torch.full((5,), prior)
    calibration.learnt(4000, observe(scores, rows, torch.ones(4000, dtype=torch.bool), units, None))
    found = float(calibration.temperature(prior, scores)[0])
    assert found == pytest.approx(sharpness, rel=0.05)
    direct = min((float(F.cross_entropy(scores / t, rows)), t) for t in torch.logspace(-2, 2, 400).tolist())[1]
    assert found == pytest.approx(direct, rel=0.05)


def test_without_predictions_the_prior_temperature_holds_and_nothing_is_certain() -> None:
    calibration, scores = Calibration(State()), 1000 * torch.tensor([[3.0, 1.0, -2.0]])
    assert float(calibration.temperature(2.5, scores)) == pytest.approx(2.5)
    assert 0.5 < float(probabilities(scores, calibration.temperature(None, scores)).max()) < 0.9


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


def test_each_image_is_measured_by_the_temperature_of_its_class() -> None:
    """Where the scores of one class's images have another scale, its prior temperature takes that out."""
    scores, rows = noisy_scores(4000, 4, 1.0)
    scaled = torch.where((rows == 1).unsqueeze(1), 5 * scores, scores)
    known = torch.ones(4000, dtype=torch.bool)
    plain = observe(scores, rows, known, torch.ones(4), None)
    found = observe(scaled, rows, known, torch.tensor([1.0, 5.0, 1.0, 1.0]), None)
    assert plain is not None
    assert found is not None
    assert found.losses == pytest.approx(plain.losses)


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


def test_a_share_of_known_images_is_called_unknown_and_others_always() -> None:
    random = torch.Generator().manual_seed(0)
    usual, calibration = torch.randn(2000, generator=random) * 3 + 5, Calibration(State())
    scores, rows = noisy_scores(2000, 3, 1.0)
    assert calibration.unknown(usual) is None
    calibration.learnt(2000, observe(scores, rows, torch.ones(2000, dtype=torch.bool), torch.ones(3), usual))
    found = calibration.unknown(torch.cat([usual, torch.tensor([-20.0])]))
    assert found is not None
    assert float((found[:-1] > 0.95).float().mean()) == pytest.approx(0.05, abs=0.015)
    assert found[-1] > 0.999


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

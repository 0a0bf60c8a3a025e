"""Evidence whether tuning helps, and the classifier that predicts chunks before they are learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import prol
from methods.prol_plus.small_prol_plus import CLASSES, learn, make, norms
from methods.small_streams import pictures, tensors
from prol.backbones import ViT
from prol.methods.closed_form.moments import Totals
from prol.methods.prol_plus.learner import PROLPlus
from prol.methods.prol_plus.tuning import FADING, Evidence, label_losses
from prol.state import State

ROWS = torch.tensor([0, 1, 2] * 20)


def drawn(gap: float, seed: int = 0) -> Tensor:
    """Features `[60, 4]` of three classes whose means are `gap` apart."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(60, 4, generator=random) + gap * torch.eye(4)[ROWS]


def filled(features: Tensor) -> Evidence:
    state = State()
    evidence = Evidence(state, 4, lambda: True)
    state.add_classes(3)
    evidence.add(features, ROWS)
    return evidence


def test_it_sums_the_frozen_networks_features_by_class() -> None:
    features = drawn(2.0)
    evidence, expected = filled(features), Totals.of(features, ROWS, 3)
    assert evidence.gram is not None
    torch.testing.assert_close(evidence.gram.double(), expected.gram, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(evidence.sums.rows.double(), expected.sums, rtol=1e-5, atol=1e-4)
    assert evidence.counts.rows.tolist() == [20, 20, 20]


@pytest.mark.parametrize(("tuned_gap", "better"), [(6.0, True), (0.3, False)])
def test_a_network_that_separates_classes_better_gains_and_one_that_does_worse_loses(
    tuned_gap: float, better: bool
) -> None:
    evidence = filled(drawn(2.0))
    assert evidence.helps()  # before there is evidence
    tuned = Totals.of(drawn(tuned_gap), ROWS, 3)
    evidence.compare(tuned, drawn(2.0, 1), drawn(tuned_gap, 1), ROWS, 20.0)
    assert evidence.helps() == better
    assert (evidence.gain > 0) == better


def test_the_gain_is_what_labels_cost_the_frozen_network_more_and_fades() -> None:
    evidence, tuned = filled(drawn(2.0)), Totals.of(drawn(3.0), ROWS, 3)
    frozen = Totals.of(drawn(2.0), ROWS, 3)
    expected = 0.0
    for seed in (1, 2):
        z, x = drawn(2.0, seed), drawn(3.0, seed)
        gains = label_losses(frozen, z, ROWS, 20.0) - label_losses(tuned, x, ROWS, 20.0)
        expected = FADING * expected + float(gains.sum())
        evidence.compare(tuned, z, x, ROWS, 20.0)
    assert evidence.gain == pytest.approx(expected, rel=1e-4)


def test_classes_that_were_not_learnt_are_no_evidence() -> None:
    state = State()
    evidence = Evidence(state, 4, lambda: True)
    state.add_classes(3)
    evidence.compare(Totals.of(drawn(1.0), ROWS, 3), drawn(1.0), drawn(1.0), ROWS, 20.0)
    assert (evidence.gain, evidence.squares) == (0.0, 0.0)


def test_while_the_tuned_network_is_behind_it_stays_where_it_is(tiny: ViT) -> None:
    learner = learn(make(tiny), 12)
    evidence = learner.tuning.evidence
    evidence.gain, evidence.squares = -3.0, 4.0
    before = norms(learner)
    learn(learner, 1, first=13)
    assert all(torch.equal(before[name], tensor) for name, tensor in norms(learner).items())
    evidence.gain = -1.0
    learn(learner, 1, first=14)
    assert not all(torch.equal(before[name], tensor) for name, tensor in norms(learner).items())


def test_once_tuning_is_over_nothing_of_the_frozen_network_is_stored(tiny: ViT) -> None:
    learner = learn(make(tiny, adapt_steps=3), 2)
    assert "tuning/evidence/gram.0" in tensors(learner)
    found = tensors(learn(learner, 2, first=2))
    assert "tuning/evidence/gram.0" not in found
    assert len(found["tuning/evidence/sums"]) == len(found["tuning/evidence/counts"]) == 0


def test_a_class_removed_while_the_network_is_tuned_leaves_the_frozen_sums_too(tiny: ViT) -> None:
    learner = learn(make(tiny), 3)
    learner.remove_class(1)
    found = tensors(learner)
    assert found["tuning/evidence/counts"].tolist() == found["moments/counts"].tolist() == [6, 6]
    learn(learner, 2, first=3)


def long(vit: ViT, chunks: int = 60) -> PROLPlus:
    """A learner that has seen more than the 200 images from which on the Gaussian predicts alone."""
    return learn(make(vit, adapt_steps=0), chunks)


def test_between_due_chunks_the_classifier_solved_last_observes(tiny: ViT) -> None:
    learner = long(tiny)
    observed = []
    for number in range(60, 72):
        due, before = learner.calibration.due, learner.calibration.observed_at
        learn(learner, 1, first=number)
        if not due and learner.calibration.observed_at != before:
            observed.append(number)
    assert len(observed) >= 2
    assert "solved/weight" in tensors(learner)


def test_what_somebody_predicts_does_not_change_what_is_observed(tiny: ViT) -> None:
    quiet, asked = long(tiny, 40), long(tiny, 40)
    for number in range(40, 60):
        asked.predict(pictures([0, 1]))
        for learner in (quiet, asked):
            learn(learner, 1, first=number)
    assert quiet.state()[1] == asked.state()[1]


def test_a_resumed_learner_observes_the_same(tiny: ViT) -> None:
    learner = long(tiny)
    twin = learner.clone()
    for one in (learner, twin):
        learn(one, 12, first=60)
    assert learner.state()[1] == twin.state()[1]


@pytest.mark.parametrize("change", ["remove", "merge", "unlearn"])
def test_a_change_of_classes_or_sums_drops_the_classifier(tiny: ViT, change: str) -> None:
    learner = long(tiny)
    assert "solved/weight" in tensors(learner)
    if change == "remove":
        learner.remove_class(1)
    elif change == "merge":
        learner.merge_classes(1, 2)
    else:
        learner.unlearn(pictures(CLASSES, seed=59), list(CLASSES))
    assert not any(name.startswith("solved/") for name in tensors(learner))
    learn(learner, 30, CLASSES[:2] if change != "unlearn" else CLASSES, first=60)


def test_a_classifier_that_does_not_fit_its_classes_is_refused(tiny: ViT) -> None:
    learner = long(tiny)
    saved: Any
    saved, meta = learner.state()
    rows = saved["solved/rows"]
    for wrong in (rows + 1, rows[:-1], rows.double()):
        with pytest.raises(ValueError, match="do not fit each other or the classes"):
            learner.clone().load_state({**saved, "solved/rows": wrong}, meta)
    assert np.isfinite(prol.merge([learner]).predict(pictures([0])).numpy()).all()

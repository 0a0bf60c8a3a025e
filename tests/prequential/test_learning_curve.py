"""Accuracy by images per class is what predictions before learning were; estimates follow from known curves."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import prol
from golden_files import tiny_vit
from prequential.watched_streams import learnt, shuffled
from prol.methods.prol_plus.learner import PROLPlus
from prol.prequential.learning_curve import LearningCurve, middle
from prol.prequential.statistics import BINS, Predicted, bin_of


def power_law(classes: int, images: int, level: float, slope: float, scale: float = 1e4) -> LearningCurve:
    """What predictions with the error `level` n^-`slope` leave behind; `scale` times as many as there were."""
    bins = np.zeros((classes, BINS, 4))
    for known in range(1, images):
        number = bin_of(known)
        error = level * middle(number) ** -slope
        bins[:, number] += scale * np.array([1, 1 - error, 1 - error, classes])
    return LearningCurve(tuple(range(classes)), np.full(classes, float(images)), bins)


def test_predictions_before_learning_are_counted_by_class_and_images_known() -> None:
    learner, (images, labels) = learnt(record_ids=False), shuffled()
    plain, counts = prol.create("ncm", tiny_vit()), dict[str, int]()
    right, expected = dict[str, list[bool]](), np.zeros((5, BINS, 4))
    for start in range(0, 80, 5):
        part = slice(start, start + 5)
        scores = plain.predict(images[part])
        likely = plain.probable(scores)
        for row, label in enumerate(labels[part]):
            if counts.get(label):
                own = plain.classes.index(label)
                hit = int(scores[row].argmax()) == own
                right.setdefault(label, []).append(hit)
                expected[own, bin_of(counts[label])] += 1, hit, float(likely[row].max()), len(plain.classes)
        plain.learn(images[part], labels[part])
        for label in labels[part]:
            counts[label] = counts.get(label, 0) + 1
    curve = learner.learning_curve()
    np.testing.assert_allclose(curve.bins, expected, atol=1e-9)
    assert curve.images.tolist() == [counts[label] for label in learner.classes]
    for label in learner.classes:
        points = curve.points(label)
        assert sum(count for _, _, count, _ in points) == len(right[str(label)])
        assert sum(count * accuracy for _, _, count, accuracy in points) == pytest.approx(100 * sum(right[str(label)]))


def test_labels_are_compared_with_the_most_probable_other_class() -> None:
    likely = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [0.0, 0.4, 0.6]])
    found = Predicted.of(likely, torch.tensor([0, 2, -1]))
    assert found.other.tolist() == [1, 0, 2]
    torch.testing.assert_close(found.probability, torch.tensor([0.7, 0.1, 0.0]).double())
    torch.testing.assert_close(found.other_probability, torch.tensor([0.2, 0.7, 0.6]).double())
    assert found.known == 3


@pytest.mark.parametrize(("level", "slope"), [(0.6, 0.34), (0.9, 0.2), (0.5, 0.6)])
def test_a_known_curve_is_continued(level: float, slope: float) -> None:
    found = power_law(20, 16, level, slope).estimate(10)
    assert found is not None
    assert found.now == pytest.approx(100 * (1 - level * 16**-slope), abs=0.6)
    assert found.after == pytest.approx(100 * (1 - level * 26**-slope), abs=0.6)
    assert found.low < found.after < found.high
    assert "10 more images per class" in repr(found)


def test_intervals_shrink_with_predictions_and_grow_with_the_distance() -> None:
    def width(curve: LearningCurve, more: int) -> float:
        """As a share of the error."""
        found = curve.estimate(more)
        assert found is not None
        return (found.high - found.low) / (100 - found.after)

    few, many = (power_law(10, 12, 0.6, 0.34, scale) for scale in (1.0, 100.0))
    assert width(many, 10) < width(few, 10)
    assert width(few, 0) < width(few, 10) < width(few, 100)
    start = few.estimate(0)
    assert start is not None
    assert start.now == start.after


def test_predictions_among_fewer_classes_count_as_easier() -> None:
    """Classes that came one after the other were compared with half of the others on average."""
    whole = power_law(20, 16, 0.6, 0.34)
    half = whole.bins.copy()
    half[..., 3] = half[..., 0] * 10
    found, easier = whole.estimate(), LearningCurve(whole.classes, whole.images, half).estimate()
    assert found is not None
    assert easier is not None
    assert easier.after < found.after - 3


def test_too_few_predictions_give_no_estimate() -> None:
    assert learnt(last=20).learning_curve().estimate() is None
    assert "no estimate" in repr(learnt(last=20).learning_curve())
    assert LearningCurve(("one",), np.array([99.0]), power_law(1, 99, 0.5, 0.3).bins).estimate() is None
    with pytest.raises(ValueError, match="more"):
        power_law(3, 9, 0.5, 0.3).estimate(-1)


def test_nothing_wrong_so_far_is_no_certainty() -> None:
    bins: NDArray[Any] = np.zeros((5, BINS, 4))
    bins[:, 4] = 20, 20, 20, 5 * 20
    found = LearningCurve(tuple("abcde"), np.full(5, 21.0), bins).estimate()
    assert found is not None
    assert 90 < found.low < found.after <= found.high <= 100


def test_the_curve_prints_and_is_json() -> None:
    curve = learnt().learning_curve()
    lines = repr(curve).splitlines()
    assert lines[1].split()[-2:] == ["predictions", "accuracy"]
    assert lines[-1].startswith("10 more images per class: ")
    content = json.loads(json.dumps(curve.to_dict()))
    assert content["estimate"]["more"] == 10
    assert len(content["points_per_class"]) == 5
    assert curve.to_pandas()["predictions"].sum() == curve.bins[..., 0].sum()
    assert "80 % interval" in curve._repr_html_()


def test_prol_plus_predicts_ahead_by_an_earlier_covariance_and_is_solved_as_ever_afterwards() -> None:
    options = {"budget_mb": 1, "blocks": 1, "features": 20, "adapt_steps": 0}
    learner = prol.create("prol_plus", tiny_vit(torch.float32), **options)
    assert isinstance(learner, PROLPlus)
    images, labels = shuffled()
    for start in range(0, 60, 5):
        learner.learn(images[start : start + 5], labels[start : start + 5])
    twin, pixels = learner.clone(), learner.backbone.read(images[60:70])
    exact = twin.probable(twin.predict(images[60:70]))
    assert torch.equal(learner.predict_ahead(pixels), exact)  # nothing was solved before
    learner.learn(images[70:75], labels[70:75])
    twin.learn(images[70:75], labels[70:75])
    ahead, exact = learner.predict_ahead(pixels), twin.probable(twin.predict(images[60:70]))
    assert not torch.equal(ahead, exact)
    torch.testing.assert_close(ahead, exact, atol=0.1, rtol=0)
    assert torch.equal(learner.predict(images[60:70]), twin.predict(images[60:70]))
    learner.load_state(*twin.state())
    assert torch.equal(learner.predict_ahead(pixels), exact)

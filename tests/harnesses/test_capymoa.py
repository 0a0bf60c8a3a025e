"""A prol learner in CapyMOA's loop: the same learner, and the same measures as by prol's own evaluation."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from capymoa.base import learner_from_params
from capymoa.evaluation import prequential_evaluation
from capymoa.ocl.evaluation import OCLMetrics, ocl_train_eval_loop
from capymoa.stream import Schema, TorchStream
from torch.utils.data import DataLoader

from docs.pages import DOCS, blocks
from harnesses.digit_stream import CHUNK, CLASSES, METHODS, TASKS, create, evaluated, network, same_state, tasks
from prol.evaluation import compute_metrics
from prol.integrations.capymoa import PROLClassifier

EVALUATIONS = 2
"""Evaluations within each task; a task has four chunks."""


def schema() -> Schema:
    features = [f"pixel{number}" for number in range(3 * 8 * 8)]
    made = Schema.from_custom([*features, "class"], "class", {"class": [str(number) for number in range(CLASSES)]})
    made.shape = (3, 8, 8)
    return made


def classifier(method: str, boundaries: bool = True) -> PROLClassifier:
    return PROLClassifier(schema(), method, network(), METHODS[method], boundaries)


@cache
def looped(method: str) -> tuple[OCLMetrics, PROLClassifier]:
    model = classifier(method)
    train = [DataLoader(task.train, batch_size=CHUNK, shuffle=False) for task in tasks()]
    test = [DataLoader(task.test, batch_size=model.learner.predict_batch, shuffle=False) for task in tasks()]
    return ocl_train_eval_loop(model, train, test, continual_evaluations=EVALUATIONS), model


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_their_loop_teaches_the_same_learner_bit_for_bit(method: str) -> None:
    _, model = looped(method)
    _, learner = evaluated(method, TASKS * EVALUATIONS)
    assert same_state(model.learner, learner)


def test_their_accuracy_matrix_and_means_are_ours(method: str) -> None:
    theirs, _ = looped(method)
    ours, _ = evaluated(method, TASKS * EVALUATIONS)
    learnt = np.triu(np.ones((TASKS, TASKS), dtype=bool))  # of future tasks they measure accuracies, too
    matrix = 100 * theirs.accuracy_matrix.T
    np.testing.assert_allclose(matrix[learnt], np.array(ours.accuracy_matrix)[learnt], rtol=1e-6)
    np.testing.assert_allclose(100 * theirs.accuracy_seen, ours.metrics.average_accuracy_task_mean, rtol=1e-6)
    assert 100 * theirs.accuracy_final == pytest.approx(ours.metrics.faa_task_mean, rel=1e-6)
    assert 100 * theirs.accuracy_seen_avg == pytest.approx(ours.metrics.caa_task_mean, rel=1e-6)


def test_forgetting_and_backward_transfer_of_their_matrix_are_ours(method: str) -> None:
    """They have no forgetting. Their backward transfer is the mean over all pairs i > j, ours that over i = T."""
    theirs, _ = looped(method)
    ours, _ = evaluated(method, TASKS * EVALUATIONS)
    by_their_matrix = compute_metrics(np.triu(100 * theirs.accuracy_matrix.T), ours.test_sizes)
    for name in ("faa", "caa", "forgetting", "forgetting_paper", "bwt", "forgetting_history"):
        assert getattr(by_their_matrix, name) == pytest.approx(getattr(ours.metrics, name), rel=1e-5), name
    matrix, sizes = np.array(ours.accuracy_matrix), ours.test_sizes
    after = [compute_metrics(matrix[:end, :end], sizes[:end]).bwt for end in range(2, TASKS + 1)]
    mean = np.average(after, weights=range(1, TASKS))
    assert mean < 0
    assert 100 * theirs.backward_transfer == pytest.approx(mean, rel=1e-5)


def test_their_anytime_accuracy_is_ours(method: str) -> None:
    theirs, _ = looped(method)
    ours, _ = evaluated(method, TASKS * EVALUATIONS)
    sizes = np.array(ours.test_sizes)
    rows = theirs.anytime_accuracy_matrix.astype(np.float64)
    seen = [min(place // EVALUATIONS + 1, TASKS) for place in range(len(rows))]
    means = [float(row[:end].mean()) for row, end in zip(rows, seen, strict=True)]
    np.testing.assert_allclose(theirs.anytime_accuracy_seen, means, rtol=1e-6)
    correct = [round(float(row[:end] @ sizes[:end])) for row, end in zip(rows, seen, strict=True)]
    totals = [int(sizes[:end].sum()) for end in seen]
    assert [point[2:] for point in ours.points] == [list(pair) for pair in zip(correct, totals, strict=True)]
    assert [point[0] for point in ours.points] == [20 * (place + 1) for place in range(TASKS * EVALUATIONS)]
    weighted = np.mean(np.array(correct) / totals)
    assert 100 * weighted == pytest.approx(ours.anytime.a_auc)


def test_their_test_then_train_accuracy_is_our_prequential_accuracy(method: str) -> None:
    theirs, _ = looped(method)
    ours, _ = evaluated(method, TASKS * EVALUATIONS)
    assert theirs.ttt.cumulative.accuracy() == pytest.approx(ours.anytime.prequential)


def test_probabilities_are_those_of_the_learner_in_the_order_of_the_schema() -> None:
    _, model = looped("slda")
    images, _ = tasks()[0].test[:5]
    found = model.batch_predict_proba(images.flatten(1))
    expected = model.learner.classify((images * 255).round().to(torch.uint8))
    assert found.shape == (5, CLASSES)
    assert found.dtype == torch.float32
    assert model.batch_predict(images.flatten(1)).tolist() == expected.labels
    torch.testing.assert_close(found[:, model.learner.classes], expected.probabilities.float())


def test_unseen_classes_have_no_probability_and_all_are_alike_before_the_first_step() -> None:
    model = classifier("ncm")
    images, labels = tasks()[0].train[:CHUNK]
    assert model.batch_predict_proba(images.flatten(1)).tolist() == [[pytest.approx(0.1)] * CLASSES] * CHUNK
    model.batch_train(images.flatten(1), labels)
    found = model.batch_predict_proba(images.flatten(1))
    unseen = [number for number in range(CLASSES) if number not in labels]
    assert not found[:, unseen].any()
    torch.testing.assert_close(found.sum(1), torch.ones(CHUNK))


def test_boundaries_are_given_only_if_requested() -> None:
    """PROL+ stops tuning at the first boundary, so its states differ."""
    given, withheld = classifier("prol_plus"), classifier("prol_plus", boundaries=False)
    some = [tasks()[number] for number in range(2)]
    for model in (given, withheld):
        train = [DataLoader(torch.utils.data.Subset(task.train, range(CHUNK)), batch_size=CHUNK) for task in some]
        ocl_train_eval_loop(model, train, train)
    assert given.learner.clock.bounded
    assert not withheld.learner.clock.bounded


def test_a_learner_is_made_again_from_its_parameters() -> None:
    model = PROLClassifier(schema(), "slda", "tiny", {"shrinkage": 0.25}, device="cpu", random_seed=5)
    spec = {"learner": "prol.integrations.capymoa.PROLClassifier", "params": model.get_params()}
    twin = learner_from_params(spec, schema(), random_seed=5)
    assert twin.learner.options == model.learner.options
    assert (twin.learner.seed, twin.learner.backbone.name) == (5, model.learner.backbone.name)
    assert str(twin) == "prol slda"


def test_their_prequential_evaluation_is_predict_then_learn() -> None:
    data = torch.utils.data.ConcatDataset([task.train for task in tasks()[:2]])
    stream = TorchStream.from_classification(data, num_classes=CLASSES, shape=(3, 8, 8))
    model = PROLClassifier(stream.get_schema(), "slda", network(), METHODS["slda"])
    results = prequential_evaluation(stream, model, batch_size=CHUNK)
    learner, right = create("slda"), 0
    for task in tasks()[:2]:
        for start in range(0, len(task.train), CHUNK):
            images, labels = task.train[start : start + CHUNK]
            pixels = (images * 255).round().to(torch.uint8)
            named = learner.classify(pixels).labels if learner.classes else []
            right += sum(name == label for name, label in zip(named, labels.tolist(), strict=False))
            learner.learn(pixels, labels.tolist())
    assert same_state(model.learner, learner)
    assert results.cumulative.accuracy() == pytest.approx(100 * right / len(data))


def test_bad_input_is_refused() -> None:
    flat = Schema.from_custom(["a", "b", "class"], "class", {"class": ["x", "y"]})
    with pytest.raises(ValueError, match=r"schema.shape must be \(channels, height, width\), got \(2,\)"):
        PROLClassifier(flat, "ncm", network())
    model = classifier("ncm")
    with pytest.raises(ValueError, match="leave out Normalize"):
        model.batch_train(torch.full((1, 192), -0.4), torch.tensor([3]))
    assert model.learner.classes == []


def test_the_example_of_the_page_runs() -> None:
    [block] = [block for block in blocks(DOCS / "harnesses.md") if block.mark == "capymoa"]
    exec(compile(block.text, block.place, "exec"), names := {})
    results = names["results"]
    assert results.accuracy_matrix.shape == (3, 3)
    assert results.accuracy_seen[-1] > 0.9

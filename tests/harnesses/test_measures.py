"""Measures and streams beside those of torchmetrics, pytorch-ood and continuum."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from continuum.datasets import InMemoryDataset
from continuum.scenarios import ClassIncremental
from pytorch_ood.detector import RMD, Mahalanobis
from pytorch_ood.metrics import OODMetrics
from pytorch_ood.metrics.functional import auroc as their_auroc
from pytorch_ood.metrics.functional import fpr_at_tpr as their_fpr
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

import prol
from harnesses.digit_stream import CHUNK, CLASSES, DATA, METHODS, STREAM, evaluated, network
from prol.data.builtin import digits
from prol.data.streams import disjoint
from prol.evaluation.detection import auroc, fpr_at_tpr


@cache
def predicted(method: str) -> tuple[Tensor, Tensor]:
    """Probabilities `[N, 10]` in the order of class numbers, and labels `[N]`, of all test images after the stream."""
    _, learner = evaluated(method)
    found = learner.classify(DATA.test.load(np.arange(len(DATA.test.labels))).images).probabilities
    return found[:, [learner.row_of[name] for name in DATA.class_names]], torch.from_numpy(DATA.test.labels)


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_accuracies_are_those_of_torchmetrics(method: str) -> None:
    ours, _ = evaluated(method)
    probabilities, labels = predicted(method)
    overall = MulticlassAccuracy(CLASSES, average="micro")(probabilities, labels)
    by_class = MulticlassAccuracy(CLASSES, average=None)(probabilities, labels)
    assert 100 * float(overall) == pytest.approx(ours.metrics.faa, rel=1e-6)
    found = [ours.class_accuracy[name] for name in DATA.class_names]
    np.testing.assert_allclose(100 * by_class.numpy(), found, rtol=1e-6)
    for task, classes in enumerate(STREAM.task_classes):
        part = torch.isin(labels, torch.tensor(classes))
        of_task = MulticlassAccuracy(CLASSES, average="micro")(probabilities[part], labels[part])
        assert 100 * float(of_task) == pytest.approx(ours.accuracy_matrix[task][-1], rel=1e-6)


def test_the_calibration_error_is_that_of_torchmetrics(method: str) -> None:
    ours, _ = evaluated(method)
    probabilities, labels = predicted(method)
    error = MulticlassCalibrationError(CLASSES, n_bins=15, norm="l1")(probabilities, labels)
    assert ours.anytime.calibration_error > 1
    assert 100 * float(error) == pytest.approx(ours.anytime.calibration_error, rel=1e-5)


@pytest.mark.parametrize("levels", [5, 10_000])
def test_auroc_and_fpr95_are_those_of_pytorch_ood(levels: int) -> None:
    """Five levels are mostly ties."""
    random = torch.Generator().manual_seed(levels)
    unknown = torch.rand(500, generator=random) < 0.4
    scores = ((torch.randn(500, generator=random) + unknown) * levels / 4).round()
    labels = torch.where(unknown, -1, 0)
    assert auroc(scores, unknown) == pytest.approx(float(their_auroc(scores, labels)))
    assert fpr_at_tpr(scores, unknown) == pytest.approx(float(their_fpr(scores, labels, 0.95)))


def test_unknown_separates_at_least_as_well_as_their_mahalanobis_distances() -> None:
    """Five classes of digits are learnt, and test images of all ten are scored; all three see the same features."""
    data = digits()
    known = np.random.default_rng(0).permutation(np.flatnonzero(data.train.labels % 2 == 0))[:400]
    learner = prol.create("slda", network())
    for start in range(0, len(known), CHUNK):
        part = known[start : start + CHUNK]
        learner.learn(data.train.load(part).images, data.train.labels[part].tolist())
    images = data.test.load(np.arange(len(data.test.labels))).images
    unknown = torch.from_numpy(data.test.labels % 2 == 1)
    scores = {"unknown": learner.classify(images).unknown}
    features, rows = learner.encode_images(data.train.load(known).images), torch.from_numpy(data.train.labels[known])
    queries = learner.encode_images(images)
    for kind in (Mahalanobis, RMD):
        scores[kind.__name__] = kind(None).fit_features(features, rows // 2).predict_features(queries)
    found = {}
    for name, values in scores.items():
        theirs = OODMetrics().update(values, torch.where(unknown, -1, 0)).compute()
        found[name] = auroc(values, unknown), fpr_at_tpr(values, unknown)
        assert found[name] == pytest.approx((theirs["AUROC"], theirs["FPR95TPR"]))
        print(f"{name}: AUROC {found[name][0]:.3f}, FPR95 {found[name][1]:.3f}")
    assert found["unknown"][0] >= max(found["Mahalanobis"][0], found["RMD"][0]) - 0.005
    assert found["unknown"][0] > 0.9


@pytest.mark.parametrize(("tasks", "class_order"), [(5, "label"), (5, "shuffled"), (4, "shuffled"), (10, "label")])
def test_disjoint_streams_are_the_class_incremental_scenarios_of_continuum(tasks: int, class_order: str) -> None:
    """Order within a task is our own: a scenario of continuum leaves it to the loader."""
    data = digits()
    stream = disjoint(data.train.labels, tasks=tasks, chunk=CHUNK, seed=3, class_order=class_order)
    order = [number for classes in stream.task_classes for number in classes]
    sizes = [len(classes) for classes in stream.task_classes]
    for split in (data.train, data.test):
        # An image is stood for by its place in the split.
        places = np.arange(len(split.labels)).reshape(-1, 1, 1, 1)
        scenario = ClassIncremental(InMemoryDataset(places, split.labels), increment=sizes, class_order=order)
        assert scenario.nb_tasks == tasks
        for task, (theirs, classes) in enumerate(zip(scenario, stream.task_classes, strict=True)):
            images, labels, _ = theirs.get_raw_samples(np.arange(len(theirs)))
            assert set(scenario.get_original_targets(labels)) == set(classes)
            ours = np.flatnonzero(np.isin(split.labels, classes))
            if split is data.train:
                ours = np.concatenate([chunk.indices for chunk in stream.chunks if chunk.task == task])
            assert sorted(images.flatten().tolist()) == sorted(ours.tolist())
    if tasks == 5 and class_order == "label":  # where both divide the classes without being told how
        even = ClassIncremental(InMemoryDataset(places, data.test.labels), nb_tasks=tasks)
        assert even.increments == sizes

"""Accuracy inside tasks, before learning, by class; and features of test images that are computed once."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import prol
from evaluation.small_data import CLASSES, colours, stream_over
from golden_files import tiny_vit
from prol.backbones import ViT
from prol.evaluation import (
    ChunkLearnt,
    Cursor,
    Evaluated,
    Event,
    Finished,
    ImagesSkipped,
    Measures,
    PointEvaluated,
    Predicted,
    Result,
    ShotEvaluated,
    TaskEnded,
    run_stream,
)
from prol.evaluation.metrics import anytime_metrics, calibration_error, confidence_bins
from testing.colour_means import ColourMeans, ColourOptions, colour_means

EVERYTHING = Measures(points=4, shots=2, prequential=True)


def finished(events: list[Event]) -> Result:
    assert isinstance(events[-1], Finished)
    return events[-1].result


class AlwaysSays(ColourMeans):
    """Predicts one class, with scores of 0 for all others and a given score for it."""

    def __init__(self, backbone: ViT, word: str, score: float) -> None:
        super().__init__(backbone, ColourOptions())
        self.word, self.score = word, score

    def scores(self, pixels: list[Tensor], encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        scores = torch.zeros(len(pixels), len(self.classes))
        if self.word in self.row_of:
            scores[:, self.row_of[self.word]] = self.score
        return scores

    def probable(self, scores: Tensor) -> Tensor:
        """Not calibrated: the softmax of its scores as they are."""
        return scores.double().softmax(dim=1)


class CountsWork(ColourMeans):
    """Its colours are encodings, and it counts how many images it computed them of."""

    encoding = "all"

    def __init__(self, backbone: ViT) -> None:
        super().__init__(backbone, ColourOptions())
        self.computed = 0

    def encoded(self, pixels: list[Tensor]) -> Tensor:
        self.computed += len(pixels)
        return self.colours(pixels)

    def scores(self, pixels: list[Tensor], encoded: Tensor | None) -> Tensor:
        known, means = self.encoded(pixels) if encoded is None else encoded, self.sums.rows / self.counts.rows[:, None]
        return -torch.cdist(known, means, compute_mode="donot_use_mm_for_euclid_dist")


class NeedsTheImagesToo(CountsWork):
    encoding = "query"

    def scores(self, pixels: list[Tensor], encoded: Tensor | None) -> Tensor:
        assert len(pixels) > 0
        return super().scores(pixels, encoded)


# Points of the stream


def test_points_are_equally_spaced_in_images_and_ask_only_for_classes_that_have_come(tiny: ViT) -> None:
    dataset = colours()
    stream = stream_over(dataset, tasks=5, chunk=3)
    events = list(run_stream(colour_means(tiny), dataset, stream, measures=Measures(points=5)))
    points = [event for event in events if isinstance(event, PointEvaluated)]
    assert [(point.images, point.classes, point.total) for point in points] == [
        (7, 1, 6),
        (14, 2, 12),
        (21, 3, 18),
        (28, 4, 24),
        (35, 5, 30),
    ]
    result = finished(events)
    assert result.anytime.a_auc == pytest.approx(np.mean([100 * point.correct / point.total for point in points]))
    assert result.points == [[point.images, point.classes, point.correct, point.total] for point in points]


def test_classes_announced_but_not_yet_come_are_not_asked(tiny: ViT) -> None:
    dataset = colours()
    stream = stream_over(dataset, tasks=1, chunk=1)
    events = list(run_stream(colour_means(tiny), dataset, stream, measures=Measures(points=35)))
    come: set[int] = set()
    points = [event for event in events if isinstance(event, PointEvaluated)]
    for chunk, point in zip(stream.chunks, points, strict=True):
        come |= set(dataset.train.labels[chunk.indices].tolist())
        assert (point.classes, point.total) == (len(come), 6 * len(come))


def test_more_points_than_chunks_ask_once_a_chunk(tiny: ViT) -> None:
    dataset = colours()
    stream = stream_over(dataset)
    events = list(run_stream(colour_means(tiny), dataset, stream, measures=Measures(points=1000)))
    assert len([event for event in events if isinstance(event, PointEvaluated)]) == len(stream.chunks)


# Predict, then learn


def test_prequential_accuracy_counts_answers_given_before_learning(tiny: ViT) -> None:
    dataset = colours(bad_train=[0])
    stream = stream_over(dataset, tasks=5, chunk=7)
    events = list(run_stream(AlwaysSays(tiny, "green", 1.0), dataset, stream, measures=Measures(prequential=True)))
    predicted = [(event.correct, event.total) for event in events if isinstance(event, Predicted)]
    # Classes are announced: at first there is only red to choose, then green can be called green before it has come.
    assert predicted == [(6, 6), (7, 7), (0, 7), (0, 7), (0, 7)]
    assert finished(events).anytime.prequential == pytest.approx(100 * 13 / 34)
    assert finished(events).prequential == [[6, 6], [7, 7], [0, 7], [0, 7], [0, 7]]


def test_a_class_never_heard_of_counts_as_wrong(tiny: ViT) -> None:
    dataset = colours()
    stream = stream_over(dataset, tasks=5, chunk=7, boundaries=False, announce=False)
    events = list(run_stream(colour_means(tiny), dataset, stream, measures=Measures(prequential=True)))
    assert finished(events).anytime.prequential == 0.0


# Learning curves


def test_shots_follow_a_task_through_its_first_chunks(tiny: ViT) -> None:
    dataset = colours()
    stream = stream_over(dataset, tasks=5, chunk=3, boundaries=False, announce=False)
    events = list(run_stream(AlwaysSays(tiny, "red", 1.0), dataset, stream, measures=Measures(shots=2)))
    shots = [(event.task, event.shot, event.correct) for event in events if isinstance(event, ShotEvaluated)]
    assert shots[:3] == [(0, 0, 0), (0, 1, 6), (0, 2, 6)]
    assert shots[3:] == [(task, shot, 0) for task in range(1, 5) for shot in range(3)]
    # Z_0 = 0, Z_1 = Z_2 = a fifth of the tasks.
    assert finished(events).anytime.learning_curve_area == pytest.approx((0 + 20 + 20) / 3)


def test_tasks_shorter_than_the_curve_count_as_far_as_they_go() -> None:
    nothing = confidence_bins(np.zeros(0), np.zeros(0, dtype=bool))
    measured = anytime_metrics([], [], [[[0, 4], [4, 4]], [[2, 4]]], nothing)
    assert measured.learning_curve_area == pytest.approx((25 + 100) / 2)
    assert (measured.a_auc, measured.prequential) == (None, None)


# Each class, and confidence


def test_each_class_has_its_accuracy(tiny: ViT) -> None:
    dataset = colours(bad_test=[7])
    events = list(run_stream(AlwaysSays(tiny, "green", 1.0), dataset, stream_over(dataset)))
    assert finished(events).class_accuracy == {name: 100.0 * (name == "green") for name in CLASSES}


def test_calibration_error_of_a_learner_that_is_sure_and_mostly_wrong(tiny: ViT) -> None:
    dataset = colours()
    events = list(run_stream(AlwaysSays(tiny, "green", 50.0), dataset, stream_over(dataset)))
    assert finished(events).anytime.calibration_error == pytest.approx(80.0)
    assert sum(count for count, _, _ in finished(events).confidence_bins) == 30


def test_a_learner_that_knows_how_little_it_knows_is_calibrated(tiny: ViT) -> None:
    dataset = colours()
    events = list(run_stream(AlwaysSays(tiny, "green", 1e-9), dataset, stream_over(dataset)))
    assert finished(events).anytime.calibration_error == pytest.approx(0.0, abs=1e-6)


def test_confidence_falls_into_bins_closed_above() -> None:
    bins = confidence_bins(np.array([0.0, 1 / 15, 0.0667, 1.0]), np.array([True, False, True, True]))
    assert bins[:, 0].tolist() == [2, 1] + [0] * 12 + [1]
    assert bins[:, 1].tolist() == [1, 1] + [0] * 12 + [1]
    expected = 100 * (abs(1 - 1 / 15) + abs(1 - 0.0667) + 0) / 4
    assert calibration_error(bins) == pytest.approx(expected)


# Features that are computed once


@pytest.mark.parametrize("kind", [CountsWork, NeedsTheImagesToo])
def test_encodings_are_computed_once_per_run_and_change_nothing(tiny: ViT, kind: type[CountsWork]) -> None:
    dataset = colours(bad_test=[5, 20])
    stream = stream_over(dataset)
    results: dict[bool, Any] = {}
    for reuse in (True, False):
        learner = kind(tiny)
        learner.predict_batch = 4
        learner.calibration.next = 10**9  # no training image is predicted
        measures = Measures(points=3, reuse_features=reuse)
        events = list(run_stream(learner, dataset, stream, measures=measures))
        results[reuse] = [event for event in events if not isinstance(event, ImagesSkipped)]
        skipped = [path for event in events if isinstance(event, ImagesSkipped) for path in event.paths]
        assert sorted(skipped) == ["image20.jpg", "image5.jpg"]
        # 28 readable images once; or 10 + 22 + 28 after tasks and 12 + 24 + 30 less the unreadable at points.
        assert learner.computed == 28 if reuse else learner.computed > 100
    assert results[True] == results[False]


def test_with_everything_encoded_test_images_are_read_once(tiny: ViT) -> None:
    class Counting:
        def __init__(self, whole: Any) -> None:
            self.whole, self.read = whole, 0

        @property
        def labels(self) -> Any:
            return self.whole.labels

        def load(self, indices: Any) -> Any:
            self.read += len(indices)
            return self.whole.load(indices)

    dataset = colours()
    counting = Counting(dataset.test)
    object.__setattr__(dataset, "test", counting)
    list(run_stream(CountsWork(tiny), dataset, stream_over(dataset), measures=Measures(points=5)))
    assert counting.read == 30


def test_prol_answers_the_same_from_its_query_features() -> None:
    dataset = colours()
    results = []
    for reuse in (True, False):
        learner = prol.create("prol", tiny_vit(torch.float64), blocks=2)
        events = run_stream(learner, dataset, stream_over(dataset), measures=Measures(reuse_features=reuse))
        results.append([event for event in events if isinstance(event, Evaluated | TaskEnded)])
    assert results[0] == results[1]


def test_features_must_be_of_the_same_images(tiny: ViT) -> None:
    learner = NeedsTheImagesToo(tiny)
    images = colours().test.load([0, 1, 2]).images
    known = learner.encode_images(images)
    with pytest.raises(ValueError, match="2 images but 3 encodings"):
        learner.predict_encoded(known, images[:2])


def test_a_learner_without_encodings_says_so(tiny: ViT) -> None:
    with pytest.raises(ValueError, match="changes with learning"):
        colour_means(tiny).encode_images(colours().test.load([0]).images)


# All together


@pytest.mark.parametrize("kind", [colour_means, CountsWork, NeedsTheImagesToo])
def test_a_run_with_every_exam_goes_on_from_any_checkpoint(tiny: ViT, kind: Any) -> None:
    dataset = colours(bad_train=[3, 4, 33], bad_test=[7])
    stream = stream_over(dataset)
    learner, cursor = kind(tiny), Cursor()
    events, points = [], []
    for event in run_stream(learner, dataset, stream, cursor, measures=EVERYTHING, workers=2):
        events.append(event)
        if isinstance(event, ChunkLearnt | TaskEnded):
            points.append((len(events), learner.state(), json.dumps(asdict(cursor))))
    for behind, state, written in points:
        twin = kind(tiny)
        twin.load_state(*state)
        cursor = Cursor(**json.loads(written))
        assert list(run_stream(twin, dataset, stream, cursor, measures=EVERYTHING)) == events[behind:]


@pytest.mark.parametrize("measures", [{"points": -1}, {"shots": -1}])
def test_impossible_measures_are_refused(measures: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(measures))):
        Measures(**measures)

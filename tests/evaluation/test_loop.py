from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from torch import Tensor

from evaluation.small_data import CLASSES, colours, stream_over
from prol.backbones import ViT
from prol.evaluation import (
    ChunkLearnt,
    Cursor,
    Evaluated,
    Finished,
    ImagesSkipped,
    Result,
    RunStarted,
    TaskEnded,
    TaskStarted,
    run_stream,
)
from testing.colour_means import ColourMeans, ColourOptions, colour_means


class Witness(ColourMeans):
    """Notes what it is told and asked."""

    def __init__(self, backbone: ViT) -> None:
        super().__init__(backbone, ColourOptions())
        self.boundaries: list[Any] = []
        self.labels: list[list[str]] = []
        self.asked: list[int] = []

    def boundary(self, next_classes: Any = None) -> None:
        self.boundaries.append(next_classes)
        super().boundary(next_classes)

    def learn(self, images: Any, labels: Any) -> None:
        self.labels.append(list(labels))
        super().learn(images, labels)

    def predict(self, images: Any) -> Tensor:
        self.asked.append(len(images))
        return super().predict(images)


def finish(learner: ColourMeans, dataset: Any, stream: Any) -> Result:
    *_, last = run_stream(learner, dataset, stream)
    assert isinstance(last, Finished)
    return last.result


def test_every_chunk_is_learnt_once_in_order_and_every_task_is_evaluated(tiny: ViT) -> None:
    dataset = colours()
    stream = stream_over(dataset)
    events = list(run_stream(colour_means(tiny), dataset, stream))
    assert isinstance(events[0], RunStarted)
    assert events[0] == RunStarted(tasks=3, chunks=len(stream.chunks), train_images=35, test_images=30)
    assert [e.chunk for e in events if isinstance(e, ChunkLearnt)] == list(range(1, len(stream.chunks) + 1))
    assert sum(e.images for e in events if isinstance(e, ChunkLearnt)) == 35
    assert [(e.task, e.tested) for e in events if isinstance(e, Evaluated)] == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
        (2, 2),
    ]
    assert [e.task for e in events if isinstance(e, TaskEnded)] == [0, 1, 2]
    assert isinstance(events[-1], Finished)


def test_a_learner_of_plain_colours_knows_them_all(tiny: ViT) -> None:
    dataset = colours()
    result = finish(colour_means(tiny), dataset, stream_over(dataset))
    assert result.metrics.faa == 100.0
    assert result.test_sizes == [12, 12, 6]
    assert result.accuracy_matrix[2] == [0.0, 0.0, 100.0]
    assert result.task_classes == [["red", "green"], ["blue", "grey"], ["white"]]


@pytest.mark.parametrize(
    ("options", "heard"),
    [
        ({}, [("red", "green"), ("blue", "grey"), ("white",)]),
        ({"announce": False}, [None, None, None]),
        ({"announce": False, "boundaries": False}, []),
    ],
)
def test_a_learner_hears_of_tasks_only_what_the_stream_allows(tiny: ViT, options: dict, heard: list) -> None:
    dataset, learner = colours(), Witness(tiny)
    result = finish(learner, dataset, stream_over(dataset, **options))
    assert learner.boundaries == heard
    assert result.told.task_boundaries == bool(heard)
    assert result.told.classes_of_next_task == (bool(heard) and heard[0] is not None)
    assert (result.told.number_of_classes, result.told.task_identity_at_test) == (False, False)
    assert (result.told.passes_over_the_data, result.told.samples_stored) == (1, 0)


def test_labels_are_class_names(tiny: ViT) -> None:
    dataset, learner = colours(), Witness(tiny)
    finish(learner, dataset, stream_over(dataset))
    assert {name for labels in learner.labels for name in labels} == set(CLASSES)
    assert learner.classes == list(CLASSES)


def test_test_batches_are_full_and_never_cross_tasks_even_where_images_are_missing(tiny: ViT) -> None:
    dataset, learner = colours(bad_test=[1, 2, 13]), Witness(tiny)
    learner.predict_batch = 4
    finish(learner, dataset, stream_over(dataset))
    first, second, third = [4, 4, 2], [4, 4, 3], [4, 2]
    assert learner.asked == first + first + second + first + second + third


def test_unreadable_images_are_told_and_counted_once_each(tiny: ViT) -> None:
    dataset = colours(bad_train=[0, 9, 30], bad_test=[5, 20])
    events = list(run_stream(colour_means(tiny), dataset, stream_over(dataset)))
    skipped = [e for e in events if isinstance(e, ImagesSkipped)]
    assert sorted(path for e in skipped if e.half == "train" for path in e.paths) == [
        "image0.jpg",
        "image30.jpg",
        "image9.jpg",
    ]
    assert sorted(path for e in skipped if e.half == "test" for path in e.paths) == ["image20.jpg", "image5.jpg"]
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.result.skipped.train, last.result.skipped.test) == (3, 2)
    assert last.result.test_sizes == [11, 11, 6]


def test_a_chunk_without_any_readable_image_is_passed_over(tiny: ViT) -> None:
    dataset = colours()
    stream = stream_over(dataset)
    dataset = colours(bad_train=stream.chunks[1].indices.tolist())
    events = list(run_stream(colour_means(tiny), dataset, stream))
    assert [e.chunk for e in events if isinstance(e, ChunkLearnt)] == [1, *range(3, len(stream.chunks) + 1)]


def test_a_run_without_any_readable_image_still_ends(tiny: ViT) -> None:
    dataset = colours(bad_train=range(35))
    result = finish(colour_means(tiny), dataset, stream_over(dataset, boundaries=False, announce=False))
    assert result.metrics.faa == 0.0
    assert result.skipped.train == 35


def test_a_run_goes_on_from_any_checkpoint_to_the_same_end(tiny: ViT) -> None:
    dataset = colours(bad_train=[3, 4, 33], bad_test=[7])
    stream = stream_over(dataset)
    learner, cursor = colour_means(tiny), Cursor()
    events, points = [], []
    for event in run_stream(learner, dataset, stream, cursor):
        events.append(event)
        if isinstance(event, ChunkLearnt | TaskEnded):
            points.append((len(events), learner.state(), json.dumps(asdict(cursor))))
    assert len(points) == len(stream.chunks) + 3
    for behind, state, written in points:
        twin = colour_means(tiny)
        twin.load_state(*state)
        assert list(run_stream(twin, dataset, stream, Cursor(**json.loads(written)))) == events[behind:]


def test_a_cursor_at_the_end_of_a_task_still_asks_for_its_evaluation(tiny: ViT) -> None:
    dataset = colours()
    stream = stream_over(dataset)
    learner, cursor = colour_means(tiny), Cursor()
    for event in run_stream(learner, dataset, stream, cursor):
        if isinstance(event, ChunkLearnt) and stream.chunks[event.chunk].task == 1:
            break
    rest = list(run_stream(learner, dataset, stream, cursor))
    assert rest[0] == Evaluated(task=0, tested=0, correct=12, total=12)
    assert [e.task for e in rest if isinstance(e, TaskStarted)] == [1, 2]


def test_results_hold_no_time_and_repeat_exactly(tiny: ViT) -> None:
    dataset = colours()
    results = [finish(colour_means(tiny), dataset, stream_over(dataset)) for _ in range(2)]
    assert results[0] == results[1]
    assert json.dumps(asdict(results[0])) == json.dumps(asdict(results[1]))

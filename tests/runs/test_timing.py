from __future__ import annotations

import time
from typing import Any

from evaluation.small_data import colours, stream_over
from prol.backbones import ViT
from prol.evaluation import ChunkLearnt, ChunkMissed, ChunkRead, Clock, Measures, Predicted, StepTimed, run_stream
from prol.evaluation.events import Evaluated, PointEvaluated, RunStarted, TaskStarted
from prol.runs.display import Speed
from prol.runs.run import dispatch
from prol.runs.timing import Timing
from testing.colour_means import colour_means


def test_each_event_is_booked_where_its_time_was_spent() -> None:
    timing, speed = Timing("a GPU"), Speed()
    events = [
        (TaskStarted(0, ("a",), True), 1.0),
        (ChunkRead(1), 2.0),
        (Predicted(1, 0, 10), 50.0),
        (StepTimed(1, 3.9, 5.0), 4.0),
        (ChunkLearnt(1, 0, 10, {}), 3.0),
        (ChunkMissed(2, 0, 10), 70.0),
        (PointEvaluated(20, 1, 5, 6), 60.0),
        (Evaluated(0, 0, 5, 6), 2.0),
    ]
    for event, seconds in events:
        timing(event, seconds)
        speed(event, seconds)
    task = timing.summary()["tasks"][0]
    assert (task["train_images"], task["train_seconds"]) == (10, 1.0 + 2.0 + 4.0 + 3.0)
    assert (task["test_images"], task["test_seconds"]) == (6, 2.0)
    assert (task["asked_images"], task["asked_seconds"]) == (16, 110.0)
    assert str(speed) == "1 images/s"  # 10 images in 9 seconds; the boundary is not learning


def test_times_name_all_hardware_a_run_was_on() -> None:
    begun = Timing("a GPU")
    for event in (TaskStarted(0, ("a",), True), ChunkLearnt(1, 0, 10, {}), TaskStarted(1, ("b",), True)):
        begun(event, 1.0)
    assert begun.summary()["hardware"] == ["a GPU"]
    gone_on = Timing("a processor", begun.state())
    gone_on(RunStarted(2, 3, 30, 20), 1.0)
    assert gone_on.summary()["hardware"] == ["a GPU"]
    gone_on(ChunkLearnt(2, 1, 10, {}), 1.0)
    assert gone_on.summary()["hardware"] == ["a GPU", "a processor"]
    assert [task["hardware"] for task in gone_on.summary()["tasks"]] == [["a GPU"], ["a GPU", "a processor"]]


def test_reading_counts_as_training_also_where_a_chunk_is_predicted_first(tiny: ViT) -> None:
    class Slow:
        def __init__(self, whole: Any) -> None:
            self.whole = whole

        @property
        def labels(self) -> Any:
            return self.whole.labels

        def load(self, indices: Any) -> Any:
            until = time.perf_counter() + 0.02
            while time.perf_counter() < until:
                pass
            return self.whole.load(indices)

    dataset = colours()
    object.__setattr__(dataset, "train", Slow(dataset.train))
    stream = stream_over(dataset)
    for measures, clock in ((Measures(), None), (Measures(prequential=True), None), (Measures(), Clock(1e-3))):
        timing = Timing("a GPU")
        dispatch(run_stream(colour_means(tiny), dataset, stream, measures=measures, clock=clock), [timing])
        assert timing.summary()["train_seconds"] > 0.02 * len(stream.chunks)


def test_a_task_in_which_everything_was_missed_has_no_speed() -> None:
    speed = Speed()
    speed(TaskStarted(0, ("a",), True), 1.0)
    speed(ChunkMissed(1, 0, 10), 1.0)
    assert str(speed) == "nothing learnt"

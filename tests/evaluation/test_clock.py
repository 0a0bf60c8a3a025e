"""The virtual clock against a simulation that moves second by second, and by hand."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.small_data import colours, stream_over
from prol.backbones import ViT
from prol.evaluation import Arrivals, ChunkLearnt, ChunkMissed, Clock, Cursor, Finished, StepTimed, run_stream
from prol.learner import Learner
from testing.colour_means import ColourMeans, colour_means


def walk(clock: Clock, sizes: list[int]) -> tuple[list[int], Cursor]:
    """Which chunks are learnt."""
    arrivals, cursor, learnt = Arrivals(clock, sizes), Cursor(), []
    for chunk in range(len(sizes)):
        if not arrivals.missed(chunk, cursor):
            arrivals.learnt(chunk, cursor, measured=-1.0)
            learnt.append(chunk)
    return learnt, cursor


def simulated(ticks_between: int, steps: list[int], keep: int, chunks: int) -> list[int]:
    """The same by events on a whole-number clock: a waiting line with room for `keep`, the oldest gives way."""
    waiting: deque[int] = deque()
    learnt: list[int] = []
    free_at, tick, come = 0, 0, 0
    while come < chunks or waiting:
        if tick >= free_at and waiting:
            learnt.append(waiting.popleft())
            free_at = tick + steps[(len(learnt) - 1) % len(steps)]
            continue
        if come < chunks and tick == (come + 1) * ticks_between:
            if tick >= free_at and not waiting:
                learnt.append(come)
                free_at = tick + steps[(len(learnt) - 1) % len(steps)]
            else:
                waiting.append(come)
                while len(waiting) > keep:
                    waiting.popleft()
            come += 1
            continue
        tick += 1
    return learnt


@given(
    ticks=st.integers(1, 7),
    steps=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    keep=st.integers(0, 4),
    chunks=st.integers(1, 40),
)
def test_the_clock_agrees_with_a_simulation_tick_by_tick(ticks: int, steps: list[int], keep: int, chunks: int) -> None:
    clock = Clock(rate=1 / ticks, keep=keep, step_seconds=tuple(map(float, steps)))
    learnt, cursor = walk(clock, [1] * chunks)
    assert learnt == simulated(ticks, steps, keep, chunks)
    assert cursor.steps == len(learnt)


def test_a_learner_that_is_fast_enough_misses_nothing_however_the_last_bits_fall() -> None:
    learnt, cursor = walk(Clock(rate=100, step_seconds=0.1), [10] * 1000)
    assert len(learnt) == 1000
    assert cursor.lag_most == pytest.approx(0.1)


def test_half_the_speed_learns_every_second_chunk() -> None:
    learnt, cursor = walk(Clock(rate=100, step_seconds=0.2), [10] * 10)
    assert learnt == [0, 2, 4, 6, 8]
    assert cursor.lag_sum == pytest.approx(5 * 0.2)


def test_a_line_of_two_keeps_the_newest() -> None:
    # Chunk k comes at k + 1; steps of 2.5 end at 3.5, 6, 8.5. When 4 comes at 5, 2 gives way to it; 6 and 7 push out
    # 4 and 5 before 8.5.
    learnt, _ = walk(Clock(rate=1, keep=2, step_seconds=2.5), [1] * 8)
    assert learnt == [0, 1, 3, 6, 7]


def test_a_long_enough_line_misses_nothing_and_the_lag_grows() -> None:
    learnt, cursor = walk(Clock(rate=10, keep=100, step_seconds=0.3), [1] * 20)
    assert len(learnt) == 20
    assert cursor.lag_most == pytest.approx(20 * 0.3 - 19 * 0.1)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"rate": float("inf")}, "rate"),
        ({"rate": 1, "keep": -1}, "keep"),
        ({"rate": 1, "step_seconds": -0.5}, "step seconds"),
        ({"rate": 1, "step_seconds": ()}, "step seconds"),
    ],
)
def test_impossible_clocks_are_refused(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Clock(**arguments)


CLOCK = Clock(rate=40, keep=1, step_seconds=(0.05, 0.4, 0.02))


def test_a_run_on_a_clock_tells_what_it_missed_and_how_late_it_was(tiny: ViT) -> None:
    dataset = colours()
    stream = stream_over(dataset)
    events = list(run_stream(colour_means(tiny), dataset, stream, clock=CLOCK))
    learnt = [event.chunk - 1 for event in events if isinstance(event, ChunkLearnt)]
    missed = [event.chunk - 1 for event in events if isinstance(event, ChunkMissed)]
    sizes = [len(chunk.indices) for chunk in stream.chunks]
    assert learnt == walk(CLOCK, sizes)[0]
    assert sorted(learnt + missed) == list(range(len(sizes)))
    assert missed
    last = events[-1]
    assert isinstance(last, Finished)
    clock = last.result.clock
    assert clock is not None
    assert (clock.missed_chunks, clock.missed_images) == (len(missed), sum(sizes[i] for i in missed))
    assert clock.missed_share == clock.missed_images / sum(sizes)
    lags = [event.lag for event in events if isinstance(event, StepTimed)]
    assert clock.mean_lag == pytest.approx(sum(lags) / len(lags))
    assert clock.most_lag == max(lags)


def test_the_mean_lag_of_a_single_step_is_its_lag(tiny: ViT) -> None:
    dataset = colours()
    *_, last = run_stream(colour_means(tiny), dataset, stream_over(dataset), clock=Clock(rate=1000, step_seconds=100.0))
    assert isinstance(last, Finished)
    clock = last.result.clock
    assert clock is not None
    assert clock.missed_chunks == len(stream_over(dataset).chunks) - 1
    assert clock.mean_lag == clock.most_lag == pytest.approx(100)


def test_with_given_times_a_run_on_a_clock_repeats_and_goes_on_from_any_checkpoint(tiny: ViT) -> None:
    dataset = colours(bad_train=[3, 20])
    stream = stream_over(dataset)
    learner, cursor = colour_means(tiny), Cursor()
    events, points = [], []
    for event in run_stream(learner, dataset, stream, cursor, clock=CLOCK):
        events.append(event)
        if isinstance(event, ChunkLearnt | ChunkMissed):
            points.append((len(events), learner.state(), json.dumps(asdict(cursor))))
    assert len(points) == len(stream.chunks)
    for behind, state, written in points:
        twin = colour_means(tiny)
        twin.load_state(*state)
        assert list(run_stream(twin, dataset, stream, Cursor(**json.loads(written)), clock=CLOCK)) == events[behind:]


def test_without_given_times_they_are_measured(tiny: ViT) -> None:
    dataset = colours()
    events = list(run_stream(colour_means(tiny), dataset, stream_over(dataset), clock=Clock(rate=1e-3)))
    times = [event.seconds for event in events if isinstance(event, StepTimed)]
    assert all(0 < seconds < 100 for seconds in times)
    assert not [event for event in events if isinstance(event, ChunkMissed)]


def test_one_clone_is_warmed_up_before_the_first_measured_step(tiny: ViT, monkeypatch: pytest.MonkeyPatch) -> None:
    clones, clone = list[Learner](), ColourMeans.clone

    def noted(learner: ColourMeans) -> Learner:
        clones.append(clone(learner))
        return clones[-1]

    monkeypatch.setattr(ColourMeans, "clone", noted)
    dataset = colours()
    list(run_stream(colour_means(tiny), dataset, stream_over(dataset), clock=Clock(rate=1e-3)))
    assert [learner.steps for learner in clones] == [1]

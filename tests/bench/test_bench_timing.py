"""Blocks, medians and turns, on a made-up clock."""

from __future__ import annotations

import warnings

import pytest
import torch
from made_up_time import MadeUpTime

from prol.bench.timing import Pace, Timed, measure, row_of, synchronizer, time_step


def test_a_block_is_awaited_once_and_divided_by_its_steps() -> None:
    time = MadeUpTime()
    timed = time_step(time.step("s", 9.0, 1.0, 2.0, 3.0, 4.0), Pace(1, 2, steps=2), time.wait, time.clock)
    assert timed == Timed((1.5, 3.5), steps=2)
    assert time.log == ["s", "wait", "wait", "s", "s", "wait", "wait", "s", "s", "wait"]


def test_the_median_counts_and_the_raw_times_are_stored() -> None:
    row = Timed((0.5, 0.1, 0.2), steps=4).row(images=10)
    assert (row["median"], row["low"], row["high"], row["images_per_second"]) == (0.2, 0.1, 0.5, 50.0)
    assert row["seconds"] == [0.5, 0.1, 0.2]
    assert "images" not in Timed((0.5,), 1).row()
    assert Timed((1.0, 3.0), 1).median == 2.0


@pytest.mark.parametrize(("seconds", "steps"), [(0.1, 5), (2.0, 1), (0.0, 1000), (0.01, 50)])
def test_a_block_lasts_about_half_a_second_unless_its_steps_are_given(seconds: float, steps: int) -> None:
    time = MadeUpTime()
    assert time_step(time.step("s", seconds), Pace(0, 1), time.wait, time.clock).steps == steps


def test_several_steps_take_turns() -> None:
    time, said = MadeUpTime(), []
    makers = {"a": lambda: time.step("a", 1.0), "b": lambda: time.step("b", 7.0, 2.0, 4.0, 6.0)}
    results = measure(makers, Pace(1, 3, steps=1), time.wait, said.append, time.clock)
    assert results == {"a": Timed((1.0, 1.0, 1.0), 1, warmup=1.0), "b": Timed((2.0, 4.0, 6.0), 1, warmup=7.0)}
    assert [name for name in time.log if name != "wait"] == list("abababab")
    assert said == ["a: ready after 1.0 s", "b: ready after 7.0 s"]


def test_a_step_that_fails_does_not_cost_the_others() -> None:
    time = MadeUpTime()
    calls = {"late": 0}

    def cannot_be_made() -> None:
        raise RuntimeError("no\n  compiler")

    def never_warm() -> None:
        raise ValueError("the loss is not finite")

    def late() -> None:
        calls["late"] += 1
        if calls["late"] > 2:
            raise ValueError("the loss is not finite")

    makers = {
        "made": cannot_be_made,
        "warm": lambda: never_warm,
        "late": lambda: late,
        "good": lambda: time.step("", 1),
    }
    results = measure(makers, Pace(1, 4, steps=1), time.wait, clock=time.clock)
    assert results["made"] == "RuntimeError: no compiler"
    assert results["warm"] == results["late"] == "ValueError: the loss is not finite"
    assert isinstance(results["good"], Timed)
    assert row_of(results["made"], 10) == {"error": "RuntimeError: no compiler"}


def test_a_mistake_in_the_arguments_is_raised() -> None:
    def wrong() -> None:
        raise ValueError("blocks=99")

    time = MadeUpTime()
    with pytest.raises(ValueError, match="blocks=99"):
        measure({"wrong": wrong}, Pace(), time.wait, clock=time.clock)


def test_warnings_of_the_warm_up_are_stored_with_the_times() -> None:
    time = MadeUpTime()
    take, left = time.step("s", 1.0), [1, 2]

    def step() -> None:
        take()
        if left:
            left.pop()
            warnings.warn("steps cannot be captured", stacklevel=1)

    result = measure({"s": lambda: step}, Pace(3, 1, steps=1), time.wait, clock=time.clock)["s"]
    assert row_of(result, 1)["warnings"] == ["steps cannot be captured"]


@pytest.mark.parametrize("wrong", [{"warmup": -1}, {"repeats": 0}, {"steps": 0}])
def test_a_pace_must_be_possible(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must be at least"):
        Pace(**wrong)


def test_a_gpu_is_warmed_up_longer_and_awaited() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert Pace.for_device(gpu).warmup > Pace.for_device(cpu).warmup
    assert Pace.for_device(gpu, warmup=1).warmup == 1
    assert synchronizer(cpu)() is None
    assert synchronizer(gpu) is not synchronizer(cpu)

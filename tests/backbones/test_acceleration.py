"""Shapes that may never come again: no compiler and no plans for them, and everything as before afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch

from prol.backbones.acceleration import compiled, uncompiled


def plans() -> bool:
    return bool(torch.backends.cuda.cudnn_sdp_enabled())


@pytest.fixture(params=[True, False], ids=["plans", "no plans"])
def before(request: pytest.FixtureRequest) -> Iterator[bool]:
    usual = plans()
    torch.backends.cuda.enable_cudnn_sdp(request.param)
    yield request.param
    torch.backends.cuda.enable_cudnn_sdp(usual)


def test_attention_is_not_planned_for_inside_and_is_as_before_afterwards(before: bool) -> None:
    with uncompiled():
        assert not plans()
        with uncompiled():
            assert not plans()
        assert not plans()
    assert plans() is before


def test_a_failure_inside_leaves_everything_as_it_was(before: bool) -> None:
    with pytest.raises(ValueError, match="bad chunk"), uncompiled():
        raise ValueError("bad chunk")
    assert plans() is before


def test_threads_that_overlap_leave_everything_as_it_was(before: bool) -> None:
    first_is_in, second_is_in, first_is_out = Event(), Event(), Event()

    def first() -> None:
        with uncompiled():
            first_is_in.set()
            assert second_is_in.wait(10)
        first_is_out.set()

    def second() -> bool:
        assert first_is_in.wait(10)
        with uncompiled():
            second_is_in.set()
            assert first_is_out.wait(10)
            return plans()

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.submit(first), threads.submit(second)
        one.result()
        assert not other.result()
    assert plans() is before


def test_compiled_functions_run_as_they_are_inside_and_in_no_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: lambda: f"{function()}, compiled")
    call = compiled(lambda: "called")
    with uncompiled(), ThreadPoolExecutor(1) as threads:
        assert call() == "called"
        assert threads.submit(call).result() == "called, compiled"
    assert call() == "called, compiled"

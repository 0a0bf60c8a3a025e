"""Mutated input of every kind is refused or read; a hang, a crash and an error that is not documented are logged."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import fuzz
import fuzz_mutations


@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_mutated_input_violates_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # some kinds set it
    with closing(fuzz.KINDS[kind](tmp_path)) as subject:
        memory = fuzz.fuzz_inputs.Memory(subject.process)
        records = [fuzz.given(kind, subject, memory, 0, number) for number in range(15)]
    line = fuzz.summary(kind, 0, records)
    assert line["violations"] == []
    assert 0.1 < line["passed_first_check"] < 0.95
    assert sum(line["outcomes"].values()) == 15


def test_a_log_is_resumed_after_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "log.jsonl"
    for inputs in (4, 7):
        words = ["fuzz.py", "--kinds", "parquet", "--batch", "4", "--inputs", str(inputs), "--out", str(out)]
        monkeypatch.setattr(sys, "argv", words)
        assert fuzz.main() == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["kind"], line["seed"], line["inputs"]) for line in lines] == [("parquet", 0, 4), ("parquet", 1, 3)]


class Stubborn(fuzz.Worker):
    """Answers the first input of each of its processes, then does what `ending` says."""

    def __init__(self, place: Path, ending: str) -> None:
        super().__init__("stubborn", place)
        self.ending = ending

    def command(self) -> list[str]:
        answer = json.dumps({"passed": True, "outcome": "read", "seconds": 0.0, "memory": 0.0})
        program = f"""import os, signal, sys
print("ready", flush=True)
sys.stdin.readline()
print({answer!r}, flush=True)
{self.ending}"""
        return [sys.executable, "-c", program]


@pytest.mark.parametrize(("ending", "what"), [("signal.pause()", "hang"), ("os._exit(3)", "crash 3")])
def test_an_input_that_hangs_or_crashes_is_logged_and_the_next_one_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, what: str
) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0.2)
    worker = Stubborn(tmp_path, ending)
    try:
        line = fuzz.summary("stubborn", 5, worker.batch(5, 4))
    finally:
        worker.stop()
    assert line["outcomes"] == {"read": 2, what: 2}
    assert [(one["what"], one["seed"], one["number"]) for one in line["violations"]] == [(what, 5, 1), (what, 5, 3)]


class Careless(fuzz.fuzz_inputs.Images):
    """A reader with every fault."""

    def give(self, content: dict[str, bytes]) -> str:
        del content
        raise ZeroDivisionError("not documented")


class Slow(Careless):
    def give(self, content: dict[str, bytes]) -> str:
        until = time.monotonic() + fuzz.SECONDS
        while time.monotonic() < until:
            pass
        return f"read {len(content)}"


class Large(Careless):
    def give(self, content: dict[str, bytes]) -> str:
        return f"read {len(content) + len(bytearray(b'x') * 100_000_000)}"


def violation_by(reader: type[Careless], place: Path) -> dict[str, Any]:
    fuzz.SECONDS, fuzz.MEGABYTES = 0.3, 60.0
    subject = reader(place)
    memory = fuzz.fuzz_inputs.Memory(subject.process)
    memory.forget_peak()
    found: dict[str, Any] = fuzz.given("images", subject, memory, 0, 0)["violation"]
    return found


def test_errors_time_and_memory_are_violations(tmp_path: Path) -> None:
    """In a process of its own, whose memory nothing else changes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as child:
        for reader, what in ((Careless, "ZeroDivisionError"), (Slow, "hang"), (Large, "memory")):
            found = child.submit(violation_by, reader, tmp_path).result()
            assert (found["what"], found["seed"], found["number"]) == (what, 0, 0)
            assert set(found["zlib"]) == {"image"}


def test_mutations_repeat_and_leave_the_valid_value_as_it_was() -> None:
    valid = {"a": [1, {"b": "text"}], "c": 0.5}
    drawn = [fuzz_mutations.edited(valid, Random(seed)) for seed in range(50)]
    assert repr(drawn) == repr([fuzz_mutations.edited(valid, Random(seed)) for seed in range(50)])
    assert valid == {"a": [1, {"b": "text"}], "c": 0.5}
    assert sum(one == valid for one in drawn) < 10
    spoilt = [fuzz_mutations.spoil(bytes(range(200)), Random(seed)) for seed in range(50)]
    assert spoilt == [fuzz_mutations.spoil(bytes(range(200)), Random(seed)) for seed in range(50)]

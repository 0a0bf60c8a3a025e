"""Gives mutated input to the service and the readers of files, and logs what they make of it.

    OMP_NUM_THREADS=1 python tools/fuzz.py --inputs 10000 --out results/fuzz/log.jsonl

Each line of the log is a batch: kind, seed and commit, the number of inputs, the share that passes the first check,
outcomes by class, the longest time, the memory above that at the start, and every violation. A violation is a response
of status 5xx, an exception that is not documented, a refusal in several lines, a crash, more than 5 seconds, or more
than 500 MB above the memory at the start. What is in the log is not repeated: if the script is stopped, it resumes
after the last line. `fuzz_inputs.py`, `fuzz_data.py` and `fuzz_requests.py` have the kinds of input.
`--one KIND SEED NUMBER` gives a single input again and prints its record.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import fuzz_data
import fuzz_inputs
from fuzz_requests import Requests

KINDS: dict[str, Callable[[Path], fuzz_inputs.Kind]] = {
    "requests": Requests,
    "images": fuzz_inputs.Images,
    "artifacts": fuzz_inputs.Artifacts,
    "parquet": fuzz_data.Parquet,
    "archives": fuzz_data.Archives,
    "sweeps": fuzz_inputs.Sweeps,
}

SECONDS, MEGABYTES = 5.0, 500.0
START_SECONDS = 180.0
MOST_SHOWN = 20_000
"""Bytes of a compressed input that are written to the log; a larger one is named by its kind, seed and number."""


class Worker:
    """A process that gives inputs of one kind; it is replaced when it hangs or crashes."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place = kind, place
        self.errors = place / f"{kind}.stderr"
        self.process: subprocess.Popen[bytes] | None = None
        self.read = b""

    def start(self) -> None:
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"},
                start_new_session=True,
            )
        self.read = b""
        if not self._line(START_SECONDS):
            raise RuntimeError(f"{self.kind} does not start: {self._said()}")

    def command(self) -> list[str]:
        return [sys.executable, __file__, "--worker", self.kind, "--place", tempfile.mkdtemp(dir=self.place)]

    def stop(self) -> None:
        """With everything that it has started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def batch(self, seed: int, count: int) -> list[dict[str, Any]]:
        """A record for each input."""
        records: list[dict[str, Any]] = []
        while len(records) < count:
            if self.process is None:
                self.start()
            assert self.process is not None
            assert self.process.stdin is not None
            self.process.stdin.write(f"{seed} {len(records)} {count}\n".encode())
            self.process.stdin.flush()
            while len(records) < count:
                line = self._line(2 * SECONDS)
                if not line:
                    records.append(self._lost(seed, len(records), hangs=line is None))
                    break
                records.append(json.loads(line))
        return records

    def _lost(self, seed: int, number: int, hangs: bool) -> dict[str, Any]:
        """The record of an input that ended the process, or after which nothing came."""
        assert self.process is not None
        if hangs:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGABRT)  # it prints where it is
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(SECONDS)
        what = "hang" if hangs else f"crash {self.process.wait()}"
        self.stop()
        violation = {"what": what, "seed": seed, "number": number, "said": self._said()}
        return {"passed": True, "outcome": what, "seconds": SECONDS, "memory": 0.0, "violation": violation}

    def _line(self, seconds: float) -> bytes | None:
        """The next line of the process, empty if it ends, None if it says nothing for so long."""
        assert self.process is not None
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self.read:
            pipe = self.process.stdout.fileno()
            if not select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            piece = os.read(pipe, 1 << 16)
            if not piece:
                return b""
            self.read += piece
        line, _, self.read = self.read.partition(b"\n")
        return line

    def _said(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:]


def summary(kind: str, seed: int, records: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kind": kind,
        "seed": seed,
        "inputs": len(records),
        "passed_first_check": round(sum(one["passed"] for one in records) / len(records), 3),
        "outcomes": dict(Counter(one["outcome"] for one in records).most_common()),
        "longest_seconds": round(max(one["seconds"] for one in records), 3),
        "memory_mb": round(max(one["memory"] for one in records), 1),
        "violations": [one["violation"] for one in records if "violation" in one],
    }


def work(kind: str, place: Path) -> None:
    """Of the process: reads seed, first and last number, writes a line for each input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what is printed must not get among the answers
    faulthandler.enable()
    with contextlib.closing(KINDS[kind](place)) as subject:
        memory = fuzz_inputs.Memory(subject.process)
        print("ready", file=answers)
        for line in sys.stdin:
            seed, first, stop = map(int, line.split())
            memory.forget_peak()
            for number in range(first, stop):
                print(json.dumps(given(kind, subject, memory, seed, number)), file=answers)


def given(kind: str, subject: fuzz_inputs.Kind, memory: fuzz_inputs.Memory, seed: int, number: int) -> dict[str, Any]:
    """The record of one input."""
    content = subject.draw(Random(f"{kind} {seed} {number}"))
    what, said, begin = "", "", time.monotonic()
    try:
        outcome = subject.give(content)
    except fuzz_inputs.Violation as error:
        outcome = what = str(error)
    except subject.documented as error:
        outcome = type(error).__name__
    except Exception as error:
        outcome = what = type(error).__name__
        said = "".join(traceback.format_exception(error)[-8:])
    seconds, peak = time.monotonic() - begin, memory.above_start()
    passed = subject.passed(content)
    try:
        subject.clean()
    except fuzz_inputs.Violation as error:
        what = what or str(error)
    if seconds > SECONDS:
        what = what or "hang"
    if peak > MEGABYTES:
        what = what or "memory"
        memory.forget_peak()
    record = {"passed": passed, "outcome": outcome, "seconds": seconds, "memory": peak}
    if not what:
        return record
    shown = {name: base64.b64encode(zlib.compress(data, 9)).decode() for name, data in content.items()}
    if sum(map(len, shown.values())) > MOST_SHOWN:
        shown = {}
    violation = {"what": what, "seed": seed, "number": number, "said": said[-3000:], "zlib": shown}
    return record | {"violation": violation | {"seconds": seconds, "memory_mb": peak}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--inputs", type=int, default=10_000, help="of each kind, those of the log included")
    parser.add_argument("--batch", type=int, default=500, help="inputs of one line of the log")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no batch begins after so many minutes")
    parser.add_argument("--out", type=Path, help="log to which each batch is added as a line of JSON")
    parser.add_argument("--one", nargs=3, metavar=("KIND", "SEED", "NUMBER"), help="give one input again")
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        work(asked.worker, asked.place)
        return 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        if asked.one:
            return again(asked.one[0], int(asked.one[1]), int(asked.one[2]), Path(place))
        if asked.out is None:
            parser.error("--out is needed")
        return run(asked, Path(place))


def again(kind: str, seed: int, number: int, place: Path) -> int:
    with contextlib.closing(KINDS[kind](place)) as subject:
        record = given(kind, subject, fuzz_inputs.Memory(subject.process), seed, number)
    print(json.dumps(record, indent=1))
    return "violation" in record


def run(asked: argparse.Namespace, place: Path) -> int:
    until = time.monotonic() + 60 * asked.minutes
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    revision = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(revision, capture_output=True, text=True, check=False).stdout.strip()
    workers = {kind: Worker(kind, place) for kind in asked.kinds}
    waiting = list(asked.kinds)
    try:
        while waiting and time.monotonic() < until:
            kind = waiting.pop(0)
            mine = [line for line in done if line["kind"] == kind]
            count = min(asked.batch, asked.inputs - sum(line["inputs"] for line in mine))
            if count <= 0:
                workers[kind].stop()
                continue
            waiting.append(kind)
            seed = max((line["seed"] for line in mine), default=-1) + 1
            line = {"commit": commit} | summary(kind, seed, workers[kind].batch(seed, count))
            done.append(line)
            with asked.out.open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
            found = [one["what"] for one in line["violations"]]
            print(f"{kind} {seed}: {count} inputs, {found or 'no violation'}", flush=True)
    finally:
        for worker in workers.values():
            worker.stop()
    for kind in asked.kinds:
        lines = [line for line in done if line["kind"] == kind]
        inputs, wrong = sum(line["inputs"] for line in lines), sum(len(line["violations"]) for line in lines)
        passed = sum(line["inputs"] * line["passed_first_check"] for line in lines) / max(1, inputs)
        print(f"{kind}: {inputs} inputs, {passed:.0%} passed the first check, {wrong} violations")
    return 1 if any(line["violations"] for line in done if line["kind"] in asked.kinds) else 0


if __name__ == "__main__":
    sys.exit(main())

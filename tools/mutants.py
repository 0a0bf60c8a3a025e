"""Measures what the fast tests catch: draws small faults in src/prol and runs the tests against each of them.

    python tools/mutants.py [--count 126] [--seed 0] [--package PACKAGE] [--limit N] [--jobs 1] [--near]
        [--survivors] [--list]
    python tools/mutants.py --summary

A mutant is one edit at one place of the syntax tree. Each package (a folder of src/prol, or the modules at its top)
gets at least five mutants, the others are drawn in proportion to the lines that can be mutated; packages take turns.
Not mutated: docstrings, f-strings, annotations, `__all__`, assertions, TYPE_CHECKING blocks, arguments of exceptions
and warnings, logging, decorators, arguments in HINTS, and code that needs a GPU: branches on `is_cuda`, `== "cuda"` or
`torch.cuda`, what follows a guard that returns on the CPU, functions that use a CUDA stream or event unconditionally,
and GPU_ONLY.

Mutants run in a copy of the working tree: first the fast tests of the package and the module's doctests, files named
after the module first. Mutants that pass these are put into one tree for all fast tests, and for tests that fail there
the mutant is found by halves. A mutant is caught by the first test that fails, provided that this test passes without
the mutant, or by the time limit if no test ends for PATIENCE seconds. Test sessions are forked from a process that has
imported the libraries, not prol. Each outcome is written to results/mutants/mutants.json at once, and a second call
runs what is missing; mutants whose code is gone are replaced. `--survivors` runs survivors again. Reasons for
survivors are entered by hand in results/mutants/reasons.json: {"id": "reason"}.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from mutant_drawing import PACKAGE, TOP, Mutant, draw, mutants_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results/mutants/mutants.json"
REASONS = RESULTS.with_name("reasons.json")
PATIENCE = 120.0
COLLECTING, HANGING, PASSED_NEAR = "collecting ", "time limit in ", "passed its package"

DRIVER = """
import importlib, json, os, signal, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
import importlib.metadata
import pytest
if "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ:
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        plugin.load()

class Watch:
    def __init__(self, say, given):
        self.say, self.given = say, given

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        def rank(item, places):
            name = os.path.relpath(item.path, self.given["tree"])
            return next((i for i, place in enumerate(places) if (name + "/").startswith(place + "/")), len(places))
        items.sort(key=lambda item: rank(item, self.given["first"]))

    def pytest_runtest_logstart(self, nodeid):
        self.say({"test": nodeid})

    def pytest_runtest_logreport(self, report):
        self.say({"test": report.nodeid, "failed": report.failed})

    def pytest_collectreport(self, report):
        self.say({"test": report.nodeid, "failed": report.failed})

for line in sys.stdin:
    given = json.loads(line)
    child = os.fork()
    if not child:
        os.setsid()
        told = os.dup(1)
        quiet = os.open(given["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.chdir(given["tree"])
        status = 70
        try:
            say = lambda what: os.write(told, (json.dumps(what) + "\\n").encode())
            say({"pid": os.getpid()})
            status = int(pytest.main(given["arguments"], plugins=[Watch(say, given)]))
        except BaseException:
            pass
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    print(json.dumps({"exit": status}), flush=True)
"""
"""Runs sessions of pytest, one after the other, each forked from here, and reports each test as it ends."""

LIBRARIES = (
    "numpy torch torchvision timm safetensors.torch pyarrow.parquet typer.testing rich jinja2 hypothesis.stateful"
)
LIBRARIES += " fastapi.testclient matplotlib.pyplot sklearn.linear_model"


class Copy:
    """A copy of the working tree in which one mutant at a time is tested."""

    def __init__(self, place: Path, root: Path = ROOT, libraries: str = LIBRARIES, patience: float = PATIENCE) -> None:
        self.tree, self.patience = place / "tree", patience
        self._log, self._sound = place / "pytest.log", set[str]()
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-zco", "--exclude-standard"], check=True, capture_output=True, text=True
        )
        for name in listed.stdout.split("\0")[:-1]:
            if (root / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.tree / name)
        own = {
            "PYTHONPATH": f"{self.tree / 'src'}:{self.tree / 'tests'}",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        for name in ("HOME", "TMPDIR"):
            (place / name).mkdir()
            own[name] = str(place / name)
        self._driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, *libraries.split()],
            env=os.environ | own,
            cwd=place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def close(self) -> None:
        self._driver.kill()
        self._driver.communicate()

    def examine_near(self, mutant: Mutant) -> dict[str, Any]:
        """Runs the tests of the mutant's package."""
        began, near = time.monotonic(), _near(self.tree, mutant)
        with self._mutated([mutant]):
            failed = self._failures(near, _first(self.tree, mutant, near))
        outcome = "caught" if failed else PASSED_NEAR
        if failed and self._fails_without(failed):
            outcome = "error"
        return _outcome(outcome, failed, time.monotonic() - began)

    def examine_far(self, batch: list[Mutant]) -> Iterator[tuple[Mutant, dict[str, Any]]]:
        """Runs all tests against several mutants at once, then finds for tests that failed which mutant they catch."""
        began = time.monotonic()
        with self._mutated(batch):
            failed = self._failures([name for name in ("tests", "src", "docs") if (self.tree / name).exists()], most=0)
        seconds = (time.monotonic() - began) / len(batch)
        broken_off = [name for name in failed if not _is_test(name)]
        if broken_off and len(batch) == 1:
            yield batch[0], _outcome("caught", broken_off, seconds)
            return
        if broken_off:  # such a session says too little
            half = len(batch) // 2
            yield from self.examine_far(batch[:half])
            yield from self.examine_far(batch[half:])
            return
        left = list(batch)
        while failed and left:
            began, test = time.monotonic(), failed[0]
            culprit = None if self._fails_without([test]) else self._culprit(left, test)
            if culprit is None:
                failed = failed[1:]
            else:
                left.remove(culprit)
                yield culprit, _outcome("caught", [test], time.monotonic() - began + seconds)
            with self._mutated(left):
                next_one = self._failures(failed) if failed and left else []
            failed = failed[failed.index(next_one[0]) :] if next_one and next_one[0] in failed else []
        yield from ((one, _outcome("survived", [], seconds)) for one in left)

    def _culprit(self, batch: list[Mutant], test: str) -> Mutant | None:
        """A mutant with which alone the test fails, found by halves; None if it takes several of them."""
        with self._mutated(batch):
            if not self._failures([test]):
                return None
        half = len(batch) // 2
        return (self._culprit(batch[:half], test) or self._culprit(batch[half:], test)) if half else batch[0]

    @contextmanager
    def _mutated(self, mutants: list[Mutant]) -> Iterator[None]:
        sources = {file: (self.tree / file).read_text(encoding="utf-8") for file in {one.file for one in mutants}}
        changed = dict(sources)
        for mutant in sorted(mutants, key=lambda one: -one.edit.start):  # positions before an edit stay
            changed[mutant.file] = mutant.edit.apply(changed[mutant.file])
        try:
            self._write(changed)
            yield
        finally:
            self._write(sources)

    def _write(self, sources: dict[str, str]) -> None:
        for name, source in sources.items():
            (self.tree / name).write_text(source, encoding="utf-8")
            # A compiled file is trusted by time and size, and both may be equal.
            Path(importlib.util.cache_from_source(str(self.tree / name))).unlink(missing_ok=True)

    def _fails_without(self, failed: list[str]) -> set[str]:
        """Those tests that fail without a mutant as well."""
        unsure = [name for name in failed if _is_test(_place(name)) and _place(name) not in self._sound]
        broken = (
            {_place(name) for name in self._failures([_place(name) for name in unsure], most=0)} if unsure else set()
        )
        self._sound |= {_place(name) for name in unsure} - broken
        return {name for name in failed if _place(name) in broken}

    def _failures(self, places: list[str], first: list[str] | None = None, most: int = 1) -> list[str]:
        """What fails in a session of pytest that ends after `most` failures, 0 for no limit."""
        options = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu", f"--maxfail={most}"]
        given = {"tree": str(self.tree), "log": str(self._log), "arguments": [*options, *places], "first": first or []}
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(json.dumps(given).encode() + b"\n")
        failed, pid, last = dict[str, None](), 0, "tests"
        while True:
            if pid and not select.select([self._driver.stdout], [], [], self.patience)[0]:
                failed[HANGING + last] = None
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            said = json.loads(self._driver.stdout.readline())
            pid, last = said.get("pid", pid), said.get("test", last)
            if said.get("failed"):
                failed[last if "::" in last else COLLECTING + last] = None
            if "exit" in said:
                if said["exit"] not in (0, 5) and not failed:  # 5: no test was collected
                    failed[f"{COLLECTING}tests: pytest ended with {said['exit']}"] = None
                return list(failed)


def _outcome(outcome: str, failed: list[str], seconds: float) -> dict[str, Any]:
    return {"outcome": outcome, "caught_by": failed[0] if failed else None, "seconds": round(seconds, 1)}


def _place(failed: str) -> str:
    return failed.removeprefix(COLLECTING).removeprefix(HANGING)


def _is_test(name: str) -> bool:
    return "::" in name and not name.startswith((COLLECTING, HANGING))


def _near(tree: Path, mutant: Mutant) -> list[str]:
    """The tests of the mutant's package, of a method those of its package, and the doctests of its module."""
    folder = (tree / "tests").joinpath(*Path(mutant.file).relative_to(PACKAGE).parts[:-1])
    if mutant.package != "methods" or not folder.exists():
        folder = tree / "tests" / mutant.package
    tests = [folder] if mutant.package != TOP else sorted((tree / "tests").glob("test_*.py"))
    return [str(place.relative_to(tree)) for place in tests if place.exists()] + [mutant.file]


def _first(tree: Path, mutant: Mutant, places: list[str]) -> list[str]:
    """Test files in the order in which they are likely to fail: by name, by package, by what they mention."""
    module = Path(mutant.file).relative_to(Path(PACKAGE).parent).with_suffix("")
    words = {module.stem, module.parent.name}
    files = {file for place in places for file in _test_files(tree / place)}

    def score(file: Path) -> tuple[int, int, int, str]:
        text = file.read_text(encoding="utf-8")
        named = set(file.stem.split("_")) | {file.stem.removeprefix("test_")}
        beside = file.parent.name == module.parent.name
        mentioned = ".".join(module.parts) in text
        return -(module.stem in file.stem), -(2 * mentioned + beside), -len(words & named), str(file)

    return [str(file.relative_to(tree)) for file in sorted(files, key=score)]


def _test_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("test_*.py"))


def read(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text(encoding="utf-8"))["mutants"] if file.exists() else []


def write(file: Path, seed: int, records: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps({"seed": seed, "mutants": records}, indent=1) + "\n", encoding="utf-8")
    beside.replace(file)


def summary(records: list[dict[str, Any]], reasons: dict[str, str]) -> str:
    done = [record for record in records if record.get("outcome") in ("caught", "survived")]
    per_package = {
        package: [one for one in done if one["package"] == package]
        for package in sorted({one["package"] for one in done})
    }
    lines = []
    for package, those in [*per_package.items(), ("all", done)]:
        caught = sum(one["outcome"] == "caught" for one in those)
        lines.append(f"{package:14}{caught:4} of {len(those):4} caught{100 * caught / max(1, len(those)):7.1f} %")
    undecided = sum(record.get("outcome") == PASSED_NEAR for record in records)
    lines.append(
        f"{len(records) - len(done) - undecided} not run, {undecided} passed their packages and are not counted yet"
    )
    for one in done:
        if one["outcome"] == "survived":
            place = f"{one['id']} {one['file']}:{one['line']} {one['kind']}"
            lines += [
                place,
                f"  - {one['before']}",
                f"  + {one['after']}",
                f"  {reasons.get(one['id'], 'no reason yet')}",
            ]
    return "\n".join(lines)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=126, help="mutants to draw, at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package", help="run mutants of one package only")
    parser.add_argument("--limit", type=int, help="run so many at most")
    parser.add_argument("--jobs", type=int, default=1, help="mutants side by side")
    parser.add_argument("--near", action="store_true", help="run the tests of the mutants' packages only")
    parser.add_argument("--survivors", action="store_true", help="run survivors again")
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    parser.add_argument("--summary", action="store_true", help="print the share caught, and the survivors")
    given = parser.parse_args()
    stored = {record["id"]: record for record in read(RESULTS)}
    reasons = json.loads(REASONS.read_text(encoding="utf-8")) if REASONS.exists() else {}
    if given.summary:
        print(summary(list(stored.values()), reasons))
        return
    drawn = draw(mutants_of(ROOT), given.count, given.seed, tuple(stored))
    records = {
        one.id: one.record | {k: v for k, v in stored.get(one.id, {}).items() if k not in one.record} for one in drawn
    }
    again = {None, "error"} | ({"survived", PASSED_NEAR} if given.survivors else set())
    wanted = [one for one in drawn if records[one.id].get("outcome") in again and given.package in (None, one.package)]
    wanted = wanted[: given.limit]
    if given.list:
        for one in drawn:
            print(f"{one.id} {one.file}:{one.line} {one.kind}\n  - {one.before}\n  + {one.after}")
        print(
            Counter(one.package for one in drawn),
            Counter(one.kind for one in drawn),
            len(drawn),
            f"{len(wanted)} to run",
        )
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that temporary folders go however it is stopped
    with ExitStack() as stack:
        copies = threading.local()
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants_", ignore_cleanup_errors=True)))

        def copy() -> Copy:
            if not hasattr(copies, "copy"):
                copies.copy = Copy(Path(tempfile.mkdtemp(dir=place)))
                stack.callback(copies.copy.close)
            return copies.copy

        writing = threading.Lock()

        def note(mutant: Mutant, outcome: dict[str, Any], number: str) -> None:
            with writing:
                records[mutant.id] |= outcome
                write(RESULTS, given.seed, list(records.values()))
            said = f"{outcome['outcome']} {outcome['caught_by'] or ''} {outcome['seconds']} s"
            print(f"[{number}] {mutant.file}:{mutant.line} {mutant.kind}: {said}", flush=True)

        def examine_far(batch: list[Mutant]) -> None:
            for mutant, outcome in copy().examine_far(batch):
                note(mutant, outcome, "all tests")

        threads = ThreadPoolExecutor(given.jobs)
        stack.callback(threads.shutdown, cancel_futures=True)
        near = {threads.submit(lambda one: copy().examine_near(one), mutant): mutant for mutant in wanted}
        for number, future in enumerate(as_completed(near), 1):
            note(near[future], future.result(), f"{number}/{len(wanted)}")
        left = [one for one in drawn if records[one.id].get("outcome") == PASSED_NEAR and not given.near]
        print(f"{len(left)} mutants passed the tests of their packages", flush=True)
        batches = [left[first :: given.jobs] for first in range(min(given.jobs, len(left)))]
        list(threads.map(examine_far, batches))
    print(summary(list(records.values()), reasons))


if __name__ == "__main__":
    main()

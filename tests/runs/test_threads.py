"""How many threads a run uses: what is free when it starts, recorded, and the same when it is resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from prol.runs import Plan, RunFolder, resume, start, threads
from prol.runs.display import Silent
from prol.runs.executors import Serial
from prol.runs.rate_curve import rate_curve
from runs.small_runs import environment, small_plan

Machine = Callable[[int], None]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine of four processors; the call sets how many threads of other processes are running on it."""
    load, before = tmp_path / "loadavg", torch.get_num_threads()

    def set_running(others: int) -> None:
        load.write_text(f"0.01 0.13 0.75 {others + 1}/89 24088\n", encoding="ascii")

    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_LOAD", load)
    monkeypatch.setattr(threads, "_SECONDS", 0)
    monkeypatch.setattr(threads, "_OWN_GROUP", tmp_path / "no_cgroup")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    torch.set_num_threads(4)
    set_running(0)
    yield set_running
    torch.set_num_threads(before)


def recorded(path: Path) -> int:
    return int(json.loads((path / "config.json").read_text())["threads"])


@pytest.mark.parametrize(
    ("limit", "processors", "others", "count"),
    [(2, 2, 0, 2), (2, 2, 1, 1), (2, 2, 9, 1), (4, 64, 30, 4), (64, 64, 30, 34), (1, 2, 0, 1)],
)
def test_a_run_has_the_processors_that_others_leave_free(limit: int, processors: int, others: int, count: int) -> None:
    assert threads.thread_count(limit, processors, others) == count


def test_affinity_and_torchs_own_number_are_limits(running: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads.free_threads() == 4
    running(1)
    assert threads.free_threads() == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3})
    assert threads.free_threads() == 2
    torch.set_num_threads(1)
    assert threads.free_threads() == 1


def test_a_number_in_the_environment_is_not_reduced(running: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    running(9)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads.free_threads() == 4


def test_the_quota_of_a_container_or_of_a_group_above_it_counts(
    running: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del running
    own, groups = tmp_path / "cgroup", tmp_path / "groups"
    (groups / "a/b").mkdir(parents=True)
    own.write_text("1:cpu:/other\n0::/a/b\n", encoding="ascii")
    monkeypatch.setattr(threads, "_OWN_GROUP", own)
    monkeypatch.setattr(threads, "_GROUPS", groups)
    assert threads.available_processors() == 4
    (groups / "a/b/cpu.max").write_text("max 100000\n", encoding="ascii")
    assert threads.available_processors() == 4
    (groups / "a/cpu.max").write_text("250000 100000\n", encoding="ascii")
    assert threads.available_processors() == 2
    (groups / "a/b/cpu.max").write_text("50000 100000\n", encoding="ascii")
    assert threads.available_processors() == 1


def test_without_proc_the_load_average_is_used(running: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    del running
    monkeypatch.setattr(threads, "_LOAD", Path("/nowhere/loadavg"))
    monkeypatch.setattr(os, "getloadavg", lambda: (2.2, 0.0, 0.0), raising=False)
    assert threads.running_elsewhere() == 2
    monkeypatch.delattr(os, "getloadavg")
    assert threads.running_elsewhere() == 0


def test_a_busy_loop_counts_at_once() -> None:
    loop = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert loop.stdout is not None
        loop.stdout.readline()
        assert threads.running_elsewhere() >= 1
    finally:
        loop.kill()
        loop.communicate()


def test_a_run_records_its_threads_and_is_resumed_with_them_whatever_the_load(
    tmp_path: Path, micro_vit: str, running: Machine
) -> None:
    class Interruption(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interruption

    seen: list[int] = []
    running(2)
    with pytest.raises(Interruption):
        start(small_plan(micro_vit, threads=None), tmp_path / "run", listeners=[interrupt])
    assert recorded(tmp_path / "run") == 2
    running(0)
    resume(tmp_path / "run", listeners=[lambda *_: seen.append(torch.get_num_threads())])
    assert recorded(tmp_path / "run") == 2
    assert set(seen) == {2}
    assert torch.get_num_threads() == 4


def test_a_given_number_of_threads_wins(tmp_path: Path, micro_vit: str, running: Machine) -> None:
    running(2)
    start(small_plan(micro_vit, threads=3, limit_per_class=1), tmp_path / "run")
    assert recorded(tmp_path / "run") == 3


def test_runs_that_are_compared_have_the_same_number(tmp_path: Path, micro_vit: str, running: Machine) -> None:
    plan = small_plan(micro_vit, threads=None, limit_per_class=1)
    paths = [tmp_path / name for name in ("first", "second", "third")]
    plans: dict[Path, Plan] = dict.fromkeys(paths, plan)
    start(plan, paths[2])
    running(1)
    for path, problem in Serial(Silent()).execute(plans, lambda *_: None):
        assert problem is None
        running(2)
        assert RunFolder(path).status() == "finished"
    assert [recorded(path) for path in paths] == [3, 3, 4]  # the last one had begun before


def test_all_rates_of_a_curve_have_the_same_number(tmp_path: Path, micro_vit: str, running: Machine) -> None:
    class Loading(Silent):
        def __call__(self, *_: object) -> None:
            running(3)

    running(1)
    rate_curve(small_plan(micro_vit, threads=None, limit_per_class=1), [10, 20], tmp_path / "curve", Loading())
    assert {recorded(config.parent) for config in (tmp_path / "curve").glob("*/config.json")} == {3}


@pytest.mark.slow
@pytest.mark.parametrize(("given", "policy"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
@pytest.mark.parametrize("program", [["-m", "prol", "params", "ncm"], ["-c", "import prol, torch"]])
def test_threads_do_not_spin_unless_the_environment_says_so(given: str | None, policy: str, program: list[str]) -> None:
    surroundings = {name: value for name, value in environment().items() if name != "OMP_WAIT_POLICY"}
    surroundings |= {"OMP_DISPLAY_ENV": "TRUE"} | ({} if given is None else {"OMP_WAIT_POLICY": given})
    ended = subprocess.run([sys.executable, *program], env=surroundings, capture_output=True, text=True, check=True)
    assert f"OMP_WAIT_POLICY = '{policy}'" in ended.stderr, "as OpenMP itself has read it"


@pytest.mark.slow
def test_the_library_changes_neither_torchs_threads_nor_the_environment() -> None:
    script = (
        "import os, torch; torch.set_num_threads(3); before = dict(os.environ); import prol, prol.runs; "
        "prol.create('ncm', device='cpu'); assert torch.get_num_threads() == 3; assert dict(os.environ) == before"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=environment())

"""Runs on Ray: which are resumed, what is refused. Tests that start a cluster are slow."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

import prol
from integrations.killed_workers import small_points, sweep_and_kill
from prol.integrations.ray_executor import RayExecutor, RunEnded, RunRequest, _same_prol, _Schedule
from prol.runs import Plan, RunFolder
from prol.runs.comparison import compare
from runs.small_runs import contents, environment, small_plan


@pytest.mark.slow
def test_a_killed_workers_run_is_resumed_and_results_are_those_of_serial_runs(tmp_path: Path, small_vit: str) -> None:
    """Four runs, two at a time; the first worker to end a task is killed."""
    points = small_points(small_vit, ["prol:blocks=2"], {"lr": [0.01, 0.1], "chunk": [2]}, [0, 1])
    killer, found = sweep_and_kill(points, tmp_path, 0, RayExecutor(jobs=2))
    assert found["finished_on_ray"] == found["finished_one_by_one"] == 4
    assert found["runs_that_differ"] == []
    assert found["runs_taken_up_again"] == 1
    assert len(killer.resumed_after()) == 1
    assert not ray.is_initialized()
    assert list((tmp_path / "ray").glob(".shared-*")) == []


@pytest.mark.slow
def test_twenty_four_runs_with_a_worker_killed_half_way_end_as_serial_ones(tmp_path: Path, small_vit: str) -> None:
    """PROL_RAY_LOG names a file to which what was found is written."""
    grid = {"lr": [0.01, 0.05, 0.1], "chunk": [1, 2]}
    points = small_points(small_vit, ["prol:blocks=2", "head_only"], grid, [0, 1])
    killer, found = sweep_and_kill(points, tmp_path, 11, RayExecutor(jobs=2))
    about = {"command": "PROL_RAY_LOG=FILE pytest tests/integrations/test_ray_executor.py -m slow -k twenty_four"}
    about |= {"ray": ray.__version__, "cluster": "local, 2 CPUs", "cpus_per_run": 1}
    about |= {"compared": "config, events, result and model of each run, byte for byte"}
    if "PROL_RAY_LOG" in os.environ:
        Path(os.environ["PROL_RAY_LOG"]).write_text(json.dumps(about | found, indent=2) + "\n")
    assert found["finished_on_ray"] == found["finished_one_by_one"] == 24
    assert found["runs_that_differ"] == []
    assert found["runs_taken_up_again"] == 1
    assert min(killer.resumed_after()) > 0


@pytest.mark.slow
def test_an_existing_cluster_is_used_and_left_as_it_is(tmp_path: Path, small_vit: str) -> None:
    script = (
        "import ray, sys; context = ray.init('local', num_cpus=2, include_dashboard=False, log_to_driver=False); "
        "print(context.address_info['gcs_address'], flush=True); sys.stdin.read(); "
        "print(len(ray.nodes()), ray.available_resources()['CPU'])"
    )
    command = [sys.executable, "-c", script]
    # A cluster that Ray begins in this process makes it ask for tokens from then on: the other one then must, too.
    variables = environment() | {"RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "disabled")}
    cluster = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables, cwd=tmp_path
    )
    assert cluster.stdout is not None
    address = cluster.stdout.readline().strip()
    plans = [small_plan(small_vit, workers=1), small_plan(small_vit, "head_only", options={"lr": 1e308}, workers=1)]
    said: list[str] = []
    executor = RayExecutor(address, cpus=0.5, memory=0.1, retries=0)
    comparison = compare(plans, [0, 1], tmp_path / "ray", executor=executor, say=said.append)
    assert comparison.rows == compare(plans[:1], [0, 1], tmp_path / "ray").rows
    assert [row.name for row in comparison.rows] == ["ncm"]
    assert comparison.rows[0].side_by_side
    assert all("the loss is not finite" in problem for problem in comparison.failures.values())
    assert len(comparison.failures) == 2
    compare(plans[:1], [0, 1], tmp_path / "serial")
    for seed in (0, 1):
        assert contents(tmp_path / f"ray/ncm-seed{seed}") == contents(tmp_path / f"serial/ncm-seed{seed}")
    rest, _ = cluster.communicate("", timeout=120)
    assert rest.split() == ["1", "2.0"]


@pytest.mark.slow
def test_runs_share_a_gpu_as_they_ask(tmp_path: Path, small_vit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is a number to Ray: a cluster may declare one that does not exist."""

    def report_what_is_reserved(request: RunRequest) -> Iterator[str | RunEnded]:
        yield f"{request.path.name} {ray.get_runtime_context().get_assigned_resources()['GPU']}"
        yield RunEnded(None)

    monkeypatch.setattr("prol.integrations.ray_executor.work", report_what_is_reserved)
    plan, heard = small_plan(small_vit), []
    pending = {tmp_path / name: plan for name in "abcd"}
    ray.init("local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)
    try:
        executor = RayExecutor(cpus=1, gpus=0.25)
        ended = list(executor.execute(pending, lambda path, line: heard.append((path.name, line))))
        assert sorted(ended) == [(path, None) for path in pending]
        assert sorted(heard) == [(name, f"{name} 0.25") for name in "abcd"]
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_runs_stop_when_nobody_listens_and_can_be_resumed(tmp_path: Path, small_vit: str) -> None:
    """On a cluster that outlives it, so that the runs would too."""
    plan = small_plan(small_vit, "prol", chunk=1, limit_per_class=40, workers=1)
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        under_way = threading.Event()

        def hear(path: Path, line: str) -> None:
            del path
            if "task 1/3" in line:
                under_way.set()
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            dict(RayExecutor().execute({tmp_path / "run": plan}, hear))
        assert under_way.is_set()
        folder = RunFolder(tmp_path / "run")
        # The only place in the cluster is free again once the worker is gone.
        other = small_plan(small_vit, workers=1)
        assert dict(RayExecutor().execute({tmp_path / "next": other}, lambda *_: None)) == {tmp_path / "next": None}
        assert folder.status() == "unfinished"
        with folder.locked():
            pass
    finally:
        ray.shutdown()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"cpus": 0}, "cpus must be a finite number above 0"),
        ({"gpus": 1.5}, "gpus must be a fraction of one or a whole number"),
        ({"gpus": -1}, "gpus must be"),
        ({"memory": 0}, "memory must be a finite number above 0"),
        ({"retries": -1}, "retries must be at least 0"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"address": "ray://head:10001"}, "call this on a machine of the cluster"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RayExecutor(**settings)


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "[::1]:{port}", "no such machine:{port}"])
def test_an_address_where_nothing_listens_is_refused_before_ray_tries_for_minutes(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("Ray was contacted"))
    with socket.socket() as taken:  # bound, so that nobody else listens there
        taken.bind(("127.0.0.1", 0))
        executor = RayExecutor(address.format(port=taken.getsockname()[1]))
        with pytest.raises(ValueError, match="start one with `ray start --head`"):
            next(executor.execute({tmp_path / "run": Plan("ncm", "glyphs")}, lambda *_: None))


def test_a_local_cluster_imports_the_prol_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = str(Path(prol.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    with _same_prol():
        assert os.environ["PYTHONPATH"].split(os.pathsep) == [source, "elsewhere"]
    assert os.environ["PYTHONPATH"] == "elsewhere"
    monkeypatch.delenv("PYTHONPATH")
    with _same_prol():
        script = "import prol; print(prol.__file__)"
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == prol.__file__
    assert "PYTHONPATH" not in os.environ


def test_a_missing_package_is_named(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = command("sweep", "ncm", "digits", "--executor", "ray", "--out", str(tmp_path / "out"))
    assert (outcome.code, outcome.err) == (2, "prol: ray is missing: pip install 'prol[ray]'\n")


class InThisProcess:
    """As much of Ray as a schedule uses. A task is a generator; an exception that it yields ends its worker."""

    exceptions = ray.exceptions

    def __init__(self) -> None:
        self.reserved: dict[str, Any] = {}
        self.cancelled = 0

    def remote(self, **reserved: Any) -> Any:
        self.reserved = reserved
        return lambda function: SimpleNamespace(remote=function)

    def wait(self, streams: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return streams[:num_returns], streams[num_returns:]

    def get(self, message: Any) -> Any:
        if isinstance(message, Exception):
            raise message
        return message

    def cancel(self, stream: Any, force: bool) -> None:
        self.cancelled += force
        stream.close()


def scheduled(cluster: InThisProcess, place: Path, names: str, **settings: Any) -> tuple[Any, list[str]]:
    """What a schedule of these runs yields, and what it reports."""
    plan, heard = Plan("ncm", "digits"), list[str]()
    requests = {Path(name): RunRequest(plan, place / name, place, "", place, 1.0) for name in names}
    executor = RayExecutor(**settings)
    return _Schedule(cluster, executor, requests, lambda path, line: heard.append(f"{path}: {line}")).execute(), heard


def test_a_lost_run_is_resumed_as_often_as_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[tuple[str, bool]] = []

    def work(request: RunRequest) -> Iterator[Any]:
        attempts.append((request.path.name, request.again))
        yield "started"
        if request.path.name == "c":
            return  # without any last message
        if request.path.name == "b" or not request.again:
            yield ray.exceptions.WorkerCrashedError()
        yield RunEnded(None)

    monkeypatch.setattr("prol.integrations.ray_executor.work", work)
    cluster = InThisProcess()
    ended, heard = scheduled(cluster, tmp_path, "abc", retries=1, jobs=1, gpus=0.5, memory=2)
    outcome = dict(ended)
    assert outcome[Path("a")] is None
    assert outcome[Path("b")] == "its worker died (WorkerCrashedError), also after 1 retries"
    assert outcome[Path("c")] == "its worker died (it ended without a message), also after 1 retries"
    assert attempts == [(name, again) for name in "abc" for again in (False, True)]
    assert heard[:3] == [
        "a: started",
        "a: its worker died (WorkerCrashedError); resuming from its last checkpoint",
        "a: started",
    ]
    reserved = {"num_cpus": 1, "num_gpus": 0.5, "memory": 2_000_000_000, "max_retries": 0, "num_returns": "streaming"}
    assert cluster.reserved == reserved


def test_an_error_before_a_run_starts_is_its_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ray.exceptions.RayTaskError("work", "Traceback\nModuleNotFoundError: no prol", ModuleNotFoundError())
    monkeypatch.setattr("prol.integrations.ray_executor.work", lambda _: iter([error]))
    [(_, problem)], _ = scheduled(InThisProcess(), tmp_path, "a")
    assert problem.startswith("its worker could not start (ModuleNotFoundError: no prol): install the same prol")


def test_runs_are_cancelled_when_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "prol.integrations.ray_executor.work", lambda r: (m for m in [RunEnded(None)] if r.path.name == "a")
    )
    cluster = InThisProcess()
    ended, _ = scheduled(cluster, tmp_path, "abc", jobs=2)
    assert next(ended) == (Path("a"), None)
    ended.close()
    assert cluster.cancelled == 1

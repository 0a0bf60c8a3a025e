from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

import prol
from integrations.killed_workers import small_points, sweep_and_kill
from prol.integrations.ray_executor import RayExecutor, _same_prol
from prol.integrations.ray_worker import Errand, Over, reason_to_refuse, source_sha256, work
from prol.runs import Plan, RunFolder
from prol.runs.comparison import compare
from runs.small_runs import contents, environment, small_plan


def errand(plan: Plan, place: Path, **changes: Any) -> Errand:
    (place / "marker").touch()
    return replace(Errand(plan, place / "run", place / "marker", source_sha256(), place, cpus=1.0), **changes)


def test_a_killed_workers_run_goes_on_and_all_results_are_those_of_serial_runs(tmp_path: Path, small_vit: str) -> None:
    """Four runs, two at a time; the first worker to end a task is killed."""
    points = small_points(small_vit, ["prol:blocks=2"], {"lr": [0.01, 0.1], "chunk": [2]}, [0, 1])
    killer, found = sweep_and_kill(points, tmp_path, 0, RayExecutor(jobs=2))
    assert found["finished_on_ray"] == found["finished_one_by_one"] == 4
    assert found["runs_that_differ"] == []
    assert found["runs_taken_up_again"] == 1
    assert len(killer.gone_on_after()) == 1
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
    assert min(killer.gone_on_after()) > 0


@pytest.mark.slow
def test_a_cluster_that_is_there_is_used_and_left_as_it_is(tmp_path: Path, small_vit: str) -> None:
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
    """A GPU is a number to Ray: a cluster may be told of one that is not there."""

    def say_what_is_set_aside(errand: Errand) -> Iterator[str | Over]:
        yield f"{errand.path.name} {ray.get_runtime_context().get_assigned_resources()['GPU']}"
        yield Over(None)

    monkeypatch.setattr("prol.integrations.ray_executor.work", say_what_is_set_aside)
    plan, heard = small_plan(small_vit), []
    pending = {tmp_path / name: plan for name in "abcd"}
    ray.init("local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)
    try:
        executor = RayExecutor(cpus=1, gpus=0.25)
        ended = list(executor.execute(pending, lambda path, word: heard.append((path.name, word))))
        assert sorted(ended) == [(path, None) for path in pending]
        assert sorted(heard) == [(name, f"{name} 0.25") for name in "abcd"]
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_who_stops_listening_stops_the_runs_and_they_can_go_on(tmp_path: Path, small_vit: str) -> None:
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


def test_a_worker_tells_a_run_line_by_line_and_then_its_end(tmp_path: Path, small_vit: str) -> None:
    words = list(work(errand(small_plan(small_vit, workers=1), tmp_path)))
    assert words[-1] == Over(None)
    assert f"at work in process {os.getpid()} on" in str(words[0])
    assert any("task 3/3" in str(word) for word in words)
    assert RunFolder(tmp_path / "run").status() == "finished"
    diverging = small_plan(small_vit, "head_only", options={"lr": 1e308})
    *_, diverged = work(errand(diverging, tmp_path, path=tmp_path / "diverging"))
    assert isinstance(diverged, Over)
    assert "the loss is not finite" in str(diverged.problem)


def test_a_worker_that_shares_no_files_or_has_another_prol_says_so(tmp_path: Path) -> None:
    good = errand(Plan("ncm", "digits"), tmp_path)
    assert reason_to_refuse(good) is None
    nowhere = list(work(replace(good, marker=tmp_path / "elsewhere/marker")))
    assert isinstance(nowhere[-1], Over)
    assert "does not see" in str(nowhere[-1].problem)
    assert "on a file system that all machines of the cluster share" in str(nowhere[-1].problem)
    assert "has another prol" in str(reason_to_refuse(replace(good, source="other")))


def test_a_run_taken_up_again_waits_for_the_lock_of_the_worker_that_is_lost(tmp_path: Path, small_vit: str) -> None:
    lost = RunFolder(tmp_path / "run")
    lost.path.mkdir()
    told: list[Any] = []
    with lost.locked():
        at_work = threading.Thread(
            target=lambda: told.extend(work(errand(small_plan(small_vit, workers=1), tmp_path, again=True)))
        )
        at_work.start()
        at_work.join(timeout=0.3)
        assert at_work.is_alive()
    at_work.join(timeout=60)
    assert told[-1] == Over(None)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"cpus": 0}, "cpus must be above 0"),
        ({"gpus": 1.5}, "gpus must be a part of one or a whole number"),
        ({"gpus": -1}, "gpus must be"),
        ({"memory": 0}, "memory must be above 0"),
        ({"retries": -1}, "retries must be 0"),
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
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("Ray was asked"))
    with socket.socket() as taken:  # bound, so that nobody else listens there
        taken.bind(("127.0.0.1", 0))
        executor = RayExecutor(address.format(port=taken.getsockname()[1]))
        with pytest.raises(ValueError, match="begin one with `ray start --head`"):
            next(executor.execute({tmp_path / "run": Plan("ncm", "glyphs")}, lambda *_: None))


def test_a_cluster_of_this_machine_imports_the_prol_that_began_it(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_missing_package_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['ray'] = None; from prol.cli.app import main; "
        f"main(['sweep', 'ncm', 'digits', '--executor', 'ray', '--out', {str(tmp_path / 'out')!r}])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment(), cwd=tmp_path
    )
    assert (ended.returncode, ended.stderr) == (2, "prol: ray is missing: pip install 'prol[ray]'\n")

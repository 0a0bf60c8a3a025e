"""`prol learn`: what it says, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import prol
from data.small_sets import fill_classes
from prol.cli.learn import make_executor
from prol.integrations.ray_executor import RayExecutor
from prol.runs.executors import LocalProcesses


@pytest.fixture
def photos(tmp_path: Path) -> str:
    return str(fill_classes(tmp_path / "photos", {"ant": 4, "bee": 3}))


@pytest.mark.slow
def test_a_folder_is_learnt_in_processes(tmp_path: Path, micro_vit: str, photos: str, command: Any) -> None:
    bad = Path(photos, "bee", "art_1.jpg")
    bad.write_bytes(b"no image")
    flags = ["--backbone", micro_vit, "--device", "cpu", "--shards", "2", "--out", str(tmp_path / "out")]
    code, said, err = command("learn", photos, "--method", "randumb:features=20", *flags)
    assert code == 0
    assert f"skipped unreadable image {bad}: " in err
    assert "randumb: 7 images in 2 shards" in err
    assert "randumb with 2 classes of 6 images, from 2 shards" in said
    learner = prol.load(tmp_path / "out", device="cpu")
    assert dict(zip(learner.classes, learner.class_counts().tolist(), strict=True)) == {"ant": 4, "bee": 2}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--method", "l2p"], "l2p cannot learn in shards, because its learners cannot be merged: use prol_plus, ncm"),
        (["--method", "ncm", "--shards", "8"], "7 images cannot be divided into 8 shards: use at most 7"),
        (["--method", "ncm", "--shards", "0"], "--shards"),
        (["--method", "ncm", "--on", "slurm"], "--on 'slurm' is not known: use processes, ray or ray:ADDRESS"),
        (["--method", "ncm", "--on", "ray:"], "--on 'ray:' is not known"),
        (["--method", "ncm", "--on", "ray:ray://head:1"], "with the address auto"),
        (["--method", "ncm", "--gpus-per-worker", "1"], "--gpus-per-worker is for --on ray: add that, or leave it out"),
        (["--method", "nmc"], "nmc"),
        (["--method", "ncm:colour=red"], "colour"),
        ([], "--method"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    tmp_path: Path, photos: str, command: Any, flags: list[str], says: str
) -> None:
    code, said, err = command("learn", photos, "--out", str(tmp_path / "out"), *flags)
    assert (code, said) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("out*"))


def test_a_folder_that_exists_is_not_replaced(tmp_path: Path, photos: str, command: Any) -> None:
    code, _, err = command("learn", photos, "--method", "ncm", "--out", str(tmp_path))
    assert (code, "exists already: choose another --out" in err) == (2, True)


def test_workers_are_as_the_flags_say() -> None:
    assert make_executor("processes", 3, 1, device="cpu") == LocalProcesses(3, 1)
    assert make_executor("ray", None, 2, device="cpu") == RayExecutor(None, 1, 0, None, 2, None)
    assert make_executor("ray:auto", 4, 0, 2, 0.5) == RayExecutor("auto", 2, 0.5, None, 0, 4)
    assert make_executor("ray:head:6379", None, 2) == RayExecutor("head:6379", 1, 0, None, 2, None)


def test_processes_are_as_many_as_processors_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, running, jobs in ((8, 3, 5), (2, 7, 1), (64, 0, 16)):
        monkeypatch.setattr("prol.runs.threads.available_processors", lambda found=processors: found)
        monkeypatch.setattr("os.cpu_count", lambda found=processors: found)
        monkeypatch.setattr("prol.runs.threads.running_elsewhere", lambda found=running: found)
        assert make_executor("processes", None, 2, device="cpu") == LocalProcesses(jobs, 2)


def test_without_ray_one_sentence_says_how_to_install_it(
    tmp_path: Path, photos: str, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = command("learn", photos, "--method", "ncm", "--on", "ray", "--out", str(tmp_path / "out"))
    assert (code, err) == (2, "prol: ray is missing: pip install 'prol[ray]'\n")

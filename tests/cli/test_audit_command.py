"""`prol audit`: of a saved learner, of a run, as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import prol
from prol.runs import start
from prol.testing.stream import STREAM, teach
from runs.small_runs import small_plan


@pytest.fixture
def saved(tmp_path: Path, micro_vit: str) -> Path:
    teach(prol.create("ncm", micro_vit, device="cpu"), STREAM[:2]).save(tmp_path / "pets")
    return tmp_path / "pets"


def test_a_saved_learner_is_audited_as_a_table(saved: Path, command: Any) -> None:
    flags = ("--strict", "--few", "6", "--images", "16", "--device", "cpu")
    code, out, err = command("audit", str(saved), "--all", *flags)
    assert (code, err) == (0, "")
    for words in ("sums", "statistic", "grows with", "model.safetensors", "bee (4)", "- It"):
        assert words in out
    verdict = command("audit", str(saved), *flags).out
    assert verdict.splitlines()[1].startswith("- It")
    assert out.startswith(verdict.rpartition("3 tensors of ")[0])
    assert "grows with" not in verdict
    assert verdict.rstrip().endswith("3 files: --all lists them")


def test_json_holds_the_same_and_goes_to_a_file(saved: Path, command: Any, tmp_path: Path) -> None:
    (saved / "service").mkdir()
    (saved / "service" / "000000001-ab.safetensors").write_bytes(b"12345")
    (saved / "service" / "000000001.journal").write_bytes(b"123456")
    (saved / "diary.txt").write_text("who was here")
    file = tmp_path / "audit.json"
    code, out, _ = command("audit", str(saved), "--format", "json", "--out", str(file), "--device", "cpu")
    assert (code, out) == (0, "")
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["keeps_no_samples"] is True
    assert [one["name"] for one in found["tensors"]] == ["sums", "counts", "random"]
    assert found["few"] == [{"label": "bee", "count": 4}, {"label": "cat", "count": 4}]
    holds = {one["name"]: one["holds"] for one in found["files"]}
    assert "before a class was removed" in holds["service/000000001-ab.safetensors"]
    assert "each chunk since the last checkpoint" in holds["service/000000001.journal"]
    assert "The journal of a service (6 bytes)" in found["findings"][-1]
    assert holds["diary.txt"] == "not known to prol: look"
    assert len(holds) == 6


def test_strict_fails_where_samples_are_kept(tmp_path: Path, micro_vit: str, command: Any) -> None:
    learner = teach(prol.create("ranpac", micro_vit, device="cpu", features=30, memory="all"), STREAM[:2])
    learner.save(tmp_path / "hoard")
    assert command("audit", str(tmp_path / "hoard"), "--device", "cpu").code == 0
    code, out, _ = command("audit", str(tmp_path / "hoard"), "--strict", "--all", "--device", "cpu")
    assert code == 1
    assert "It stores 14 single samples" in out
    assert "SAMPLES" in out


def test_a_run_is_audited_with_all_its_files(tmp_path: Path, micro_vit: str, command: Any) -> None:
    run = start(small_plan(micro_vit), tmp_path / "run").path
    code, out, err = command("audit", str(run), "--format", "json", "--device", "cpu")
    assert (code, err) == (0, "")
    holds = {one["name"]: one["holds"] for one in json.loads(out)["files"]}
    assert {"config.json", "events.jsonl", "model/model.safetensors"} <= set(holds)
    assert any(what == "a whole learner of an earlier moment" for what in holds.values())
    assert "not known to prol: look" not in holds.values()


def test_mistakes_are_told(saved: Path, command: Any) -> None:
    for given, words in (
        ([str(saved / "nowhere")], "no saved learner"),
        ([str(saved), "--format", "csv"], "use table or json"),
        ([str(saved), "--images", "0"], "images at least 1"),
    ):
        code, _, err = command("audit", *given)
        assert code == 2
        assert words in err

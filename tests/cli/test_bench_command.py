"""`prol bench`: what it prints, writes and draws, and how it reports mistakes. Measured times are not checked."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from prol.bench.workload import MethodSpec
from prol.cli.bench import read_content

ROOT = Path(__file__).parents[2]
SPEED = ROOT / "results" / "speed"
FILES = sorted({file.name for file in SPEED.glob("*.json")} - {"h200_frozen_pass.json"})
"""The one left out is the result of runs, not of a benchmark."""
QUICK = ("--device", "cpu", "--repeats", "2", "--steps", "1", "--warmup", "0")


@pytest.fixture(autouse=True)
def small_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # slow in a process with so many modules
    monkeypatch.setattr("prol.bench.machine._SIDE", {"cpu": 16})
    monkeypatch.setattr("prol.bench.machine._COPIED_BYTES", {"cpu": 1000})


def test_without_a_verb_the_verbs_are_listed(command) -> None:
    code, text, _ = command("bench")
    assert code == 0
    assert all(verb in text for verb in ("speed", "ladder", "growth", "files", "peak", "show"))


@pytest.mark.slow
def test_speed_is_printed_and_written(command, small_vit: str, tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    code, text, progress = command(
        *("bench", "speed", "prol:tune_norms=false", "ncm", "--backbone", small_vit, "--precision", "float64"),
        *("--chunk", "2,3", "--batch", "4", "--classes", "12", "--side", "20", *QUICK, "--out", str(out)),
    )
    assert code == 0
    assert all(word in text for word in ("prol:tune_norms=false", "% of matrix peak", "matrix product, float64"))
    assert progress.count("images/s") == 6
    content = json.loads(out.read_text())
    assert content["format"] == 1
    assert content["settings"] | {"backbone": "", "sha256": ""} == {
        "methods": ["prol:tune_norms=false", "ncm"],
        "classes": 12,
        "first_task": False,
        "side": 20,
        "backbone": "",
        "sha256": "",
        "precision": "float64",
        "pace": {"warmup": 0, "repeats": 2, "steps": 1, "block_seconds": 0.5},
    }
    assert [(row["what"], row["images"]) for row in content["rows"]] == [("train", 2), ("train", 3), ("predict", 4)] * 2
    assert content["rows"][0]["share_of_peak"] > 0
    code, again, _ = command("bench", "show", str(out))
    assert code == 0
    assert again in text


@pytest.mark.slow
def test_the_plain_step_is_on_the_ladder_where_python_sees_it(
    command, small_vit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, picture = tmp_path / "ladder.json", tmp_path / "ladder.svg"
    arguments = ("bench", "ladder", "--backbone", small_vit, "--chunk", "2", *QUICK, "--out", str(out))
    monkeypatch.syspath_prepend(str(ROOT))
    code, text, _ = command(*arguments, "--plot", str(picture))
    assert code == 0
    assert "times as long as the bare passes" in text
    assert picture.is_file()
    assert [row["rung"] for row in json.loads(out.read_text())["rows"]] == ["plain float32", "float32", "bare passes"]
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path or ".").resolve() != ROOT])
    for name in ("benchmarks", "benchmarks.plain_prol"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    code, text, _ = command(*arguments)
    assert code == 0
    assert "plain float32" not in text


def test_growth_is_printed_and_drawn(command, small_vit: str, tmp_path: Path) -> None:
    out, picture = tmp_path / "growth.json", tmp_path / "growth.png"
    code, text, _ = command(
        *("bench", "growth", "ncm", "--backbone", small_vit, "--classes", "10,100", "--chunk", "2", "--batch", "2"),
        *(*QUICK, "--out", str(out), "--plot", str(picture)),
    )
    assert code == 0
    assert "most memory, GiB" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [row["train_ratio"] > 0 for row in json.loads(out.read_text())["rows"]] == [True, True]


def test_files_of_a_folder_are_measured(command, small_vit: str, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(5):
            noise = np.random.default_rng(number).integers(0, 256, (20, 24 + number, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "pets" / name / f"{number}.png")
    out = tmp_path / "files.json"
    arguments = ("--backbone", small_vit, "--device", "cpu", "--chunk", "2", "--repeats", "1", "--workers", "1")
    code, text, _ = command("bench", "files", str(tmp_path / "pets"), "ncm", *arguments, "--out", str(out))
    assert code == 0
    assert "The limit is" in text
    content = json.loads(out.read_text())
    assert [row["what"] for row in content["rows"]] == ["decoding", "learning", "both"]
    assert content["limit"] in ("decoding", "learning")


def test_the_peak_is_printed(command) -> None:
    code, text, _ = command("bench", "peak", "--device", "cpu", "--repeats", "1")
    assert code == 0
    assert "TFLOP/s" in text
    assert "GB/s" in text


def test_a_row_that_failed_makes_the_command_fail_and_the_rest_is_there(
    command, small_vit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = MethodSpec.learner

    def learner(self: MethodSpec, backbone, chunk: int):
        if self.method == "ncm":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, backbone, chunk)

    monkeypatch.setattr(MethodSpec, "learner", learner)
    out = tmp_path / "speed.json"
    code, text, _ = command(
        *("bench", "speed", "ncm", "slda", "--backbone", small_vit, "--chunk", "2", "--batch", "2", "--no-peak"),
        *(*QUICK, "--out", str(out)),
    )
    assert code == 1
    assert text.count("failed: ncm") == 2
    assert len(json.loads(out.read_text())["rows"]) == 4
    code, text, _ = command("bench", "growth", "ncm", "--backbone", small_vit, "--classes", "10", *QUICK)
    assert code == 1
    assert "failed: ncm 10: OutOfMemoryError: CUDA out of memory" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("speed", "prl"), "unknown method 'prl'; did you mean 'prol'?"),
        (("speed", "prol:rate=1"), "unknown option 'rate'"),
        (("speed", "rate=1"), "'rate=1' is not a method"),
        (("speed", "--chunk", "1,x"), "--chunk '1,x' is not a list of whole numbers"),
        (("speed", "--batch", "0"), "--batch '0' is not a list of whole numbers from 1 on"),
        (("speed", "--classes", "1"), "--classes"),
        (("speed", "--device", "cuda:99"), "device 'cuda:99' was requested"),
        (("speed", "--device", "cpu", "--precision", "half"), "precision 'half' is not known"),
        (("speed", "--out", "no/speed.json"), "the folder no does not exist"),
        (("speed", "--threads", "0"), "--threads"),
        (("speed", "--warmup", "-1"), "--warmup"),
        (("speed", "--repeats", "0"), "--repeats"),
        (("speed", "--steps", "0"), "--steps"),
        (("speed", "--side", "0"), "--side"),
        (("ladder", "--plot", "it.doc"), "must end in .png or .svg"),
        (("growth", "--classes", "1,10"), "--classes '1,10' is not a list of whole numbers from 2 on"),
        (("files", "digit"), "unknown dataset 'digit'; did you mean 'digits'?"),
        (("files", ".", "--data", "x"), "'.' is already a folder: leave out --data"),
        (("show", "nowhere.json"), "nowhere.json does not exist"),
        (("show", "."), ". is a folder: give a file that `prol bench ... --out FILE` wrote"),
    ],
)
def test_a_mistake_is_reported_in_one_line_with_exit_code_2(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text, errors = command("bench", *arguments)
    assert (code, text, errors.count("\n")) == (2, "", 1)
    assert message in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FILES)
def test_every_stored_result_of_a_benchmark_can_be_shown(command, name: str) -> None:
    code, text, _ = command("bench", "show", str(SPEED / name))
    assert code == 0
    assert len(text.splitlines()) > len(json.loads((SPEED / name).read_text())["rows"])


def test_measurements_of_an_unknown_kind_are_refused(command, tmp_path: Path) -> None:
    (tmp_path / "it.json").write_text('{"format": 1, "bench": "height", "rows": []}')
    code, _, errors = command("bench", "show", str(tmp_path / "it.json"))
    assert code == 2
    assert "measurements of 'height' have no table" in errors


def test_new_sizes_are_measured_on_a_gpu_only(capsys: pytest.CaptureFixture[str]) -> None:
    script = runpy.run_path(str(ROOT / "benchmarks/new_sizes.py"))
    with pytest.raises(SystemExit, match="2"):
        script["main"](["--device", "cpu"])
    assert "on a GPU only" in capsys.readouterr().err


@pytest.mark.parametrize("inside", ["{", "[]", '{"format": 99, "bench": "speed"}', '{"format": 1, "bench": ["speed"]}'])
def test_a_file_without_measurements_is_refused(command, tmp_path: Path, inside: str) -> None:
    (tmp_path / "it.json").write_text(inside)
    code, _, errors = command("bench", "show", str(tmp_path / "it.json"))
    assert code == 2
    assert "is damaged" in errors or "holds no measurements" in errors


def with_damage(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Copies in which one key of the file or of its first row is missing, or is a list."""
    keys = [(key,) for key in whole if key not in ("format", "bench")] + [("rows", 0, key) for key in whole["rows"][0]]
    for *above, last in keys:
        for value in (None, []):
            content = inner = json.loads(json.dumps(whole))
            for key in above:
                inner = inner[key]
            if value is None:
                del inner[last]
            else:
                inner[last] = value
            yield content


@pytest.mark.parametrize("name", ["h200_speed.json", "h200_ladder.json", "h200_growth.json", "h200_files.json"])
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, name: str) -> None:
    refused: list[str] = []
    for content in with_damage(json.loads((SPEED / name).read_text())):
        (tmp_path / "it.json").write_text(json.dumps(content))
        try:
            read_content(tmp_path / "it.json")
        except ValueError as error:
            refused.append(str(error))
    assert refused
    assert all("it.json is damaged or of another version of prol (" in message for message in refused)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_shown_or_said_to_be_damaged(command, tmp_path: Path, name: str) -> None:
    damaged = 0
    for content in with_damage(json.loads((SPEED / name).read_text())):
        (tmp_path / "it.json").write_text(json.dumps(content))
        code, _, errors = command("bench", "show", str(tmp_path / "it.json"))
        if code:
            damaged += 1
            assert (code, errors.count("\n")) == (2, 1)
            assert "it.json is damaged or of another version of prol (" in errors
            assert "measure again with `prol bench" in errors
    assert damaged


def test_a_picture_of_damaged_measurements_is_refused(command, tmp_path: Path) -> None:
    row = {"median": 0.1, "low": 0.1, "high": 0.1}
    content = {
        "format": 1,
        "bench": "growth",
        "versions": {"torch": "2"},
        "machine": {"device": "cpu", "processor": "some", "threads": 1},
        "settings": {},
        "rows": [{"classes": 10, "train": row, "predict": row, "memory_bytes": 5, "memory": "all"}],
    }
    (tmp_path / "it.json").write_text(json.dumps(content))
    code, _, errors = command("bench", "show", str(tmp_path / "it.json"), "--plot", str(tmp_path / "it.png"))
    assert code == 2
    assert "it.png cannot be drawn: the measurement is damaged or of another version of prol (no 'images')" in errors

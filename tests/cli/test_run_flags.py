"""What `prol run` and `prol rate-curve` are told on the command line reaches the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prol.cli.app import main
from runs.small_runs import write_small_vit


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_vit(tmp_path_factory.mktemp("weights"), "test_vit")


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def run(vit: str, out: Path, *flags: str) -> tuple[dict[str, Any], dict[str, Any]]:
    common = ["--backbone", vit, "--device", "cpu", "--threads", "1", "--limit-per-class", "3", "--tasks", "2"]
    assert call("run", "ncm", "digits", *common, *flags, "--out", str(out)) == 0
    return json.loads((out / "config.json").read_text()), json.loads((out / "result.json").read_text())


def test_measures_are_taken(vit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, result = run(vit, tmp_path / "run", "--points", "3", "--shots", "1", "--prequential", "--no-feature-cache")
    assert config["measures"] == {"points": 3, "shots": 1, "prequential": True, "reuse_features": False}
    assert len(result["points"]) == 3
    assert [len(task) for task in result["shots"]] == [2, 2]
    assert sum(total for _, total in result["prequential"]) == 30
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("A_AUC", "prequential", "learning-curve area", "images/s testing"))


def test_a_clock_is_set_and_told(vit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--rate", "100", "--keep", "1", "--step-seconds", "0.5", "--chunk", "5", "--inference-time")
    config, result = run(vit, tmp_path / "run", *flags)
    assert config["measures"]["reuse_features"] is False  # by the old name of --no-feature-cache
    assert config["clock"] == {"rate": 100, "keep": 1, "step_seconds": 0.5}
    assert result["clock"]["missed_images"] > 0
    assert "On the clock: 100 images/s arriving, 1 chunks may wait" in capsys.readouterr().out


def test_options_of_protocol_and_data_are_taken(vit: str, tmp_path: Path) -> None:
    flags = (
        "--protocol",
        "blurry",
        "-P",
        "minor=30",
        "-D",
        "seed=4",
        "--boundaries",
        "--no-announce",
        "--workers",
        "0",
    )
    config, result = run(vit, tmp_path / "run", *flags)
    assert (config["protocol"]["name"], config["protocol"]["options"]) == ("blurry", {"minor": 30})
    assert (config["dataset"]["options"], config["workers"]) == ({"seed": 4}, 0)
    assert (result["told"]["task_boundaries"], result["told"]["classes_of_next_task"]) == (True, False)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--rate", "0"), "rate must be"),
        (("--queue-size", "2"), "add --rate"),
        (("--keep", "2"), "add --rate"),
        (("--step-seconds", "0.1"), "add --rate"),
        (("--rate", "5", "--step-seconds", "nowhere"), "does not exist"),
        (("--points", "-1"), "points must be"),
        (("-P", "minor=5"), "unknown option 'minor'"),
        (("--protocol", "blurry", "-P", "minor=-1"), "minor"),
        (("--protocol", "blurred"), "did you mean 'blurry'"),
        (("-D", "split=x.json"), "split"),
    ],
)
def test_flags_that_make_no_sense_are_refused_in_one_line(
    vit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], words: str
) -> None:
    out = tmp_path / "run"
    assert call("run", "ncm", "digits", "--backbone", vit, "--device", "cpu", *flags, "--out", str(out)) == 2
    complaint = capsys.readouterr().err
    assert words in complaint
    assert complaint.count("\n") == 1
    assert not out.exists()


def test_a_rate_curve_is_run_and_drawn(vit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--backbone", vit, "--device", "cpu", "--threads", "1", "--limit-per-class", "3", "--tasks", "2"]
    flags = ["--rates", "10,1000", "--queue-size", "1", "--step-seconds", "0.1", "--out", str(tmp_path / "curve")]
    assert call("rate-curve", "ncm", "digits", *common, *flags) == 0
    curve = json.loads((tmp_path / "curve" / "curve.json").read_text())
    assert [point["rate"] for point in curve["points"]] == [None, 10, 1000]
    assert curve["mean_step_seconds"] == 0.1
    assert {json.loads(path.read_text())["seed"] for path in (tmp_path / "curve").glob("*/config.json")} == {0}
    assert (tmp_path / "curve" / "curve.png").stat().st_size > 5000
    assert "data wait" in capsys.readouterr().out


@pytest.mark.parametrize("rates", ["", "fast", "-5"])
def test_rates_that_are_none_are_refused(
    vit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], rates: str
) -> None:
    flags = ["--backbone", vit, "--device", "cpu", "--rates", rates, "--out", str(tmp_path / "curve")]
    assert call("rate-curve", "ncm", "digits", *flags) == 2
    assert "rate" in capsys.readouterr().err

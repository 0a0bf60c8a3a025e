"""`prol.run` and `prol.compare`: the runs of the commands, with results that print, plot and become tables."""

from __future__ import annotations

from pathlib import Path

import pytest

import prol
from prol.runs import RunFolder

SMALL = {"tasks": 2, "limit_per_class": 2, "threads": 1, "device": "cpu"}


def test_a_run_is_a_result(micro_vit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = prol.run("ncm:distance=euclidean", "digits", tmp_path / "run", backbone=micro_vit, seed=3, **SMALL)
    out, err = capsys.readouterr()
    assert out == ""
    assert "task 2/2" in err
    there = RunFolder(tmp_path / "run")
    assert (found.folder, found.result) == (there.path, there.read(there.result))
    assert (found.config["seed"], found.config["options"]["distance"]) == (3, "euclidean")
    assert found.metrics["faa"] == found.result["metrics"]["faa"]
    assert f"{found.metrics['faa']:.2f}" in repr(found)
    assert found.learner.classes == list(prol.load(there.model).classes)
    table = found.to_pandas()
    assert table["task"].tolist() == [1, 2]
    assert table["average_accuracy"].tolist()[-1] == found.metrics["faa"]
    found.plot(tmp_path / "run.svg")
    assert (tmp_path / "run.svg").read_text().lstrip().startswith("<?xml")


def test_a_comparison_is_a_result(micro_vit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = {"backbone": micro_vit, "progress": False, **SMALL}
    found = prol.compare(["ncm", "ncm:distance=euclidean"], "digits", tmp_path / "all", seeds=(0, 1), **made)
    assert capsys.readouterr() == ("", "")
    assert {row.name for row in found.rows} == {"ncm", "ncm:distance=euclidean"}
    assert found.failures == {}
    assert len(list((tmp_path / "all").glob("*-seed*/result.json"))) == 4
    table = found.to_pandas()
    assert table["method"].tolist() == [row.name for row in found.rows]
    assert table["faa"].tolist() == [row.faa.mean for row in found.rows]
    assert table["seeds"].tolist() == [2, 2]
    assert "Paired by seed" in repr(found)
    assert found._repr_html_().partition(">")[2].startswith("digits: 20 training")
    assert r"\begin{tabular}" in found.to_latex()
    assert "ncm:distance=euclidean" in found.to_latex()
    found.plot(tmp_path / "all.svg")
    assert (tmp_path / "all.svg").is_file()
    with pytest.raises(ValueError, match=r"write \['ncm'\]"):
        prol.compare("ncm", "digits")
    with pytest.raises(TypeError, match="sed"):
        prol.run("ncm", "digits", sed=1)

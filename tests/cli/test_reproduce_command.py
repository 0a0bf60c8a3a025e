"""`prol reproduce` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prol.paper.items import ITEMS


def test_items_are_listed_with_their_rows(command) -> None:
    outcome = command("reproduce", "--list", "--scale", "full")
    assert outcome.code == 0
    assert all(item in outcome.out for item in ITEMS)
    assert "DualPrompt" in outcome.out
    assert " 228 " in outcome.out  # 19 rows, four data sets, three seeds


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give an item: main, history"),
        (["mian"], "unknown item 'mian': choose main"),
        (["main", "--scale", "huge"], "unknown scale 'huge': choose full, builtin, smoke"),
        (["main", "--datasets", "digit"], "unknown dataset 'digit'; did you mean 'digits'?"),
        (["main", "--data", "cifar=/x"], "unknown dataset 'cifar'"),
        (["main", "--data", "cifar100"], "--data cifar100 lacks a path: write --data cifar100=PATH"),
        (["main", "--datasets", "digits,digits"], "--datasets digits,digits holds one twice"),
        (["main", "--methods", "ncm:distnce=x"], "unknown option 'distnce'"),
        (["main", "--methods", "NCM:distance=far"], "option distance='far' is not valid"),
        (["main", "--methods", "pro"], "unknown method or row 'pro': `prol reproduce --list` names them"),
        (["ablation", "--methods", "ncm"], "--methods leaves no row"),
        (["main", "--seeds", "0,0"], "--seeds 0,0 holds one twice"),
        (["main", "--jobs", "0"], "jobs must be at least 1"),
    ],
)
def test_mistakes_are_told_before_anything_is_run(command, arguments: list[str], says: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, _, err = command("reproduce", *arguments, *([] if not arguments else ["--out", str(out)]))
    assert code == 2
    assert says in err
    assert not out.exists()


@pytest.mark.slow
def test_the_ablation_at_the_smoke_scale(command, micro_vit: str, tmp_path: Path) -> None:
    given = ("--scale", "smoke", "--backbone", micro_vit, "--threads", "1", "--out", str(tmp_path))
    code, out, _ = command("reproduce", "ablation", *given)
    assert code == 0
    assert "What differs from the paper:" in out
    rows = {row["name"]: row for row in json.loads((tmp_path / "ablation/table.json").read_text())["tables"][0]["rows"]}
    assert len(rows) == 12
    assert all(row["pairs"][0]["ours"] is not None for row in rows.values())
    assert rows["+ M (gen) = PROL"]["pairs"][0]["paper"] == 73.50
    for row in ("norms only", "null prefix", "generator without norms"):
        assert rows[row]["pairs"][0]["paper"] is None
        assert f"| {row} " in out
    again = command("reproduce", "ablation", "--table", "--out", str(tmp_path))
    assert again.code == 0
    assert again.out.strip() in out


def test_an_interrupted_reproduction_says_how_it_resumes(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("prol.paper.reproduction.reproduce", interrupted)
    outcome = command("reproduce", "ablation", "--scale", "smoke", "--device", "cpu", "--out", str(tmp_path))
    assert outcome.code == 130
    assert "the same command resumes it" in outcome.out


@pytest.mark.slow
def test_complexity_at_the_smoke_scale(command, micro_vit: str, tmp_path: Path) -> None:
    given = ("--scale", "smoke", "--backbone", micro_vit, "--threads", "1", "--jobs", "2", "--out", str(tmp_path))
    assert command("reproduce", "complexity", "--methods", "prol:blocks=2", "--data", "generated", *given).code == 0
    growth, later, chunks = json.loads((tmp_path / "complexity/table.json").read_text())["tables"]
    assert growth["x"] == [20.0, 40.0, 60.0, 80.0]
    assert later["x"] == [16.0, 32.0, 48.0, 64.0]
    for table in (growth, later):
        [row] = table["rows"]
        assert row["fit"].keys() == {"slope", "intercept", "r_squared"}
        assert [len(pair["ours"]["values"]) for pair in row["pairs"]] == [1] * 4
    assert len(chunks["columns"]) == 11
    for name in ("images", "later", "chunks"):
        for suffix in ("png", "svg"):
            assert (tmp_path / f"complexity/complexity-{name}.{suffix}").stat().st_size > 1000

"""The command, its exit status, its page, and checks of other packages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from checks.changed_files import copier, setting
from checks.test_check_codes import lay_out
from docs.pages import DOCS
from prol.checks import all_checks, diagnose
from prol.checks.finding import STATUSES


@pytest.fixture
def run(finished: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    return copier(finished("ncm"), tmp_path)


def test_every_code_has_a_section_and_a_row_on_the_page() -> None:
    page = (DOCS / "check.md").read_text(encoding="utf-8")
    checks, problems = all_checks()
    assert problems == []
    titles = {one.code: one.title for one in checks}
    assert dict(re.findall(r"^\| \[(PC\d+)\]\(#pc\d+\) \| (.*?) \|", page, re.MULTILINE)) == titles
    sections = re.findall(r"^## (PC\d+): (.*) \{#(.*)\}$", page, re.MULTILINE)
    assert sections == [(code, title, code.lower()) for code, title in sorted(titles.items())]
    parts = page.split("\n## PC")[1:]
    assert all("**Why it matters.**" in part and "**What to do.**" in part for part in parts)


def test_the_status_says_whether_there_is_an_issue(command, tmp_path: Path) -> None:
    clean, spoilt = lay_out(tmp_path / "clean"), lay_out(tmp_path / "spoilt")
    (spoilt / "test" / "class0" / "copy.png").write_bytes((spoilt / "train" / "class0" / "0.png").read_bytes())
    code, out, err = command("check", str(clean))
    assert (code, err) == (0, "")
    assert out.startswith(f"2 passed, 8 not applicable: {clean} is a folder of 26 images of 2 classes\n")
    code, out, err = command("check", str(spoilt))
    assert (code, err) == (1, "")
    assert "issue  PC102  Near-duplicates across training and test\n" in out
    assert "docs/check.md#pc102" in out
    code, out, err = command("check", str(tmp_path / "nothing"))
    assert (code, out) == (2, "")
    assert "does not exist: give the folder of a run" in err


def test_json_has_every_finding_worst_first(command, tmp_path: Path) -> None:
    lay_out(tmp_path, train=3)
    found = json.loads(command("check", str(tmp_path), "--format", "json").out)
    assert found["kind"] == "a folder of 12 images of 2 classes"
    statuses = [one["status"] for one in found["findings"]]
    assert statuses == sorted(statuses, key=STATUSES.index)
    assert found["issues"] == statuses.count("issue") == 0
    first = found["findings"][0]
    assert (first["code"], first["page"]) == ("PC101", "docs/check.md#pc101")
    assert first["places"] == ["class0: 3", "class1: 3"]


def test_everything_is_said_on_demand(command, tmp_path: Path) -> None:
    lay_out(tmp_path, train=3)
    short, long = command("check", str(tmp_path)).out, command("check", str(tmp_path), "--all").out
    assert "there is no finished run here" in long
    assert "there is no finished run here" not in short
    assert "not applicable: PC103 " in short


def test_a_diagnosis_prints_in_python_and_in_notebooks(tmp_path: Path) -> None:
    found = diagnose(lay_out(tmp_path, train=3))
    assert not found.has_issues
    assert repr(found).startswith("1 tip, 1 passed, 8 not applicable: ")
    assert "<td>tip</td><td>PC101</td>" in found._repr_html_()


def test_an_unfinished_run_and_a_file_say_what_to_do(command, run: Callable[..., Path], tmp_path: Path) -> None:
    place = run()
    (place / "result.json").unlink()
    assert "continue with `prol resume" in command("check", str(place)).err
    (tmp_path / "file").write_text("")
    assert "is a file: give the folder" in command("check", str(tmp_path / "file")).err
    (tmp_path / "empty").mkdir()
    assert "is no run, no folder of finished runs, no saved learner: no classes" in command(
        "check", str(tmp_path / "empty")
    ).err  # fmt: skip


PLUGIN = """
from prol.checks import Outcome, check

@check("SHOP1", "Class that we do not sell")
def unsold(subject):
    return Outcome("issue", "not sold: class1")

@check("SHOP2", "Fails")
def failing(subject):
    raise RuntimeError("not today")

@check("SHOP9", "Under another name")
def misnamed(subject):
    return Outcome("passed", "")
"""


def test_other_packages_add_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_checks.py").write_text(PLUGIN)
    metadata = tmp_path / "shop-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1\n")
    names = {"SHOP1": "unsold", "SHOP2": "failing", "SHOP3": "misnamed", "SHOP4": "PLUGIN"}
    entries = [f"{code} = shop_checks:{name}" for code, name in names.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[prol.checks]", *entries]))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = diagnose(lay_out(tmp_path / "photos"))
    by_code = {one.code: one for one in found.findings}
    assert (by_code["SHOP1"].status, by_code["SHOP1"].page) == ("issue", None)
    assert found.has_issues
    assert by_code["SHOP2"].message == "the check failed (RuntimeError: not today)"
    assert by_code["PC102"].status == "passed"
    assert len(found.problems) == 2
    assert "check 'SHOP3' of the package shop 1 cannot be loaded" in found.problems[0]
    assert "its code is SHOP9" in found.problems[0]


def test_a_damaged_file_of_a_run_is_named(command, run: Callable[..., Path]) -> None:
    place = run(result=setting("metrics", to={}))
    code, _, err = command("check", str(place))
    assert code == 2
    assert "result.json: metrics.faa is missing" in err

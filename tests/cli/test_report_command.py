from __future__ import annotations

from pathlib import Path

import pytest

from report.run_folders import write_run
from runs.small_runs import small_plan


def test_a_run_of_this_version_is_reported_with_the_stream_as_it_came(command, small_vit: str, tmp_path: Path) -> None:
    from prol.runs import start

    start(small_plan(small_vit, protocol="blurry"), tmp_path / "runs" / "ncm-digits-seed0")
    page, folder = tmp_path / "page.html", tmp_path / "files"
    code, text, errors = command("report", str(tmp_path / "runs"), "--out", str(page), "--export", str(folder))
    assert (code, errors) == (0, "")
    assert f"Report of 1 run on 1 stream written to {page}" in text
    assert "Counted from the stream itself." in page.read_text()
    assert (folder / "digits-blurry-3-tasks" / "comparison.csv").read_text().splitlines()[1].startswith("ncm,")


def test_several_folders_make_one_report_and_what_is_missing_is_told(command, tmp_path: Path) -> None:
    write_run(tmp_path / "one" / "ncm-seed0")
    write_run(tmp_path / "two" / "deep" / "slda-seed0", method="slda", chunk=20)
    (write_run(tmp_path / "three" / "ncm-seed1", 1) / "result.json").unlink()
    folders = [str(tmp_path / name) for name in ("one", "two", "three", "one/ncm-seed0")]
    code, text, _ = command("report", *folders, "--out", str(tmp_path / "page.html"))
    assert code == 0
    assert "ncm-seed1: not finished" in text
    assert "Report of 2 runs on 2 streams" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere does not exist: give the folder of a run"),
        ((".",), "there is no finished run in ."),
        ((".", "--out", "page.txt"), "its name must end in .html"),
        ((".", "--out", "no/page.html"), "the folder no does not exist"),
        ((), "Missing argument 'RUN...'"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_exit_code_2(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text, errors = command("report", *arguments)
    assert (code, text, errors.count("\n")) == (2, "", 1)
    assert message in errors
    assert list(tmp_path.iterdir()) == []

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest

from report.run_folders import write_run
from runs.small_runs import small_plan


def test_a_run_of_this_version_is_reported_with_the_stream_as_it_came(command, micro_vit: str, tmp_path: Path) -> None:
    from prol.runs import start

    start(small_plan(micro_vit, protocol="blurry"), tmp_path / "runs" / "ncm-digits-seed0")
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
        ((".", "--out", "no/page.html"), "the folder no does not exist, make it or choose another --out"),
        ((".", "--out", f"{'x' * 300}.html"), "file name too long; choose another --out"),
        ((".", "--export", "x" * 300), "file name too long; choose another --export"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "folder.html"), "folder.html: it is a folder, give a file that ends in .html"),
        (("--out", "file/page.html"), "file is a file, choose another --out"),
        (("--export", "file"), "cannot export to file: file is a file, give a folder"),
        (("--export", "file/sub/sub"), "file is a file, give a folder"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_told_before_anything_is_written(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "ncm-seed0")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    code, text, errors = command("report", "ncm-seed0", *arguments)
    assert (code, text, errors.count("\n")) == (2, "", 1)
    assert message in errors
    assert "Errno" not in errors
    assert {path.name for path in tmp_path.iterdir()} == {"ncm-seed0", "folder.html", "file"}


@pytest.mark.parametrize("option", ["--out", "--export"])
def test_a_folder_that_takes_no_files_is_told_before_anything_is_read(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()

    def temporary(dir: Path) -> IO[bytes]:
        if dir == closed:
            raise PermissionError(13, "Permission denied", str(dir))
        return TemporaryFile(dir=dir)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prol.cli.report.TemporaryFile", temporary)
    code, text, errors = command("report", "no-run", option, str(closed / "it.html"))
    assert (code, text, errors.count("\n")) == (2, "", 1)
    assert f"it.html: permission denied; choose another {option}" in errors


def test_what_fails_only_while_writing_is_told_in_a_sentence_too(command, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "ncm-seed0")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "digits-disjoint-3-tasks").touch()
    page = tmp_path / "page.html"
    code, _, errors = command("report", str(tmp_path / "runs"), "--out", str(page), "--export", str(tmp_path / "files"))
    assert code == 2
    assert f"cannot export to {tmp_path / 'files'}: file exists; choose another --export" in errors
    assert page.is_file()


def test_a_folder_with_an_odd_name_is_told_as_left_out(command, tmp_path: Path) -> None:
    write_run(tmp_path / "ncm-seed0")
    odd = tmp_path / "b\udcff"  # a byte that is no letter in UTF-8
    odd.mkdir()
    (odd / "config.json").write_text("{}")
    code, text, _ = command("report", str(tmp_path), "--out", str(tmp_path / "page.html"))
    assert code == 0
    assert "left out:" in text

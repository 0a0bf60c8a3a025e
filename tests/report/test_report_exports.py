from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from prol.report.page import export, find_runs, sections_of
from prol.report.page.document import render
from prol.report.table import Cell, Spread, Table, latex_escaped, spread, text
from report.run_folders import RESULTS, write_run

ODD = r"a_b & 50 % of $x^{2}$ #1 ~ \ <i>|"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    runs = [RESULTS / "digits" / f"{name}-seed{seed}" for name in ("ncm", "slda") for seed in range(3)]
    sections, _ = sections_of(find_runs(runs))
    export(sections, folder)
    return folder / "digits-disjoint-5-tasks"


def latex_cells(text: str) -> list[list[str]]:
    """The rows of a tabular as plain text."""
    lines = [line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r"\\")]
    plain = {r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"$\pm$": "±"}
    plain |= {r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|"}
    characters = re.compile("|".join(map(re.escape, plain)) + r"|\\([_&%$#{}])")
    return [
        [characters.sub(lambda one: one[1] or plain[one[0]], cell) for cell in re.split(r" (?<!\\)& ", line)]
        for line in lines
    ]


def test_every_plot_and_every_table_is_written_in_both_its_forms(exported: Path) -> None:
    names = {path.name for path in exported.iterdir()}
    plots = {"accuracy-after-each-task", "forgetting-after-each-task", "accuracy-against-bytes-stored", "speed"}
    plots |= {"stream", "matrix-01-slda", "matrix-02-ncm"}
    tables = {"comparison", "history", "forgetting", "memory", "throughput", "tasks", "told", "settings", "options"}
    wanted = {f"{name}.{kind}" for name in plots for kind in ("png", "svg")}
    assert names == wanted | {f"{name}.{kind}" for name in tables for kind in ("csv", "tex")}
    for name in plots:
        assert (exported / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        root = ElementTree.parse(exported / f"{name}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_csv_holds_every_digit(exported: Path) -> None:
    rows = {row["method"]: row for row in csv.DictReader((exported / "comparison.csv").open())}
    assert list(rows) == ["slda", "ncm"]
    for name, row in rows.items():
        results = [json.loads((RESULTS / f"digits/{name}-seed{s}/result.json").read_text()) for s in range(3)]
        measured = Spread.of([result["metrics"]["faa"] for result in results])
        assert float(row["FAA"]) == measured.mean
        assert float(row["FAA deviation"]) == measured.deviation
        stored = results[0]["footprint"]
        assert int(row["samples stored"]) == stored["samples_stored"]["count"] == 0
        assert int(row["bytes stored"]) == sum(stored[kind]["bytes"] for kind in stored if kind != "trained_now")
    history = list(csv.DictReader((exported / "history.csv").open()))
    last = json.loads((RESULTS / "digits/slda-seed0/result.json").read_text())["metrics"]["average_accuracy"][-1]
    assert float(history[0]["task 5"]) == pytest.approx(last)


def test_latex_reads_as_the_page_does(exported: Path) -> None:
    text = (exported / "comparison.tex").read_text()
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    rows = latex_cells(text)
    assert rows[0][:2] == ["method", "FAA"]
    assert {row[0]: row[1] for row in rows[1:]} == {"slda": "95.82 ± 0.00", "ncm": "82.45 ± 0.00"}
    columns = re.search(r"\\begin\{tabular\}\{(l[lr]+)\}", text)
    assert columns is not None
    assert all(len(row) == len(columns[1]) for row in rows)


def test_odd_names_come_through_every_form() -> None:
    table = Table(["method", "FAA"], [[text(ODD), spread(Spread(1 / 3, 0.5, ()))]], "ls", f"50 % of\n{ODD}", "odd")
    assert list(csv.reader(io.StringIO(table.csv())))[1] == [ODD, str(1 / 3), "0.5"]
    assert latex_cells(table.latex())[1] == [ODD, "0.33 ± 0.50"]
    assert table.latex().startswith("% 50 % of a_b")
    html = render("table.html", table=table)
    assert "<i>" not in html
    assert "&lt;i&gt;" in html
    assert table.markdown()[1:] == ["|---|---:|", f"| {ODD[:-1]}\\| | 0.33 ± 0.50 |"]
    assert re.search(r"(?<!\\)[_&%#]", latex_escaped(ODD)) is None


def test_what_was_not_measured_is_empty_in_csv() -> None:
    table = Table(["method", "A_AUC"], [[text("ncm"), Cell("-")]], "ls")
    assert table.csv() == "method,A_AUC,A_AUC deviation\nncm,,\n"


def test_streams_of_the_same_name_have_folders_of_their_own(tmp_path: Path) -> None:
    for number, place in enumerate(("../../evil", "..//..//evil")):
        run = write_run(tmp_path / "runs" / f"{number}" / "ncm-seed0")
        config = json.loads((run / "config.json").read_text())
        config["dataset"]["name"] = place
        (run / "config.json").write_text(json.dumps(config))
    sections, _ = sections_of(find_runs([tmp_path / "runs"]))
    assert [section.key for section in sections] == ["evil-disjoint-3-tasks", "evil-disjoint-3-tasks-2"]

"""Rendering a reproduction, from made-up result files."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from prol.paper.grid import Outcome
from prol.paper.item_files import make_sheet
from prol.report.sheet import Fit, Pair, Sheet, SheetRow, SheetTable, plot_sheet, sheet_csv, sheet_markdown
from prol.report.table import Spread
from prol.runfiles import RunFiles
from report.finished_runs import finished_run


def run(dataset: str, seed: int, history: tuple[float, ...] = (90.0, 70.0), **changes: object) -> RunFiles:
    """A finished run whose forgetting after each task is what its accuracy lost since the first."""
    made = finished_run(f"x-seed{seed}", seed, history, method="prol", options={"lr": 0.05})
    data = {
        "name": dataset,
        "train_images": 100,
        "test_images": 50,
        "limit_per_class": None,
        "classes": 10,
        "notes": [],
        **changes,
    }
    forgetting = [history[0] - value for value in history]
    metrics = {**made.result["metrics"], "forgetting_history": forgetting}
    tasks = [
        {"train_images": 40, "train_seconds": 2.0 + task, "test_seconds": 1.0, "train_images_per_second": 20.0}
        for task in range(len(history))
    ]
    timing = {"train_seconds": sum(task["train_seconds"] for task in tasks), "tasks": tasks}
    config = {**made.config, "dataset": data, "preprocessing": {"size": 64}}
    return replace(made, config=config, result={**made.result, "metrics": metrics}, timing=timing)


def outcome(row: str, beside: str | None, *runs: RunFiles, dataset: str = "cub200", **changes: object) -> Outcome:
    made = Outcome(row, beside, "prol", dataset, None, False, runs, None)
    return replace(made, **changes)


def line_of(page: str, start: str) -> list[str]:
    """The cells of the row that begins so."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_columns_may_have_digits_of_their_own() -> None:
    pairs = (Pair(Spread.of([1.23456]), 1.0), Pair(Spread.of([2345.678]), 80.0))
    table = SheetTable("t", "T", "tab:t", ("M", "images/s"), (SheetRow("PROL", pairs),), digits=(3, 1))
    for wanted, digits in (
        (["1.235", "1.000", "+0.235", "2345.7", "80.0", "+2265.7"], (3, 1)),
        (["1", "1", "+0", "2346", "80", "+2266"], 0),
    ):
        page = sheet_markdown(Sheet("throughput", "about", (), (replace(table, digits=digits),)))
        assert line_of(page, "PROL")[1:] == wanted


def test_ours_stand_beside_the_papers_with_deviation_and_difference() -> None:
    runs = [run("cub200", 0, (90.0, 70.0)), run("cub200", 1, (94.0, 74.0))]
    page = sheet_markdown(make_sheet("main", [outcome("PROL", "PROL", *runs)]))
    assert line_of(page, "PROL") == [
        *("PROL", "72.00 ± 2.83", "72.51", "-0.51"),
        *("82.00 ± 2.83", "79.89", "+2.11"),
        *("20.00 ± 0.00", "8.92", "+11.08"),
    ]
    assert "Main table, CUB-200\n" in page
    assert "`tab:4dataset_main_table`" in page


def test_slips_of_the_paper_are_marked_and_explained() -> None:
    page = sheet_markdown(make_sheet("main", [outcome("MOS", "MOS", run("cub200", 0))]))
    assert line_of(page, "MOS")[-2:] == ["25.25†", "-5.25"]
    assert "† MOS, FM: a slip of the paper; the mean over tasks; the final value is 37.38." in page


def test_what_was_not_run_is_said_in_the_table_beside_the_papers_numbers() -> None:
    missing = outcome("ER", "ER", dataset="cifar100", why="there is no method 'er' in this version")
    partly = outcome("PROL", "PROL", run("cifar100", 0), dataset="cifar100", why="out of | memory")
    page = sheet_markdown(make_sheet("non-ptm", [missing, partly]))
    assert line_of(page, "ER ") == ["ER", "-", "38.70", "-", "not run: there is no method 'er' in this version"]
    assert "| some runs are missing: out of \\| memory" in page
    alone = sheet_markdown(make_sheet("non-ptm", [missing]))
    assert "Nothing was run." in alone


def test_the_setting_says_what_differs_and_only_that() -> None:
    runs = [run("digits", 3, (90.0, 70.0), limit_per_class=4)]
    sheet = make_sheet("main", [outcome("PROL", "PROL", *runs, dataset="digits")])
    settings = {what: (here, paper) for what, here, paper in sheet.settings}
    assert settings["backbone"] == ("builtin (63fb1a20a19e)", "vit_base_patch16_224.augreg_in21k")
    assert settings["data"][0] == "digits (100 + 50 images)"
    assert settings["limit per class"] == ("4", "none")
    assert settings["tasks"] == ("2 (digits)", "10")
    assert settings["seeds"][0] == "3"
    assert settings["precision"][0] == "float32 on cpu"
    assert settings["learning rates"][0] == "prol 0.05 (digits)"
    assert "chunk" not in settings  # ten, as in the paper
    assert "digits (beside the paper's CIFAR-100)" in sheet.tables[0].title


def test_history_has_a_column_a_task_and_their_mean() -> None:
    accuracy, forgetting = make_sheet("history", [outcome("PROL", "PROL", run("cub200", 0, (90.0, 60.0, 30.0)))]).tables
    assert accuracy.columns == forgetting.columns == ("1", "2", "3", "AVG")
    assert [pair.ours and pair.ours.mean for pair in accuracy.rows[0].pairs] == [90.0, 60.0, 30.0, 60.0]
    assert [pair.paper for pair in accuracy.rows[0].pairs] == [94.17, 87.43, 82.03, 79.89]
    assert [pair.ours and pair.ours.mean for pair in forgetting.rows[0].pairs] == [None, 30.0, 60.0, 45.0]
    assert [pair.paper for pair in forgetting.rows[0].pairs] == [None, 1.55, 11.98, 8.11]


def test_many_columns_put_the_papers_numbers_below_ours() -> None:
    made = outcome("PROL", "PROL", run("cub200", 0, (90.0, 80.0, 70.0, 60.0, 50.0)))
    lines = sheet_markdown(make_sheet("history", [made])).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| PROL"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start : start + 3]]
    assert rows[0] == ["PROL", "ours", "90.00", "80.00", "70.00", "60.00", "50.00", "70.00"]
    assert rows[1] == ["", "paper", "94.17", "87.43", "82.03", "78.74", "80.10", "79.89"]
    assert rows[2] == ["", "difference", "-4.17", "-7.43", "-12.03", "-18.74", "-30.10", "-9.89"]


def test_robustness_has_a_column_a_value() -> None:
    made = [
        outcome("PROL", "PROL", run("imagenet_r", 0, (80.0, float(length))), dataset="imagenet_r", setting=length)
        for length in (3, 15)
    ]
    made.append(outcome("ConvPrompt", "ConvPrompt", dataset="imagenet_r", setting=3, why="no weights"))
    made.append(outcome("ConvPrompt", "ConvPrompt", dataset="imagenet_r", setting=15, why="no weights"))
    faa, caa = make_sheet("robustness-length", made).tables
    assert faa.columns == ("3", "15")
    assert [(pair.ours and pair.ours.mean, pair.paper) for pair in faa.rows[0].pairs] == [(3.0, 73.42), (15.0, 73.30)]
    assert [pair.paper for pair in caa.rows[1].pairs] == [72.89, 72.24]
    assert faa.rows[1].remark == "not run: no weights"


def test_complexity_fits_a_line_through_the_images_and_through_the_tasks() -> None:
    def timed(images: int, seconds: float) -> Outcome:
        made = run("generated", 0, (1.0,) * 5, train_images=images)
        tasks = [
            task | {"train_images": images // 10, "train_seconds": task["train_seconds"] * images / 400}
            for task in made.timing["tasks"]
        ]
        return outcome(
            "PROL",
            "PROL",
            replace(made, timing={"train_seconds": seconds, "tasks": tasks}),
            dataset="generated",
            setting=images // 10,
            timed=True,
        )

    growth, later, chunks = make_sheet("complexity", [timed(100, 3.0), timed(200, 5.0), timed(400, 9.0)]).tables
    assert growth.rows[0].fit == Fit(pytest.approx(0.02), pytest.approx(1.0), pytest.approx(1.0))
    assert growth.columns == ("100 images", "200 images", "400 images")
    assert later.columns == ("30 images", "60 images", "120 images")
    assert [pair.ours and pair.ours.mean for pair in later.rows[0].pairs] == [3.75, 7.5, 15.0]
    assert later.rows[0].fit == Fit(pytest.approx(0.125), pytest.approx(0.0, abs=1e-9), pytest.approx(1.0))
    # 40 images are four chunks; the first two tasks' seconds take no part in the line.
    assert [pair.ours and pair.ours.mean for pair in chunks.rows[0].pairs] == [0.5, 0.75, 1.0, 1.25, 1.5, 1.0]
    assert chunks.rows[0].pairs[0].paper == pytest.approx(78 / 255)
    assert chunks.rows[0].fit == Fit(pytest.approx(0.25), pytest.approx(0.25), pytest.approx(1.0))
    assert "| s an image |" in sheet_markdown(Sheet("complexity", "x", (), (growth,)))


@pytest.mark.parametrize(("device", "told"), [("cpu", False), ("cuda:0", True)])
def test_times_on_a_gpu_say_that_compiling_counts(device: str, told: bool) -> None:
    made = run("generated", 0, (1.0,) * 5)
    on_it = replace(made, config={**made.config, "device": device})
    growth = make_sheet("complexity", [outcome("PROL", "PROL", on_it, setting=10, timed=True)]).tables[0]
    assert any("compiling counts" in note for note in growth.notes) is told


def test_a_line_through_one_place_is_none_and_a_bad_one_says_so() -> None:
    assert Fit.through([1, 1], [2.0, 3.0]) is None
    fit = Fit.through([0, 1, 2, 3], [0.0, 1.0, 0.0, 1.0])
    assert fit is not None
    assert fit.r_squared == pytest.approx(0.2)


def test_the_size_of_images_and_what_the_data_are_not_stand_among_what_differs() -> None:
    noted = run("cub200", 0, notes=["one class is missing"])
    told = {what: (here, paper) for what, here, paper in make_sheet("main", [outcome("PROL", "PROL", noted)]).settings}
    assert told["image size"] == ("64 pixels", "224 pixels")
    assert told["data"][0] == "cub200 (100 + 50 images; one class is missing)"


def test_hardware_stands_among_what_differs_where_it_was_recorded() -> None:
    made = run("cub200", 0)
    on_it = replace(made, timing={**made.timing, "hardware": ["NVIDIA H200"]})
    for one, told in ((made, []), (on_it, [("NVIDIA H200", "one A100 of 40 GB")])):
        settings = make_sheet("main", [outcome("PROL", "PROL", one)]).settings
        assert [(here, paper) for what, here, paper in settings if what == "hardware"] == told


def test_csv_has_a_line_a_cell() -> None:
    made = [outcome("PROL", "PROL", run("cub200", 0), run("cub200", 1)), outcome("MOS", "MOS", why="no, never")]
    rows = list(csv.DictReader(io.StringIO(sheet_csv(make_sheet("main", made)))))
    assert len(rows) == 6
    assert rows[0] | {"remark": ""} == {
        "table": "main-cub200",
        "label": "tab:4dataset_main_table",
        "row": "PROL",
        "column": "FAA",
        "mean": "70.0",
        "deviation": "0.0",
        "values": "70.0 70.0",
        "paper": "72.51",
        "difference": str(70.0 - 72.51),
        "slip": "",
        "remark": "",
    }
    assert (rows[5]["mean"], rows[5]["paper"], rows[5]["remark"]) == ("", "25.25", "not run: no, never")


@pytest.mark.parametrize("figure", ["lines", "bars", "fit"])
def test_every_kind_of_figure_is_drawn_as_png_and_svg(figure: str, tmp_path: Path) -> None:
    pairs = (Pair(Spread.of([1.0, 2.0]), 3.0), Pair(None, 2.0), Pair(Spread.of([4.0])))
    rows = (SheetRow("a $x", pairs, fit=Fit(1.0, 0.0, 1.0)), SheetRow("not run", (Pair(),) * 3))
    title = r"no $\formula$"
    table = SheetTable("pic", title, "", ("1", "2", "3"), rows, figure=figure, x=(1.0, 2.0, 3.0), y_title="%")
    empty = replace(table, name="empty", rows=rows[1:])
    assert plot_sheet(Sheet("main", "x", (), (table, empty)), tmp_path) == ["pic.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pic.png", "pic.svg"]
    assert (tmp_path / "pic.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(tmp_path / "pic.svg").getroot().tag.endswith("svg")

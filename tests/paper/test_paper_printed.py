"""The paper's numbers as data: complete, and true to what they say about each other."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from prol.data.builtin import TEST_SIZES, TRAIN_SIZES
from prol.methods.prol.options import ABLATIONS
from prol.paper.tables import DATASETS, PrintedTable, printed_tables, read_printed

PER_TASK = [
    name
    for name in sorted(printed_tables())
    if name.startswith(("accuracy", "forgetting", "throughput_", "training", "infer"))
]
ROUNDED = 0.0061  # some averages are cut, not rounded


def known(values: tuple[float | None, ...]) -> list[float]:
    return [value for value in values if value is not None]


def test_every_table_has_all_numbers_of_the_papers_source() -> None:
    """Rows, numbers, dashes and the sum of all numbers, counted in the paper's source."""
    tables: dict[str, list[PrintedTable]] = defaultdict(list)
    for name in sorted(printed_tables()):
        tables[read_printed(name).label].append(read_printed(name))
    with (Path(__file__).parent / "paper_tables.csv").open(encoding="utf-8") as file:
        counted = list(csv.DictReader(file))
    assert {row["label"] for row in counted} == tables.keys()
    for row in counted:
        cells = [value for table in tables[row["label"]] for values in table.rows.values() for value in values]
        assert sum(len(table.rows) for table in tables[row["label"]]) == int(row["rows"]), row
        assert len([cell for cell in cells if cell is not None]) == int(row["numbers"]), row
        assert len([cell for cell in cells if cell is None]) == int(row["dashes"]), row
        assert sum(cell for cell in cells if cell is not None) == pytest.approx(float(row["sum"]), abs=5e-3), row


@pytest.mark.parametrize("name", sorted(printed_tables()))
def test_every_row_has_a_number_or_a_dash_for_each_column(name: str) -> None:
    table = read_printed(name)
    assert {len(values) for values in table.rows.values()} == {len(table.columns)}


@pytest.mark.parametrize("name", PER_TASK)
def test_averages_are_those_of_their_rows_but_for_the_known_slips(name: str) -> None:
    table = read_printed(name)
    assert table.columns == (*(str(task) for task in range(1, 11)), "AVG")
    wrong = {
        row
        for row, values in table.rows.items()
        if known(values) and abs(fmean(known(values[:-1])) - known(values)[-1]) > ROUNDED
    }
    assert wrong == {row for row, column in table.slips if column == "AVG"}


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_main_table_repeats_the_appendix_but_for_the_known_slips(dataset: str) -> None:
    main, accuracy, forgetting = (
        read_printed(name) for name in ("main", f"accuracy_{dataset}", f"forgetting_{dataset}")
    )
    assert main.rows.keys() == accuracy.rows.keys() == forgetting.rows.keys()
    for row in main.rows:
        theirs = [accuracy.find(row, "10"), accuracy.find(row, "AVG"), forgetting.find(row, "10")]
        for measure, other in zip(("FAA", "CAA", "FM"), theirs, strict=True):
            here = main.find(row, f"{dataset} {measure}")
            if here is None or other is None:
                assert here is other is None
            elif measure == "FM" and here.slip:
                assert here.value != other.value
                assert str(other.value) in here.slip or "ninth" in here.slip or "mean" in here.slip
            else:
                assert here.value == other.value
                assert (here.slip is None) == (other.slip is None)


def test_all_slips_of_the_specification_are_marked() -> None:
    marked = {(name, row, column) for name in sorted(printed_tables()) for row, column in read_printed(name).slips}
    assert marked == {
        ("main", "MOS", "cub200 FM"),
        ("main", "RanPAC-J", "imagenet_a FM"),
        ("main", "L2P", "imagenet_a FM"),
        ("main", "RanDumb-J", "cub200 CAA"),
        ("forgetting_imagenet_a", "RanPAC-J", "AVG"),
        ("forgetting_imagenet_a", "L2P", "AVG"),
        ("accuracy_cub200", "RanDumb-J", "AVG"),
        ("forgetting_cub200", "RanDumb-J", "AVG"),
    }
    for name, row, column in marked:
        assert read_printed(name).find(row, column) is not None


def test_throughput_times_training_time_gives_the_images_of_each_task() -> None:
    speeds, seconds = read_printed("throughput_imagenet_r"), read_printed("training_time_imagenet_r")
    for row in speeds.rows:
        products = [a * b for a, b in zip(known(speeds.rows[row])[:10], known(seconds.rows[row])[:10], strict=True)]
        assert products == pytest.approx(TRAIN_SIZES, rel=1e-3), row
    assert (sum(TRAIN_SIZES), sum(TEST_SIZES)) == (24_000, 6_000)


def test_the_throughput_table_holds_the_appendix_averages() -> None:
    summary = read_printed("throughput")
    for column, name in zip(
        summary.columns[1:],
        ("throughput_imagenet_r", "training_time_imagenet_r", "inference_time_imagenet_r"),
        strict=True,
    ):
        for row in summary.rows:
            assert summary.find(row, column) == read_printed(name).find(row, "AVG")


def test_robustness_and_ablation_meet_the_main_table() -> None:
    main = read_printed("main")
    for name in ("robustness_length", "robustness_layers"):
        for row in ("ConvPrompt", "PROL"):
            for measure in ("FAA", "CAA"):
                assert read_printed(name).find(row, f"5 {measure}") == main.find(row, f"imagenet_r {measure}")
    ablation = read_printed("ablation")
    assert list(ablation.rows) == list(ABLATIONS)[: len(ablation.rows)]
    for measure in ("FAA", "CAA", "FM"):
        assert ablation.find("full", measure) == main.find("PROL", f"imagenet_r {measure}")


def test_what_the_paper_does_not_have_is_none() -> None:
    main = read_printed("main")
    assert main.find("ConvPrompt", "imagenet_a FAA") is None
    assert main.find("PROL+", "cifar100 FAA") is main.find(None, "cifar100 FAA") is main.find("PROL", "x") is None

"""Plots on their own: lines over a stream, accuracy against stored bytes, and streams."""

from __future__ import annotations

import sys
import warnings
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from prol.report.comparison import compare_runs
from prol.report.comparison_plot import memory_plot, place_labels
from prol.report.page.plots import Curve, Curves
from prol.report.plot import WIDTH
from prol.report.stream_plot import plot_stream
from prol.report.table import Spread
from report.finished_runs import finished_run


@pytest.mark.parametrize("last", [5, 10, 999, 6_000, 50_000, 1_200_000])
def test_numbers_below_the_axis_do_not_run_together(last: int) -> None:
    places = [last * part / 20 for part in range(1, 21)]
    line = Curve("PROL", places, [Spread.of([50.0 + part]) for part in range(20)])
    [plot] = Curves("at-any-time", "Accuracy at any time", "images seen", "accuracy, %", [line]).plots()
    figure = Figure(figsize=(WIDTH, plot.height), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    plot.draw(figure)
    canvas.draw()
    labels = [label for label in figure.axes[0].get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent(canvas.get_renderer()) for label in labels]
    assert len(boxes) >= 3
    for left, right in pairwise(boxes):
        assert right.x0 - left.x1 > 0.5 * left.height, [label.get_text() for label in labels]


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_labels_of_points_in_a_heap_cover_neither_each_other_nor_points() -> None:
    points = [(100.0 + 3 * (i % 5), 100.0 + 3 * (i // 5)) for i in range(20)]
    sizes = [(50.0, 9.0)] * 20
    centres = place_labels(points, sizes, (0, 0, 360, 250))
    boxes = [(x - 25, y - 4.5, x + 25, y + 4.5) for x, y in centres]
    assert not any(overlap(one, other) for i, one in enumerate(boxes) for other in boxes[:i])
    assert not any(overlap(box, (x - 5, y - 5, x + 5, y + 5)) for box in boxes for x, y in points)
    assert all(box[0] >= 0 and box[2] <= 360 and box[1] >= 0 and box[3] <= 250 for box in boxes)


def test_a_label_that_fits_nowhere_stays_at_its_point() -> None:
    assert place_labels([(5, 5)], [(100, 100)], (0, 0, 10, 10)) == [(5, 5)]


def test_methods_that_store_samples_differ_from_those_that_store_nothing(tmp_path: Path) -> None:
    rows = compare_runs(
        [
            finished_run("er-seed0", method="er", stored={"samples_stored": (500, 6_144_000)}),
            finished_run("ncm-seed0", stored={"statistics_stored": (1_930, 15_440)}),
            finished_run("guess-$1<2-seed0", method="guess", history=(9.0, 5.0)),
        ]
    )
    plot = memory_plot(rows, "digits, $5 & more$")
    assert "er 70.0 % with 6.14 MB, samples among them" in plot.alt
    plot.write(tmp_path / "stored.svg")
    drawn = "".join(ElementTree.parse(tmp_path / "stored.svg").getroot().itertext())
    for words in ("stores samples", "stores no sample", "nothing", "10 MB", "guess:$1<2", "digits, $5 & more$"):
        assert words in drawn
    plot.write(tmp_path / "stored.png")
    assert (tmp_path / "stored.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_rows_give_the_same_file(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        memory_plot(compare_runs([finished_run("ncm-seed0")]), "digits").write(tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def counts(classes: int, bins: int = 20) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 3, (classes, bins))


@pytest.mark.parametrize(("name", "begins"), [("stream.png", b"\x89PNG"), ("stream.SVG", b"<?xml")])
def test_a_stream_is_drawn(tmp_path: Path, name: str, begins: bytes) -> None:
    plot_stream(counts(10), [0, 50, 100], [str(digit) for digit in range(10)], "digits", tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_thousand_classes_have_a_row_of_dots_each(tmp_path: Path) -> None:
    plot_stream(np.eye(1000, 100, dtype=np.int64), [0], None, "many", tmp_path / "many.png")
    width, height = Image.open(tmp_path / "many.png").size
    assert 1000 < height < 1300
    assert width < 1100


def test_names_are_in_the_plot_where_there_is_room(tmp_path: Path) -> None:
    few, many = tmp_path / "few.svg", tmp_path / "many.svg"
    plot_stream(counts(3), [0], ["heron", "stork", "crane"], "birds", few)
    plot_stream(counts(300), [0], [f"bird {number}" for number in range(300)], "birds", many)
    assert all(name in few.read_text() for name in ("heron", "stork", "crane"))
    assert "bird 1" not in many.read_text()


def test_a_name_is_never_read_as_a_formula(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_stream(counts(2), [0], ["$x^$", "$"], "all $ of $\\frac$", tmp_path / "odd.png")
    assert (tmp_path / "odd.png").is_file()


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1)])
def test_the_smallest_streams_are_drawn(tmp_path: Path, shape: tuple[int, int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_stream(np.ones(shape, dtype=np.int64), [0], None, "small", tmp_path / "small.png")


def test_names_must_be_as_many_as_classes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 classes need as many names, got 2"):
        plot_stream(counts(3), [0], ["a", "b"], "birds", tmp_path / "birds.png")


def test_a_file_that_cannot_be_drawn_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png or \.svg"):
        plot_stream(counts(3), [0], None, "birds", tmp_path / "birds.jpg")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        plot_stream(counts(3), [0], None, "birds", tmp_path / "no" / "birds.png")


def test_without_matplotlib_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match="pip install matplotlib"):
        plot_stream(counts(3), [0], None, "birds", tmp_path / "birds.png")

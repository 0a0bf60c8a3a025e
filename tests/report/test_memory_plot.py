from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from prol.report.comparison import compare_runs
from prol.report.comparison_plot import memory_plot, place_labels
from report.finished_runs import finished_run


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

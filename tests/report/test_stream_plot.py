from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prol.report.stream_plot import plot_stream


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


def test_names_stand_in_the_picture_where_there_is_room(tmp_path: Path) -> None:
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

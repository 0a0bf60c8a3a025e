"""Tables and pictures of measurements, made from their files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from prol.report.bench import bench_tables, headline, line, milliseconds, plot_bench, rate


def timed(median: float, images: int = 10) -> dict[str, Any]:
    return {
        "images": images,
        "images_per_second": images / median,
        "seconds": [median],
        "median": median,
        "low": 0.9 * median,
        "high": 1.1 * median,
    }


def content(bench: str, rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "bench": bench,
        "versions": {"torch": "2.11"},
        "machine": {"device": "H200", "processor": "some", "threads": 2},
        "settings": {"methods": ["prol"], "backbone": "vit", "precision": "bf16", "chunk": 10},
        "rows": rows,
    } | more


LADDER = content(
    "ladder",
    [
        {"rung": "float32", "ratio": 1.0} | timed(0.03),
        {"rung": "bf16", "error": "RuntimeError: no compiler"},
        {"rung": "bare passes", "ratio": 10.0} | timed(0.003),
    ],
    times_bare=1.25,
)
GROWTH = content(
    "growth",
    [
        {
            "classes": classes,
            "train": timed(0.004) | {"warnings": ["not captured"]},
            "predict": timed(0.002),
            "train_ratio": 1.0,
            "predict_ratio": 1.0,
            "memory_bytes": 3 << 30,
            "memory": "tensors on the GPU",
        }
        for classes in (10, 100000)
    ],
)
SPEED = content(
    "speed",
    [
        {"method": "prol", "what": "train", "share_of_peak": 0.123} | timed(0.004),
        {"method": "ncm", "what": "predict"} | timed(0.002),
    ],
    peak={"what": "matrix product, bf16", "flop_per_second": 781e12},
)
FILES = content(
    "files",
    [{"what": what} | timed(1.0, 500) for what in ("decoding", "learning", "both")],
    limit="decoding",
    share_of_limit=0.97,
)
PEAK = content(
    "peak",
    [
        {"what": "matrix product, bf16", "flop_per_second": 781e12} | timed(0.001),
        {"what": "copy", "bytes_per_second": 4.26e12} | timed(0.001),
    ],
    settings={},
)


def text_of(measured: dict[str, Any]) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(bench_tables(measured))
    return console.export_text()


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (LADDER, ["bare passes", "10.00", "3,333", "1.25 times as long", "failed: bf16: RuntimeError: no compiler"]),
        (GROWTH, ["100,000", "4.00", "3.00", "tensors on the GPU", "warned: 100000", "not captured"]),
        (SPEED, ["12.3", "5,000", "781.00 TFLOP/s (matrix product, bf16)"]),
        (FILES, ["The limit is decoding; both together reach 97 % of it."]),
        (PEAK, ["781.00 TFLOP/s", "4,260.0 GB/s", "peak: H200, torch 2.11"]),
    ],
    ids=["ladder", "growth", "speed", "files", "peak"],
)
def test_a_table_shows_what_was_measured(measured: dict[str, Any], words: list[str]) -> None:
    text = text_of(measured)
    assert [word for word in words if word not in text] == []


def test_the_headline_names_the_method_the_network_and_the_machine() -> None:
    assert headline(SPEED) == "speed: prol, vit, bf16, chunk 10; H200, torch 2.11"
    on_cpu = SPEED | {"machine": {"device": "cpu", "processor": "EPYC", "threads": 1}}
    assert headline(on_cpu).endswith("EPYC, 1 thread, torch 2.11")


def test_a_row_is_one_line() -> None:
    assert line(SPEED["rows"][0]) == "prol train 10: 2,500 images/s"
    assert line(GROWTH["rows"][0]) == "10: 4.00 ms"
    assert line(LADDER["rows"][1]) == "bf16: RuntimeError: no compiler"


def test_numbers_keep_three_digits() -> None:
    assert [rate(number) for number in (2.34, 99.96, 1234.5)] == ["2.3", "100.0", "1,234"]
    assert [milliseconds(seconds) for seconds in (0.00123, 0.0123, 1.5)] == ["1.23", "12.3", "1,500.0"]


@pytest.mark.parametrize(("measured", "ending"), [(LADDER, "png"), (GROWTH, "svg")], ids=["ladder", "growth"])
def test_pictures_are_drawn(measured: dict[str, Any], ending: str, tmp_path: Path) -> None:
    plot_bench(measured, tmp_path / f"it.{ending}")
    assert (tmp_path / f"it.{ending}").stat().st_size > 1000


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no plot of speed: measurements of ladder"):
        plot_bench(SPEED, tmp_path / "it.png")
    with pytest.raises(ValueError, match="nothing was measured"):
        plot_bench(content("ladder", [{"rung": "a", "error": "x"}]), tmp_path / "it.png")
    with pytest.raises(ValueError, match=r"must end in \.png or \.svg"):
        plot_bench(LADDER, tmp_path / "it.doc")

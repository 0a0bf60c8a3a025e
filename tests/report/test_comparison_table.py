from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import scipy.stats
from rich.console import Console

from prol.report.comparison import (
    Row,
    compare_runs,
    comparison_markdown,
    comparison_table,
    describe_stream,
    notes,
    t_quantile,
)
from prol.report.comparison_plot import plot_comparison
from prol.report.table import Spread, readable
from prol.runfiles import RunFiles
from report.finished_runs import finished_run


def printed(rows: list[Row], width: int = 160) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(comparison_table(rows))
    return file.getvalue()


def test_rows_are_means_over_seeds_with_the_best_final_accuracy_first() -> None:
    rows = compare_runs(
        [
            finished_run("ncm-seed0", 0, (80.0, 60.0)),
            finished_run("ncm-seed1", 1, (90.0, 63.0)),
            finished_run("prol-lr=0.1-seed0", 0, (95.0, 70.0), method="prol", options={"lr": 0.1}),
        ]
    )
    assert [row.name for row in rows] == ["prol:lr=0.1", "ncm"]
    assert rows[1].seeds == (0, 1)
    assert rows[1].faa == Spread(61.5, pytest.approx(4.5**0.5), (60.0, 63.0))
    assert rows[1].caa.mean == pytest.approx((70 + 76.5) / 2)
    assert rows[1].forgetting.values == (20.0, 27.0)
    assert [spread.mean for spread in rows[1].history] == [85.0, 61.5]
    assert rows[0].faa.deviation is None


def test_the_two_best_are_compared_seed_by_seed() -> None:
    def runs(name: str, *accuracies: float) -> list[RunFiles]:
        return [finished_run(f"{name}-seed{seed}", seed, (80.0, last)) for seed, last in enumerate(accuracies)]

    rows = compare_runs([*runs("slda", 61.0, 63.0, 68.0), *runs("ncm", 60.0, 60.0, 63.0, 90.0)[:3]])
    low, high = scipy.stats.ttest_rel([61, 63, 68], [60, 60, 63]).confidence_interval(0.95)
    [_, line] = notes(rows)
    assert f"FAA of slda is 3.00 points above that of ncm, 95 % interval {low:.2f} to {high:.2f} (3 seeds)." in line
    assert all(len(notes(compare_runs(few))) == 1 for few in (runs("ncm", 1.0, 2.0), runs("a", 1.0) + runs("b", 2.0)))


@pytest.mark.parametrize("freedom", [1, 2, 10, 11, 19, 100])
def test_quantiles_are_those_of_the_t_distribution(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(scipy.stats.t.ppf(0.975, freedom), rel=1e-4)


def test_a_folder_named_by_hand_keeps_its_name() -> None:
    assert compare_runs([finished_run("my first try")])[0].name == "my first try"


def test_the_table_states_what_was_stored_and_given() -> None:
    rows = compare_runs(
        [
            finished_run("ncm-seed0", 0, (80.0, 60.0), stored={"statistics_stored": (1_930, 15_440)}, speed=1204.4),
            finished_run("ncm-seed1", 1, (80.0, 62.0), stored={"statistics_stored": (1_930, 15_440)}, speed=1204.4),
            finished_run(
                "er-memory=500-seed0",
                0,
                (80.0, 50.0),
                method="er",
                announce=False,
                stored={"trained_now": (11_200_000, 44_800_000), "samples_stored": (500, 6_144_000)},
                speed=9.9,
            ),
        ]
    )
    text = printed(rows)
    first, second = (line.split() for line in text.splitlines()[4:6])
    assert first[:9] == ["ncm", "61.00", "70.50", "19.00", "1,204", "0", "0", "1.93", "k"]
    assert first[9:] == ["none", "15.4", "kB", "boundaries,"]
    assert second == ["±1.41", "±0.71", "±1.41", "15.4", "kB", "classes"]
    first, second, third = (line.split() for line in text.splitlines()[6:9])
    assert first == ["er", "50.00", "65.00", "30.00", "9.9", "11.2", "M", "0", "0", "500", "6.14", "MB", "boundaries"]
    assert second == ["memory=500", "44.8", "MB", "6.14", "MB"]
    assert third == ["(seed", "0", "only)"]
    assert "A_AUC" not in text


def test_the_accuracy_at_any_time_has_a_column_where_it_was_measured() -> None:
    rows = compare_runs([finished_run("ncm-seed0", a_auc=81.5)])
    assert "A_AUC" in printed(rows)
    assert "81.50" in printed(rows)


def test_a_narrow_terminal_loses_nothing_of_the_table() -> None:
    text = printed(compare_runs([finished_run("ncm-seed0", a_auc=81.5)]), width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_speeds_of_runs_beside_others_are_flagged() -> None:
    alone, beside = finished_run("ncm-seed0"), finished_run("er-seed0", method="er", speed=55.0, side_by_side=True)
    rows = compare_runs([alone, beside])
    assert "55*" in printed(rows)
    assert "100*" not in printed(rows)
    assert notes(rows)[-1].startswith("* Other runs were running")
    assert len(notes(compare_runs([alone]))) == 1


def test_the_page_holds_every_row_and_what_is_missing() -> None:
    runs = [
        finished_run("ncm-seed0", stored={"statistics_stored": (1_930, 15_440)}),
        finished_run("ncm-seed2", 2, (90.0, 80.0), stored={"statistics_stored": (1_930, 15_440)}),
    ]
    page = comparison_markdown(describe_stream(runs), compare_runs(runs), ["er-seed0: the loss is not finite"])
    assert page.startswith("# Comparison on digits\n")
    assert "seeds 0, 2, backbone builtin 63fb1a20a19e, cpu float32, prol 0.1.0." in page
    assert (
        "| `ncm` | 0, 2 | 75.00 ± 7.07 | 82.50 ± 3.54 | 15.00 ± 7.07 | 100 | 0 | 0 | 1.93 k (15.4 kB) | none | "
        "15.4 kB | boundaries, classes |" in page
    )
    assert page.endswith("## Not finished\n\n- er-seed0: the loss is not finite\n")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (finished_run("er-seed0", method="er", chunk=20), "protocol.chunk is 10 in the one and 20 in the other"),
        (finished_run("er-seed0", method="er", history=(1.0, 2.0, 3.0)), "protocol.tasks is 2 in the one and 3"),
        (finished_run("ncm-seed1", 1, options={"distance": "euclidean"}), "options.distance is None in the one"),
        (finished_run("ncm-seed1", 1, announce=False), "announce is True in the one and False in the other"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(other: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        compare_runs([finished_run("ncm-seed0"), other])  # type: ignore[list-item]


def test_the_first_built_in_network_is_the_same_under_both_of_its_names() -> None:
    old, new, other = (finished_run(folder, method=folder) for folder in ("ncm", "slda", "foal"))
    new.config["backbone"]["name"] = "vit_tiny_patch8_64.tiny_imagenet"
    assert len(compare_runs([old, new])) == 2
    other.config["backbone"]["name"] = "vit_small_patch16_128.distilled"
    with pytest.raises(ValueError, match=r"backbone\.name is 'vit_tiny_patch8_64"):
        compare_runs([old, other])


def test_methods_may_be_given_different_information_and_data_may_be_elsewhere() -> None:
    rows = compare_runs([finished_run("ncm-seed0"), finished_run("er-seed0", method="er", announce=False)])
    assert {row.name: row.told_classes for row in rows} == {"ncm": True, "er": False}


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (7, "7"), (999, "999"), (1000, "1 k"), (999_499, "999 k"), (999_500, "1 M"), (86_000_000, "86 M")],
)
def test_amounts_are_written_with_three_digits(number: int, text: str) -> None:
    assert readable(number) == text
    assert readable(number, "B") == (f"{text}B" if " " in text else f"{text} B")


def test_the_comparison_is_drawn_with_one_line_per_method(tmp_path: Path) -> None:
    runs = [finished_run(f"ncm-x={i}-seed{seed}", seed, (90.0, 50.0 + i + seed)) for i in range(9) for seed in (0, 1)]
    plot_comparison(compare_runs(runs), "digits, $5 a task$", tmp_path / "lines.svg")
    drawn = (tmp_path / "lines.svg").read_text()
    assert all(f"ncm:x={i}, {50.5 + i:.1f}" in drawn for i in range(9))
    assert drawn.count("FillBetween") == 9
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        plot_comparison(compare_runs(runs), "digits", tmp_path / "lines.pdf")


def test_bytes_stored_are_those_of_all_stored_state_in_the_largest_run() -> None:
    most = {"parameters_stored": (10, 40), "statistics_stored": (20, 160), "samples_stored": (2, 600)}
    less = {"parameters_stored": (90, 360), "trained_now": (90, 360)}
    rows = compare_runs(
        [finished_run("er-seed0", 0, method="er", stored=most), finished_run("er-seed1", 1, method="er", stored=less)]
    )
    assert rows[0].bytes_kept == 800
    assert "| 2 (600 B) | 800 B |" in comparison_markdown("digits: few", rows, [])


def test_a_run_without_its_times_has_no_speed() -> None:
    row = compare_runs([replace(finished_run("ncm-seed0"), timing=None)])[0]
    assert row.images_per_second is None
    assert "| - | 0 | 0 | 0 | none |" in comparison_markdown("digits: few", [row], [])

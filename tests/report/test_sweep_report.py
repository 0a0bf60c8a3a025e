from __future__ import annotations

import csv
import io
from typing import Any

from prol.report.sweep import ON_TEST, SweepRun, best_of, settings_of, sweep_content, sweep_csv, sweep_markdown


def run(lr: float, seed: int, faa: float | None, **changes: Any) -> SweepRun:
    values: dict[str, Any] = {
        "folder": f"prol-lr={lr}-seed{seed}",
        "dataset": "digits",
        "condition": {},
        "method": "prol",
        "options": {"lr": lr},
        "seed": seed,
        "state": "failed" if faa is None else "finished",
        "problem": "the loss is not finite" if faa is None else None,
        "faa": faa,
        "caa": faa,
        "forgetting": None if faa is None else 1.0,
        "images_per_second": None if faa is None else 5.0,
    }
    return SweepRun(**(values | changes))


def test_the_best_has_the_highest_mean_over_seeds() -> None:
    runs = [run(0.1, 0, 50), run(0.2, 0, 90), run(0.1, 1, 60), run(0.2, 1, 10)]
    (best,) = best_of(settings_of(runs))
    assert (best.options, best.faa.mean, best.seeds) == ({"lr": 0.1}, 55, (0, 1))


def test_a_setting_that_lost_a_seed_does_not_win_by_the_other() -> None:
    runs = [run(0.1, 0, 50), run(0.2, 0, 90), run(0.1, 1, 60), run(0.2, 1, None)]
    assert [one.options for one in best_of(settings_of(runs))] == [{"lr": 0.1}]
    assert "| 0 of 2 |" in sweep_markdown(runs, False, [])


def test_each_method_data_set_and_condition_has_a_best_of_its_own() -> None:
    runs = [
        run(0.1, 0, 50),
        run(0.1, 0, 40, dataset="glyphs"),
        run(0.1, 0, 30, condition={"chunk": 5}),
        run(0.2, 0, 20, condition={"chunk": 5}),
        run(0.1, 0, 10, method="l2p"),
    ]
    assert [one.faa.mean for one in best_of(settings_of(runs))] == [50, 40, 30, 10]


def test_the_files_say_what_was_chosen_on_and_what_is_missing() -> None:
    runs = [run(0.1, 0, 50), run(0.2, 0, None, condition={"chunk": 5})]
    content = sweep_content(runs, development=True)
    assert (content["runs_asked"], content["runs_finished"]) == (2, 1)
    assert content["chosen_on"] == "development split"
    assert [one["options"] for one in content["best"]] == [{"lr": 0.1}]
    page = sweep_markdown(runs, False, ["prol compare prol digits"])
    assert ON_TEST in page
    assert "    prol compare prol digits\n" in page
    assert "- prol-lr=0.2-seed0: the loss is not finite\n" in page
    rows = list(csv.DictReader(io.StringIO(sweep_csv(runs))))
    assert [row["option.lr"] for row in rows] == ["0.1", "0.2"]
    assert [row["chunk"] for row in rows] == ["", "5"]
    assert [row["faa"] for row in rows] == ["50", ""]

"""Runs on other protocols, with other measures, on a clock and on data that are cut here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prol.data.folder import folder as open_folder
from prol.data.split import read_split
from prol.evaluation import Clock, Event, Measures
from prol.runs import Plan, resume, start
from prol.runs.display import Silent
from prol.runs.timing import read_step_seconds
from runs.small_runs import contents, small_plan

METHODS = ("ncm", "head_only", "prol")
PROTOCOLS = ("disjoint", "blurry", "iblurry", "siblurry", "gradual", "imbalanced")
TOLD = ("disjoint", "imbalanced")


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("method", ["ncm", *(pytest.param(name, marks=pytest.mark.slow) for name in METHODS[1:])])
def test_every_method_runs_on_every_protocol_and_says_what_it_was_told(
    tmp_path: Path, micro_vit: str, method: str, protocol: str
) -> None:
    folder = start(small_plan(micro_vit, method, protocol=protocol), tmp_path / "run").path
    result, config = read(folder / "result.json"), read(folder / "config.json")
    assert config["protocol"]["name"] == protocol
    assert sorted(name for task in result["task_classes"] for name in task) == [str(digit) for digit in range(10)]
    assert result["told"]["task_boundaries"] is (protocol in TOLD)
    assert result["told"]["classes_of_next_task"] is (protocol in TOLD)
    assert result["told"]["task_identity_at_test"] is False


def test_a_protocols_options_are_used_and_written_with_their_defaults(tmp_path: Path, micro_vit: str) -> None:
    plan = small_plan(micro_vit, protocol="iblurry", protocol_options={"minor": "25"})
    config = read(start(plan, tmp_path / "run").path / "config.json")
    assert config["protocol"]["options"]["minor"] == 25
    assert config["protocol"]["options"]["disjoint"] == 50
    with pytest.raises(ValueError, match=r"unknown option 'miner'; did you mean 'minor'"):
        start(replace(plan, protocol_options={"miner": 1}), tmp_path / "other")


def test_boundaries_can_be_told_where_a_protocol_has_them_not_by_default(tmp_path: Path, micro_vit: str) -> None:
    plan = small_plan(micro_vit, "prol", protocol="blurry", boundaries=True)
    result = read(start(plan, tmp_path / "run").path / "result.json")
    assert (result["told"]["task_boundaries"], result["told"]["classes_of_next_task"]) == (True, True)


def test_what_was_told_stands_in_the_result(finished: Callable[[str], Path]) -> None:
    folder = finished("prol")
    told, config = read(folder / "result.json")["told"], read(folder / "config.json")
    assert told == {
        "task_boundaries": True,
        "classes_of_next_task": True,
        "task_identity_in_training": True,
        "task_identity_at_test": False,
        "number_of_classes": False,
        "passes_over_the_data": 1,
        "samples_stored": 0,
        "sample_bytes_stored": 0,
        "weights": config["backbone"]["name"],
        "weights_sha256": config["backbone"]["sha256"],
        "preprocessing": config["preprocessing"],
        "tasks_found_by_rule": False,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol": "blurry"}, "cannot learn a class that comes again"),
        ({"boundaries": False}, "needs task boundaries"),
        ({"class_order": "shuffled"}, "class-order label"),
    ],
)
def test_the_released_preset_refuses_streams_it_cannot_learn(
    tmp_path: Path, micro_vit: str, changes: dict[str, Any], words: str
) -> None:
    options = {"preset": "released", "blocks": 2}
    with pytest.raises(ValueError, match=words):
        start(small_plan(micro_vit, "prol", options=options, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Measures and the clock, across an interruption


class StopsAfter(Silent):
    """Counts events, and interrupts the run at one of them."""

    def __init__(self, events: int) -> None:
        self.events, self.heard = events, 0

    def __call__(self, event: Event, seconds: float) -> None:
        del event, seconds
        self.heard += 1
        if self.heard == self.events:
            raise KeyboardInterrupt


EVERYTHING = Measures(points=4, shots=1, prequential=True)
SLOW = Clock(rate=100, keep=1, step_seconds=(0.02, 0.2, 0.07))


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("ncm", {"measures": EVERYTHING, "clock": SLOW}),
        *(
            pytest.param(method, changes, marks=pytest.mark.slow)
            for method in ("ncm", "prol")
            for changes in ({"measures": EVERYTHING}, {"clock": SLOW})
        ),
        pytest.param("prol", {"measures": EVERYTHING, "clock": SLOW}, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_with_more_measures_or_a_clock_ends_the_same(
    tmp_path: Path, micro_vit: str, method: str, changes: dict[str, Any]
) -> None:
    plan = small_plan(micro_vit, method, **changes)
    whole = start(plan, tmp_path / "whole")
    events = len(whole.events.read_text().splitlines())
    for instant in (events // 3, events // 2, events - 3):
        broken, going_on = tmp_path / f"broken{instant}", StopsAfter(10**9)
        with pytest.raises(KeyboardInterrupt):
            start(plan, broken, StopsAfter(instant))
        resume(broken, going_on)
        assert 0 < going_on.heard < events
        assert contents(broken) == contents(whole.path)


def test_a_run_on_a_clock_reports_what_it_missed(tmp_path: Path, micro_vit: str) -> None:
    folder = start(small_plan(micro_vit, clock=SLOW), tmp_path / "run").path
    clock = read(folder / "result.json")["clock"]
    assert (clock["rate"], clock["keep"]) == (100, 1)
    assert clock["missed_images"] > 0
    assert clock["missed_share"] == clock["missed_images"] / 40
    assert clock["most_lag"] >= clock["mean_lag"] > 0


def test_a_method_that_needs_tasks_is_told_them_where_a_protocol_would_not(tmp_path: Path, micro_vit: str) -> None:
    options = {"preset": "released", "blocks": 2}
    plan = small_plan(micro_vit, "prol", options=options, protocol="gradual", protocol_options={"width": 0})
    told = read(start(plan, tmp_path / "run").path / "result.json")["told"]
    assert (told["task_boundaries"], told["classes_of_next_task"], told["task_identity_in_training"]) == (True,) * 3
    imbalanced = small_plan(micro_vit, "prol", options=options, protocol="imbalanced")
    assert read(start(imbalanced, tmp_path / "other").path / "result.json")["told"]["task_boundaries"]


def test_a_run_on_a_clock_lasts_until_the_last_chunk_is_learnt(tmp_path: Path, micro_vit: str) -> None:
    slow = Clock(rate=100, keep=100, step_seconds=1.0)
    clock = read(start(small_plan(micro_vit, clock=slow), tmp_path / "slow").path / "result.json")["clock"]
    assert clock["missed_images"] == 0
    assert clock["seconds"] == pytest.approx(0.05 + 10 * 1.0)  # the first chunk of five comes at 0.05
    fast = Clock(rate=100, step_seconds=0.0)
    clock = read(start(small_plan(micro_vit, clock=fast), tmp_path / "fast").path / "result.json")["clock"]
    assert clock["seconds"] == pytest.approx(40 / 100)


def test_measured_times_can_be_replayed(tmp_path: Path, micro_vit: str) -> None:
    measured = start(small_plan(micro_vit, clock=Clock(rate=1000)), tmp_path / "measured").path
    times = read_step_seconds(str(measured))
    assert isinstance(times, tuple)
    again = start(small_plan(micro_vit, clock=Clock(rate=1000, step_seconds=times)), tmp_path / "again").path
    assert read(again / "result.json")["clock"] == read(measured / "result.json")["clock"]
    assert (again / "events.jsonl").read_bytes() == (measured / "events.jsonl").read_bytes()


def test_a_run_without_a_clock_has_no_times_to_replay(finished: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match="holds no times of steps"):
        read_step_seconds(str(finished("ncm")))


@pytest.mark.parametrize("reuse", [True, False])
def test_the_speed_of_testing_is_told_only_where_nothing_was_reused(
    tmp_path: Path, micro_vit: str, reuse: bool
) -> None:
    plan = small_plan(micro_vit, measures=Measures(reuse_features=reuse))
    timing = read(start(plan, tmp_path / "run").path / "timing.json")
    assert timing["test_features_reused"] is reuse
    assert (timing["test_images_per_second"] is None) is reuse
    assert all((task["test_images_per_second"] is None) is reuse for task in timing["tasks"])


# Data that are cut here


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name, shade in {"dark": 30, "light": 200, "mid": 110}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(8):
            noise = np.random.default_rng(number).integers(-20, 20, (12, 10, 3)) + shade
            Image.fromarray(noise.astype(np.uint8)).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_the_split_stands_beside_the_result_and_can_be_used_again(tmp_path: Path, micro_vit: str, photos: Path) -> None:
    plan = Plan(
        "ncm",
        "folder",
        backbone=micro_vit,
        device="cpu",
        data=str(photos),
        dataset_options={"test_share": "0.5", "seed": "3"},
        threads=1,
    )
    first = start(plan, tmp_path / "first").path
    cut = read_split(first / "split.json")
    assert (cut.images, len(cut.test)) == (24, 12)
    options = {"split": str(first / "split.json")}
    second = start(replace(plan, dataset_options=options), tmp_path / "second").path
    labels = [read(folder / "config.json")["dataset"]["labels_sha256"] for folder in (first, second)]
    assert labels[0] == labels[1]
    assert read(second / "split.json")["test"] == read(first / "split.json")["test"]
    assert read(second / "result.json")["metrics"] == read(first / "result.json")["metrics"]
    assert np.array_equal(open_folder(photos, split=str(first / "split.json")).split.test, cut.test)


def test_owners_halves_need_no_split_file(finished: Callable[[str], Path]) -> None:
    assert not (finished("ncm") / "split.json").exists()

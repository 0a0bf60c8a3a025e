"""The ladder gives all methods the same images, resumes, and names every rule that does not hold."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import ladder
import ladder_report

ROOT = Path(__file__).parents[2]
TINY = "vit_tiny_patch16_224:32px@random"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    call(["prepare", "--backbone", TINY, "--groups", "digits", "--most", "5", "--store", str(folder)])
    return folder


def call(words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ladder.py", *words])
        ladder.main()


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in out.glob("*.jsonl") for line in file.read_text().splitlines()]


def test_a_run_has_a_line_for_each_stream_and_method_and_is_not_repeated(store: Path, tmp_path: Path) -> None:
    words = ["run", "--backbone", TINY, "--store", str(store), "--out", str(tmp_path), "--seeds", "1"]
    call([*words, "--methods", "ncm", "lr_rgda"])
    first = lines(tmp_path)
    # one, two and five images, of each of ten classes; ncm does not depend on the order
    assert sorted((row["images"], row["order"]) for row in first if row["method"] == "ncm") == [
        (size, "shuffled") for size in (1, 2, 5)
    ]
    assert sum(row["method"] == "lr_rgda" for row in first) == 6
    assert all(0 <= row["accuracy"] <= 100 and row["test"] == 50 for row in first)
    call([*words, "--methods", "ncm", "lr_rgda"])
    assert lines(tmp_path) == first


def test_a_cell_means_what_the_library_says_of_the_same_images(store: Path) -> None:
    """Looked-up features give what `learn` and `predict` give on the images themselves."""
    pool = ladder.opened_pool(store, torch.device("cpu"), development=False)
    cell = ladder.Cell("digits", 10, 2, "shuffled")
    stream = ladder.drawn_stream(pool, cell, seed=0)
    backbone = ladder.open_backbone(TINY, device="cpu")
    looked_up = ladder.streamed("slda", backbone, pool, stream, seed=0).predict(stream.test)
    plain = ladder.create("slda", ladder.open_backbone(TINY, device="cpu"), 0)
    plain.backbone.read = lambda images: images  # rendered already
    plain.learn(pool.inputs[stream.learn].float(), stream.learn_labels)
    found = plain.predict(pool.inputs[stream.test].float())
    order = [plain.classes.index(name) for name in ladder.streamed("slda", backbone, pool, stream, 0).classes]
    torch.testing.assert_close(looked_up, found[:, order], rtol=1e-3, atol=1e-3)


def test_both_orders_and_smaller_sizes_learn_the_same_images(store: Path) -> None:
    pool = ladder.opened_pool(store, torch.device("cpu"), development=False)

    def images(size: int, order: str) -> set[int]:
        return set(ladder.drawn_stream(pool, ladder.Cell("digits", 10, size, order), seed=3).learn.tolist())

    assert images(5, "shuffled") == images(5, "class order")
    assert images(1, "shuffled") < images(2, "shuffled") < images(5, "shuffled")
    in_order = ladder.drawn_stream(pool, ladder.Cell("digits", 10, 5, "class order"), seed=3).learn_labels
    assert in_order == sorted(in_order)


def test_development_tests_on_training_images_that_are_not_learnt(store: Path) -> None:
    whole = ladder.opened_pool(store, torch.device("cpu"), development=False)
    split = ladder.opened_pool(store, torch.device("cpu"), development=True)
    for places, learnt, tested in zip(whole.train["digits"], split.train["digits"], split.test["digits"], strict=True):
        assert not set(learnt.tolist()) & set(tested.tolist())
        assert set(learnt.tolist()) | set(tested.tolist()) == set(places.tolist())


def row(accuracy: float, confidence: float, ece: float = 2.0) -> dict[str, float]:
    return {"accuracy": accuracy, "confidence": confidence, "ece": ece, "ece_expected": 1.0, "test": 500}


@pytest.mark.parametrize(
    ("ours", "rival", "said"),
    [
        ([80, 81, 82], [80, 81, 82], []),
        ([80, 81, 82], [83, 84.1, 84.9], ["-3.0"]),  # more than a point behind for certain
        ([80, 90, 70], [83, 90, 75], []),  # the interval reaches -1
        ([60, 81, 82], [66, 75, 79], ["a seed -6.0 to ncm"]),
    ],
)
def test_rules_on_accuracy(ours: list[float], rival: list[float], said: list[str]) -> None:
    methods = {
        "prol_plus": {seed: row(value, value) for seed, value in enumerate(ours)},
        "ncm": {seed: row(value, value) for seed, value in enumerate(rival)},
    }
    found = [text for text in ladder_report.broken_rules(("x", 10, 1, "shuffled"), methods) if "deviation" not in text]
    assert len(found) >= len(said)
    assert all(any(part in text for text in found) for part in said)
    assert bool(found) == bool(said)


def test_rules_on_deviations_and_probabilities() -> None:
    ours = {seed: row(value, value + 9, 6.0) for seed, value in enumerate([70, 80, 90])}
    methods = {"prol_plus": ours, "ncm": {seed: row(80, 80) for seed in range(3)}}
    few, many = (ladder_report.broken_rules(("x", 10, size, "shuffled"), methods) for size in (2, 5))
    assert any(text.startswith("deviation 10.0") for text in few)
    assert not any("confidence" in text for text in few)
    assert any(text.startswith("confidence 89.0, accuracy 80.0") for text in many)
    assert any(text.startswith("calibration error 6.0") for text in many)


def test_the_committed_summary_is_what_the_runs_say() -> None:
    folder = ROOT / "results" / "ladder" / "small"
    table = ladder_report.read(folder)
    assert (folder / "summary.md").read_text() == ladder_report.summary(table)
    assert len(table) == 158


def test_calibration_error_of_equal_bins() -> None:
    confidence = torch.tensor(np.linspace(0.5, 1, 30))
    assert ladder.calibration_error(confidence, torch.ones(30, dtype=torch.bool)) == pytest.approx(25)

"""Every check, on something that it must find and on something that it must let pass."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import prol
from checks.changed_files import Change, both, copier, rewrite, setting
from prol.checks import Finding, diagnose
from prol.checks.images import FEW


def found(path: Path, code: str) -> Finding:
    [finding] = [one for one in diagnose(path).findings if one.code == code]
    return finding


def photo(seed: int, side: int = 96) -> Image.Image:
    """Smooth blobs of colour, different for each seed."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)


def lay_out(folder: Path, classes: int = 2, train: int = FEW, test: int = 3) -> Path:
    for half, count in (("train", train), ("test", test)):
        for label in range(classes):
            place = folder / half / f"class{label}"
            place.mkdir(parents=True)
            for number in range(count):
                photo(number + 1000 * label + 10_000 * (half == "test")).save(place / f"{number}.png")
    return folder


@pytest.fixture
def run(finished: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    return copier(finished("ncm"), tmp_path)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    learner = prol.create("ncm", "tiny", device="cpu")
    images = [np.asarray(photo(seed)) for seed in range(6)]
    learner.learn(images, ["f", "b", "d", "a", "c", "e"])
    learner.save(tmp_path / "saved")
    return tmp_path / "saved"


def change_meta(saved: Path, *changes: Change) -> Path:
    rewrite(saved / "meta.json", *changes)
    return saved


# PC101


@pytest.mark.parametrize(("train", "status"), [(FEW, "passed"), (FEW - 1, "tip"), (1, "issue")])
def test_few_images_of_a_class_in_a_folder(train: int, status: str, tmp_path: Path) -> None:
    lay_out(tmp_path, train=FEW)
    for extra in range(train, FEW):
        (tmp_path / "train" / "class1" / f"{extra}.png").unlink()
    finding = found(tmp_path, "PC101")
    assert finding.status == status
    assert finding.places == (() if status == "passed" else (f"class1: {train}",))


def test_few_images_of_a_class_in_a_learner_and_in_a_run(saved: Path, run: Callable[..., Path]) -> None:
    assert found(saved, "PC101").status == "issue"
    many = change_meta(saved, setting("seen", "per_class", to=[FEW] * 6))
    assert found(many, "PC101").status == "passed"
    assert found(run(), "PC101").message.startswith("10 of 10 classes have fewer than 10 training images: ")


# PC102


def test_test_images_that_are_not_among_the_training_images_pass(tmp_path: Path) -> None:
    assert found(lay_out(tmp_path), "PC102").status == "passed"


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "the same": lambda image: image,
    "smaller": lambda image: image.resize((60, 60)),
    "larger": lambda image: image.resize((180, 180)),
    "brighter": lambda image: image.point(lambda value: min(255, int(value * 1.05))),
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_training_image_is_found(how: str, tmp_path: Path) -> None:
    lay_out(tmp_path)
    original = Image.open(tmp_path / "train" / "class0" / "4.png")
    COPIES[how](original).save(tmp_path / "test" / "class0" / "copy.jpg", quality=60)
    finding = found(tmp_path, "PC102")
    assert (finding.status, finding.places) == ("issue", (str(Path("class0/copy.jpg ~ class0/4.png")),))
    assert "another class" not in finding.message


def test_a_copy_in_another_class_is_an_issue_however_rare(tmp_path: Path) -> None:
    lay_out(tmp_path, test=60)
    shutil.copy(tmp_path / "train" / "class0" / "4.png", tmp_path / "test" / "class0" / "copy.png")
    assert found(tmp_path, "PC102").status == "tip"
    shutil.move(tmp_path / "test" / "class0" / "copy.png", tmp_path / "test" / "class1" / "copy.png")
    finding = found(tmp_path, "PC102")
    assert finding.status == "issue"
    assert "1 of them of another class" in finding.message


def test_the_images_of_a_run_on_a_folder_are_compared(run: Callable[..., Path], tmp_path: Path) -> None:
    images = lay_out(tmp_path / "photos")
    shutil.copy(images / "train" / "class0" / "0.png", images / "test" / "class0" / "copy.png")
    known = {"name": "folder", "data": str(images), "options": {}, "limit_per_class": None}
    on_folder = both(*(setting("dataset", name, to=value) for name, value in known.items()))
    assert found(run("folder", config=on_folder), "PC102").status == "issue"
    assert found(run("digits"), "PC102").status == "not applicable"


# PC103


@pytest.mark.parametrize(
    ("probability", "judged", "status"), [(0.2, 40, "passed"), (0.001, 40, "issue"), (0.001, 400, "tip")]
)
def test_labels_that_contradict_their_images(probability: float, judged: int, status: str, tmp_path: Path) -> None:
    learner = prol.create("ncm", "tiny", device="cpu")
    learner.enable_prequential(record_ids=True)
    learner.learn([np.asarray(photo(seed)) for seed in range(2)], ["cat", "dog"])
    learner.save(tmp_path / "saved")
    assert found(tmp_path / "saved", "PC103").status == "not applicable"
    lists = {"ids": ["7.jpg"], "labels": [1], "predicted": [0], "probabilities": [probability], "others": [0.95]}
    values = {"judged": judged, **lists}
    recorded = both(*(setting("state", "method", "prequential", name, to=value) for name, value in values.items()))
    finding = found(change_meta(tmp_path / "saved", recorded), "PC103")
    assert finding.status == status
    assert finding.places == (() if status == "passed" else ("7.jpg: dog, predicted cat",))


# PC201


def test_preprocessing_is_compared_with_that_of_the_weights(saved: Path) -> None:
    assert found(saved, "PC201").status == "passed"
    change_meta(saved, setting("preprocessing", "crop_pct", to=0.5))
    assert found(saved, "PC201").status == "tip"
    finding = found(change_meta(saved, setting("preprocessing", "mean", to=[0.0, 0.0, 0.0])), "PC201")
    assert finding.status == "issue"
    assert "mean [0.0, 0.0, 0.0], trained with [" in finding.message


def test_another_input_size_than_that_of_the_weights_is_a_tip(tmp_path: Path) -> None:
    prol.create("ncm", "vit_tiny_patch16_128.distilled:96px", device="cpu").save(tmp_path / "resized")
    finding = found(tmp_path / "resized", "PC201")
    assert (finding.status, "size 96, trained with 128" in finding.message) == ("tip", True)


def test_preprocessing_of_weights_that_are_gone_is_not_judged(saved: Path) -> None:
    gone = change_meta(saved, setting("backbone", to={"name": "nothing@/gone.safetensors", "sha256": "0" * 64}))
    assert found(gone, "PC201").status == "not applicable"


# PC202


@pytest.mark.parametrize(("megabytes", "status"), [(60.0, "passed"), (63.9, "tip"), (70.0, "issue")])
def test_a_state_near_its_budget(megabytes: float, status: str, saved: Path) -> None:
    assert found(saved, "PC202").status == "not applicable"
    stored = {"count": 1, "bytes": round(megabytes * 1e6)}
    full = change_meta(
        saved, setting("options", to={"budget_mb": 64.0}), setting("footprint", "statistics_stored", to=stored)
    )
    assert found(full, "PC202").status == status


# PC203


def test_classes_in_label_order(saved: Path, run: Callable[..., Path]) -> None:
    assert found(run("sorted"), "PC203").status == "tip"
    shuffled = setting("protocol", "class_order", to="shuffled")
    assert found(run("shuffled", config=shuffled), "PC203").status == "passed"
    assert found(saved, "PC203").status == "passed"
    assert found(change_meta(saved, setting("classes", to=list("abcdef"))), "PC203").status == "tip"
    assert found(change_meta(saved, setting("classes", to=[8, 9, 10, 11, 12, 13])), "PC203").status == "tip"


# PC301


@pytest.mark.parametrize(("gain", "status"), [(0.0, "passed"), (1.0, "passed"), (-0.3, "tip"), (-2.0, "issue")])
def test_a_method_is_compared_with_ncm_beside_it(gain: float, status: str, run: Callable[..., Path]) -> None:
    known = json.loads((run("ncm-seed0") / "result.json").read_text())["metrics"]["faa"]
    other = run("slda", config=setting("method", to="slda"), result=setting("metrics", "faa", to=known + gain))
    assert found(other, "PC301").status == status
    assert found(other.parent, "PC301").status == status


def test_a_damaged_run_beside_it_is_left_out(run: Callable[..., Path]) -> None:
    other = run("slda", config=setting("method", to="slda"))
    run("ncm-seed0", result=setting("metrics", to={}))
    assert found(other, "PC301").status == "not applicable"


def test_a_run_without_ncm_on_the_same_stream_is_not_compared(run: Callable[..., Path]) -> None:
    other = run("slda", config=setting("method", to="slda"))
    assert found(other, "PC301").status == "not applicable"
    run("ncm-seed0", config=setting("protocol", "chunk", to=7))
    assert found(other, "PC301").status == "not applicable"


# PC302


@pytest.mark.parametrize(("error", "status"), [(3.0, "passed"), (6.0, "tip"), (12.0, "issue")])
def test_probabilities_that_are_not_calibrated(error: float, status: str, run: Callable[..., Path]) -> None:
    measured = setting("anytime", "calibration_error", to=error)
    assert found(run("small", result=measured), "PC302").status == "not applicable"
    large = both(measured, lambda content: content.update(test_sizes=[100] * len(content["test_sizes"])))
    assert found(run("large", result=large), "PC302").status == status


# PC303


def loads(start: float, **more: Any) -> Change:
    return both(*(setting(name, to=value) for name, value in {"load_start": start, "processors": 4, **more}.items()))


def test_a_busy_machine(run: Callable[..., Path]) -> None:
    idle = setting("load_end", to=1.0)
    assert found(run("quiet", config=loads(0.2), timing=idle), "PC303").status == "passed"
    assert found(run("start", config=loads(6.0), timing=idle), "PC303").status == "tip"
    assert found(run("end", config=loads(0.2), timing=setting("load_end", to=7.5)), "PC303").status == "tip"
    assert found(run("beside", config=loads(0.2, side_by_side=True), timing=idle), "PC303").status == "tip"
    clock = {"rate": 10.0, "keep": 0, "step_seconds": None}
    finding = found(run("clock", config=loads(6.0, clock=clock), timing=idle), "PC303")
    assert (finding.status, finding.places) == ("issue", ("clock: 7.0 processes on 4 processors at its start",))


def test_a_run_records_what_the_check_needs(finished: Callable[[str], Path]) -> None:
    assert found(finished("ncm"), "PC303").status != "not applicable"


# PC304


def tasks(*seconds: float) -> Change:
    return setting("tasks", to=[{"train_images": 10, "train_seconds": one, "test_seconds": 1.0} for one in seconds])


@pytest.mark.parametrize(
    ("seconds", "status"),
    [
        ((9, 1, 1.1, 1, 1.05, 1), "passed"),
        ((9, 1, 1.2, 1.4, 1.6, 1.8), "tip"),
        ((1, 1, 2, 3, 4, 5), "issue"),
        ((1, 1, 5, 1, 5, 1, 5), "passed"),
        ((1, 2, 3), "not applicable"),
    ],
)
def test_growing_times(seconds: tuple[float, ...], status: str, run: Callable[..., Path]) -> None:
    assert found(run(timing=tasks(*seconds)), "PC304").status == status


def test_times_of_steps_are_used_where_they_were_recorded(run: Callable[..., Path]) -> None:
    place = run(timing=tasks(1, 1, 1, 1, 1))
    (place / "steps.json").write_text(json.dumps({"step_seconds": [0.01 * (1 + step / 10) for step in range(100)]}))
    assert found(place, "PC304").status == "issue"

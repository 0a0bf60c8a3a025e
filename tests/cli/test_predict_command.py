"""`prol predict`: predictions of a saved learner for image files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import prol
from prol.learner import Learner
from prol.testing.stream import make_images, teach

ASKED = 5


@pytest.fixture(scope="module")
def learner() -> Learner:
    return teach(prol.create("ncm", "tiny", device="cpu"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, learner: Learner) -> Path:
    """A saved learner in `model`, and images in `photos`."""
    root = tmp_path_factory.mktemp("place")
    learner.save(root / "model")
    (root / "photos" / "more").mkdir(parents=True)
    for number, pixels in enumerate(make_images(ASKED, 9)):
        Image.fromarray(pixels).save(root / "photos" / ("more" if number > 2 else ".") / f"{number}.png")
    (root / "photos" / "notes.txt").write_text("no image")
    return root


@pytest.fixture
def predict(command, place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(place)
    return lambda *arguments: command("predict", *arguments, "--device", "cpu", "--workers", "1")


def test_json_and_csv_hold_the_library_s_own_answers_and_nothing_else(predict, learner: Learner) -> None:
    done = predict("model", "photos", "--format", "json", "--top", "2", "--batch", "2")
    assert (done.code, done.err) == (0, "")
    answered = json.loads(done.out)
    assert [one["image"] for one in answered] == [f"photos/{n}.png" for n in range(3)] + [
        f"photos/more/{n}.png" for n in range(3, ASKED)
    ]
    scores = learner.predict(make_images(ASKED, 9))
    for one, row, probable in zip(answered, scores, learner.probable(scores), strict=True):
        best = row.argsort(descending=True)[:2].tolist()
        assert [answer["label"] for answer in one["answers"]] == [learner.classes[column] for column in best]
        expected = probable[best].tolist()
        assert np.allclose([answer["probability"] for answer in one["answers"]], expected, atol=1e-6)
    table = predict("model", "photos", "--format", "csv", "--top", "2")
    rows = list(csv.DictReader(io.StringIO(table.out)))
    assert [(row["image"], int(row["rank"]), row["label"]) for row in rows] == [
        (one["image"], rank, answer["label"]) for one in answered for rank, answer in enumerate(one["answers"], 1)
    ]


def test_a_table_has_a_line_an_image(predict, learner: Learner) -> None:
    done = predict("model", "photos/0.png", "photos/more")
    lines = done.out.splitlines()
    assert lines[0].split() == ["image", "label", "probability"]
    assert [line.split()[0] for line in lines[1:]] == ["photos/0.png", "photos/more/3.png", "photos/more/4.png"]
    assert lines[1].split()[1] == learner.classes[int(learner.predict(make_images(1, 9)).argmax())]
    assert lines[1].endswith(" %")


def test_unreadable_images_are_named_after_all_others_were_answered(predict, tmp_path: Path) -> None:
    (tmp_path / "torn.jpg").write_bytes(b"\xff\xd8\xff torn")
    (tmp_path / "empty.png").touch()
    bad = [str(tmp_path), "nowhere.png", "*.tif"]
    done = predict("model", *bad[:1], "photos/0.png", *bad[1:], "photos/1.png", "--format", "json")
    assert done.code == 1
    assert [one["image"] for one in json.loads(done.out)] == ["photos/0.png", "photos/1.png"]
    lines = done.err.splitlines()
    assert len(lines) == 4
    for name in ("torn.jpg", "empty.png: the file is empty", "nowhere.png: there is no such file", "*.tif"):
        assert any("prol: cannot read " in line and name in line for line in lines)


def test_when_no_image_can_be_read_the_answer_is_an_empty_list(command, place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    for form, printed in (("json", "[]\n"), ("csv", "image,rank,label,probability,score\n"), ("table", "")):
        outcome = command("predict", str(place / "model"), str(tmp_path), "--format", form, "--device", "cpu")
        assert (outcome.code, outcome.out) == (1, printed)


def test_answers_go_to_a_file_whole(command, place: Path, tmp_path: Path) -> None:
    arguments = ("predict", str(place / "model"), f"{place}/photos/*.png", "--format", "csv", "--device", "cpu")
    printed = command(*arguments)
    written = command(*arguments, "--out", str(tmp_path / "answers.csv"))
    assert (written.code, written.out, written.err) == (0, "", "")
    assert (tmp_path / "answers.csv").read_text(encoding="utf-8") == printed.out
    assert len(printed.out.splitlines()) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["answers.csv"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("photos", "photos"), "is not a saved learner: it has no meta.json"),
        (("nowhere", "photos"), "no saved learner at"),
        (("model", "model"), "no images: model: there are no images in this folder"),
        (("model", "nowhere.jpg"), "no images: nowhere.jpg: there is no such file"),
        (("model",), "Missing argument"),
        (("model", "photos", "--top", "0"), "--top"),
        (("model", "photos", "--batch", "0"), "--batch"),
        (("model", "photos", "--format", "xml"), "use table or json or csv"),
        (("model", "photos", "--backbone", "vit_tiny_patch16_224@random"), "open the original weights"),
    ],
)
def test_mistakes_are_told_in_one_line(
    command, place: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(place)
    outcome = command("predict", *arguments, "--device", "cpu")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert words in outcome.err


def test_a_learner_that_has_learnt_nothing_has_no_answer(command, place: Path, tmp_path: Path) -> None:
    for name, announced in (("blank", []), ("announced", ["cat", "dog"])):
        blank = prol.create("ncm", "tiny", device="cpu")
        blank.boundary(announced)
        blank.save(tmp_path / name)
        outcome = command("predict", str(tmp_path / name), str(place / "photos"), "--device", "cpu")
        assert (outcome.code, outcome.out) == (2, "")
        assert "learnt nothing yet" in outcome.err


def test_a_stranger_s_class_name_cannot_move_the_cursor(command, place: Path, tmp_path: Path) -> None:
    odd = prol.create("ncm", "tiny", device="cpu")
    odd.learn(make_images(1, 9), ["\x1b[2Jcat\r"])
    odd.save(tmp_path / "odd")
    outcome = command("predict", str(tmp_path / "odd"), str(place / "photos" / "0.png"), "--device", "cpu")
    assert "\\x1b[2Jcat\\r" in outcome.out
    assert "\x1b" not in outcome.out

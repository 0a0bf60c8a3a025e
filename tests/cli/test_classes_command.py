"""`prol classes`, and classes of few images that are left out of what is saved."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

import prol
from prol.runs import start
from prol.testing.stream import make_images
from runs.small_runs import small_plan

LABELS = ["ant", "bee", 7, "bee", "7", "bee", 7, "ant"]
IMAGES = make_images(len(LABELS), seed=1)


@pytest.fixture
def saved(tmp_path: Path, micro_vit: str) -> Path:
    learner = prol.create("slda", micro_vit, device="cpu")
    learner.learn(IMAGES, LABELS)
    learner.save(tmp_path / "pets")
    return tmp_path / "pets"


def meta_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    return content


def operations_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "operations.jsonl").read_text(encoding="utf-8").splitlines()]


def test_classes_are_listed_with_their_counts(saved: Path, command: Any) -> None:
    code, out, _ = command("classes", "list", str(saved), "--format", "json")
    assert code == 0
    expected = [("ant", 2), ("bee", 3), (7, 2), ("7", 1)]
    assert [(one["label"], one["count"]) for one in json.loads(out)] == expected
    code, out, _ = command("classes", "list", str(saved))
    assert "bee" in out
    assert "number" in out


def test_a_removed_class_is_gone_from_every_file_of_the_folder(saved: Path, command: Any) -> None:
    code, out, err = command("classes", "remove", str(saved), "bee", "--yes", "--device", "cpu", "--note", "request 12")
    assert (code, err) == (0, "")
    assert "Erased:\n- its name\n- its rows of sums, counts" in out
    assert "Remains:\n- the matrix that all classes share still holds" in out
    assert "not as if the class had never been seen" in out
    for file in saved.iterdir():
        assert b"bee" not in file.read_bytes()
    assert not [path.name for path in saved.parent.iterdir() if path.name != "pets"]
    expected = prol.create("slda", prol.load(saved, device="cpu").backbone)
    expected.learn(IMAGES, LABELS)
    expected.remove_class("bee")
    found = prol.load(saved, device="cpu")
    assert found.classes == ["ant", 7, "7"]
    torch.testing.assert_close(found.predict(IMAGES), expected.predict(IMAGES))
    [line] = operations_of(saved)
    assert (line["what"], line["classes"], line["exact"], line["note"]) == ("removed", 3, False, "request 12")
    assert "name" not in line
    assert abs(datetime.fromisoformat(line["time"]) - datetime.now(UTC)) < timedelta(minutes=5)
    meta = meta_of(saved)
    assert meta["operations"] == {"removed": 1}
    assert meta["seen"] == {"images": 5, "classes": 3, "per_class": [2, 2, 1]}
    assert "1 class removed" in (saved / "README.md").read_text(encoding="utf-8")


def test_names_that_are_numbers_are_asked_for_as_such_and_every_change_is_a_line(saved: Path, command: Any) -> None:
    code, _, err = command("classes", "rename", str(saved), "8", "eight")
    assert code == 2
    assert err.startswith("prol: no class '8'")
    assert command("classes", "merge", str(saved), "7", "8", "--integer", "--yes").code == 2
    assert not (saved / "operations.jsonl").exists()
    assert command("classes", "rename", str(saved), "7", "8", "--integer").code == 0
    assert command("classes", "merge", str(saved), "7", "bee", "--yes").code == 0
    assert prol.load(saved).classes == ["ant", "bee", 8]
    assert meta_of(saved)["seen"]["per_class"] == [2, 4, 2]
    assert [(line["what"], line["name"]) for line in operations_of(saved)] == [("renamed", 8), ("merged", "bee")]
    prol.load(saved).save(saved)  # saved again, what was done is still known
    assert len(operations_of(saved)) == 2
    assert meta_of(saved)["operations"] == {"renamed": 1, "merged": 1}


def test_nothing_is_erased_without_a_yes(saved: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (saved / "model.safetensors").read_bytes()
    monkeypatch.setattr("typer.confirm", lambda _: False)
    code, _, err = command("classes", "remove", str(saved), "bee")
    assert (code, err) == (2, "prol: nothing was changed; --yes does it without asking\n")
    assert (saved / "model.safetensors").read_bytes() == before


def test_mistakes_are_told(saved: Path, command: Any) -> None:
    for given, words in (
        (["rename", str(saved), "ant", "bee"], "there is a class 'bee' already"),
        (["remove", str(saved), "x", "--integer", "--yes"], "'x' is not a whole number"),
        (["list", str(saved / "nowhere")], "no saved learner"),
        (["list", str(saved), "--format", "csv"], "use table or json"),
    ):
        code, _, err = command("classes", *given)
        assert code == 2
        assert words in err
    (saved / "service").mkdir()
    code, _, err = command("classes", "remove", str(saved), "bee", "--yes")
    assert code == 2
    assert "DELETE or PATCH /classes/NAME" in err


def test_a_damaged_list_of_operations_is_not_lost(saved: Path, command: Any) -> None:
    (saved / "operations.jsonl").write_text("not json\n")
    code, _, err = command("classes", "remove", str(saved), "bee", "--yes")
    assert code == 2
    assert "operations.jsonl is damaged" in err
    assert prol.load(saved).classes == ["ant", "bee", 7, "7"]


def test_small_classes_are_left_out_of_what_is_saved_but_not_of_the_learner(tmp_path: Path, micro_vit: str) -> None:
    learner = prol.create("ncm", micro_vit, device="cpu")
    learner.learn(IMAGES, LABELS)
    learner.save(tmp_path / "few", least_count=3)
    assert len(learner.classes) == 4
    assert prol.load(tmp_path / "few").classes == ["bee"]
    assert meta_of(tmp_path / "few")["left_out"] == {"least_count": 3, "classes": 3, "remains": []}
    assert "3 classes of fewer than 3 images left out." in (tmp_path / "few" / "README.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="least_count must be at least 0"):
        learner.save(tmp_path / "few", least_count=-1)
    trained = prol.create("head_only", micro_vit, device="cpu")
    with pytest.raises(ValueError, match="head_only does not count"):
        trained.save(tmp_path / "none", least_count=2)


def test_export_leaves_small_classes_out(tmp_path: Path, micro_vit: str, command: Any) -> None:
    run = start(small_plan(micro_vit, "slda"), tmp_path / "run").path
    code, out, err = command("export", str(run), str(tmp_path / "all"), "--least-count", "4", "--device", "cpu")
    assert (code, err) == (0, "")
    assert "10 classes" in out
    code, out, err = command("export", str(run), str(tmp_path / "none"), "--least-count", "5", "--device", "cpu")
    assert (code, err) == (0, "")
    meta = meta_of(tmp_path / "none")
    assert (meta["classes"], meta["left_out"]["classes"]) == ([], 10)
    assert meta["run"]["dataset"]["name"] == "digits"
    assert "still holds how its images spread" in (tmp_path / "none" / "README.md").read_text(encoding="utf-8")


def test_what_a_run_said_of_itself_stays_when_classes_change(tmp_path: Path, micro_vit: str, command: Any) -> None:
    run = start(small_plan(micro_vit), tmp_path / "run").path
    assert command("export", str(run), str(tmp_path / "kept"), "--device", "cpu").code == 0
    before = meta_of(tmp_path / "kept")
    name = str(before["classes"][0])
    integer = ["--integer"] if isinstance(before["classes"][0], int) else []
    assert command("classes", "remove", str(tmp_path / "kept"), name, "--yes", *integer).code == 0
    after = meta_of(tmp_path / "kept")
    assert {key: after[key] for key in ("run", "versions", "precision")} == {
        key: before[key] for key in ("run", "versions", "precision")
    }
    assert after["seen"] == {"images": 40, "classes": 9, "per_class": [4] * 9}
    assert "those of before" in (tmp_path / "kept" / "README.md").read_text(encoding="utf-8")

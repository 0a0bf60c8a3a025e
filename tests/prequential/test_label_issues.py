"""Images that contradict their labels are found before they are learnt, and recorded by id, if wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import prol
from evaluation.small_data import CLASSES, coloured_images
from golden_files import tiny_vit
from methods.every_method import METHODS, make
from prequential.watched_streams import PER_CLASS, further, learnt, shuffled
from prol.data.builtin import digits
from prol.prequential.label_issues import LabelIssues
from prol.serve.changes import Changes, replayed
from prol.testing.audit import audit_learner
from prol.testing.stream import STREAM, difference, teach


@pytest.mark.parametrize(("method", "options"), [("ncm", {}), ("prol_plus", {"budget_mb": 8, "adapt_steps": 0})])
def test_labels_that_were_changed_are_found_among_the_least_probable_fifth(
    method: str, options: dict[str, Any]
) -> None:
    data, random = digits(), np.random.default_rng(1)
    rows = np.concatenate([np.flatnonzero(data.train.labels == label)[:18] for label in range(6)])
    order = random.permutation(rows)
    labels = {int(row): int(data.train.labels[row]) for row in order}
    changed = order[80::4][:6].tolist()
    labels |= {row: (labels[row] + 1 + int(random.integers(5))) % 6 for row in changed}
    learner = prol.create(method, "tiny", device="cpu", **options)
    learner.enable_prequential(record_ids=True)
    for start in range(0, len(order), 10):
        part = order[start : start + 10].tolist()
        learner.learn(data.train.load(part).images, [labels[row] for row in part], ids=part)
    found = learner.label_issues(share=1.0)
    judged = [issue.id for issue in found if issue.id in changed]
    assert len(judged) >= 5
    assert len(found) == found.judged < len(order)
    assert set(judged) <= {issue.id for issue in learner.label_issues()}
    right = [issue for issue in found if issue.id not in changed]
    assert np.mean([issue.probability > issue.other_probability for issue in right]) > 0.7


@pytest.mark.parametrize("method", METHODS)
def test_learning_is_the_same_to_the_bit_for_every_method(method: str) -> None:
    plain, watched = make(method), make(method)
    watched.enable_prequential(record_ids=True)
    if watched.needs_tasks():
        teach(plain), teach(watched)
    else:
        for step in STREAM:
            plain.learn(step.images, step.labels), watched.learn(step.images, step.labels)
    assert watched.prequential is not None
    assert int(watched.prequential.images.rows.sum()) == sum(len(step.labels) for step in STREAM)
    assert float(watched.prequential.bins.rows[..., 0].sum()) > 0
    twin = watched.clone()
    assert difference(watched.state(), twin.state()) == ""
    watched.enable_prequential(False)
    assert difference(plain.state(), watched.state()) == ""


def test_state_has_sums_of_fixed_size_and_nothing_of_an_image_unless_ids_are_wanted() -> None:
    assert "prequential" not in prol.create("ncm", tiny_vit()).state()[1]["method"]
    few, many = learnt(record_ids=False, last=60), learnt(record_ids=False)
    for learner in (few, many):
        tensors, meta = learner.state()
        named = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name.startswith("prequential")}
        assert named == {"prequential/images": (5,), "prequential/bins": (5, 24, 4)}
        values = meta["method"]["prequential"]
        assert {name: value for name, value in values.items() if value} == {"judged": values["judged"]}
        assert learner.contents().kind("prequential/bins") == "statistic"
    with pytest.raises(ValueError, match="record_ids=True"):
        many.label_issues()
    with pytest.raises(ValueError, match="enable_prequential"):
        prol.create("ncm", tiny_vit()).learning_curve()


def test_the_least_probable_labels_are_recorded_up_to_the_number_wanted() -> None:
    learner, all_of_them = learnt(record_ids=3), learnt(record_ids=True).label_issues(share=1.0)
    assert all_of_them[0].id == "60.png"
    assert (all_of_them[0].label, all_of_them[0].other) == (shuffled()[1][60], "blue")
    assert all_of_them.judged == len(all_of_them) == 30
    assert [one.probability for one in all_of_them] == sorted(one.probability for one in all_of_them)
    assert learner.label_issues(share=1.0).issues == all_of_them.issues[:3]
    assert len(learnt().label_issues(share=0.1)) == 3
    learner.enable_prequential(record_ids=1)
    assert learner.label_issues(share=1.0).issues == all_of_them.issues[:1]


def test_saved_cloned_and_loaded_learners_continue_to_record_the_same(tmp_path: Path) -> None:
    whole, part = learnt(), learnt(last=65)
    part.save(tmp_path / "learner")
    for twin in (part.clone(), prol.load(tmp_path / "learner", part.backbone)):
        assert difference(further(twin, 65, 80).state(), whole.state()) == ""
        assert twin.label_issues() == whole.label_issues()
    plain = prol.create("ncm", tiny_vit())
    plain.load_state(*whole.state())
    assert plain.label_issues() == whole.label_issues()
    plain.load_state(*prol.create("ncm", tiny_vit()).state())
    assert plain.prequential is None
    plain.learn(*(some[:5] for some in shuffled()))


@pytest.mark.parametrize(
    ("name", "value"),
    [("labels", [7]), ("ids", []), ("ids", [1.5]), ("probabilities", [2.0]), ("predicted", [0.5]), ("capacity", 0)],
)
def test_damaged_records_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    learner = learnt(record_ids=1)
    learner.save(tmp_path / "learner")
    [file] = list((tmp_path / "learner").rglob("meta.json"))
    meta = json.loads(file.read_text())
    values = meta["method_state"]["prequential"] if "method_state" in meta else _values(meta)
    values[name] = value
    file.write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=r"prequential|ids recorded"):
        prol.load(tmp_path / "learner", learner.backbone)


def _values(meta: Any) -> Any:
    """The values of the state wherever they are in a file."""
    if isinstance(meta, dict):
        if "prequential" in meta:
            return meta["prequential"]
        return next(filter(None, map(_values, meta.values())), None)
    return None


def test_undo_takes_records_back() -> None:
    learner = learnt(last=60)
    learner.enable_undo()
    before = learner.state()
    further(learner, 60, 65)
    assert learner.label_issues()[0].id == "60.png"
    learner.undo()
    assert difference(before, learner.state()) == ""
    learner.enable_prequential(False)
    with pytest.raises(ValueError, match="nothing to undo"):
        learner.undo()


def test_a_chunk_that_fails_leaves_no_record() -> None:
    learner = learnt(last=60)
    before = learner.state()
    images, _ = shuffled()

    def broken(*_: Any) -> None:
        raise ValueError("broken")

    learner.update = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="broken"):
        learner.learn(images[:2], ["red", "new"], ["a", "b"])
    assert difference(before, learner.state()) == ""


def test_merged_learners_have_the_records_and_sums_of_both() -> None:
    base = learnt(last=60)
    one, other = further(base.clone(), 60, 70), further(base.clone(), 70, 80)
    merged = prol.merge([one, other], base=base)
    assert merged.prequential is not None
    assert base.prequential is not None
    assert merged.label_issues().judged == 20 + base.prequential.judged
    ids = {issue.id for issue in one.label_issues(1.0)} | {issue.id for issue in other.label_issues(1.0)}
    assert {issue.id for issue in merged.label_issues(1.0)} == ids
    assert len(merged.label_issues(1.0)) == len(ids)
    parts = [learner.prequential for learner in (one, other)]
    sums = sum(part.bins.rows for part in parts if part is not None) - base.prequential.bins.rows
    torch.testing.assert_close(merged.prequential.bins.rows, sums)
    plain = prol.create("ncm", tiny_vit())
    plain.learn(*(some[:5] for some in shuffled()))
    with pytest.raises(ValueError, match="prequential statistics"):
        prol.merge([one, plain])


def test_classes_that_are_renamed_merged_removed_or_unlearnt() -> None:
    learner, (images, labels) = learnt(), shuffled()
    wrong = learner.label_issues()[0]
    assert (wrong.id, wrong.label) == ("60.png", labels[60])
    learner.rename_class(wrong.label, "renamed")
    assert learner.label_issues()[0].label == "renamed"
    merged = learner.clone()
    merged.merge_classes("renamed", wrong.other)
    assert "60.png" not in {issue.id for issue in merged.label_issues(1.0)}
    assert merged.label_issues(1.0).issues
    assert "renamed" not in {one.label for one in merged.label_issues(1.0)}
    gone = learner.clone()
    removal = gone.remove_class(wrong.other)
    assert all(wrong.other not in (one.label, one.other) for one in gone.label_issues(1.0))
    kept = {one.id: one for one in learner.label_issues(1.0)}
    assert gone.label_issues(1.0).issues
    assert all(kept[one.id] == one for one in gone.label_issues(1.0))
    assert any("ids of" in said for said in removal.remains)
    rows = [place for place, label in enumerate(labels) if label == "red"]
    unlearnt = learnt()
    kept = {one.id: one for one in unlearnt.label_issues(1.0)}
    unlearnt.unlearn([images[row] for row in rows], ["red"] * len(rows))
    assert all("red" not in (one.label, one.other) for one in unlearnt.label_issues(1.0))
    assert all(kept[one.id] == one for one in unlearnt.label_issues(1.0))


def test_ids_are_checked_and_have_defaults(tmp_path: Path) -> None:
    images, labels = shuffled()
    learner = prol.create("ncm", tiny_vit())
    with pytest.raises(ValueError, match="ids are not recorded"):
        learner.learn(images[:2], labels[:2], ["a", "b"])
    learner.enable_prequential(record_ids=True)
    with pytest.raises(ValueError, match="2 images but 1 ids"):
        learner.learn(images[:2], labels[:2], ["a"])
    with pytest.raises(ValueError, match="at least 0"):
        learner.enable_prequential(record_ids=-1)
    for start in range(0, 75, 5):
        learner.learn(images[start : start + 5], labels[start : start + 5])
    assert learner.label_issues()[0].id == 60
    places = [tmp_path / f"{number}.png" for number in range(5)]
    for place, image in zip(places, images[75:], strict=True):
        Image.fromarray(image).save(place)
    learner.learn(places, labels[75:])
    assert {issue.id for issue in learner.label_issues(1.0)} >= set(map(str, places))


def test_one_that_is_enabled_late_counts_from_the_images_that_were_learnt() -> None:
    images, labels = shuffled()
    learner = prol.create("ncm", tiny_vit())
    learner.learn(images[:60], labels[:60])
    learner.enable_prequential(record_ids=True)
    further(learner, 60, 65)
    assert learner.label_issues().judged == 5
    assert learner.label_issues()[0].id == "60.png"


def test_a_folder_is_learnt_with_the_paths_of_wrong_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split = coloured_images(PER_CLASS, seed=3)
    for number, (image, label) in enumerate(zip(split.images, split.labels, strict=True)):
        wrong = number % PER_CLASS < 2 and CLASSES[label] == "red"
        place = tmp_path / ("blue" if wrong else CLASSES[label]) / f"{number}.png"
        place.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(place)
    learner = prol.create("ncm", tiny_vit())
    learner.learn_folder(tmp_path, chunk=5, seed=2, test_share=0, label_issues=True)
    worst = [issue.id for issue in learner.label_issues()]
    found = [name for name in ("0.png", "1.png") if str(tmp_path / "blue" / name) in worst]
    assert found
    assert worst[0] in {str(tmp_path / "blue" / name) for name in ("0.png", "1.png")}
    assert worst[0] in capsys.readouterr().err


def test_the_audit_says_what_is_recorded() -> None:
    plain = audit_learner(learnt(record_ids=False), images=16)
    assert any("no id of an image is recorded" in said for said in plain.findings)
    found = audit_learner(learnt(record_ids=True), images=16)
    assert any("ids of 30 images of at most 1,000" in said for said in found.findings)
    assert found.keeps_no_samples()
    assert not any("made before learning" in said for said in audit_learner(prol.create("ncm", tiny_vit())).findings)


def test_the_report_prints_and_is_json() -> None:
    found = learnt().label_issues(0.1)
    lines = repr(found).splitlines()
    assert lines[0].startswith("3 of 30 judged images")
    assert lines[2].split()[:2] == ["60.png", found[0].label]
    assert json.loads(json.dumps(found.to_dict()))["issues"][0]["id"] == "60.png"
    assert found.to_pandas()["label"].tolist() == [issue.label for issue in found]
    assert "60.png" in found._repr_html_()
    assert "once 10 images" in repr(learnt(last=20).label_issues())
    values = learnt().state()[1]
    assert LabelIssues.of(values["method"], values["classes"], 0.1) == found


def test_the_journal_of_a_service_replays_them() -> None:
    learner = learnt(last=60)
    changes, before = Changes(learner), learner.state()
    changes.restart(before)
    further(learner, 60, 65)
    update = changes.update()
    assert update is not None
    assert difference(replayed(before, [update]), learner.state()) == ""

"""`learner.evaluate` and `learner.learn_folder`: what they count, print and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import prol
from evaluation.small_data import CLASSES, colours
from prol.backbones import ViT
from prol.learner import Learner
from prol.verbs import Evaluation


@pytest.fixture
def learner(tiny: ViT) -> Learner:
    """Knows four of the five colours, white under the name of grey."""
    learner = prol.create("ncm", tiny)
    data = colours()
    rows = np.flatnonzero(data.train.labels != CLASSES.index("grey"))
    names = [CLASSES[label].replace("white", "grey") for label in data.train.labels[rows]]
    learner.learn(data.train.load(rows).images, names)
    return learner


def test_an_evaluation_counts_predictions_for_each_class(learner: Learner) -> None:
    data = colours()
    found = learner.evaluate(data)
    images = data.test.load(range(30)).images
    said, truth = learner.classify(images), [CLASSES[label] for label in data.test.labels]
    assert found.images == 30
    assert (found.tested, found.classes) == (CLASSES, tuple(learner.classes))
    for row, name in enumerate(found.tested):
        of_class = [one for one, other in zip(said.labels, truth, strict=True) if other == name]
        assert found.confusion[row].tolist() == [of_class.count(label) for label in found.classes]
        assert found.per_class[name] == pytest.approx(100 * of_class.count(name) / 6)
    right = np.array([one == other for one, other in zip(said.labels, truth, strict=True)])
    assert found.accuracy == pytest.approx(100 * right.mean())
    confidence = said.probabilities.amax(1).numpy()
    bins = np.clip(np.ceil(confidence * 15).astype(int) - 1, 0, 14)
    gaps = [abs(right[bins == k].mean() - confidence[bins == k].mean()) * (bins == k).sum() for k in set(bins.tolist())]
    assert found.calibration_error == pytest.approx(100 * sum(gaps) / 30)
    assert found.per_class["white"] == 0
    assert "6 images are of a class that was never learnt: white" in repr(found)


def test_an_evaluation_is_a_table_for_json_and_for_pandas(learner: Learner) -> None:
    found = learner.evaluate(colours())
    content = json.loads(json.dumps(found.to_dict()))
    assert content["accuracy"] == found.accuracy
    assert content["confusion"] == found.confusion.tolist()
    table = found.to_pandas()
    assert table["class"].tolist() == list(found.tested)
    assert table["images"].tolist() == [6] * 5
    assert table["accuracy"].tolist() == list(found.per_class.values())
    markup = found._repr_html_()
    assert "<td>white</td><td>6</td><td>0.0 %</td>" in markup


def test_the_worst_classes_are_printed_first() -> None:
    confusion = np.diag(np.arange(1, 26))
    confusion[:, 0] = 1
    names = tuple(f"<{number}>" for number in range(25))
    found = Evaluation(names, names, confusion, np.zeros((15, 3)))
    lines = repr(found).splitlines()
    assert lines[0] == "accuracy 93.1 % on 349 images of 25 classes"
    assert lines[2].split() == ["<1>", "3", "66.7", "%", "<0>", "(1)"]
    assert lines[-2:] == ["and 4 classes of higher accuracy: to_pandas() has all", "1 class without an error"]
    assert "&lt;1&gt;" in found._repr_html_()


def test_what_can_be_evaluated(learner: Learner) -> None:
    data = colours()
    images, labels = data.test.load(range(30)).images, [CLASSES[label] for label in data.test.labels]
    expected = learner.evaluate(data)
    for source in ((images, labels), [(images[:7], labels[:7]), (images[7:], labels[7:])]):
        found = learner.evaluate(source)
        assert (found.tested, found.confusion.tolist()) == (expected.tested, expected.confusion.tolist())


def test_nothing_to_evaluate_is_said(learner: Learner, tiny: ViT) -> None:
    with pytest.raises(ValueError, match="there are no test images"):
        learner.evaluate(prol.stream([([], [])]))
    with pytest.raises(ValueError, match="nothing was learnt yet"):
        prol.create("ncm", tiny).evaluate(colours())


def test_a_folder_is_learnt_and_evaluated(tiny: ViT, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, shade in (("dark", 30), ("light", 220), ("new/grey", 120)):
        place = tmp_path / "photos" / name if "/" not in name else tmp_path / name
        place.mkdir(parents=True)
        for number in range(5):
            noise = np.random.default_rng(number).integers(-10, 10, (20, 20, 3)) + shade
            Image.fromarray(noise.astype(np.uint8)).save(place / f"{number}.png")
    learner = prol.create("ncm", tiny)
    found = learner.learn_folder(tmp_path / "photos", chunk=2)
    assert found is not None
    assert (found.images, set(found.tested), sum(learner.class_counts())) == (2, {"dark", "light"}, 8)
    assert found.to_dict() == learner.evaluate(prol.stream(tmp_path / "photos")).to_dict()
    assert "right before they were learnt" in capsys.readouterr().err
    assert learner.learn_folder(tmp_path / "new", test_share=0, progress=False) is None
    assert capsys.readouterr().err == ""
    assert learner.class_counts().tolist()[-1] == 5
    plain = prol.create("ncm", tiny)
    for images, labels in prol.stream(tmp_path / "photos", chunk=2, progress=False):
        plain.learn(images, labels)
    plain.learn(sorted((tmp_path / "new" / "grey").iterdir()), ["grey"] * 5)
    test = [tmp_path / "photos" / "dark" / "0.png"]
    assert np.allclose(plain.predict(test), learner.predict(test))

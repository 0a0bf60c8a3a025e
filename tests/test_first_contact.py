"""What a new user sees first: how things print, what completion offers, and what mistakes say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import prol
from docs.pages import DOCS
from methods.small_streams import pictures
from prol import registry
from prol.prediction import Classification

IMAGES = pictures([0, 1, 2, 3])


@pytest.fixture
def learner(tiny):
    return prol.create("ncm", tiny)


def test_a_learner_is_a_page_in_a_notebook(learner) -> None:
    learner.learn(IMAGES, ["<b>", "cat", "cat", "dog"])
    page = learner._repr_html_()
    assert "<b>ncm</b>" in page
    assert "<li>3 classes (&lt;b&gt;, cat, dog)</li><li>4 images learnt</li>" in page
    assert re.search(r"<li>[\d,]+ bytes stored</li>", page)


def test_tables_in_notebooks_have_no_empty_parts(learner) -> None:
    learner.learn(IMAGES, ["a", "b", "c", "d"])
    found = learner.evaluate((IMAGES, ["a", "b", "c", "d"]))
    assert "4 classes without an error" in found._repr_html_()
    assert "<table>" not in found._repr_html_()
    table = learner.classify(IMAGES)._repr_html_()
    assert "<td>a</td><td>" in table
    assert "<td> " not in table


def test_completion_of_a_learner_offers_what_its_page_documents(learner) -> None:
    page = (DOCS / "api" / "learners.md").read_text(encoding="utf-8")
    listed = re.search(r"## Using one.*?members: \[(.*?)\]", page, re.DOTALL)[1].split(", ")
    offered = {name for name in dir(learner) if not name.startswith("_")}
    assert offered == {*listed, "backbone", "classes", "name", "options", "seed"}
    assert all(hasattr(learner, name) for name in dir(learner))


@pytest.mark.parametrize("package", ["backbones", "checks", "data", "evaluation", "runs", "verbs", "testing", "report"])
def test_completion_of_a_package_offers_its_public_names(package: str) -> None:
    package = __import__(f"prol.{package}", fromlist=[package])
    assert dir(package) == sorted(package.__all__)


def test_packages_are_there_without_an_import_of_their_own() -> None:
    import subprocess
    import sys

    script = "import prol; print(prol.data.Dataset.__name__, prol.backbones.open_backbone.__name__)"
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert out == "Dataset open_backbone\n"


def test_a_data_set_prints_its_size_and_not_its_images() -> None:
    digits = registry.dataset("digits")()
    assert repr(digits) == "<data set digits: 1,438 training and 359 test images of 10 classes>"


def test_an_empty_label_is_refused_and_nothing_is_learnt(learner) -> None:
    with pytest.raises(ValueError, match="a label is empty: leave out images without a label"):
        learner.learn(IMAGES, ["cat", "", "dog", "cat"])
    assert learner.classes == []
    with pytest.raises(ValueError, match="is empty"):
        learner.boundary(["cat", ""])
    learner.learn(IMAGES[:1], ["cat"])
    with pytest.raises(ValueError, match="is empty"):
        learner.rename_class("cat", "")
    assert learner.classes == ["cat"]


def test_what_is_asked_before_learning_is_an_error(learner) -> None:
    assert learner.predict(IMAGES).shape == (4, 0)
    with pytest.raises(ValueError, match="nothing was learnt yet"):
        learner.evaluate((IMAGES, ["a", "b", "c", "d"]))
    with pytest.raises(ValueError, match="nothing was learnt yet"):
        learner.classify(IMAGES)
    with pytest.raises(ValueError, match="nothing was learnt yet"):
        learner.classify([])


def test_no_images_are_no_predictions(learner) -> None:
    learner.learn(IMAGES, ["a", "b", "c", "d"])
    none = learner.classify([])
    assert isinstance(none, Classification)
    assert (len(none), none.to_dict()["label"]) == (0, [])
    assert (repr(none), none._repr_html_()) == ("no images", "<p>no images</p>")


def test_a_mistyped_name_of_data_is_corrected() -> None:
    with pytest.raises(FileNotFoundError, match="no folder or file 'digit'; did you mean 'digits'"):
        prol.stream("digit")


def test_a_folder_of_unreadable_files_is_an_error_and_not_an_empty_run(learner, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(3):
            (tmp_path / name / f"{number}.jpg").write_bytes(b"no image")
    with (
        pytest.warns(UserWarning, match="unreadable image") as warned,
        pytest.raises(ValueError, match="none of the 4"),
    ):
        learner.learn_folder(tmp_path)
    assert {one.filename for one in warned} == {__file__}
    assert learner.classes == []


@pytest.mark.parametrize("layout", ["empty", "flat", "file"])
def test_what_is_no_folder_of_classes_says_how_it_should_look(layout: str, learner, tmp_path: Path) -> None:
    from PIL import Image

    if layout != "empty":
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "one.jpg")
    with pytest.raises((ValueError, OSError), match=r"CLASS"):
        learner.learn_folder(tmp_path / "one.jpg" if layout == "file" else tmp_path)

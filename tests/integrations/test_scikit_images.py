"""Any learner with scikit-learn's verbs: the same learner, bit for bit, under sorted classes."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils import estimator_checks

import prol
from methods.small_streams import pictures, same_state
from prol.integrations import river_models
from prol.integrations.scikit import PROLClassifier

KINDS = [2, 0, 2, 1, 0, 1, 2, 2, 0, 1, 3, 0]
NAMES = ["ant", "bee", "cat", "dog"]
IMAGES = pictures(KINDS)
LABELS = [NAMES[kind] for kind in KINDS]
OPTIONS: dict[str, dict[str, Any]] = {
    "ncm": {},
    "slda": {"shrinkage": 0.5},
    "prol": {"blocks": 2},
    "prol_plus": {"budget_mb": 4, "blocks": 1, "features": 20},
}


@pytest.fixture(params=["ncm", *(pytest.param(name, marks=pytest.mark.slow) for name in OPTIONS if name != "ncm")])
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(small_vit: str, method: str = "ncm", **settings: Any) -> PROLClassifier:
    return PROLClassifier(method, small_vit, OPTIONS[method], **({"chunk": 5, "device": "cpu", "seed": 3} | settings))


def in_prol(small_vit: str, method: str = "ncm") -> prol.Learner:
    return prol.create(method, small_vit, device="cpu", seed=3, **OPTIONS[method])


def test_two_calls_are_the_learners_own_steps_bit_for_bit(small_vit: str, method: str) -> None:
    model, learner = make(small_vit, method), in_prol(small_vit, method)
    model.partial_fit(IMAGES[:7], LABELS[:7]).partial_fit(IMAGES[7:], LABELS[7:])
    for part in (slice(0, 5), slice(5, 7), slice(7, 12)):
        learner.learn(IMAGES[part], LABELS[part])
    assert same_state(model.learner_, learner)
    assert learner.classes == ["cat", "ant", "bee", "dog"]
    assert model.classes_.tolist() == NAMES
    scores = learner.predict(IMAGES)[:, [1, 2, 0, 3]].double()
    assert np.array_equal(model.decision_function(IMAGES), scores.numpy())
    np.testing.assert_allclose(model.predict_proba(IMAGES), learner.probable(scores).numpy(), rtol=1e-6)
    assert model.predict(IMAGES).tolist() == [learner.classes[row] for row in learner.predict(IMAGES).argmax(1)]


def test_fit_forgets_and_is_one_pass_in_chunks(small_vit: str, method: str) -> None:
    model = make(small_vit, method).fit(IMAGES[:3], [7, 8, 9]).fit(IMAGES, LABELS)
    assert same_state(model.learner_, make(small_vit, method).partial_fit(IMAGES, LABELS).learner_)


def test_a_file_of_joblib_holds_no_network_and_continues_bit_for_bit(small_vit: str, method: str) -> None:
    model = make(small_vit, method).fit(IMAGES[:7], LABELS[:7])
    file = io.BytesIO()
    joblib.dump(model, file)
    assert b"prol.backbones" not in file.getvalue()
    assert b"torch" not in file.getvalue().replace(b'"torch"', b"")  # but for its version in the artifact's notes
    file.seek(0)
    loaded = joblib.load(file)
    assert loaded.classes_.tolist() == model.classes_.tolist()
    twice = pickle.loads(pickle.dumps(loaded))  # before anything opened it
    for one in (model, loaded, twice):
        one.partial_fit(IMAGES[7:], LABELS[7:])
        assert same_state(one.learner_, model.learner_)
        assert np.array_equal(one.decision_function(IMAGES), model.decision_function(IMAGES))


def test_classes_grow_with_texts_and_with_numbers(small_vit: str) -> None:
    numbers = [0, 1, 2, 3]
    for labels, expected in (
        (LABELS, NAMES),
        (KINDS, numbers),
        (np.array(KINDS, dtype=np.int8), numbers),
        (np.array(KINDS, dtype=np.float64), numbers),
        (torch.tensor(KINDS), numbers),
    ):
        model = make(small_vit).partial_fit(IMAGES[:1], labels[:1])
        assert model.predict(IMAGES[:2]).tolist() == [expected[2]] * 2
        assert model.predict_proba(IMAGES[:2]).tolist() == [[1.0], [1.0]]
        model.partial_fit(IMAGES[1:3], labels[1:3])
        assert model.classes_.tolist() == [expected[0], expected[2]]
        ahead = model.decision_function(IMAGES[:2])
        assert (ahead > 0).tolist() == [True, False]
        model.partial_fit(IMAGES[3:], labels[3:])
        assert model.classes_.tolist() == expected
        assert model.score(IMAGES, labels) == 1.0


def test_announced_classes_have_a_column_and_the_learner_is_not_given_them(small_vit: str) -> None:
    model = make(small_vit).partial_fit(IMAGES[:5], LABELS[:5], classes=["zoo", "ant", "bee"])
    assert model.classes_.tolist() == ["ant", "bee", "cat", "zoo"]
    assert model.predict_proba(IMAGES)[:, 3].tolist() == [0.0] * 12
    assert same_state(model.learner_, make(small_vit).partial_fit(IMAGES[:5], LABELS[:5]).learner_)


def test_pil_images_of_any_size_are_read(small_vit: str) -> None:
    photos = [Image.fromarray(image).resize((40 + number, 33)) for number, image in enumerate(IMAGES)]
    model, learner = make(small_vit).fit(photos, LABELS), in_prol(small_vit)
    for start in (0, 5, 10):
        learner.learn(photos[start : start + 5], LABELS[start : start + 5])
    assert same_state(model.learner_, learner)
    assert model.score(photos, LABELS) == 1.0


@pytest.fixture(scope="module")
def learnt(small_vit: str) -> PROLClassifier:
    return make(small_vit).fit(IMAGES[:5], LABELS[:5])


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (IMAGES[:6] / 255.0, LABELS[:6], "must be uint8"),
        (IMAGES[0], LABELS[:1], "a single image goes in a list"),
        ([*IMAGES[:6], "photo.jpg"], LABELS[:7], "there is no image 'photo.jpg'"),
        ([*IMAGES[:6], 7], LABELS[:7], "an image must be"),
        (IMAGES[:6], LABELS[:5], "6 images but 5 labels"),
        (IMAGES[:0], [], "there are no images"),
        (IMAGES[:2], [True, False], "text or a whole number"),
        (IMAGES[:2], [0.5, 1.0], "Unknown label type: continuous"),
        (IMAGES[:2], None, "requires y to be passed"),
        (IMAGES[:6], ["new"] * 5 + [1], "all text or all numbers"),
    ],
)
@pytest.mark.parametrize("verb", ["fit", "partial_fit"])
def test_bad_input_is_refused_and_what_was_learnt_stays(
    learnt: PROLClassifier, verb: str, images: Any, labels: Any, says: str
) -> None:
    model = learnt
    learner, state = model.learner_, model.learner_.clone()
    with pytest.raises(ValueError, match=says):
        getattr(model, verb)(images, labels)
    assert model.learner_ is learner
    assert same_state(learner, state)
    assert model.classes_.tolist() == ["ant", "bee", "cat"]


def test_numbers_after_texts_are_refused_unless_all_begins_anew(small_vit: str) -> None:
    model = make(small_vit).fit(IMAGES, LABELS)
    with pytest.raises(ValueError, match="all text or all numbers"):
        model.partial_fit(IMAGES, KINDS)
    assert model.score(IMAGES, LABELS) == 1.0
    assert model.fit(IMAGES, KINDS).score(IMAGES, KINDS) == 1.0


def test_a_step_that_fails_leaves_the_steps_before_it(small_vit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, learner = make(small_vit).fit(IMAGES[:5], LABELS[:5]), in_prol(small_vit)
    step = type(learner).learn_pixels

    def no_dogs(self: prol.Learner, pixels: Any, rows: torch.Tensor) -> None:
        if "dog" in self.classes:
            raise ValueError("no dogs today")
        step(self, pixels, rows)

    monkeypatch.setattr(type(learner), "learn_pixels", no_dogs)
    with pytest.raises(ValueError, match="no dogs today"):
        model.partial_fit(IMAGES[5:], [*["eel"] * 5, "dog", "dog"])
    assert model.classes_.tolist() == ["ant", "bee", "cat", "eel"]
    with pytest.raises(ValueError, match="no dogs today"):
        model.fit(IMAGES, LABELS)
    assert model.classes_.tolist() == ["ant", "bee", "cat", "eel"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "ncn"}, "did you mean 'ncm'"),
        ({"options": {"distanz": "cosine"}}, "did you mean 'distance'"),
        ({"chunk": 0}, "chunk must be a whole number, at least 1"),
        ({"backbone": object()}, "backbone must be a name"),
    ],
)
def test_a_setting_that_is_none_is_refused_when_learning_begins(settings: dict[str, Any], says: str) -> None:
    model = PROLClassifier(**({"method": "ncm", "device": "cpu"} | settings))
    with pytest.raises(ValueError, match=says):
        model.fit(IMAGES, LABELS)


def test_nothing_is_predicted_before_anything_is_learnt(small_vit: str) -> None:
    for verb in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(make(small_vit), verb)(IMAGES)


def test_clones_have_the_settings_and_nothing_learnt(small_vit: str) -> None:
    model = make(small_vit, "slda").fit(IMAGES, LABELS)
    copy = clone(model).set_params(chunk=4)
    assert copy.get_params() == model.get_params() | {"chunk": 4}
    with pytest.raises(NotFittedError):
        copy.predict(IMAGES)


@pytest.mark.parametrize(
    "check",
    ["check_no_attributes_set_in_init", "check_parameters_default_constructible", "check_get_params_invariance",
     "check_set_params", "check_do_not_raise_errors_in_init_or_set_params", "check_estimator_repr",
     "check_estimator_cloneable", "check_estimator_tags_renamed", "check_valid_tag_types"],
)  # fmt: skip
def test_it_passes_those_checks_of_scikit_learn_that_bring_no_features(check: str) -> None:
    getattr(estimator_checks, check)("PROLClassifier", PROLClassifier())


def test_it_can_be_cross_validated(small_vit: str) -> None:
    kinds = [0, 1, 2] * 6
    model = PROLClassifier("ncm", small_vit, device="cpu")
    assert cross_val_score(model, pictures(kinds), kinds, cv=3).tolist() == [1.0] * 3


def test_weights_that_moved_are_found_where_set_params_says(small_vit: str, tmp_path: Path) -> None:
    architecture, _, file = small_vit.partition("@")
    here, there = tmp_path / "here.safetensors", tmp_path / "there.safetensors"
    here.write_bytes(Path(file).read_bytes())
    model = make(f"{architecture}@{here}").fit(IMAGES, LABELS)
    scores, moved = model.decision_function(IMAGES), pickle.loads(pickle.dumps(model))
    here.rename(there)
    with pytest.raises(FileNotFoundError, match="which is not here"):
        moved.predict(IMAGES)
    moved.set_params(backbone=f"{architecture}@{there}")
    assert np.array_equal(moved.decision_function(IMAGES), scores)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *((f"{package}.{kind}", name) for package in ("scikit", "river_models")
          for kind, name in (("images", "PROLClassifier"), ("features", "StreamingLDA"))),
        ("kept_learner", "KeptLearner"),
    ],
)  # fmt: skip
def test_names_in_pickles_of_version_0_1_are_found(module: str, name: str) -> None:
    found = pickle.loads(f"cprol.integrations.{module}\n{name}\n.".encode())
    assert found.__module__ in (f"prol.integrations.{module.partition('.')[0]}", "prol.integrations.stored_learner")


def test_pickles_of_version_0_1_are_opened(small_vit: str) -> None:
    """There, the attribute that holds the learner had another name."""
    for kind, learn, learner in (
        (PROLClassifier, "fit", "learner_"),
        (river_models.PROLClassifier, "learn_many", "learner"),
    ):
        model, old = kind("ncm", small_vit, device="cpu"), kind.__new__(kind)
        getattr(model, learn)(IMAGES, LABELS)
        state = pickle.loads(pickle.dumps(vars(model)))
        old.__setstate__({"_kept" if name == "_stored" else name: value for name, value in state.items()})
        assert same_state(getattr(old, learner), getattr(model, learner))

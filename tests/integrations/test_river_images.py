"""Any learner with river's verbs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from PIL import Image
from river import checks, evaluate, metrics

import prol
from methods.small_streams import pictures, same_state
from prol.integrations.river_models import PROLClassifier

KINDS = [2, 0, 2, 1, 0, 1, 2]
NAMES = ["ant", "bee", "cat"]
IMAGES = pictures(KINDS)
LABELS = [NAMES[kind] for kind in KINDS]


def make(small_vit: str, method: str = "ncm", **settings: Any) -> PROLClassifier:
    return PROLClassifier(method, small_vit, **({"device": "cpu", "seed": 3} | settings))


def in_prol(small_vit: str, steps: list[slice], method: str = "ncm", **options: Any) -> prol.Learner:
    learner = prol.create(method, small_vit, device="cpu", seed=3, **options)
    for part in steps:
        learner.learn(IMAGES[part], LABELS[part])
    return learner


def show_all(model: PROLClassifier) -> PROLClassifier:
    for image, label in zip(IMAGES, LABELS, strict=True):
        model.learn_one(image, label)
    return model


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ncm", {}),
        pytest.param("slda", {}, marks=pytest.mark.slow),
        pytest.param("prol", {"blocks": 2}, marks=pytest.mark.slow),
    ],
)
def test_an_image_is_a_step_and_none_is_stored(small_vit: str, method: str, options: dict[str, Any]) -> None:
    model = show_all(make(small_vit, method, options=options))
    learner = in_prol(small_vit, [slice(n, n + 1) for n in range(7)], method, **options)
    assert model.waiting == 0
    assert same_state(model.learner, learner)
    scores = learner.predict(IMAGES)
    for image, row, probable in zip(IMAGES, scores, learner.probable(scores), strict=True):
        expected = dict(zip(learner.classes, probable.tolist(), strict=True))
        assert model.predict_proba_one(image) == pytest.approx(expected, rel=1e-5)
        assert model.predict_one(image) == learner.classes[int(row.argmax())]
    assert model.predict_many(IMAGES) == [model.predict_one(image) for image in IMAGES]
    assert list(model.predict_proba_many(IMAGES)[0]) == ["cat", "ant", "bee"]


def test_a_chunk_is_gathered_on_request_and_the_rest_can_be_learnt(small_vit: str) -> None:
    model = make(small_vit, chunk=3)
    images = IMAGES.copy()
    for number, (image, label) in enumerate(zip(images, LABELS, strict=True)):
        model.learn_one(image, label)
        image[:] = 0  # what waits is a copy
        assert model.waiting == (number + 1) % 3
    assert same_state(model.learner, in_prol(small_vit, [slice(0, 3), slice(3, 6)]))
    model.learn_waiting()
    model.learn_waiting()  # nothing waits: nothing happens
    assert same_state(model.learner, in_prol(small_vit, [slice(0, 3), slice(3, 6), slice(6, 7)]))


def test_a_batch_is_a_step_after_what_waits(small_vit: str) -> None:
    model = make(small_vit, chunk=3)
    model.learn_one(IMAGES[0], LABELS[0])
    with pytest.raises(ValueError, match="6 images but 5 labels"):
        model.learn_many(IMAGES[1:], LABELS[2:])
    assert (model.waiting, model.learner.classes) == (1, [])
    model.learn_many(IMAGES[1:], LABELS[1:])
    assert model.waiting == 0
    assert same_state(model.learner, in_prol(small_vit, [slice(0, 1), slice(1, 7)]))


def test_pickles_and_copies_continue_bit_for_bit_with_waiting_images(small_vit: str) -> None:
    model = make(small_vit, "slda", chunk=2)
    for image, label in zip(IMAGES[:3], LABELS[:3], strict=True):
        model.learn_one(image, label)
    content = pickle.dumps(model)
    assert b"prol.backbones" not in content
    for twin in (pickle.loads(content), copy.deepcopy(model), model.clone(include_attributes=True)):
        assert twin.waiting == 1
        twin.learn_many(IMAGES[3:], LABELS[3:])
        assert same_state(twin.learner, in_prol(small_vit, [slice(0, 2), slice(2, 3), slice(3, 7)], "slda"))
    assert (model.waiting, len(model.learner.classes)) == (1, 2)
    assert model.clone().predict_one(IMAGES[0]) is None


@pytest.mark.slow
def test_it_is_validated_progressively(small_vit: str) -> None:
    kinds = [0, 1, 2] * 8
    stream = list(zip(pictures(kinds), [NAMES[kind] for kind in kinds], strict=True))
    assert evaluate.progressive_val_score(stream, make(small_vit), metrics.Accuracy()).get() > 0.9
    delayed = evaluate.progressive_val_score(stream, make(small_vit), metrics.CrossEntropy(), delay=2)
    assert 0 < delayed.get() < np.log(3)


def test_pil_images_and_numbers_as_labels_are_read(small_vit: str) -> None:
    model = make(small_vit)
    for image, kind in zip(IMAGES, KINDS, strict=True):
        model.learn_one(Image.fromarray(image).resize((40, 33)), kind)
    assert model.learner.classes == [2, 0, 1]
    assert model.predict_one(Image.fromarray(IMAGES[3]).resize((40, 33))) == 1


def test_it_predicts_from_the_start(small_vit: str) -> None:
    model = make(small_vit)
    assert model.predict_proba_one(IMAGES[0]) == {}
    assert model.predict_one(IMAGES[0]) is None
    assert model.predict_many(IMAGES[:2]) == [None, None]


@pytest.fixture(scope="module")
def learnt(small_vit: str) -> PROLClassifier:
    model = make(small_vit)
    model.learn_many(IMAGES, LABELS)
    return model


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize(
    ("image", "label", "says"),
    [
        (IMAGES[0] / 255.0, "new", "must be uint8"),
        ({"a": 1.0}, "new", "got dict"),
        (IMAGES[0], True, "text or a whole number"),
        (IMAGES[0], None, "text or a whole number"),
    ],
)
def test_a_sample_that_is_refused_changes_nothing(
    learnt: PROLClassifier, chunk: int, image: Any, label: Any, says: str
) -> None:
    model, before = learnt, learnt.learner.clone()
    model.chunk = chunk
    with pytest.raises(ValueError, match=says):
        model.learn_one(image, label)
    assert same_state(model.learner, before)
    assert model.waiting == 0


def test_an_invalid_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk must be a whole number, at least 1, got 0"):
        PROLClassifier(chunk=0)


def test_it_passes_those_checks_of_river_that_bring_no_features() -> None:
    model = PROLClassifier("ncm", "tiny", device="cpu")
    without_data = [check for check in checks.yield_checks(model) if not hasattr(check, "keywords")]
    for check in without_data:
        check(model.clone())
    assert len(without_data) >= 14

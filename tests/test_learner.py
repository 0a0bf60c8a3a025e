"""What every learner promises: the two verbs, their refusals, and unharmed state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import prol
from prol.backbones import ViT
from prol.learner import Amount, Footprint, Learner
from prol.prediction import whole_batch

METHODS = pytest.mark.parametrize("method", ["ncm", "head_only"])
"""One that adds up and one that trains; `prol.check_learner` checks what is common to all methods."""
Make = Callable[..., Learner]


def pictures(count: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


@given(most=st.integers(1, 600), counts=st.sets(st.integers(1, 600), min_size=1))
def test_batches_are_filled_to_few_sizes(most: int, counts: set[int]) -> None:
    fitting = {count for count in counts if count <= most}
    sizes = {count: whole_batch(count, most) for count in fitting}
    assert all(count <= size <= min(most, 2 * count) for count, size in sizes.items())
    assert all(size == count for count, size in sizes.items() if count <= 16)
    assert len({size for size in sizes.values() if size > 16}) <= 6  # 32, 64, ... 512, and the largest


@pytest.fixture
def make(tiny: ViT) -> Make:
    def create(method: str, **options: Any) -> Learner:
        return prol.create(method, tiny, **options)

    return create


def same_state(a: Learner, b: Learner) -> bool:
    (tensors, meta), (others, other_meta) = a.state(), b.state()
    return (
        meta == other_meta
        and tensors.keys() == others.keys()
        and all(torch.equal(tensors[name], others[name]) for name in tensors)
    )


@METHODS
def test_answers_are_float32_with_one_column_a_class_in_the_order_met(make: Make, method: str) -> None:
    learner = make(method)
    learner.learn(pictures(3), ["b", "a", "b"])
    learner.learn(pictures(2, 1), ["c", "a"])
    assert learner.classes == ["b", "a", "c"]
    answer = learner.predict(pictures(5))
    assert answer.shape == (5, 3)
    assert answer.dtype == torch.float32
    assert answer.isfinite().all()
    assert learner.predict([]).shape == (0, 3)


@METHODS
def test_1_and_its_text_are_two_classes(make: Make, method: str) -> None:
    learner = make(method)
    learner.learn(pictures(4), [1, "1", 1, "1"])
    assert learner.classes == [1, "1"]
    twin = learner.clone()
    tensors, meta = learner.state()
    twin.load_state(tensors, json.loads(json.dumps(meta)))
    assert [(label, type(label)) for label in twin.classes] == [(1, int), ("1", str)]
    twin.learn(pictures(2), ["1", 1])
    assert twin.classes == [1, "1"]


@METHODS
def test_an_announcement_fixes_the_order_of_the_rows(make: Make, method: str) -> None:
    learner = make(method)
    learner.boundary(["x", "y", 3])
    learner.learn(pictures(2), [3, "x"])
    learner.boundary(np.array([9, 3, 8]))
    assert learner.classes == ["x", "y", 3, 9, 8]
    assert learner.predict(pictures(2)).shape == (2, 5)


@METHODS
def test_a_prediction_needs_no_gradient_and_leaves_no_graph(make: Make, method: str) -> None:
    learner = make(method)
    learner.learn(pictures(4), ["a", "b", "a", "b"])
    assert not learner.predict(pictures(2)).requires_grad


NAN = np.full((2, 16, 16, 3), np.nan)
BAD_CHUNKS: dict[str, tuple[Any, Any]] = {
    "no images": ([], []),
    "an empty array": (np.zeros((0, 16, 16, 3), dtype=np.uint8), []),
    "more labels than images": (pictures(2), ["a", "b", "c"]),
    "fewer labels than images": (pictures(2), ["a"]),
    "one text for all": (pictures(2), "ab"),
    "a float label": (pictures(2), ["a", 0.5]),
    "a truth value as label": (pictures(2), [True, False]),
    "a missing label": (pictures(2), ["a", None]),
    "labels in two dimensions": (pictures(2), np.array([[1], [2]])),
    "float images": (pictures(2) / 255, ["a", "new"]),
    "nan": (NAN, ["a", "new"]),
    "wide integers": (pictures(2).astype(np.int64), ["a", "new"]),
    "two channels": (pictures(2)[..., :2], ["a", "new"]),
    "a flat array": (pictures(2).reshape(-1), ["a", "new"]),
    "a path": (["a.jpg", "b.jpg"], ["a", "new"]),
    "nothing": (None, ["a", "new"]),
}


@pytest.mark.parametrize("chunk", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
@METHODS
def test_a_bad_chunk_is_refused_in_one_line_and_changes_nothing(
    make: Make, method: str, chunk: tuple[Any, Any]
) -> None:
    learner = make(method)
    learner.learn(pictures(4), ["a", "b", "a", "b"])
    twin = learner.clone()
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        learner.learn(*chunk)
    assert "\n" not in str(refusal.value)
    assert same_state(learner, twin)


@pytest.mark.parametrize("images", [NAN, pictures(2).astype(np.int64), ["a.jpg"], None, pictures(1)[0, 0]], ids=type)
@METHODS
def test_bad_images_to_predict_are_refused_and_change_nothing(make: Make, method: str, images: Any) -> None:
    learner = make(method)
    with pytest.raises(ValueError, match="image"):
        learner.predict(images)
    learner.learn(pictures(4), ["a", "b", "a", "b"])
    twin = learner.clone()
    with pytest.raises(ValueError, match="image"):
        learner.predict(images)
    assert same_state(learner, twin)


@pytest.mark.parametrize("announced", ["ab", [1.5], ["a", "a"], 3, ["new", "new"]], ids=str)
@METHODS
def test_a_bad_announcement_is_refused_and_changes_nothing(make: Make, method: str, announced: Any) -> None:
    learner = make(method)
    learner.learn(pictures(4), ["a", "b", "a", "b"])
    twin = learner.clone()
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        learner.boundary(announced)
    assert "\n" not in str(refusal.value)
    assert same_state(learner, twin)


@METHODS
def test_images_of_mixed_kinds_and_sizes_are_learnt_from(make: Make, method: str) -> None:
    from PIL import Image

    learner = make(method)
    mixed = [pictures(1)[0], torch.zeros(3, 40, 20, dtype=torch.uint8), Image.new("L", (9, 30))]
    learner.learn(mixed, ["a", "b", 3])
    assert learner.predict(mixed).shape == (3, 3)


@METHODS
def test_a_state_is_a_copy(make: Make, method: str) -> None:
    learner = make(method)
    learner.learn(pictures(4), ["a", "b", "a", "b"])
    tensors, meta = learner.state()
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    text = json.dumps(meta)
    learner.learn(pictures(4, 1), ["c", "b", "a", "c"])
    assert all(torch.equal(tensors[name], kept[name]) for name in kept)
    assert json.dumps(meta) == text


@METHODS
def test_loading_a_state_copies_it(make: Make, method: str) -> None:
    learner, twin = make(method), make(method)
    learner.learn(pictures(4), ["a", "b", "a", "b"])
    tensors, meta = learner.state()
    twin.load_state(tensors, meta)
    twin.learn(pictures(4, 1), ["c", "b", "a", "c"])
    twin.boundary(["d"])
    again = make(method)
    again.load_state(tensors, meta)
    assert same_state(again, learner)


@METHODS
def test_the_same_seed_learns_the_same_and_another_seed_another(make: Make, method: str) -> None:
    learners = [make(method, seed=seed, augment="crop_flip") for seed in (3, 3, 4)]
    for learner in learners:
        learner.learn(pictures(4), ["a", "b", "a", "b"])
    assert same_state(learners[0], learners[1])
    assert not same_state(learners[0], learners[2])


@METHODS
def test_learning_leaves_the_global_random_numbers_alone(make: Make, method: str) -> None:
    learner = make(method, augment="crop_flip")
    before = torch.get_rng_state()
    learner.learn(pictures(4), ["a", "b", "a", "b"])
    learner.predict(pictures(4))
    assert torch.equal(torch.get_rng_state(), before)


@METHODS
def test_the_footprint_grows_with_the_classes_and_holds_no_sample(make: Make, method: str) -> None:
    learner, totals = make(method), []
    for start in (0, 5, 10):
        learner.learn(pictures(5, start), list(range(start, start + 5)))
        found = learner.footprint()
        assert isinstance(found, Footprint)
        assert found.samples_stored == Amount(0, 0)
        totals.append(found.parameters_stored.count + found.statistics_stored.count)
        for amount in (found.trained_now, found.parameters_stored, found.statistics_stored):
            assert amount.bytes == 8 * amount.count
    assert totals[1] - totals[0] == totals[2] - totals[1] > 0


@METHODS
def test_a_learner_prints_what_it_is(method: str, make: Make) -> None:
    learner = make(method)
    assert repr(learner).startswith(f"<learner {method} on {learner.backbone.name}: no classes, nothing learnt")
    learner.learn(pictures(20), [*range(10), *range(10)])
    stored = learner.footprint()
    size = stored.parameters_stored.bytes + stored.statistics_stored.bytes
    assert f"10 classes (0, 1, 2, 3, 4, 5, 6, 7 and 2 more), 20 images learnt, {size:,} bytes stored>" in repr(learner)

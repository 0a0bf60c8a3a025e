"""Learners that learnt apart, put together, are one that learnt it all; where that cannot be, they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import prol
from integrations.small_learners import METHODS, small_vit
from prol import registry
from prol.backbones import ResNet, ViT
from prol.classes import Label
from prol.learner import Learner
from prol.testing.stream import make_images

VIT, DEEPER = small_vit(1, torch.float64), small_vit(2, torch.float64)
NAMES: tuple[Label, ...] = ("ant", "bee", 7, "7", "cat")
IMAGES, ASKED = make_images(30, seed=1), make_images(8, seed=2)
LABELS = [NAMES[number] for number in np.random.default_rng(3).integers(0, len(NAMES), len(IMAGES))]
MERGEABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "ncm": ("ncm", {}),
    "slda": ("slda", {}),
    "ranpac": ("ranpac", {"features": 30, "ridge": 0.5}),
    "ranpac, lda": ("ranpac", {"features": 30, "classifier": "lda"}),
    "ranpac, float32": ("ranpac", {"features": 30, "ridge": 0.5, "accumulate": "float32"}),
    "randumb": ("randumb", {"features": 30, "gamma": 0.05}),
    "foal": ("foal", {"features": 30}),
    "layup": ("layup", {}),
    "klda": ("klda", {"features": 30, "gamma": 0.05, "ensemble": 2}),
}
PLUS = {"budget_mb": 1, "blocks": 1, "features": 10, "adapt_steps": 2}


def make(variant: str, backbone: ViT = VIT) -> Learner:
    method, options = MERGEABLE[variant]
    return prol.create(method, backbone, seed=4, **options)


def teach(learner: Learner, numbers: Sequence[int], chunk: int = 4) -> Learner:
    for start in range(0, len(numbers), chunk):
        part = list(numbers[start : start + chunk])
        learner.learn(IMAGES[part], [LABELS[number] for number in part])
    return learner


def assert_same(merged: Learner, whole: Learner, tolerance: float = 1e-9) -> None:
    """Equal up to rounding: classes, every tensor of the state, counts, predictions, and all of it after one more.

    A classifier that was solved for calibration belongs to the learner that solved it.
    """
    assert merged.classes == whole.classes
    tensors, expected = (
        {name: tensor for name, tensor in learner.state()[0].items() if not name.startswith("solved/")}
        for learner in (merged, whole)
    )
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == expected[name].dtype
        scale = float(expected[name].double().abs().max()) if expected[name].numel() else 0.0
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=tolerance * max(1.0, scale))
    scores, wanted = merged.predict(ASKED), whole.predict(ASKED)
    finite = wanted.isfinite()
    assert torch.equal(finite, scores.isfinite())
    torch.testing.assert_close(scores[finite], wanted[finite], rtol=1e-3, atol=1e-3)
    assert torch.equal(scores.argmax(1), wanted.argmax(1))


@pytest.mark.parametrize("variant", MERGEABLE)
@settings(max_examples=6, deadline=None)
@given(
    owners=st.lists(st.integers(0, 3), min_size=len(IMAGES), max_size=len(IMAGES)),
    chunks=st.tuples(*[st.integers(1, 9)] * 4),
)
def test_a_stream_split_in_any_way_and_merged_is_the_whole(
    variant: str, owners: list[int], chunks: tuple[int, ...]
) -> None:
    shares = [[number for number, owner in enumerate(owners) if owner == place] for place in range(4)]
    parts = [teach(make(variant), share, chunk) for share, chunk in zip(shares, chunks, strict=True)]
    before = [part.state()[0] for part in parts]
    merged = prol.merge(parts)
    rounding = 1e-5 if "float32" in variant else 1e-9
    assert_same(merged, teach(make(variant), [number for share in shares for number in share]), rounding)
    in_order = teach(make(variant), range(len(IMAGES)))
    columns = [merged.row_of[name] for name in in_order.classes]
    assert torch.equal(merged.predict(ASKED)[:, columns].argmax(1), in_order.predict(ASKED).argmax(1))
    for part, tensors in zip(parts, before, strict=True):
        assert all(torch.equal(tensor, tensors[name]) for name, tensor in part.state()[0].items())


@pytest.mark.parametrize("variant", MERGEABLE)
def test_a_merged_learner_continues_like_any_other(variant: str) -> None:
    merged = prol.merge([teach(make(variant), range(10)), teach(make(variant), range(10, 20))])
    merged.learn(IMAGES[20:], [*LABELS[20:29], "dog"])
    whole = teach(make(variant), range(20))
    whole.learn(IMAGES[20:], [*LABELS[20:29], "dog"])
    assert_same(merged, whole, 1e-5 if "float32" in variant else 1e-9)
    merged.merge_classes("ant", "bee")
    assert "ant" not in merged.classes


@pytest.mark.parametrize("variant", MERGEABLE)
def test_what_all_went_on_from_counts_once(variant: str) -> None:
    base = teach(make(variant), range(8))
    sites = [teach(base.clone(), numbers) for numbers in (range(8, 15), range(15, 20), range(20, 30))]
    tolerance = 1e-5 if "float32" in variant else 1e-9
    assert_same(prol.merge(sites, base), teach(make(variant), range(30)), tolerance)
    assert_same(prol.merge(sites[:1], base), sites[0], tolerance)
    assert prol.merge(sites[:2]).class_counts().sum() == 8 + 7 + 8 + 5  # without it, twice


def test_classes_are_those_of_the_first_then_those_of_the_next_and_announced_ones_too() -> None:
    one, two, three = (prol.create("slda", VIT) for _ in range(3))
    one.boundary(["owl", "ant"])
    two.learn(IMAGES[:2], ["bee", "ant"])
    three.learn(IMAGES[2:5], ["cat", "bee", "eel"])
    merged = prol.merge([one, two, three])
    assert merged.classes == ["owl", "ant", "bee", "cat", "eel"]
    assert merged.class_counts().tolist() == [0, 1, 2, 1, 1]
    assert prol.merge([three, two, one]).classes == ["cat", "bee", "eel", "ant", "owl"]


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("randumb", {"features": 30}, None),
        ("ranpac", {"features": 30, "adapt": "norms", "ridge": 0.5}, "only after the first task"),
        ("ranpac", {"features": 30}, "every fifth image is held out"),
        ("prol_plus", PLUS | {"adapt_steps": 0}, "differ in scale of the features .* pass that one as base"),
        ("prol_plus", PLUS, "after its LayerNorms are tuned"),
    ],
)
def test_what_is_chosen_on_the_way_must_come_from_one_base(
    method: str, options: dict[str, Any], said: str | None
) -> None:
    def new() -> Learner:
        return prol.create(method, DEEPER, seed=4, **options)

    one, two = teach(new(), range(5), chunk=5), teach(new(), range(5, 10), chunk=5)
    with pytest.raises(ValueError, match=said or "differ in gamma .* pass that one as base"):
        prol.merge([one, two])


def settled(method: str, **options: Any) -> Learner:
    """One that has chosen all that it ever will, at the end of a first task."""
    learner = prol.create(method, DEEPER, seed=4, **options)
    learner.boundary()
    for step in range(6):
        learner.learn(make_images(90, seed=100 + step), [NAMES[place % 4] for place in range(90)])
    learner.boundary()
    learner.learn(IMAGES[:3], LABELS[:3])
    return learner


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("randumb", {"features": 30}),
        ("ranpac", {"features": 30}),
        ("ranpac", {"features": 30, "adapt": "norms"}),
        ("prol_plus", PLUS),
        ("prol_plus", PLUS | {"adapt_steps": 0, "pooled": False}),
    ],
)
def test_from_a_base_that_has_chosen_they_merge(method: str, options: dict[str, Any]) -> None:
    base = settled(method, **options)
    one, two = teach(base.clone(), range(3, 14)), teach(base.clone(), range(14, 30))
    assert_same(prol.merge([one, two], base), teach(base.clone(), range(3, 30)), 1e-5)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in (*MERGEABLE, "knn", "logreg")])
def test_trained_methods_refuse_and_say_why(method: str) -> None:
    network = ResNet(4, size=16) if registry.method(method).from_scratch else DEEPER
    learners = [prol.create(method, network, **METHODS[method]) for _ in range(2)]
    for learner in learners:
        learner.learn(IMAGES[:4], LABELS[:4])
    with pytest.raises(
        ValueError, match=r"cannot be merged: what it learns from an image depends|LayerNorms are tuned"
    ):
        prol.merge(learners)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (("ncm", {}), ("slda", {}), "differ in method .'ncm' and 'slda'."),
        (("ncm", {}), ("ncm", {"distance": "euclidean"}), "differ in options distance"),
        (("ncm", {"augment": "crop_flip"}),) * 2 + ("would have drawn other crops",),
        (("ranpac", {"memory": "none", "ridge": 1.0, "features": 20}),) * 2 + ("only memory=statistics",),
        (("ranpac", {"memory": "all", "ridge": 1.0, "features": 20}),) * 2 + ("only memory=statistics",),
        (("ranpac", {"memory": 2, "ridge": 1.0, "features": 20}),) * 2 + ("only memory=statistics",),
        (("knn", {}),) * 2 + ("knn cannot be merged: stored features are not sums",),
        (("logreg", {}),) * 2 + ("logreg cannot be merged: stored features are not sums",),
    ],
)
def test_what_does_not_fit_is_refused(one: Any, other: Any, said: str) -> None:
    learners = [teach(prol.create(method, VIT, **options), range(4)) for method, options in (one, other)]
    with pytest.raises(ValueError, match=said):
        prol.merge(learners)


def test_other_seeds_other_weights_and_other_bases_are_refused() -> None:
    options = {"features": 20, "ridge": 1.0}
    one = teach(prol.create("ranpac", VIT, seed=1, **options), range(4))
    with pytest.raises(ValueError, match="differ in seed of the random features"):
        prol.merge([one, teach(prol.create("ranpac", VIT, seed=2, **options), range(4))])
    elsewhere = small_vit(1, torch.float64)
    elsewhere.sha256 = "other"
    with pytest.raises(ValueError, match="differ in backbone"):
        prol.merge([one, teach(prol.create("ranpac", elsewhere, seed=1, **options), range(4))])
    with pytest.raises(ValueError, match="learner 2 did not continue from the base"):
        prol.merge([one, teach(prol.create("ranpac", VIT, seed=1, **options), range(4, 6))], one)
    with pytest.raises(ValueError, match="at least one learner"):
        prol.merge([])
    with pytest.raises(ValueError, match="nothing to merge"):
        prol.merge([prol.create("ncm", VIT), prol.create("ncm", VIT)])

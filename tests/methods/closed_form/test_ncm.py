"""Nearest class mean against class means computed directly."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import prol
from methods.small_streams import pictures, tensors
from prol.backbones import ViT, evaluation_input
from prol.learner import Amount
from prol.methods.closed_form.ncm import NCM

KINDS = [0, 1, 2, 0, 1, 0, 2, 3, 1, 0]
IMAGES = pictures(KINDS)
TEST = pictures([0, 1, 2, 3], seed=7)


def make(vit: ViT, **options: object) -> NCM:
    learner = prol.create("ncm", vit, **options)
    assert isinstance(learner, NCM)
    return learner


def features(vit: ViT, images: object) -> Tensor:
    how = vit.preprocessing
    return vit.features(evaluation_input(vit.read(images), how, torch.device("cpu"), torch.float64))


def class_means(vit: ViT) -> Tensor:
    found, kinds = features(vit, IMAGES), torch.tensor(KINDS)
    return torch.stack([found[kinds == kind].mean(0) for kind in range(4)])


def test_cosine_scores_are_cosines_to_the_class_means(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(IMAGES, KINDS)
    expected = F.cosine_similarity(features(tiny, TEST)[:, None], class_means(tiny)[None], dim=-1)
    torch.testing.assert_close(learner.predict(TEST), expected.float(), rtol=0, atol=1e-6)


def test_euclidean_scores_are_distances_below_zero(tiny: ViT) -> None:
    learner = make(tiny, distance="euclidean")
    learner.learn(IMAGES, KINDS)
    expected = -(features(tiny, TEST)[:, None] - class_means(tiny)[None]).norm(dim=-1)
    torch.testing.assert_close(learner.predict(TEST), expected.float(), rtol=1e-5, atol=1e-5)


@given(cuts=st.sets(st.integers(1, 9), max_size=5), order=st.permutations(range(10)))
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_neither_chunks_nor_their_order_matter(tiny: ViT, cuts: set[int], order: list[int]) -> None:
    whole, parts = make(tiny), make(tiny)
    whole.boundary([0, 1, 2, 3])
    parts.boundary([0, 1, 2, 3])
    whole.learn(IMAGES, KINDS)
    edges = [0, *sorted(cuts), 10]
    for start, end in pairwise(edges):
        chunk = order[start:end]
        parts.learn(IMAGES[chunk], [KINDS[i] for i in chunk])
    torch.testing.assert_close(parts.predict(TEST), whole.predict(TEST), rtol=0, atol=1e-6)


def test_an_announced_class_of_which_nothing_was_seen_is_never_predicted(tiny: ViT) -> None:
    for distance in ("cosine", "euclidean"):
        learner = make(tiny, distance=distance)
        learner.boundary(["ghost", 0, "spirit", 1])
        learner.learn(pictures([0, 1]), [0, 1])
        scores = learner.predict(pictures(list(range(20))))
        assert set(scores.argmax(1).tolist()) == {1, 3}
        assert not scores.isnan().any()
        assert (scores[:, [0, 2]] == -torch.inf).all()


def test_boundaries_change_nothing_but_the_order_of_rows(tiny: ViT) -> None:
    plain, told = make(tiny), make(tiny)
    for learner in (plain, told):
        learner.learn(IMAGES, KINDS)
        if learner is told:
            learner.boundary()
        learner.learn(IMAGES[:3], KINDS[:3])
    assert torch.equal(plain.predict(TEST), told.predict(TEST))


def test_it_learns_without_augmentation_by_default(tiny: ViT) -> None:
    one, other = make(tiny, seed=1), make(tiny, seed=2)
    for learner in (one, other):
        learner.learn(IMAGES, KINDS)
    assert torch.equal(one.predict(TEST), other.predict(TEST))
    augmented = make(tiny, augment="crop_flip")
    augmented.learn(IMAGES, KINDS)
    assert not torch.allclose(augmented.predict(TEST), one.predict(TEST))


def test_sums_do_not_lose_late_samples_of_a_long_stream(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(IMAGES, KINDS)
    state, meta = learner.state()
    state["sums"] *= 1e8
    state["counts"] *= 1e8
    learner.load_state(state, meta)
    learner.learn(pictures([0]), [0])
    gained = tensors(learner)["sums"][0] - state["sums"][0]
    torch.testing.assert_close(gained, features(tiny, pictures([0]))[0], rtol=0, atol=1e-5)


def test_it_recognises_the_classes(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(IMAGES, KINDS)
    assert learner.predict(TEST).argmax(1).tolist() == [0, 1, 2, 3]


def test_it_stores_a_sum_and_a_count_a_class_and_trains_nothing(tiny: ViT) -> None:
    learner = make(tiny)
    assert learner.footprint().statistics_stored == Amount(0, 0)
    learner.learn(IMAGES, KINDS)
    found = learner.footprint()
    assert found.statistics_stored == Amount(4 * 65, 4 * 65 * 8)
    assert found.trained_now == found.parameters_stored == found.samples_stored == Amount(0, 0)


@pytest.mark.parametrize(("input_range", "mean"), [("unit", 0.0), ("symmetric", 0.5)])
def test_an_input_range_overrides_the_backbones(tiny: ViT, input_range: str, mean: float) -> None:
    learner = make(tiny, input_range=input_range, crop_pct=0.5)
    assert learner.preprocessing.mean == (mean,) * 3
    assert learner.preprocessing.crop_pct == 0.5
    assert tiny.preprocessing.crop_pct == 1.0

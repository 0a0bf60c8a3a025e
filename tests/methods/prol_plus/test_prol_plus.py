"""PROL+: its scores against a dense reference of the stream's features, its random layer, its scale, and its sums."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

import prol
from methods.prol_plus.small_prol_plus import (
    blended,
    blocks_of,
    dense_familiarity,
    dense_scores,
    make,
    predictions,
    teach,
)
from methods.small_streams import pictures, same_state, tensors
from prol.backbones import ViT
from prol.methods.prol_plus.features import Scale
from prol.methods.prol_plus.learner import PROLPlus

TEST = pictures(list(range(6)), seed=7)
KINDS = [number % 3 if number < 40 else number % 4 for number in range(60)]
IMAGES = pictures(KINDS)
MUDDLED = pictures([kind if number % 5 > 2 else number * 7 % 5 for number, kind in enumerate(KINDS)])
"""Most of these images are of any kind, whatever their class: the means of classes are mostly noise."""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"adapt_steps": 0},
        {"adapt_steps": 3},
        {"features": 0},
        {"blocks": 2},
        {"features": None},
        {"pooled": False},
        {"drift_correction": False},
        {"prior_samples": 10},
    ],
    ids=str,
)
def test_it_knows_the_classes_of_both_tasks(tiny: ViT, options: dict[str, Any]) -> None:
    assert predictions(teach(make(tiny, **options))) == [0, 1, 2, 3, 4, 5]


def taught_plainly(
    vit: ViT, order: list[int], edges: list[int], images: NDArray[np.uint8] = IMAGES, **options: Any
) -> PROLPlus:
    learner = make(vit, **{"adapt_steps": 0} | options)
    learner.boundary([0, 1, 2, 3])
    for start, end in pairwise(edges):
        learner.learn(images[order[start:end]], [KINDS[number] for number in order[start:end]])
    return learner


def embedded(learner: PROLPlus, blocks: Tensor, scale: Scale) -> NDArray[np.float64]:
    """(x, cos(f xW + b)) for x at one scale."""
    linear = (blocks - scale.mean) * scale.inverse
    angles = learner.options.bandwidth * (linear @ learner.layer["weight"].double()) + learner.layer["phase"].double()
    found: NDArray[np.float64] = torch.cat([linear, angles.cos()], dim=1).numpy()
    return found


def levels_of(vit: ViT, blocks: int, pooled: bool, random: int) -> list[int]:
    """1 for the last block, 0 for the network's own feature, more for all before, most for random features."""
    taps = [level for level in range(blocks, 0, -1) for _ in range(2 * vit.width)]
    return taps + [0] * (vit.width * pooled) + [blocks + 1] * random


@pytest.mark.parametrize("images", [IMAGES, MUDDLED], ids=["clear", "muddled"])
@pytest.mark.parametrize(
    "options",
    [{}, {"blocks": 2, "budget_mb": 4}, {"pooled": False}, {"features": 0}, {"prior_samples": 20, "bandwidth": 2.0}],
    ids=str,
)
def test_scores_and_familiarity_are_those_of_all_samples_at_once(
    tiny: ViT, images: NDArray[np.uint8], options: dict[str, Any]
) -> None:
    learner = taught_plainly(tiny, list(range(60)), [0, 20, 45, 60], images, **options)
    blocks, pooled = options.get("blocks", 1), options.get("pooled", True)
    groups = [2 * tiny.width] * blocks + [tiny.width] * pooled
    scale = Scale.of(blocks_of(tiny, images[:20], blocks, pooled), groups)
    plain = [blocks_of(tiny, some, blocks, pooled) for some in (images, TEST)]
    phi, probes = (embedded(learner, some, scale) for some in plain)
    own, own_probes = (some[:, -groups[-1] :].double().numpy() for some in plain)
    means = np.stack([phi[np.array(KINDS) == kind].mean(0) for kind in range(4)])
    levels = levels_of(tiny, blocks, pooled, options.get("features", 20))
    assert learner.levels.tolist() == levels
    k = options.get("prior_samples", 300)
    scores, familiarity = learner.predict_with_familiarity(TEST)
    gauss = dense_scores(phi, KINDS, probes, levels, k), dense_scores(phi, KINDS, means, levels, k)
    expected = torch.from_numpy(blended(gauss, own, KINDS, own_probes))
    torch.testing.assert_close(scores.double(), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    assert familiarity is not None
    wanted = torch.from_numpy(dense_familiarity(phi, KINDS, probes, levels, k))
    torch.testing.assert_close(familiarity.double(), wanted, rtol=2e-3, atol=2e-3)


def test_with_one_image_per_class_predictions_are_nearly_those_of_nearest_class_mean(tiny: ViT) -> None:
    images, labels = pictures([0, 1, 2]), [0, 1, 2]
    learner, plain = make(tiny, adapt_steps=0), prol.create("ncm", tiny)
    for one in (learner, plain):
        one.learn(images, labels)
    scores, cosines = (one.predict(TEST).double() for one in (learner, plain))
    centred, plainly = (found - found.mean(1, keepdim=True) for found in (scores, cosines))
    assert float(torch.cosine_similarity(centred.flatten(), plainly.flatten(), dim=0)) > 0.97


def test_from_200_images_on_the_scores_are_those_of_the_gaussian_alone(tiny: ViT) -> None:
    learner = make(tiny, adapt_steps=0)
    kinds = [number % 4 for number in range(100)]
    for seed in (0, 1):
        learner.learn(pictures(kinds, seed=seed), kinds)
    encoded = blocks_of(tiny, TEST, 1).float()
    assert learner.scale is not None
    alone = learner._head().scores(learner._embed(learner.scale.apply(encoded)))
    torch.testing.assert_close(learner.predict(TEST), alone, rtol=1e-4, atol=1e-4)


def test_the_random_layer_is_normal_over_the_root_of_its_inputs(tiny: ViT) -> None:
    learner = make(tiny, features=2000)
    assert float(learner.layer["weight"].std()) == pytest.approx((3 * tiny.width) ** -0.5, rel=0.01)
    assert float(learner.layer["weight"].mean()) == pytest.approx(0, abs=1e-3)
    assert 0 <= float(learner.layer["phase"].min()) < 0.1
    assert 2 * math.pi - 0.1 < float(learner.layer["phase"].max()) <= 2 * math.pi


def test_the_random_layer_is_redrawn_from_the_seed_and_not_stored(tiny: ViT) -> None:
    learner = teach(make(tiny, seed=3))
    assert all(tensor.shape != learner.layer["weight"].shape for tensor in tensors(learner).values())
    assert not torch.equal(make(tiny, seed=8).layer["weight"], learner.layer["weight"])
    twin = make(tiny, seed=8)
    twin.load_state(*learner.state())
    assert torch.equal(twin.predict(TEST), learner.predict(TEST))
    assert same_state(twin, learner)


@pytest.mark.parametrize("adapt_steps", [0, 200])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("count", [1, 4, 5, 9])
def test_the_first_chunk_alone_sets_the_scale(tiny: ViT, adapt_steps: int, blocks: int, count: int) -> None:
    """As the untouched backbone sees it, also where it is being tuned; of a few images, only by blocks."""
    learner = make(tiny, adapt_steps=adapt_steps, adapt_lr=0.1, blocks=blocks)
    learner.learn(IMAGES[:count], KINDS[:count])
    groups = [2 * tiny.width] * blocks + [tiny.width]
    expected = Scale.of(blocks_of(tiny, IMAGES[:count], blocks).float(), groups)
    assert learner.scale is not None
    torch.testing.assert_close(learner.scale.mean, expected.mean)
    torch.testing.assert_close(learner.scale.inverse, expected.inverse)
    assert len(learner.scale.mean.unique()) == blocks + 1 or count >= 5
    before = learner.scale
    teach(learner, steps=2)
    assert learner.scale is before


@given(cuts=st.sets(st.integers(13, 29), max_size=5), order=st.permutations(range(12, 30)))
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_the_first_chunk_neither_chunks_nor_their_order_matter(
    tiny: ViT, cuts: set[int], order: list[int]
) -> None:
    first = list(range(12))
    whole = taught_plainly(tiny, list(range(30)), [0, 12, 30])
    parts = taught_plainly(tiny, first + order, [0, 12, *sorted(cuts), 30])
    expected = whole.predict(TEST)[:, :3]
    limit = 1e-3 * float(expected.abs().max())
    torch.testing.assert_close(parts.predict(TEST)[:, :3], expected, rtol=1e-3, atol=limit)


@pytest.mark.parametrize("chunk", [1, 50])
def test_any_chunk_size_gives_the_same_statistics(tiny: ViT, chunk: int) -> None:
    whole = taught_plainly(tiny, list(range(60)), [0, 1, 12, 60])
    other = taught_plainly(tiny, list(range(60)), [0, *range(1, 60, chunk), 60])
    assert other.seen == whole.seen == 60
    for name, tensor in tensors(whole).items():
        torch.testing.assert_close(tensors(other)[name], tensor, rtol=1e-4, atol=1e-4)
    assert predictions(other)[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize("adapt_steps", [0, 2])
def test_unlearning_leaves_the_sums_of_the_rest(tiny: ViT, adapt_steps: int) -> None:
    """Of images that came once tuning was over; class 3 goes with its last image."""
    gone, left = [20, 33, 43, 47, 51, 55, 59], []
    left = [number for number in range(60) if number not in gone]
    learner = taught_plainly(tiny, list(range(60)), [0, 10, 20, 45, 60], adapt_steps=adapt_steps)
    never = taught_plainly(tiny, left, [0, 10, 20, 30, len(left)], adapt_steps=adapt_steps)
    assert learner.tuning.over
    removal = learner.unlearn(IMAGES[gone], [KINDS[number] for number in gone])
    assert "the scale of the features was taken from the first chunk" in removal.remains
    assert ("the LayerNorms were tuned" in str(removal.remains)) == bool(adapt_steps)
    assert learner.classes == [0, 1, 2]
    never.remove_class(3)
    assert learner.seen == never.seen == len(left)
    for name, tensor in learner.moments.tensors().items():
        torch.testing.assert_close(tensor, never.moments.tensors()[name], rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(learner.predict(TEST), never.predict(TEST), rtol=1e-3, atol=1e-3)


def test_while_the_network_is_tuned_nothing_can_be_unlearnt(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(IMAGES[:10], KINDS[:10])
    before = learner.state()[0]
    with pytest.raises(ValueError, match="once its normalisation layers are tuned, after 400 chunks or the first task"):
        learner.unlearn(IMAGES[:2], KINDS[:2])
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state()[0].items())


def test_when_all_is_unlearnt_announced_classes_score_least(tiny: ViT) -> None:
    learner = taught_plainly(tiny, list(range(10)), [0, 10])
    learner.unlearn(IMAGES[:10], KINDS[:10])
    assert learner.classes == [3]
    assert torch.equal(learner.predict(TEST), torch.full((6, 1), -torch.inf))
    assert learner.familiarity(TEST) is None
    learner.learn(IMAGES[10:20], KINDS[10:20])
    assert learner.predict(TEST)[:, 1:].isfinite().all()


def test_learners_merged_are_one_that_learnt_all(tiny: ViT) -> None:
    base = taught_plainly(tiny, list(range(10)), [0, 10])
    one, two, whole = base.clone(), base.clone(), base.clone()
    for learners, numbers in (((one, whole), range(10, 30)), ((two, whole), range(30, 60))):
        for learner in learners:
            learner.learn(IMAGES[list(numbers)], [KINDS[number] for number in numbers])
    merged = prol.merge([one, two], base)
    assert merged.class_counts().tolist() == whole.class_counts().tolist()
    torch.testing.assert_close(merged.predict(TEST), whole.predict(TEST), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(merged.familiarity(TEST), whole.familiarity(TEST), rtol=1e-3, atol=1e-3)


def test_a_state_before_anything_was_learnt_opens_whatever_its_widths_were(tiny: ViT) -> None:
    """Version 0.1 divided the same budget otherwise."""
    old, new = make(tiny, features=30, pooled=False), make(tiny)
    old.boundary([0, 1])
    new.load_state(*old.state())
    assert torch.equal(new.predict(TEST), torch.full((6, 2), -torch.inf))
    new.learn(IMAGES[:10], KINDS[:10])
    assert new.moments.totals().sums.shape == (3, 3 * tiny.width + 20)
    assert new.predict(TEST).isfinite().all()


def test_a_state_without_the_pooled_feature_opens_with_the_features_that_it_has(tiny: ViT) -> None:
    old, new = taught_plainly(tiny, list(range(20)), [0, 20], pooled=False, features=30, blocks=2), make(tiny)
    new.load_state(*old.state())
    assert (new.options.pooled, new.options.features, new.options.blocks) == (False, 30, 2)
    assert torch.equal(new.predict(TEST), old.predict(TEST))
    assert same_state(new.clone(), old)

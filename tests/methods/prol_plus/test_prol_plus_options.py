"""PROL+'s options, how its budget is divided, and what it stores."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import prol
from methods.prol_plus.small_prol_plus import make, predictions, teach
from methods.small_streams import pictures
from prol.backbones import ResNet, ViT, open_backbone
from prol.learner import Amount
from prol.methods.prol_plus.features import (
    NUMBER,
    PLANNED_CLASSES,
    PROLPlusOptions,
    Widths,
    plan,
)
from prol.methods.prol_plus.learner import PROLPlus
from prol.runs.inspection import count_parameters


def divide(width: int, depth: int = 12, **options: Any) -> Widths:
    """Of a ViT: a class token and a mean of patches in each block, and its own feature."""
    return plan(PROLPlusOptions(**options), (2 * width,) * depth, width)


def gram_numbers(found: Widths) -> int:
    """Block rows from the first column to the diagonal, as they are stored."""
    edges = [*range(0, found.all, found.stripe), found.all]
    return sum((end - start) * end for start, end in pairwise(edges))


def numbers_for(found: Widths) -> int:
    """At the planned classes: products, sums and solved head, and the scale."""
    return gram_numbers(found) + 2 * PLANNED_CLASSES * found.all + 2 * found.linear


def test_the_small_backbone_has_all_the_blocks_asked_for() -> None:
    found = divide(192)
    assert (found.blocks, found.pooled, found.linear, found.random) == (6, 192, 2496, 2496)
    assert (divide(384).blocks, divide(384).linear) == (6, 4992)
    assert 0 < divide(384).random < 4992


def test_of_a_wide_backbone_the_class_tokens_of_all_blocks_are_read() -> None:
    found = divide(768)
    assert (found.class_tokens, found.blocks, found.linear) == (True, 6, 7 * 768)
    assert 0 < found.random < 768
    wider = divide(1024)
    assert (wider.class_tokens, wider.blocks, wider.linear) == (True, 4, 5 * 1024)


def test_where_class_tokens_alone_are_read_they_are_those_of_the_last_blocks(tiny: ViT) -> None:
    found = PROLPlus(tiny, PROLPlus.read_options({"budget_mb": 0.4, "features": 0}))
    assert found.widths.class_tokens
    inputs = found.evaluation_input(tiny.read(pictures([0, 1])))
    encoded = tiny.encode(tiny.embed(inputs), taps=range(tiny.depth - found.widths.blocks, tiny.depth))
    expected = torch.cat([*encoded.class_taps, encoded.feature], dim=1).float()
    torch.testing.assert_close(found.encode(inputs), expected)


@given(
    budget_mb=st.floats(0.5, 200),
    width=st.sampled_from([16, 64, 192, 384]),
    depth=st.integers(1, 24),
    blocks=st.sampled_from([1, 2, 6]),
    pooled=st.booleans(),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_blocks_leave_the_rest_of_the_budget_to_random_features(
    budget_mb: float, width: int, depth: int, blocks: int, pooled: bool
) -> None:
    try:
        found = divide(width, depth, budget_mb=budget_mb, blocks=blocks, pooled=pooled)
    except ValueError:
        assert budget_mb < 9
        return
    numbers, most = budget_mb * 1e6 / NUMBER, min(blocks, depth)
    assert numbers_for(found) <= numbers
    assert 1 <= found.blocks <= most
    each = width if found.class_tokens else 2 * width
    assert found.linear == each * found.blocks + width * pooled
    assert found.random <= found.linear

    def largest(total: int) -> int:
        return total * (total + found.stripe) // 2 + 2 * PLANNED_CLASSES * total + 2 * total

    if found.random < found.linear:  # one feature more does not fit
        assert largest(found.all + 1) > int(numbers)
    if found.blocks < most:
        assert found.class_tokens
        assert largest(found.linear + width) > int(numbers)
    if found.class_tokens:  # both parts of all blocks do not fit
        assert largest(2 * width * most + width * pooled) > int(numbers) * 0.97


@pytest.mark.parametrize("pooled", [True, False])
def test_a_feature_is_as_many_levels_away_as_blocks_lie_between_and_random_ones_furthest(pooled: bool) -> None:
    found = divide(4, blocks=3, features=2, pooled=pooled)
    assert found.levels == [3] * 8 + [2] * 8 + [1] * 8 + [0] * (4 * pooled) + [4] * 2
    assert found.groups == (8, 8, 8, 4)[: 3 + pooled]


@pytest.mark.parametrize("pooled", [True, False])
def test_where_the_last_stage_is_the_networks_own_feature_it_is_read_once(pooled: bool) -> None:
    """As in networks without class token, whose stages differ in width."""
    found = plan(PROLPlusOptions(features=2, pooled=pooled), (3, 5, 6), 6)
    assert (found.taps, found.pooled, found.linear) == ((3, 5, 6), 0, 14)
    assert found.levels == [2] * 3 + [1] * 5 + [0] * 6 + [3] * 2


def test_a_larger_budget_has_more_of_everything() -> None:
    small, large = divide(192, budget_mb=4), divide(192, budget_mb=40)
    assert small.linear < large.linear
    assert small.all < large.all


def test_given_features_and_blocks_are_taken() -> None:
    found = divide(192, features=100, blocks=2)
    assert (found.random, found.blocks, found.all) == (100, 2, 4 * 192 + 192 + 100)
    assert divide(192, features=0).all == divide(192).linear
    assert divide(192, depth=3).blocks == 3
    assert divide(192, pooled=False).linear == 2304


@pytest.mark.parametrize("width", [192, 384, 768, 1024])
def test_a_budget_that_holds_no_block_is_refused_and_the_one_named_is_enough(width: int) -> None:
    with pytest.raises(ValueError, match=f"budget_mb 0.1 does not hold .* of {width} features of one block") as refusal:
        divide(width, budget_mb=0.1)
    named = re.search(r"give ([\d.]+) or more", str(refusal.value))
    assert named is not None
    least = float(named[1])
    assert least > 0.1
    assert divide(width, budget_mb=least).blocks == 1
    with pytest.raises(ValueError, match="does not hold"):
        divide(width, budget_mb=0.85 * least)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget_mb": 0}, "budget_mb must be a finite number above 0, got 0"),
        ({"budget_mb": "inf"}, "budget_mb must be a finite number above 0, got inf"),
        ({"features": -1}, "features must be at least 0, or none, got -1"),
        ({"blocks": 0}, "blocks must be at least 1, got 0"),
        ({"bandwidth": 0}, "bandwidth must be a finite number above 0, got 0"),
        ({"prior_samples": 0}, "prior_samples must be a finite number above 0, got 0"),
        ({"prior_samples": "inf"}, "prior_samples must be a finite number above 0, got inf"),
        ({"prior_samples": "nan"}, "option prior_samples='nan' is not valid"),
        ({"pooled": "perhaps"}, "option pooled='perhaps' is not valid"),
        ({"class_directions": 3}, "unknown option 'class_directions'"),
        ({"adapt_steps": -1}, "adapt_steps must be at least 0, got -1"),
        ({"adapt_lr": -1}, "adapt_lr must be a finite number above 0, got -1"),
        ({"stride": 3}, "unknown option 'stride'"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PROLPlus.read_options(options)


def test_the_least_that_is_possible_is_taken() -> None:
    least = {"features": 0, "adapt_steps": 0, "blocks": 1}
    options = PROLPlus.read_options(least)
    assert {name: getattr(options, name) for name in least} == least


def test_options_can_be_set_as_text() -> None:
    usual = PROLPlus.read_options({})
    other = PROLPlus.read_options({"prior_samples": "50", "drift_correction": "false", "pooled": "no"})
    assert (usual.prior_samples, usual.drift_correction, usual.pooled) == (300, True, True)
    assert (other.prior_samples, other.drift_correction, other.pooled) == (50, False, False)


def test_options_of_version_0_1_are_renamed_or_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    old = {"own": 6, "trust": 2.0, "ease": 0.1, "penalty": None, "draw_in": True, "frequency": 2.0, "carry": False}
    found = PROLPlus.read_options(old)
    assert found == PROLPlusOptions(bandwidth=2.0, drift_correction=False)
    assert caplog.messages == ["options without effect since version 0.2: draw_in, ease, own, penalty, trust"]


def test_of_other_methods_these_are_unknown(tiny: ViT) -> None:
    with pytest.raises(ValueError, match="unknown option 'own'"):
        prol.create("ncm", tiny, own=6)


TEST = pictures(list(range(6)), seed=7)


def test_before_anything_is_learnt_there_is_a_column_for_each_announced_class(tiny: ViT) -> None:
    learner = make(tiny)
    assert learner.predict(TEST).shape == (6, 0)
    learner.boundary()
    learner.boundary([0, 1])
    assert torch.equal(learner.predict(TEST), torch.full((6, 2), -torch.inf))


@pytest.mark.parametrize("adapt_steps", [0, 3])
def test_copies_are_learnt_and_distinguished(tiny: ViT, adapt_steps: int) -> None:
    learner, three = make(tiny, adapt_steps=adapt_steps), pictures([0, 1, 2])
    learner.learn([three[0], three[0]], [0, 0])
    for _ in range(10):
        learner.learn(three, [0, 1, 2])
        assert learner.predict(three).isfinite().all()
    assert learner.predict(three).argmax(1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("adapt_steps", [0, 200])
@pytest.mark.parametrize("features", [20, 0])
def test_after_copies_of_one_image_it_can_predict_and_others_may_follow(
    tiny: ViT, adapt_steps: int, features: int
) -> None:
    """They set a scale at which their own features, but for random ones, are all zero."""
    learner, three = make(tiny, adapt_steps=adapt_steps, features=features), pictures([0, 1, 2])
    learner.learn([three[0]] * 9, [0] * 9)
    assert learner.predict(three).isfinite().all()
    for step in range(4):
        learner.learn(pictures([0, 1, 2], seed=step), [0, 1, 2])
    assert predictions(learner)[:3] == [0, 1, 2]


@pytest.mark.parametrize("adapt_steps", [0, 2, 200])
def test_an_announced_class_of_which_nothing_was_seen_never_wins(tiny: ViT, adapt_steps: int) -> None:
    learner = make(tiny, adapt_steps=adapt_steps)
    learner.boundary(["ghost", 0, "spirit", 1])
    for step in range(4):
        learner.learn(pictures([0, 1, 0, 1], seed=step), [0, 1, 0, 1])
    scores = learner.predict(pictures(list(range(20))))
    assert set(scores.argmax(1).tolist()) <= {1, 3}
    assert (scores[:, [0, 2]] == -torch.inf).all()
    assert scores[:, [1, 3]].isfinite().all()
    learner.boundary(["spectre"])
    assert (learner.predict(TEST)[:, 4] == -torch.inf).all()
    assert torch.equal(learner.predict(pictures(list(range(20))))[:, :4], scores)


@pytest.mark.parametrize("adapt_steps", [0, 200])
def test_a_single_class_is_scored_and_others_may_follow(tiny: ViT, adapt_steps: int) -> None:
    learner = make(tiny, adapt_steps=adapt_steps)
    for step in range(12):
        learner.learn(pictures([0] * 4, seed=step), [0] * 4)
    scores = learner.predict(TEST)
    assert scores.shape == (6, 1)
    assert scores.isfinite().all()
    for step in range(3):
        learner.learn(pictures([1, 0, 1], seed=step), [1, 0, 1])
    assert predictions(learner)[:2] == [0, 1]


@pytest.mark.parametrize(
    "options",
    [{"adapt_steps": 8}, *(pytest.param(one, marks=pytest.mark.slow) for one in ({"adapt_steps": 0}, {}))],
    ids=str,
)
def test_one_image_at_a_time_is_enough_and_it_can_predict_after_each(tiny: ViT, options: dict[str, Any]) -> None:
    learner = make(tiny, **options)
    for step in range(20):
        for kind in range(6):
            learner.learn(pictures([kind], seed=step), [kind])
            if step < 5:
                assert learner.predict(TEST).isfinite().all()
    assert predictions(learner) == [0, 1, 2, 3, 4, 5]
    scores = torch.cat([learner.predict(TEST[[number]]) for number in range(6)])
    torch.testing.assert_close(scores, learner.predict(TEST), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("pooled", [True, False])
def test_it_stores_statistics_and_no_sample(tiny: ViT, pooled: bool) -> None:
    learner = teach(make(tiny, pooled=pooled))
    found, linear = learner.footprint(), (2 + pooled) * tiny.width
    gram = sum(block.numel() for block in learner.moments.blocks)
    assert (linear + 20) * (linear + 21) / 2 <= gram <= (linear + 20) * (linear + 20 + learner.widths.stripe) / 2
    single, double = gram + 6 * (linear + 20), 6
    assert found.statistics_stored == Amount(single + double, 4 * single + 8 * double)
    norms = sum(p.numel() for p in tiny.fork("norms").trained().values())
    single = 2 * linear + 6 * (linear + 21)  # the scale and the solved head
    assert found.parameters_stored == Amount(norms + single, 8 * norms + 4 * single)
    assert found.samples_stored == found.trained_now == Amount(0, 0)


@pytest.mark.parametrize("budget_mb", [4, 16, 40])
def test_at_a_hundred_classes_the_tiny_backbones_statistics_fill_the_budget(budget_mb: int) -> None:
    """Sums, the solved head and the scale."""
    options = {"budget_mb": budget_mb}
    widths = PROLPlus(open_backbone("tiny", shapes_only=True), PROLPlus.read_options(options)).widths
    found = count_parameters("prol_plus", options, "tiny", 100, 10)
    used = found["during_last_task"]["statistics_stored"]["bytes"]
    rest = 100 * (widths.all + 1) + 2 * widths.linear
    # for 100 biases and float64 counts there is what block rows do not take of their share
    assert 0.98 * budget_mb * 1e6 < used + 4 * rest <= budget_mb * 1e6
    assert found["during_last_task"]["trained_now"] == {"count": 0, "bytes": 0}
    assert found["during_first_task"]["trained_now"]["count"] == (4 * 12 + 2) * 192 + 10 * 193


def test_a_backbone_without_blocks_is_refused(small_resnet: ResNet) -> None:
    with pytest.raises(ValueError, match="method prol_plus reads the last blocks or stages of a trained network"):
        PROLPlus(small_resnet, PROLPlus.read_options({}))

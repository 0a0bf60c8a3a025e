"""PROL+'s dials, and how its budget is divided."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prol.methods.prol_plus.class_covariances import packed_length
from prol.methods.prol_plus.learner import PROLPlus
from prol.methods.prol_plus.options import (
    NUMBER,
    PLANNED_CLASSES,
    PROLPlusOptions,
    Widths,
    plan,
)

MOST_LINEAR = 0.6
"""Of all features those that may be the blocks' own; the rest are random."""


def divide(width: int, depth: int = 12, **options: Any) -> Widths:
    return plan(PROLPlusOptions(**options), width, depth)


def gram_bytes(found: Widths) -> int:
    """Block rows from the first column to the diagonal, as they are stored."""
    edges = [*range(0, found.all, found.stripe), found.all]
    return NUMBER * sum((end - start) * end for start, end in pairwise(edges))


def test_the_built_in_backbone_has_all_the_blocks_asked_for() -> None:
    found = divide(192)
    assert (found.blocks, found.linear) == (6, 2304)
    assert found.random > 1000
    assert found.own > 192


def test_a_wide_backbone_has_fewer_blocks() -> None:
    narrow, wide = divide(192), divide(768)
    assert wide.blocks < narrow.blocks
    assert wide.linear == 2 * 768 * wide.blocks
    assert wide.all >= narrow.all
    assert wide.own == narrow.own


def numbers_for(found: Widths) -> int:
    """At the planned classes: products, sums and solved head, own covariances, and the scale and directions."""
    by_class = 2 * found.all + (packed_length(found.own) if found.own else 0)
    directions = found.linear * found.own if found.own < found.linear else 0
    return gram_bytes(found) // NUMBER + PLANNED_CLASSES * by_class + directions + 2 * found.linear


def own_width(budget_mb: float, linear: int, asked: int | None) -> int:
    """All directions where 0.55 of the budget holds them at the planned classes, else as many as a third holds."""
    shares = (share * budget_mb * 1e6 / NUMBER / PLANNED_CLASSES for share in (1 / 3, 0.55))
    third, more = (sum(packed_length(width) <= int(share) for width in range(1, 1200)) for share in shares)
    most = linear if more >= linear else third
    return most if asked is None else min(asked, most)


@given(
    budget_mb=st.floats(0.5, 200),
    width=st.sampled_from([16, 64, 192, 384]),
    depth=st.integers(1, 24),
    blocks=st.sampled_from([1, 2, 6]),
    asked=st.sampled_from([None, 0, 50, 400]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_products_and_own_covariances_leave_the_rest(
    budget_mb: float, width: int, depth: int, blocks: int, asked: int | None
) -> None:
    try:
        found = divide(width, depth, budget_mb=budget_mb, own=asked, blocks=blocks)
    except ValueError:
        assert budget_mb < 9
        return
    budget, most = budget_mb * 1e6, min(blocks, depth)
    assert NUMBER * numbers_for(found) <= budget
    assert found.own == own_width(budget_mb, found.linear, asked)
    assert found.own_room == (NUMBER * PLANNED_CLASSES * packed_length(found.own) if found.own else 0)
    total = found.all + 1  # one feature more does not fit
    linear = 2 * width * min(most, int(MOST_LINEAR * total) // (2 * width))
    own = own_width(budget_mb, linear, asked)
    gram, by_class = total * (total + found.stripe) // 2, 2 * total + packed_length(own)
    more = gram + PLANNED_CLASSES * by_class + (linear * own if own < linear else 0) + 2 * linear
    assert NUMBER * (more + 1) > budget
    assert 1 <= found.blocks <= most
    assert found.linear == 2 * width * found.blocks <= MOST_LINEAR * found.all
    assert found.random >= (1 - MOST_LINEAR) * found.all
    if found.blocks < most:
        assert 2 * width * (found.blocks + 1) > int(MOST_LINEAR * found.all)


def test_a_class_has_all_directions_where_a_little_over_half_the_budget_holds_them() -> None:
    """One block of width 192: a hundred classes' products of 384 features are 0.55 of 54.04 MB."""
    assert NUMBER * PLANNED_CLASSES * packed_length(384) / 0.55 == pytest.approx(54.04e6, abs=1e3)
    whole, less = (divide(192, blocks=1, budget_mb=budget_mb) for budget_mb in (54.05, 54.03))
    assert (whole.linear, whole.own) == (384, 384)
    assert (less.linear, less.own) == (384, 298)
    assert packed_length(298) <= 54.03e6 / NUMBER / 3 / PLANNED_CLASSES < packed_length(299)
    assert whole.own_room > 1.6 * less.own_room
    assert whole.random < less.random


@pytest.mark.parametrize(("asked", "own"), [(383, 383), (384, 384), (9999, 384), (10, 10)])
def test_of_all_directions_fewer_may_be_asked_for_and_are_stored(asked: int, own: int) -> None:
    found = divide(192, blocks=1, own=asked)
    assert found.own == own
    spare = 64e6 - NUMBER * numbers_for(found)
    assert 0 <= spare < NUMBER * (3 * found.all + 100)  # not enough for a feature more, with half a block row to spare


@pytest.mark.parametrize(("own", "expected"), [(0, 0), (10, 10), (300, 300), (9999, 325)])
def test_directions_of_a_class_are_at_most_as_many_as_their_share_holds(own: int, expected: int) -> None:
    assert divide(192, own=own).own == expected


def test_without_own_covariances_there_are_more_random_features() -> None:
    assert divide(192, own=0).random > divide(192, own=100).random > divide(192).random
    assert divide(192, own=0).own_room == 0


def test_a_larger_budget_has_more_of_everything() -> None:
    small, large = divide(192, budget_mb=4), divide(192, budget_mb=40)
    assert small.blocks < large.blocks
    assert small.all < large.all
    assert small.own < large.own


def test_given_features_and_blocks_are_taken() -> None:
    found = divide(192, features=100, blocks=2)
    assert (found.random, found.blocks, found.all) == (100, 2, 868)
    assert divide(192, features=0).all == divide(192).linear
    assert divide(192, depth=3).blocks == 3


@pytest.mark.parametrize("width", [192, 384, 768, 1024])
def test_a_budget_that_holds_no_block_is_refused_and_the_one_named_is_enough(width: int) -> None:
    with pytest.raises(ValueError, match=f"budget_mb 0.5 does not hold .* one block's {2 * width} features") as refusal:
        divide(width, budget_mb=0.5)
    named = re.search(r"give ([\d.]+) or more", str(refusal.value))
    assert named is not None
    least = float(named[1])
    assert least > 0.5
    assert divide(width, budget_mb=least).blocks == 1
    with pytest.raises(ValueError, match="does not hold"):
        divide(width, budget_mb=0.9 * least)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget_mb": 0}, "budget_mb must be a finite number above 0, got 0"),
        ({"budget_mb": "inf"}, "budget_mb must be a finite number above 0, got inf"),
        ({"features": -1}, "features must be 0 or more, got -1"),
        ({"own": -1}, "own must be 0 or more, got -1"),
        ({"blocks": 0}, "blocks must be at least 1, got 0"),
        ({"frequency": 0}, "frequency must be a finite number above 0, got 0"),
        ({"trust": -1}, "trust must be a finite number above 0, got -1"),
        ({"ease": 0}, "ease must be a finite number above 0, got 0"),
        ({"penalty": 0}, "penalty must be a finite number above 0, got 0"),
        ({"penalty": -0.1}, "penalty must be a finite number above 0, got -0.1"),
        ({"penalty": "inf"}, "penalty must be a finite number above 0, got inf"),
        ({"penalty": "nan"}, "option penalty='nan' is not valid"),
        ({"ease": "inf"}, "ease must be a finite number above 0, got inf"),
        ({"adapt_steps": -1}, "adapt_steps must be 0 or more, got -1"),
        ({"adapt_lr": -1}, "adapt_lr must be a finite number above 0, got -1"),
        ({"task_min_classes": 0}, "task_min_classes must be at least 1, got 0"),
        ({"task_min_steps": 0}, "task_min_steps must be at least 1, got 0"),
        ({"stride": 3}, "unknown option 'stride'"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PROLPlus.read_options(options)


def test_the_least_that_is_possible_is_taken() -> None:
    least = {"features": 0, "own": 0, "adapt_steps": 0, "blocks": 1}
    options = PROLPlus.read_options(least)
    assert {name: getattr(options, name) for name in least} == least


def test_a_penalty_and_carrying_along_can_be_set_as_text() -> None:
    usual, other = (
        PROLPlus.read_options({}),
        PROLPlus.read_options({"penalty": "0.05", "carry": "false", "draw_in": "no"}),
    )
    assert (usual.penalty, usual.carry, usual.draw_in) == (None, True, True)
    assert (other.penalty, other.carry, other.draw_in) == (0.05, False, False)

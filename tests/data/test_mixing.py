from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from stream_cases import PERCENT, nearest

from prol.data.streams.blurry import portions


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 2000), max_size=50), PERCENT)
def test_portions_add_up_to_the_rounded_share_and_each_is_rounded_down_or_up(sizes: list[int], percent: float) -> None:
    taken = portions(sizes, percent).tolist()
    assert sum(taken) == nearest(sum(sizes) * percent / 100)
    for size, part in zip(sizes, taken, strict=True):
        # A hair's breadth for shares that are whole numbers but for the last bit.
        assert math.floor(size * percent / 100 - 1e-6) <= part <= math.ceil(size * percent / 100 + 1e-6)
        assert 0 <= part <= size


def test_the_ends_take_nothing_and_all() -> None:
    assert portions([3, 0, 5], 0).tolist() == [0, 0, 0]
    assert portions([3, 0, 5], 100).tolist() == [3, 0, 5]

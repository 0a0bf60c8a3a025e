"""Moments of many parts in two long tensors."""

from __future__ import annotations

import torch

from prol.engine.adam_tables import AdamMoments


def shapes(**sizes: int) -> dict[str, torch.Size]:
    return {name: torch.Size((rows, 2)) for name, rows in sizes.items()}


def test_parts_lie_side_by_side_and_keep_what_they_hold() -> None:
    moments, like = AdamMoments(), torch.zeros(0, dtype=torch.float64)
    moments.lay(shapes(a=1, b=2), like)
    moments.of("a")[0].fill_(1)
    moments.of("b")[1].fill_(2)
    assert moments.together(["a", "b"])[0].tolist() == [1, 1, 0, 0, 0, 0]
    moments.lay(shapes(b=3), like)
    assert moments.together(["a", "b"])[1].tolist() == [0, 0, 2, 2, 2, 2, 0, 0]
    moments.lay(shapes(c=1, a=1), like)
    assert moments.together(["c", "a", "b"])[0].tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert moments.names() == ["a", "b", "c"]


def test_they_move_only_when_order_or_shapes_ask_for_it() -> None:
    moments, like = AdamMoments(), torch.zeros(0)
    moments.lay(shapes(a=1, b=2, c=1), like)
    for same in (shapes(a=1, b=2, c=1), shapes(b=2, c=1), shapes(b=2)):
        moments.lay(same, like)
    assert moments.moves == 1
    moments.lay(shapes(b=4), like)
    moments.lay(shapes(a=1, b=4, c=1), like)  # what grew stayed in its place
    assert moments.moves == 2
    before = moments.together(["a"])[0].data_ptr()
    moments.clear()
    assert moments.together(["a"])[0].data_ptr() == before

"""What PROL+ needs to go on to the bit, wherever it is cut: tuning or not, with its directions fixed or not yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_prol_plus import WHOLE, begin_early, make
from small_streams import pictures, same_state, tensors

import prol
from prol.backbones import ViT
from prol.methods.prol_plus.learner import PROLPlus

TEST = pictures(list(range(6)), seed=7)


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_early(monkeypatch)


STREAM: list[list[int] | None] = [
    *([0, 1], [1, 0, 0, 2], [2] * 30, [2, 0, 1, 1]),
    None,
    *([3, 4], [3, 4, 0], [4, 4, 3]),
    None,
    *([5, 1], [5]),
]
"""Kinds of images of each chunk; None is a boundary, which announces nothing. Twelve samples fix the directions."""


def feed(learner: PROLPlus, chunks: list[list[int] | None], first: int = 0) -> None:
    for number, chunk in enumerate(chunks, start=first):
        if chunk is None:
            learner.boundary()
        else:
            learner.learn(pictures(chunk, number), chunk)


CUTS = [0, 1, 2, 3, 4, 5, 6, 10]
OTHERS: list[dict[str, Any]] = [
    {"adapt_steps": 2},
    {"adapt_steps": 0, "own": 0},
    WHOLE | {"adapt_steps": 0},
    {"carry": False},
    {"penalty": 0.05},
]


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        *((options, cut) for options in ({}, WHOLE) for cut in CUTS),
        *((options, cut) for options in OTHERS for cut in (1, 3, 6)),
    ],
    ids=str,
)
def test_learning_goes_on_to_the_bit(tiny: ViT, options: dict[str, Any], cut: int, tmp_path: Path) -> None:
    learner = make(tiny, adapt_lr=0.02, **options)
    feed(learner, STREAM[:cut])
    learner.save(tmp_path / "saved")
    loaded = prol.load(tmp_path / "saved", tiny)
    retold, state = make(tiny, seed=77, adapt_lr=0.02, **options), learner.state()
    retold.load_state(state[0], json.loads(json.dumps(state[1])))
    assert isinstance(loaded, PROLPlus)
    for twin in (loaded, retold):
        assert same_state(learner, twin)
        assert twin.tuning.over == learner.tuning.over
        assert twin.report() == learner.report()
        feed(twin, STREAM[cut:], first=cut)
    feed(learner, STREAM[cut:], first=cut)
    for twin in (loaded, retold):
        assert same_state(learner, twin)
        assert torch.equal(learner.predict(TEST), twin.predict(TEST))
    assert (learner.chosen_at > 0) == ("penalty" not in options)


@pytest.mark.parametrize(
    ("options", "tuning", "fixed"),
    [
        ({}, [0, 1, 2, 3, 4], [3, 4, 5, 6, 10]),
        ({"adapt_steps": 2}, [0, 1], [3, 4, 5, 6, 10]),
        (WHOLE, [0, 1, 2, 3, 4], []),
    ],
    ids=str,
)
def test_it_is_cut_in_each_of_its_phases(
    tiny: ViT, options: dict[str, Any], tuning: list[int], fixed: list[int]
) -> None:
    """While it tunes and carries along, before and after its directions are fixed, and when all is settled."""
    learners = {cut: make(tiny, **options) for cut in CUTS}
    for cut, learner in learners.items():
        feed(learner, STREAM[:cut])
    assert [cut for cut, learner in learners.items() if not learner.tuning.over] == tuning
    assert [cut for cut, learner in learners.items() if "own/directions" in tensors(learner)] == fixed
    assert all(learner.options.carry for learner in learners.values())
    held = [cut for cut, learner in learners.items() if bool(tensors(learner)["own/products"].any())]
    assert held == (CUTS[1:] if options == WHOLE else [4, 5, 6, 10])


@pytest.mark.parametrize("options", [{"own": 20}, WHOLE | {"own": 128}], ids=str)
def test_a_learner_with_fewer_directions_than_it_began_with_can_be_taken_up(tiny: ViT, options: dict[str, Any]) -> None:
    learner = make(tiny, adapt_steps=2, **options)
    learner.boundary(list(range(500)))
    feed(learner, STREAM[:3])
    feed(learner, STREAM[2:6])
    assert (learner.directions is None) == (options["own"] == 128)
    twin = learner.clone()
    for one in (learner, twin):
        one.boundary(list(range(500, 900)))
        feed(one, STREAM[5:], first=5)
    assert learner.own is not None
    assert learner.own.width < options["own"]
    assert same_state(learner, twin)
    assert torch.equal(learner.predict(TEST), twin.predict(TEST))

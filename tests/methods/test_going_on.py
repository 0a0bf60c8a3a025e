"""A state taken in the middle of a task goes on bit for bit, for every method and variant."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from every_method import METHODS, backbone_for
from small_streams import pictures, same_state

import prol
from golden_files import tiny_vit
from prol import registry
from prol.learner import Learner

TINY_PROL = {"blocks": 3, "lr": 0.01, "lr_scaling": False, "t_max": 3, "chunk": 4}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ncm": ("ncm", {}),
    "ncm, augmented": ("ncm", {"augment": "crop_flip"}),
    "head_only": ("head_only", {}),
    "head_only, both losses": ("head_only", {"intra": 1.0}),
    "prol": ("prol", TINY_PROL),
    "prol, soft at once": ("prol", {**TINY_PROL, "threshold": 1e9}),
    "prol, literal": ("prol", {**TINY_PROL, "preset": "literal"}),
    "prol, clipped": ("prol", {**TINY_PROL, "clip": 0.1}),
    "prol, thawed heads": ("prol", {**TINY_PROL, "thaw_heads": True}),
    "prol, frozen norms": ("prol", {**TINY_PROL, "tune_norms": False}),
    "prol, released factor": ("prol", {**TINY_PROL, "similarity_factor": "released"}),
    "prol, without keys": ("prol", {**TINY_PROL, "ablation": "generator"}),
    "prol, without prompts": ("prol", {**TINY_PROL, "ablation": "ft_inter_intra"}),
    **{name: case for name, case in METHODS.items() if registry.method(name).from_scratch},
}
NAMES = {0: 1, 1: "1", 2: "two", 3: 3, 4: "3", 5: 0, 6: "", 7: -4}
"""Texts and numbers that look alike."""

Chunk = list[int] | None
STREAM: list[Chunk] = [[0, 1], [1, 0, 0], None, [2, 3], [3, 2, 0], [2, 4], None, [5, 1, 6], [5, 6, 7, 2]]
"""Kinds of images of each chunk; None is a boundary, which announces nothing."""


def make(variant: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> Learner:
    method, options = VARIANTS[variant]
    return prol.create(method, backbone_for(method, dtype), seed=seed, **options)


def feed(learner: Learner, chunks: list[Chunk], first: int = 0) -> None:
    for number, chunk in enumerate(chunks, start=first):
        if chunk is None:
            learner.boundary()
        else:
            learner.learn(pictures(chunk, number), [NAMES[kind] for kind in chunk])


def taken_up(learner: Learner, variant: str, dtype: torch.dtype = torch.float64) -> Learner:
    """A fresh learner with another seed in the state of the first, through JSON text."""
    tensors, meta = learner.state()
    twin = make(variant, dtype, seed=77)
    twin.load_state(tensors, json.loads(json.dumps(meta)))
    return twin


@pytest.mark.parametrize("cut", [0, 1, 3, 5, 7, 8])
@pytest.mark.parametrize("variant", VARIANTS)
def test_learning_goes_on_to_the_bit(variant: str, cut: int) -> None:
    learner = make(variant)
    feed(learner, STREAM[:cut])
    twin = taken_up(learner, variant)
    assert same_state(learner, twin)
    for one in (learner, twin):
        feed(one, STREAM[cut:], first=cut)
    assert same_state(learner, twin)
    assert [(label, type(label)) for label in twin.classes] == [(label, type(label)) for label in learner.classes]
    images = pictures(list(NAMES), seed=50)
    assert torch.equal(learner.predict(images), twin.predict(images))


@pytest.mark.parametrize("variant", ["ncm", "head_only", "prol", "prol, soft at once", "prol, thawed heads"])
def test_learning_goes_on_to_the_bit_without_boundaries_and_in_float32(variant: str) -> None:
    stream = [chunk for chunk in STREAM if chunk is not None]
    learner = make(variant, torch.float32)
    feed(learner, stream[:4])
    twin = taken_up(learner, variant, torch.float32)
    for one in (learner, twin):
        feed(one, stream[4:], first=4)
        assert one.classes == [1, "1", "two", 3, "3", 0, "", -4]
    assert same_state(learner, twin)


@pytest.mark.parametrize("variant", ["ncm", "head_only", "prol"])
def test_a_clone_taken_in_the_middle_goes_on_alike(variant: str) -> None:
    learner = make(variant)
    feed(learner, STREAM[:5])
    twin = learner.clone()
    for one in (learner, twin):
        feed(one, STREAM[5:], first=5)
    assert same_state(learner, twin)


def test_the_released_preset_goes_on_to_the_bit() -> None:
    def fresh() -> Learner:
        return prol.create("prol", tiny_vit(), preset="released", **TINY_PROL)

    learner = fresh()
    for classes in ([0, 1, 2], [3, 4, 5]):
        learner.boundary(classes)
        learner.learn(pictures(classes), classes)
    twin = fresh()
    tensors, meta = learner.state()
    twin.load_state(tensors, json.loads(json.dumps(meta)))
    for one in (learner, twin):
        one.learn(pictures([3, 4, 5], 1), [3, 4, 5])
        one.boundary([6, 7])
        one.learn(pictures([6, 7]), [6, 7])
    assert same_state(learner, twin)

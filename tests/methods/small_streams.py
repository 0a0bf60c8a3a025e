"""Small images whose classes can be told apart, learners on the tiny ViT, and ways to compare them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden_files import tiny_vit
from prol.learner import Learner
from prol.methods.prol.learner import PROL

PLAIN = {"augment": "none", "blocks": 3, "lr": 0.01, "lr_scaling": False}
"""PROL options that suit the tiny ViT and make a step a function of its chunk alone."""


def pictures(kinds: Sequence[int], seed: int = 0) -> NDArray[np.uint8]:
    """One 16 x 16 image for each kind: a pattern of the kind's own under some noise."""
    random = np.random.default_rng([seed, *kinds])
    patterns = {kind: np.random.default_rng([99, kind]).integers(0, 256, (4, 4, 3)) for kind in set(kinds)}
    clean = np.stack([patterns[kind].repeat(4, axis=0).repeat(4, axis=1) for kind in kinds])
    return np.clip(clean + random.integers(-20, 21, clean.shape), 0, 255).astype(np.uint8)


def make_prol(dtype: torch.dtype = torch.float64, seed: int = 0, **options: Any) -> PROL:
    return PROL(tiny_vit(dtype), PROL.read_options({**PLAIN, **options}), seed)


def after_two_tasks(steps: int = 3, **options: Any) -> PROL:
    """Classes 0 to 3 learnt in the first task, 4 to 7 in the second, both announced."""
    learner = make_prol(**options)
    for classes in ([0, 1, 2, 3], [4, 5, 6, 7]):
        learner.boundary(classes)
        for step in range(steps):
            learner.learn(pictures(classes, seed=step), classes)
    return learner


def tensors(learner: Learner) -> dict[str, Tensor]:
    return learner.state()[0]


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    """Names of tensors that are not equal to the bit; optimiser and random state left out."""
    names = {name for name in before.keys() | after.keys() if not name.startswith(("adam/", "random"))}
    return {name for name in names if not torch.equal(before[name], after[name])}


def changed_rows(before: Tensor, after: Tensor) -> set[int]:
    moved = (before != after[: len(before)]).flatten(1).any(1)
    return set(moved.nonzero().flatten().tolist())


def same_state(a: Learner, b: Learner) -> bool:
    (mine, meta), (others, other_meta) = a.state(), b.state()
    return meta == other_meta and mine.keys() == others.keys() and all(torch.equal(mine[n], others[n]) for n in mine)

"""What checks share: a small synthetic stream of odd sizes and two tasks, a learner to teach, and how they fail."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prol.classes import Label
from prol.learner import Learner, SavedState

HEIGHT, WIDTH = 17, 19
CHUNK = 7
TASKS: tuple[tuple[str, ...], ...] = (("ant", "bee", "cat"), ("dog", "eel"))


@dataclass(frozen=True)
class Step:
    """One chunk; `announced` are the classes of the task that begins with it, if one does."""

    images: NDArray[np.uint8]
    labels: tuple[str, ...]
    announced: tuple[str, ...] = ()


def make_images(count: int, seed: int) -> NDArray[np.uint8]:
    """Noise, uint8 `[count, HEIGHT, WIDTH, 3]`."""
    return np.random.default_rng(seed).integers(0, 256, (count, HEIGHT, WIDTH, 3), dtype=np.uint8)


def make_chunk(classes: Sequence[str], seed: int, announced: tuple[str, ...] = ()) -> Step:
    return Step(make_images(CHUNK, seed), tuple(classes[i % len(classes)] for i in range(CHUNK)), announced)


STREAM: tuple[Step, ...] = (
    make_chunk(TASKS[0], 1, announced=TASKS[0]),
    make_chunk(TASKS[0], 2),
    make_chunk(TASKS[1], 3, announced=TASKS[1]),
    make_chunk(TASKS[1], 4),
)


def teach(learner: Learner, steps: Sequence[Step] = STREAM, announced: bool = True) -> Learner:
    """Teaches the steps, with boundaries and announced classes or with neither."""
    for step in steps:
        if announced and step.announced:
            learner.boundary(step.announced)
        learner.learn(step.images.copy(), list[Label](step.labels))
    return learner


def difference(one: SavedState, other: SavedState) -> str:
    """The first place where two states are not equal bit for bit; empty when there is none."""
    (tensors, meta), (other_tensors, other_meta) = one, other
    if tensors.keys() != other_tensors.keys():
        return f"the tensors {sorted(tensors.keys() ^ other_tensors.keys())} are in one state only"
    for name in tensors:
        if not same_bits(tensors[name], other_tensors[name]):
            return f"the tensor {name!r} differs"
    if json.dumps(meta, sort_keys=True) != json.dumps(other_meta, sort_keys=True):
        return f"the JSON part differs: {meta} and {other_meta}"
    return ""


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equality that counts NaN as equal to itself, and 0.0 and -0.0 as two."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(*(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for t in (one, other)))


def count_values(value: Any) -> int:
    """How many numbers, texts and the like a JSON value holds."""
    if isinstance(value, dict):
        return sum(count_values(part) for part in value.values())
    if isinstance(value, list | tuple):
        return sum(count_values(part) for part in value)
    return 1


@contextmanager
def global_randomness(seed: int) -> Iterator[None]:
    """Seeds the process-wide generators, and puts them back afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


@dataclass(frozen=True)
class Subject:
    """The learner to check: `fresh` makes one that has learnt nothing; `modes` says with and without announcements."""

    fresh: Callable[[], Learner]
    modes: tuple[bool, ...]


def require(holds: bool, seen: str) -> None:
    # Not an assert statement: checks must also check under python -O.
    if not holds:
        raise AssertionError(seen)


def require_refusal(what: str, verb: Callable[..., Any], *given: Any) -> None:
    try:
        verb(*given)
    except ValueError:
        return
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}; expected a ValueError") from error
    raise AssertionError(f"{what} were accepted; expected a ValueError")

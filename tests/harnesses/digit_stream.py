"""One small stream of digits and its evaluation by prol, with which other harnesses are compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

import prol
from prol.backbones import Backbone, open_backbone
from prol.data import Dataset, Split, Subset
from prol.data.builtin import digits
from prol.data.streams import disjoint
from prol.evaluation import Finished, Measures, Result, run_stream

CHUNK, CLASSES, TASKS = 10, 10, 5
METHODS: dict[str, dict[str, Any]] = {"ncm": {}, "slda": {"shrinkage": 0.1}, "prol_plus": {"budget_mb": 16}}
# 200 train images in 20 chunks; test sets of different sizes, so that a mean over tasks is not one over images.
DATA: Dataset = replace(digits().limited(20), test=Subset(digits().test, np.arange(120)))
# The first task has no class 0: harnesses predict it before anything was learnt, and prol nothing.
STREAM = disjoint(DATA.train.labels, tasks=TASKS, chunk=CHUNK, seed=1, class_order="shuffled", announce=False)


@cache
def network() -> Backbone:
    return open_backbone("tiny", device="cpu")


def create(method: str) -> prol.Learner:
    return prol.create(method, network(), seed=1, **METHODS[method])


@dataclass(frozen=True)
class Task:
    """Training and test images of a task as tensors, images `[N, 3, 8, 8]` as `ToTensor` gives them."""

    train: TensorDataset
    test: TensorDataset


def tasks() -> list[Task]:
    """The stream as other harnesses take it: the same images in the same order."""
    ordered = [
        np.concatenate([chunk.indices for chunk in STREAM.chunks if chunk.task == task]) for task in range(TASKS)
    ]
    tested = [np.flatnonzero(np.isin(DATA.test.labels, classes)) for classes in STREAM.task_classes]
    return [
        Task(tensors(DATA.train, train), tensors(DATA.test, test)) for train, test in zip(ordered, tested, strict=True)
    ]


def tensors(split: Split, indices: NDArray[np.int64]) -> TensorDataset:
    images = torch.from_numpy(np.stack(split.load(indices).images)).movedim(-1, 1).contiguous()
    data = TensorDataset(images.float() / 255, torch.from_numpy(split.labels[indices]))
    data.targets = data.tensors[1].tolist()  # where torchvision's data sets have their labels
    return data


@cache
def evaluated(method: str, points: int = 0) -> tuple[Result, prol.Learner]:
    """The result of prol's own loop, and the learner at its end."""
    learner = create(method)
    measures = Measures(points=points, prequential=True)
    *_, last = run_stream(learner, DATA, STREAM, measures=measures)
    assert isinstance(last, Finished)
    return last.result, learner


def same_state(one: prol.Learner, other: prol.Learner) -> bool:
    """Whether two learners store the same bits; one may name classes by number, the other by text."""
    (mine, said), (theirs, heard) = one.state(), other.state()
    same_tensors = mine.keys() == theirs.keys() and all(_same(mine[name], theirs[name]) for name in mine)
    same_names = [str(name) for name in said["classes"]] == [str(name) for name in heard["classes"]]
    return same_tensors and same_names and said["method"] == heard["method"]


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other)

"""All protocols, and labels with options for each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from prol.data.streams import Stream, blurry, disjoint, gradual, iblurry, imbalanced, siblurry

Case = tuple[list[int], dict[str, Any]]

PROTOCOLS: dict[str, Callable[..., Stream]] = {
    "disjoint": disjoint,
    "blurry": blurry,
    "iblurry": iblurry,
    "siblurry": siblurry,
    "gradual": gradual,
    "imbalanced": imbalanced,
}

PERCENT = st.one_of(st.integers(0, 100), st.floats(0, 100))
OWN_OPTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "disjoint": {"drop_surplus": st.just(False)},
    "blurry": {"minor": PERCENT},
    "iblurry": {"disjoint": PERCENT, "minor": PERCENT},
    "siblurry": {"disjoint": PERCENT, "minor": PERCENT},
    "gradual": {"shape": st.sampled_from(["linear", "sigmoid"]), "width": st.floats(0, 1)},
    "imbalanced": {"ratio": st.floats(1, 1e6), "ranks": st.sampled_from(["shuffled", "label"])},
}


@st.composite
def cases(draw: st.DrawFn, name: str, least_tasks: int = 1) -> Case:
    """Labels of any numbers in any order, and options that fit them."""
    labels = draw(st.lists(st.integers(-5, 30), min_size=1, max_size=120).filter(lambda y: len(set(y)) >= least_tasks))
    shared = {
        "tasks": draw(st.integers(least_tasks, len(set(labels)))),
        "chunk": draw(st.integers(1, 20)),
        "seed": draw(st.integers(0, 2**40)),
        "class_order": draw(st.sampled_from(["label", "shuffled"])),
    }
    return labels, shared | {option: draw(values) for option, values in OWN_OPTIONS[name].items()}


def order(stream: Stream) -> list[int]:
    """The samples in the order of time."""
    return [int(i) for chunk in stream.chunks for i in chunk.indices]


def samples_of_task(stream: Stream, task: int) -> list[int]:
    return [int(i) for chunk in stream.chunks if chunk.task == task for i in chunk.indices]


def class_counts(stream: Stream, labels: list[int]) -> list[Counter[int]]:
    """How many samples of each class each task has."""
    return [Counter(labels[i] for i in samples_of_task(stream, task)) for task in range(len(stream.task_classes))]


def own_task(stream: Stream) -> dict[int, int]:
    """The task that each class belongs to."""
    return {number: task for task, group in enumerate(stream.task_classes) for number in group}


def nearest(number: float) -> int:
    """To the nearest whole number, halves up."""
    return int(number + 0.5)

"""Labels are text or whole numbers, and 1 is not "1"."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import prol
from prol.backbones import ViT
from prol.classes import read_labels, require_distinct


@pytest.mark.parametrize(
    ("handed_over", "expected"),
    [
        ([3, 1, 3], [3, 1, 3]),
        ((3, 1), [3, 1]),
        (["cat", "dog"], ["cat", "dog"]),
        ([1, "1", "one", -5], [1, "1", "one", -5]),
        (range(3), [0, 1, 2]),
        (np.array([3, 1]), [3, 1]),
        (np.array([3, 1], dtype=np.uint8), [3, 1]),
        (np.array(["b", "a"]), ["b", "a"]),
        (np.array([1, "1"], dtype=object), [1, "1"]),
        (torch.tensor([3, 1]), [3, 1]),
        (torch.tensor([3, 1], dtype=torch.int8), [3, 1]),
        ([np.int32(4), np.str_("x"), torch.tensor(9)], [4, "x", 9]),
        ([], []),
        (np.array([], dtype=np.int64), []),
        ([2**70], [2**70]),
    ],
)
def test_lists_arrays_and_tensors_are_read_as_plain_labels(handed_over: Any, expected: list[Any]) -> None:
    read = read_labels(handed_over)
    assert read == expected
    assert [type(label) for label in read] == [type(label) for label in expected]


@pytest.mark.parametrize(
    "handed_over",
    [
        [1.0],
        [0.5],
        [True],
        [None],
        [float("nan")],
        [["a"]],
        [b"a"],
        b"ab",
        np.array([1.0, 2.0]),
        np.array([True]),
        np.array([[1], [2]]),
        np.array(3),
        torch.tensor([1.0]),
        torch.tensor([True]),
        torch.tensor([[1]]),
        torch.tensor(1),
        3,
        None,
        "cat",
        {"cat": 1, "dog": 2},
        {"cat", "dog"},
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, set) else str(value),
)
def test_anything_else_is_refused_in_one_line(handed_over: Any) -> None:
    with pytest.raises(ValueError, match="label") as refusal:
        read_labels(handed_over)
    assert "\n" not in str(refusal.value)


def test_a_single_text_is_refused_with_what_to_pass() -> None:
    with pytest.raises(ValueError, match=r"pass \['cat'\]"):
        read_labels("cat")


def test_reading_does_not_alias_a_list() -> None:
    labels = [1, 2]
    read = read_labels(labels)
    labels.append(3)
    assert read == [1, 2]


def test_announced_classes_must_differ_but_1_and_its_text_do() -> None:
    require_distinct([1, "1", "b"])
    with pytest.raises(ValueError, match="'b' is announced twice"):
        require_distinct(["b", 1, "b"])


def test_text_that_no_file_can_store_is_refused_before_anything_is_learnt(tiny: ViT) -> None:
    learner = prol.create("ncm", tiny)
    images = np.zeros((2, 8, 8, 3), dtype=np.uint8)
    learner.learn(images, ["🐈", "Käthe"])
    for act in (
        lambda: learner.learn(images, ["dog", "\ud83d"]),
        lambda: learner.rename_class("Käthe", "\udc00K"),
        lambda: learner.boundary(["dog", "a\udfffb"]),
    ):
        with pytest.raises(ValueError, match=r"the label '.*\\ud.*' holds a lone surrogate"):
            act()
    assert learner.classes == ["🐈", "Käthe"]

"""Classes renamed, merged and removed: for every method, and for what it may keep besides."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

import prol
from golden_files import tiny_vit
from methods.every_method import METHODS, PROL, TASKS, VARIANTS, cases, make, taught, teach
from methods.small_streams import pictures, same_state
from prol import registry
from prol.learner import Learner, Removal
from prol.testing.stream import difference

ALL = [*TASKS[0], *TASKS[1]]
TEST = pictures(ALL, seed=40)
BY_THEMSELVES = ["ncm", "head_only", "l2p", "dualprompt", "coda_prompt", "convprompt", "finetune", "convprompt, auto"]
"""Whose score of a class does not depend on which others there are."""
REMOVABLE = [variant for variant in VARIANTS if variant != "prol, released"]
FAST = [
    "ncm",
    "slda",
    "ranpac",
    "foal",
    "lr_rgda",
    "knn",
    "prol_plus",
    "prol",
    "head_only",
    "l2p",
    "convprompt",
    "flyprompt",
    "mos",
    "ease",
    "lae",
    "er",
]
"""At least one of each kind of state; `prol.check_learner` changes classes of every method."""


def without(scores: Tensor, *columns: int) -> Tensor:
    return scores[:, [column for column in range(scores.shape[1]) if column not in columns]]


def test_every_method_is_here() -> None:
    assert set(METHODS) == set(registry.names("methods"))


@pytest.mark.parametrize("variant", cases(REMOVABLE, FAST))
def test_a_removed_class_leaves_no_row_behind_and_learning_continues(variant: str) -> None:
    learner = taught(variant)
    removals = [learner.remove_class(name) for name in (3, 9)]
    assert learner.classes == [name for name in ALL if name not in (3, 9)]
    assert learner.row_of == {name: row for row, name in enumerate(learner.classes)}
    tensors, meta = learner.state()
    assert not [name for name, tensor in tensors.items() if len(ALL) in tensor.shape[:1]]
    json.dumps(meta)
    scores = learner.predict(TEST)
    assert scores.shape == (11, 9)
    assert not scores.isnan().any()
    for removal in removals:
        assert removal.erased[0] == "its name"
        assert all(removal.erased)
        assert "copies" in removal.remains[-1]
        fitted = [text for text in removal.remains if "calibration" in text]
        assert removal.exact == (len(removal.remains) == 1 + len(fitted))
    teach(learner, [[3, 0, 9, 8, 11]], first=7)  # the next task, with both anew
    assert learner.classes[9:] == [3, 9, 11]
    assert learner.predict(TEST).shape == (11, 12)
    assert same_state(learner, learner.clone())


@pytest.mark.parametrize("variant", cases(REMOVABLE, FAST))
def test_learning_continues_in_the_middle_of_a_task_and_from_a_saved_state_alike(variant: str) -> None:
    learner = taught(variant)
    learner.remove_class(8)  # of the current task
    learner.remove_class(0)
    twin = make(variant, seed=5)
    tensors, meta = learner.state()
    twin.load_state(tensors, json.loads(json.dumps(meta)))
    for one in (learner, twin):
        one.learn(pictures([7, 8, 1, 12], seed=3), [7, 8, 1, 12])
        one.learn(pictures([9, 12], seed=4), [9, 12])
    assert difference(learner.state(), twin.state()) == ""
    assert torch.equal(learner.predict(TEST), twin.predict(TEST))


@pytest.mark.parametrize("variant", cases(REMOVABLE, FAST))
def test_all_classes_may_go_and_others_come(variant: str) -> None:
    learner = taught(variant)
    for name in ALL:
        learner.remove_class(name)
    assert learner.predict(TEST).shape == (11, 0)
    learner.learn(pictures([1, 2], seed=1), ["one", "two"])
    learner.learn(pictures([1, 2], seed=2), ["one", "two"])
    scores = learner.predict(pictures([1, 2], seed=3))
    assert scores.shape == (2, 2)
    assert bool(scores.isfinite().all())


@pytest.mark.parametrize("variant", BY_THEMSELVES)
def test_the_other_classes_scores_stay_where_each_is_scored_by_itself(variant: str) -> None:
    learner = taught(variant)
    before = learner.predict(TEST)
    learner.remove_class(8)
    learner.remove_class(2)
    torch.testing.assert_close(learner.predict(TEST), without(before, 2, 8), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "variant", ["slda", "ranpac, ridge", "ranpac, lda", "randumb", "foal", "layup", "klda", "lr_rgda", "prol_plus"]
)
def test_the_other_classes_are_predicted_as_before_where_statistics_are_shared(variant: str) -> None:
    learner = taught(variant, steps=6)
    before = learner.predict(TEST)
    learner.remove_class(8)
    learner.remove_class(2)
    others = [row for row in range(11) if row not in (2, 8)]
    predictions = learner.predict(TEST)[others].argmax(1)
    assert torch.equal(without(before, 2, 8)[others].argmax(1), predictions)


EXACT = ["ncm", "ranpac, all", "knn", "logreg"]


@pytest.mark.parametrize("variant", EXACT)
def test_an_exact_removal_equals_never_having_seen_the_class(variant: str) -> None:
    learner, never = taught(variant), taught(variant, without=(3, 9))
    assert [learner.remove_class(name).exact for name in (3, 9)] == [True, True]
    assert_equal_predictions(learner, never)


@pytest.mark.parametrize(
    "variant", ["slda", "ranpac, ridge", "ranpac, lda", "randumb, gamma", "foal", "layup", "klda, ensemble"]
)
def test_a_class_seen_once_is_removed_exactly_from_shared_statistics(variant: str) -> None:
    learner, never = taught(variant), taught(variant)
    learner.learn(pictures([12]), ["once"])
    assert not learner.clone().remove_class(3).exact
    assert learner.remove_class("once").exact
    assert_equal_predictions(learner, never)


def assert_equal_predictions(learner: Learner, other: Learner) -> None:
    """The same statistics up to rounding, and the same scores, to the name."""
    assert learner.classes == other.classes
    tensors, others = learner.state()[0], other.state()[0]
    for name in tensors:
        torch.testing.assert_close(tensors[name], others[name], rtol=1e-6, atol=1e-7, msg=name)
    torch.testing.assert_close(learner.predict(TEST), other.predict(TEST), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", cases([variant for variant in REMOVABLE if variant != "ranpac, reservoir"], FAST))
def test_merged_classes_have_one_row_and_learning_continues(variant: str) -> None:
    learner = taught(variant)
    removal = learner.merge_classes(10, 1)
    learner.merge_classes(0, 7)
    assert isinstance(removal, Removal)
    assert learner.classes == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert learner.predict(TEST).shape == (11, 9)
    counts = learner.class_counts()
    if counts is not None:
        assert counts.tolist() == [4, 2, 2, 2, 2, 2, 4, 2, 2]
    learner.learn(pictures([10, 1, 13], seed=5), [1, 7, 13])
    assert not learner.predict(TEST).isnan().any()


@pytest.mark.parametrize("variant", cases(REMOVABLE, FAST))
def test_an_exact_merge_equals_one_label_from_the_start(variant: str) -> None:
    learner, one_label = make(variant), make(variant)
    for step in range(3):
        kinds = [0, 1, 2, 3, 1]
        learner.learn(pictures(kinds, seed=step), ["a", "b", "c", "d", "b"])
        one_label.learn(pictures(kinds, seed=step), ["a", "b", "c", "b", "b"])
    if variant == "ranpac, reservoir":
        with pytest.raises(ValueError, match="memory=2 classes cannot be merged"):
            learner.merge_classes("d", "b")
        return
    if learner.merge_classes("d", "b").exact:
        assert_equal_predictions(learner, one_label)
    else:
        exact = ("ncm", "slda", "ranpac", "randumb", "foal", "layup", "klda", "knn", "logreg")
        assert variant not in (*exact, "ranpac, all", "ncm, augmented")


def test_gaussians_merged_are_those_of_all_images() -> None:
    for covariance in ("diagonal", "full"):
        # With a rate of zero features do not move, so that both see the same ones.
        learner, one_label = (prol.create("mos", tiny_vit(), covariance=covariance, lr=0.0) for _ in range(2))
        for step in range(3):
            learner.learn(pictures([0, 1, 2, 1], seed=step), ["a", "b", "c", "b"])
            one_label.learn(pictures([0, 1, 2, 1], seed=step), ["a", "b", "b", "b"])
        learner.merge_classes("c", "b")
        for name in ("gaussians/counts", "gaussians/means", "gaussians/scatter", "prototypes/sums"):
            torch.testing.assert_close(learner.state()[0][name], one_label.state()[0][name])


@pytest.mark.parametrize("variant", cases(METHODS, FAST))
def test_another_name_changes_nothing_else(variant: str) -> None:
    learner = taught(variant, tasks=[[0, 1, 2]])
    before, scores = learner.state(), learner.predict(TEST)
    learner.rename_class(1, "one")
    assert learner.classes == [0, "one", 2]
    after = learner.state()
    assert difference(before, (after[0], after[1] | {"classes": [0, 1, 2]})) == ""
    assert torch.equal(learner.predict(TEST), scores)
    learner.rename_class("one", "one")
    learner.learn(pictures([1, 1]), ["one", 1])
    assert learner.classes == [0, "one", 2, 1]


def test_what_cannot_be_done_says_why_and_changes_nothing() -> None:
    learner = taught("ncm", tasks=[[0, 1, 2]])
    before = learner.state()
    with pytest.raises(LookupError, match="no class 'owl': 3 classes are known"):
        learner.remove_class("owl")
    with pytest.raises(KeyError, match="no class '1', but there is 1"):
        learner.merge_classes("1", 2)
    with pytest.raises(ValueError, match="a class 2 already: merge 1 into it"):
        learner.rename_class(1, 2)
    with pytest.raises(ValueError, match="text or a whole number"):
        learner.rename_class(1, 0.5)
    with pytest.raises(ValueError, match="into itself"):
        learner.merge_classes(1, 1)
    assert difference(before, learner.state()) == ""


def test_scalers_that_classes_share_are_not_taken_apart() -> None:
    learner = prol.create("prol", tiny_vit(), preset="released", **PROL)
    learner.boundary([0, 1])
    learner.learn(pictures([0, 1]), [0, 1])
    with pytest.raises(ValueError, match="scalers that several classes share"):
        learner.remove_class(0)
    learner.rename_class(0, "nought")
    assert learner.classes == ["nought", 1]

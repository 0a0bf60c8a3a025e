"""Samples of classes that belong to earlier tasks, as blurry streams bring them."""

from __future__ import annotations

import pytest
import torch

from methods.small_streams import after_two_tasks, changed, changed_rows, pictures, tensors
from prol.methods.prol.learner import PROL

TERMS = ("intra", "sim", "ort", "gen")


def reported(learner: PROL, kinds: list[int], images: list[int] | None = None) -> dict[str, float]:
    """The losses of one chunk, learnt by a clone. Each kind's image is the same in whatever company."""
    chunk = [pictures([kind])[0] for kind in images or kinds]
    twin = learner.clone()
    twin.learn(chunk, kinds)
    return twin.report()


def test_samples_of_old_classes_enter_the_inter_task_loss_only() -> None:
    learner = after_two_tasks()
    mixed, current, old = (reported(learner, kinds) for kinds in ([0, 5, 2, 6, 1], [5, 6], [0, 2, 1]))
    for term in TERMS:
        assert mixed[term] == pytest.approx(current[term], rel=1e-9), term
        assert abs(current[term]) > 1e-6, term
    assert mixed["inter"] == pytest.approx((2 * current["inter"] + 3 * old["inter"]) / 5, rel=1e-9)


def test_a_chunk_of_old_classes_alone_has_an_inter_task_loss_alone() -> None:
    report = reported(after_two_tasks(), [0, 2, 1])
    assert [report[term] for term in TERMS] == [0, 0, 0, 0]
    assert report["inter"] > 0
    assert report["total"] == pytest.approx(0.03 * report["inter"])


def test_an_old_samples_prompt_is_chosen_among_all_classes_as_at_test() -> None:
    learner = after_two_tasks()
    expected = torch.nn.functional.cross_entropy(learner.predict(pictures([2])).double(), torch.tensor([2]))
    assert reported(learner, [2])["inter"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("kinds", [[0, 5], [0, 2]], ids=["mixed", "old only"])
def test_old_heads_stay_frozen(kinds: list[int]) -> None:
    learner = after_two_tasks()
    before = tensors(learner)
    learner.learn(pictures(kinds), kinds)
    after = tensors(learner)
    for name, kept in (("weight", 4), ("bias", 4), ("scale", 1), ("shift", 1)):
        assert torch.equal(before[f"head/{name}"][:kept], after[f"head/{name}"][:kept])
        assert not torch.equal(before[f"head/{name}"][kept:], after[f"head/{name}"][kept:])


@pytest.mark.parametrize("kinds", [[0, 5], [0, 2]], ids=["mixed", "old only"])
def test_thawed_old_heads_learn_from_them(kinds: list[int]) -> None:
    learner = after_two_tasks(thaw_heads=True)
    before = tensors(learner)
    learner.learn(pictures(kinds), kinds)
    after = tensors(learner)
    assert changed_rows(before["head/weight"], after["head/weight"]) == set(range(8))
    assert changed_rows(before["head/scale"], after["head/scale"]) == {0, 1}


def test_thawed_heads_bring_an_old_class_back() -> None:
    frozen, thawed = after_two_tasks(inter=1.0), after_two_tasks(inter=1.0, thaw_heads=True)
    image = pictures([0], seed=5)
    gains = []
    for learner in (frozen, thawed):
        before = learner.predict(image).softmax(1)[0, 0]
        for step in range(8):
            learner.learn(pictures([0, 0], step), [0, 0])
        gains.append((learner.predict(image).softmax(1)[0, 0] - before).item())
    assert gains[1] > gains[0]


def test_the_generator_stays_frozen_for_them() -> None:
    learner = after_two_tasks()
    before = tensors(learner)
    learner.learn(pictures([0, 1]), [0, 1])
    assert not any("generator" in name for name in changed(before, tensors(learner)))


def test_they_do_not_pull_their_own_keys() -> None:
    learner = after_two_tasks(detach_factor=True)
    learner.boundary([8, 9])
    before = tensors(learner)["source/keys"]
    learner.learn(pictures([0, 5]), [0, 5])
    assert changed_rows(before, tensors(learner)["source/keys"]) == set()


def test_they_alone_do_not_turn_a_task_soft() -> None:
    learner = after_two_tasks(threshold=1e9)
    learner.boundary([8, 9])
    learner.learn(pictures([0, 5]), [0, 5])
    assert not learner.pace.soft
    learner.learn(pictures([0, 8]), [0, 8])
    assert learner.pace.soft


def test_with_one_growing_head_old_classes_keep_learning() -> None:
    learner = after_two_tasks(head="growing")
    before = tensors(learner)
    learner.learn(pictures([4, 5]), [4, 5])
    assert changed_rows(before["head/weight"], tensors(learner)["head/weight"]) == set(range(8))
    assert tensors(learner)["head/scale"].shape == (1, 64)

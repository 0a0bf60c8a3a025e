"""Images taken out again: the state is as if they had never been learnt, where a method can; else it says why."""

from __future__ import annotations

import pytest
import torch

from methods.every_method import METHODS, make, taught
from methods.small_streams import pictures
from prol.learner import Learner
from prol.testing.stream import difference

KINDS = [0, 1, 2, 3, 0, 1, 2, 0, 1, 0, 2, 1]
IMAGES = pictures(KINDS, seed=1)
TEST = pictures([0, 1, 2, 3], seed=2)
CAN = ["ncm", "slda", "foal", "ranpac, ridge", "ranpac, lda", "randumb, gamma", "layup", "klda", "klda, ensemble"]


def learnt(variant: str, chosen: list[int], chunk: int = 4) -> Learner:
    learner = make(variant)
    learner.learn(IMAGES[:3], KINDS[:3])  # the classes come in one order, whatever is left out of the rest
    for start in range(0, len(chosen), chunk):
        part = chosen[start : start + chunk]
        learner.learn(IMAGES[part], [KINDS[i] for i in part])
    return learner


@pytest.mark.parametrize("variant", CAN)
def test_what_is_left_equals_learning_without_the_images(variant: str) -> None:
    learner, never = learnt(variant, list(range(3, 12))), learnt(variant, [5, 7, 9, 10, 11])
    gone = [8, 3, 4, 6]
    removal = learner.unlearn(IMAGES[gone], [KINDS[i] for i in gone])  # image 3 is the only one of its class
    assert learner.classes == never.classes == [0, 1, 2]
    tensors, others = learner.state()[0], never.state()[0]
    for name in tensors:
        torch.testing.assert_close(tensors[name], others[name], rtol=1e-8, atol=1e-8, msg=name)
    torch.testing.assert_close(learner.predict(TEST), never.predict(TEST), rtol=1e-5, atol=1e-5)
    assert removal.exact
    assert "4 images" in removal.erased[0]
    learner.learn(IMAGES[gone], [KINDS[i] for i in gone])
    assert learner.classes == [0, 1, 2, 3]


def test_everything_learnt_can_be_unlearnt() -> None:
    for variant in CAN:
        learner = learnt(variant, [])
        learner.unlearn(IMAGES[:3], KINDS[:3])
        assert learner.classes == []
        learner.learn(IMAGES[:3], KINDS[:3])
        torch.testing.assert_close(learner.predict(TEST), learnt(variant, []).predict(TEST), rtol=1e-5, atol=1e-5)


def test_what_was_chosen_on_the_images_is_named() -> None:
    learner = make("randumb")
    learner.learn(IMAGES, KINDS)
    removal = learner.unlearn(IMAGES[:2], KINDS[:2])
    assert not removal.exact
    assert "gamma was chosen on the first chunk" in removal.remains[0]


def test_prol_plus_names_its_scale_and_leaves_the_rest() -> None:
    """The first chunk is the same, so that the scale is."""
    learner, never = (learnt("prol_plus, untuned", chosen) for chosen in (list(range(3, 12)), [5, 7, 9, 10, 11]))
    gone = [8, 3, 4, 6]
    removal = learner.unlearn(IMAGES[gone], [KINDS[i] for i in gone])
    assert not removal.exact
    assert removal.remains[0] == "the scale of the features was taken from the first chunk"
    assert learner.classes == never.classes == [0, 1, 2]
    others = never.state()[0]
    for name, tensor in learner.state()[0].items():
        torch.testing.assert_close(tensor, others[name], rtol=1e-5, atol=1e-5, msg=name)
    torch.testing.assert_close(learner.predict(TEST), never.predict(TEST), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("variant", [*(name for name in METHODS if name not in (*CAN, "randumb")), "ranpac, none"])
def test_methods_that_cannot_say_why_and_change_nothing(variant: str) -> None:
    learner = taught(variant, tasks=[[0, 1, 2]])
    before = learner.state()
    with pytest.raises(
        ValueError, match=r"cannot unlearn images|can unlearn images once|every fifth image is held out|memory=none"
    ):
        learner.unlearn(pictures([0], seed=0), [0])
    assert difference(before, learner.state()) == ""


def test_images_learnt_through_random_crops_cannot_be_unlearnt() -> None:
    learner = taught("ncm, augmented", tasks=[[0, 1]])
    with pytest.raises(ValueError, match="augment=crop_flip"):
        learner.unlearn(pictures([0]), [0])


@pytest.mark.parametrize("variant", CAN)
def test_more_than_was_learnt_is_refused_and_changes_nothing(variant: str) -> None:
    learner = learnt(variant, [3, 4, 5])
    before = learner.state()
    with pytest.raises(ValueError, match="1 images of 3 were learnt, but 2"):
        learner.unlearn(IMAGES[[3, 3]], [3, 3])
    with pytest.raises(LookupError, match="no class 'owl'"):
        learner.unlearn(IMAGES[[3]], ["owl"])
    with pytest.raises(ValueError, match="2 images but 1 labels"):
        learner.unlearn(IMAGES[:2], [0])
    assert difference(before, learner.state()) == ""

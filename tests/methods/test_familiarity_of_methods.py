"""Every method's familiarity: what it promises, and that images of other kinds are less familiar."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import prol
from methods.small_streams import pictures, same_state
from prol.backbones import ViT, evaluation_input
from prol.learner import Learner

TELLING: dict[str, tuple[str, dict[str, Any]]] = {
    "ncm": ("ncm", {}),
    "ncm, euclidean": ("ncm", {"distance": "euclidean"}),
    "slda": ("slda", {}),
    "ranpac": ("ranpac", {"features": 40}),
    "ranpac without random features": ("ranpac", {"features": None, "ridge": 1.0}),
    "ranpac that keeps some": ("ranpac", {"features": 40, "memory": 3}),
    "ranpac that keeps all": ("ranpac", {"features": 40, "memory": "all"}),
    "ranpac of one task": ("ranpac", {"features": 40, "memory": "none"}),
    "randumb": ("randumb", {"features": 40}),
    "foal": ("foal", {"features": 40}),
    "layup": ("layup", {}),
    "klda": ("klda", {"features": 40, "gamma": 0.05}),
    "lr_rgda": ("lr_rgda", {}),
    "knn": ("knn", {}),
    "prol": ("prol", {"blocks": 3}),
    "prol_plus": ("prol_plus", {"budget_mb": 1, "blocks": 1, "features": 20}),
    "l2p": ("l2p", {"pool": 6, "picks": 2, "test_selection": "batch_vote"}),
    "dualprompt": ("dualprompt", {"g_blocks": 1, "e_blocks": 2}),
    "mos": ("mos", {}),
    "ease": ("ease", {}),
}
SILENT: dict[str, dict[str, Any]] = {
    "logreg": {},
    "head_only": {},
    "finetune": {},
    "lae": {"blocks": 2},
    "coda_prompt": {"blocks": 2},
    "convprompt": {"blocks": 2},
    "flyprompt": {"blocks": 2, "features": 20},
    "prol": {"blocks": 3, "keys": False, "scalers": False},
}
CLASSES = [0, 1, 2, 3]
EVERY = pytest.mark.parametrize("case", TELLING)


def make(vit: ViT, case: str) -> Learner:
    method, options = TELLING[case]
    return prol.create(method, vit, **options)


def taught(vit: ViT, case: str, steps: int = 4) -> Learner:
    learner = make(vit, case)
    for step in range(steps):
        learner.learn(pictures(CLASSES * 2, seed=step), CLASSES * 2)
    return learner


def told(learner: Learner, images: Any) -> torch.Tensor:
    found = learner.familiarity(images)
    assert found is not None
    return found


@EVERY
def test_it_is_float32_one_an_image_and_known_only_after_learning(tiny: ViT, case: str) -> None:
    learner = make(tiny, case)
    assert learner.familiarity(pictures([0, 1])) is None
    learner.learn(pictures(CLASSES), CLASSES)
    found = told(learner, pictures([0, 1, 2]))
    assert found.shape == (3,)
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert not found.requires_grad
    assert told(learner, []).shape == (0,)


@EVERY
def test_predicting_changes_nothing(tiny: ViT, case: str) -> None:
    learner, silent = taught(tiny, case), taught(tiny, case)
    first = told(learner, pictures(CLASSES, seed=8))
    told(learner, pictures([7, 8, 9]))
    assert torch.equal(told(learner, pictures(CLASSES, seed=8)), first)
    assert same_state(learner, silent)
    for one in (learner, silent):
        one.learn(pictures([0, 4, 5, 1]), [0, 4, 5, 1])
    assert same_state(learner, silent)


@EVERY
def test_it_does_not_depend_on_the_batch(tiny: ViT, case: str) -> None:
    learner, images = taught(tiny, case), pictures([0, 7, 1, 8, 2, 9, 3], seed=8)
    whole = told(learner, images)
    alone = torch.cat([told(learner, images[i : i + 1]) for i in range(len(images))])
    torch.testing.assert_close(alone, whole, rtol=1e-4, atol=1e-4)
    learner.predict_batch = 3
    torch.testing.assert_close(told(learner, images), whole, rtol=1e-4, atol=1e-4)


@EVERY
def test_scores_and_familiarity_in_one_pass_are_those_of_two_calls(tiny: ViT, case: str) -> None:
    learner, images = taught(tiny, case), pictures([0, 7, 1, 8], seed=8)
    scores, familiarity = learner.predict_with_familiarity(images)
    torch.testing.assert_close(scores, learner.predict(images), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(familiarity, told(learner, images), rtol=1e-4, atol=1e-4)


@EVERY
def test_it_follows_what_is_learnt_and_a_loaded_state(tiny: ViT, case: str) -> None:
    learner, images = taught(tiny, case), pictures([0, 7, 1, 8], seed=8)
    before, state = told(learner, images), learner.state()
    learner.learn(pictures([7, 8] * 4, seed=1), [7, 8] * 4)
    after = told(learner, images)
    torch.testing.assert_close(told(learner.clone(), images), after)
    learner.load_state(*state)
    torch.testing.assert_close(told(learner, images), before)
    if case not in ("l2p", "dualprompt", "foal"):  # keys that hardly move in one step; scores that classes share
        assert after[1] > before[1]


OF_FEATURES = [
    "ncm",
    "slda",
    "ranpac",
    "randumb",
    "foal",
    "layup",
    "klda",
    "lr_rgda",
    "knn",
    "prol_plus",
    "mos",
    "ease",
]


@pytest.mark.parametrize("case", OF_FEATURES)
def test_other_kinds_are_less_familiar(tiny: ViT, case: str) -> None:
    learner = taught(tiny, case, steps=8)
    known = told(learner, pictures(CLASSES * 10, seed=20))
    others = told(learner, pictures([10, 11, 12, 13, 14, 15, 16, 17] * 5, seed=21))
    assert (known.unsqueeze(1) > others).double().mean() > 0.8


@pytest.mark.parametrize("method", SILENT)
def test_a_method_that_cannot_tell_says_so(tiny: ViT, method: str) -> None:
    learner = prol.create(method, tiny, **SILENT[method])
    learner.learn(pictures(CLASSES), CLASSES)
    assert learner.familiarity(pictures([0, 1])) is None
    scores, familiarity = learner.predict_with_familiarity(pictures([0, 1]))
    assert familiarity is None
    torch.testing.assert_close(scores, learner.predict(pictures([0, 1])), rtol=1e-4, atol=1e-4)


def test_before_anything_is_learnt_both_are_empty(tiny: ViT) -> None:
    scores, familiarity = prol.create("ncm", tiny).predict_with_familiarity(pictures([0, 1]))
    assert scores.shape == (2, 0)
    assert familiarity is None


@pytest.mark.parametrize("case", OF_FEATURES)
def test_announced_classes_alone_are_nothing_to_be_like(tiny: ViT, case: str) -> None:
    learner = make(tiny, case)
    learner.boundary(CLASSES)
    assert learner.familiarity(pictures([0])) is None


def test_prol_tells_by_the_nearest_key(tiny: ViT) -> None:
    learner, images = taught(tiny, "prol"), pictures([0, 9], seed=3)
    how = evaluation_input(tiny.read(images), learner.preprocessing, tiny.device, tiny.dtype)
    keys = learner.state()[0]["source/keys"]
    expected = F.cosine_similarity(tiny.features(how)[:, None], keys[None], dim=-1).amax(1)
    torch.testing.assert_close(told(learner, images), expected.float())

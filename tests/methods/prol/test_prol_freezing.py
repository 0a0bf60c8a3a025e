"""What moves in a step of PROL, what is frozen, and within which bounds."""

from __future__ import annotations

import pytest
import torch

from methods.small_streams import after_two_tasks, changed, changed_rows, make_prol, pictures, same_state, tensors
from prol.backbones import evaluation_input
from prol.methods.prol.learner import PROL

GENERATOR = {"source/generator.weight", "source/generator.bias"}


def nearest(learner: PROL, kinds: list[int], first: int) -> set[int]:
    """Rows whose key is nearest to each image's query, among the classes of the task that begins at `first`."""
    inputs = evaluation_input(
        learner.backbone.read(pictures(kinds)), learner.preprocessing, torch.device("cpu"), torch.float64
    )
    cosine = torch.nn.functional.cosine_similarity(
        learner.backbone.features(inputs)[:, None], tensors(learner)["source/keys"][None, first:], dim=-1
    )
    return {first + row for row in cosine.argmax(1).tolist()}


def test_in_the_first_task_everything_of_the_method_and_the_norms_moves() -> None:
    learner = make_prol()
    learner.boundary([0, 1])
    before = tensors(learner)
    for step in range(2):
        learner.learn(pictures([0, 1], step), [0, 1])
    assert changed(before, tensors(learner)) == {name for name in before if not name.startswith(("adam/", "random"))}
    assert sum(name.startswith("norm/") for name in before) == 18


def test_the_generator_is_frozen_after_the_first_task() -> None:
    learner = make_prol()
    for number, classes in enumerate(([0, 1], [2, 3], [4, 5])):
        learner.boundary(classes)
        before = tensors(learner)
        learner.learn(pictures(classes), classes)
        moved = changed(before, tensors(learner))
        assert (moved & GENERATOR == GENERATOR) == (number == 0)
        assert (moved & GENERATOR == set()) == (number > 0)


def test_old_heads_are_frozen() -> None:
    learner = after_two_tasks()
    before = tensors(learner)
    learner.learn(pictures([4, 5, 6, 7]), [4, 5, 6, 7])
    after = tensors(learner)
    for name in ("weight", "bias"):
        assert changed_rows(before[f"head/{name}"][:, None], after[f"head/{name}"][:, None]) == {4, 5, 6, 7}
    for name in ("scale", "shift"):
        assert changed_rows(before[f"head/{name}"], after[f"head/{name}"]) == {1}


def test_the_query_network_never_changes() -> None:
    learner = make_prol()
    weights = {name: p.clone() for name, p in learner.backbone.model.named_parameters()}
    for classes in ([0, 1], [2, 3]):
        learner.boundary(classes)
        learner.learn(pictures(classes), classes)
    assert all(torch.equal(p, weights[name]) for name, p in learner.backbone.model.named_parameters())


def test_with_frozen_norms_none_is_trained_or_stored() -> None:
    learner = make_prol(tune_norms=False)
    weights = {name: p.clone() for name, p in learner.working.model.named_parameters()}
    learner.learn(pictures([0, 1]), [0, 1])
    assert not any(name.startswith("norm/") for name in tensors(learner))
    assert all(torch.equal(p, weights[name]) for name, p in learner.working.model.named_parameters())


def test_only_keys_of_labels_and_of_nearest_classes_move_in_the_first_task() -> None:
    learner = make_prol()
    learner.boundary(list(range(12)))
    before, kinds = tensors(learner), [0, 1, 5]
    played = nearest(learner, kinds, 0)
    learner.learn(pictures(kinds), kinds)
    after = tensors(learner)
    assert changed_rows(before["source/keys"], after["source/keys"]) == played | set(kinds)
    assert changed_rows(before["source/scaler"], after["source/scaler"]) == played
    assert changed_rows(before["source/shifter"], after["source/shifter"]) == played


def test_in_later_tasks_the_nearest_old_keys_move_with_them() -> None:
    learner = after_two_tasks()
    learner.boundary([8, 9, 10, 11])
    before, kinds = tensors(learner), [8, 9]
    own = nearest(learner, kinds, 8)
    keys = before["source/keys"]
    inputs = evaluation_input(learner.backbone.read(pictures(kinds)), learner.preprocessing, keys.device, keys.dtype)
    query = learner.backbone.features(inputs)
    old = torch.nn.functional.cosine_similarity(query[:, None], keys[None, :8], dim=-1).argmax(1)
    learner.learn(pictures(kinds), kinds)
    after = tensors(learner)
    assert changed_rows(keys, after["source/keys"]) == own | set(kinds) | set(old.tolist())
    assert changed_rows(before["source/scaler"], after["source/scaler"]) == own


def test_rows_once_in_play_move_on_by_momentum_until_the_next_task() -> None:
    learner = make_prol(prompt_selection="label")
    learner.boundary([0, 1, 2, 3])
    learner.learn(pictures([0, 1]), [0, 1])
    before = tensors(learner)["source/keys"]
    learner.learn(pictures([2]), [2])
    assert changed_rows(before, tensors(learner)["source/keys"]) == {0, 1, 2}
    learner.boundary([4, 5])
    before = tensors(learner)["source/keys"]
    learner.learn(pictures([4, 4]), [4, 4])
    moved = changed_rows(before, tensors(learner)["source/keys"])
    assert 4 in moved
    assert len(moved - {4}) <= 2, "only the nearest old keys may move besides"


@pytest.mark.parametrize(("eps_a", "eps_b"), [(0.001, 0.0001), (0.05, 0.5), (0.0, 0.0)])
def test_scalers_and_shifters_stay_within_their_bounds_after_every_step(eps_a: float, eps_b: float) -> None:
    learner = make_prol(eps_a=eps_a, eps_b=eps_b, lr=0.1)
    for task in range(3):
        classes = list(range(3 * task, 3 * task + 3))
        learner.boundary(classes)
        for step in range(4):
            learner.learn(pictures(classes, step), classes)
            scaler, shifter = tensors(learner)["source/scaler"], tensors(learner)["source/shifter"]
            assert (scaler - 1).abs().max() <= eps_a + 1e-12
            assert shifter.abs().max() <= eps_b + 1e-12
            assert torch.equal(scaler[..., 0], torch.ones_like(scaler[..., 0]))
            assert torch.equal(shifter[..., 0], torch.zeros_like(shifter[..., 0]))
    if eps_a:
        assert (scaler - 1).abs().max() > 0.9 * min(eps_a, 0.1)
        assert shifter.abs().max() > 0.9 * min(eps_b, 0.1)


# A loss that is not finite


@pytest.mark.parametrize(
    ("labels", "steps"), [([0, 1], 50), ([0, 2], 50), ([0, 2], 1)], ids=["known classes", "a new class", "a new task"]
)
@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_a_loss_that_is_not_finite_is_refused_and_changes_nothing(labels: list[int], steps: int, augment: str) -> None:
    learner = make_prol(lr=1e200, tune_norms=False, augment=augment, task_min_steps=steps)
    learner.learn(pictures([0, 1]), [0, 1])
    twin = learner.clone()
    with pytest.raises(ValueError, match=r"not finite.*lr") as refusal:
        learner.learn(pictures(labels, seed=1), labels)
    assert "\n" not in str(refusal.value)
    assert learner.classes == [0, 1]
    assert same_state(learner, twin)

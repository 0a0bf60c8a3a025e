"""Each weight, switch and dial of PROL has its effect, and no other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from methods.small_streams import after_two_tasks, changed, changed_rows, make_prol, pictures, tensors
from prol.methods.prol.learner import PROL
from prol.methods.prol.options import ABLATIONS

CURRENT = [4, 5, 6, 7]


def step(learner: PROL, seed: int = 50) -> dict[str, float]:
    """One more step on the second task's classes."""
    learner.learn(pictures(CURRENT, seed), CURRENT)
    return learner.report()


def at_second_task(**options: Any) -> PROL:
    """One step in the first task, and the second one announced."""
    learner = make_prol(**options)
    learner.boundary([0, 1, 2, 3])
    learner.learn(pictures([0, 1, 2, 3]), [0, 1, 2, 3])
    learner.boundary(CURRENT)
    return learner


def differing(**options: Any) -> set[str]:
    """Which learnt tensors differ, by an option, after the same one step in the second task from the same state."""
    plain, other = at_second_task(), at_second_task(**options)
    other.load_state(*plain.state())
    step(plain)
    step(other)
    return changed(tensors(plain), tensors(other))


# The five losses


def test_the_total_is_the_weighted_sum_of_the_five_terms() -> None:
    weights = {"intra": 0.7, "inter": 0.2, "sim": 1.5, "ort": 2.5, "gen": 0.4}
    r = step(after_two_tasks(**weights))
    assert all(abs(r[name]) > 1e-6 for name in weights)
    expected = 0.7 * r["intra"] + 0.2 * r["inter"] - 1.5 * r["sim"] + 2.5 * r["ort"] + 0.4 * r["gen"]
    assert r["total"] == pytest.approx(expected, rel=1e-9)
    assert r["ce"] == pytest.approx(0.7 * r["intra"] + 0.2 * r["inter"], rel=1e-9)


def test_orthogonality_begins_with_the_second_task() -> None:
    learner = make_prol()
    learner.boundary([0, 1, 2, 3])
    learner.learn(pictures([0, 1, 2, 3]), [0, 1, 2, 3])
    assert learner.report()["ort"] == 0
    learner.boundary(CURRENT)
    assert step(learner)["ort"] != 0


def test_the_inter_task_loss_is_that_over_all_classes_and_intra_over_the_tasks_own() -> None:
    learner = at_second_task(similarity_factor="one", scalers=False)
    logits = learner.predict(pictures(CURRENT, 50)).double()
    r = step(learner)
    rows = torch.tensor(CURRENT)
    assert r["inter"] == pytest.approx(torch.nn.functional.cross_entropy(logits, rows).item(), rel=1e-5)
    assert r["intra"] == pytest.approx(torch.nn.functional.cross_entropy(logits[:, 4:], rows - 4).item(), rel=1e-5)


def test_the_similarity_loss_moves_keys_towards_their_samples() -> None:
    near, far = after_two_tasks(steps=8, sim=1.0), after_two_tasks(steps=8, sim=0.0)
    assert near.report()["sim"] > far.report()["sim"] + 0.05


@pytest.mark.parametrize("weight", ["intra", "inter", "sim", "ort", "gen"])
def test_each_loss_weight_changes_what_is_learnt(weight: str) -> None:
    assert differing(**{weight: 0.0 if weight != "inter" else 1.0})


def test_similarity_and_orthogonality_reach_keys_only() -> None:
    assert differing(sim=0.0) == {"source/keys"}
    assert differing(ort=0.0) == {"source/keys"}


def test_without_the_generalisation_loss_it_is_reported_as_zero() -> None:
    assert step(at_second_task(gen=0.0))["gen"] == 0


def test_the_generalisation_loss_has_a_raw_and_a_diagonal_variant() -> None:
    both, diagonal, raw = (
        step(at_second_task(**o))["gen"] for o in ({}, {"gen_off_diagonal": False}, {"gen_raw": True})
    )
    assert 0 < both - diagonal < 1e-3
    assert abs(raw - both) > 1e-2


def test_raw_orthogonality_is_a_plain_dot_product() -> None:
    plain, raw = at_second_task(), at_second_task(ort_raw=True)
    raw.load_state(*plain.state())
    assert abs(step(raw)["ort"]) > 5 * abs(step(plain)["ort"])


@pytest.mark.parametrize(
    ("options", "old_keys_move"), [({}, True), ({"ort_detach_old": True}, False), ({"ort": 0.0}, False)]
)
def test_old_keys_move_by_orthogonality_unless_detached(options: dict[str, Any], old_keys_move: bool) -> None:
    learner = at_second_task(**options)
    before = tensors(learner)["source/keys"]
    step(learner)
    moved = changed_rows(before, tensors(learner)["source/keys"])
    assert {4, 5, 6, 7} <= moved
    assert bool(moved & {0, 1, 2, 3}) == old_keys_move


# Rates


def test_the_rate_is_scaled_by_the_configured_chunk_and_not_by_the_actual_one() -> None:
    learner = make_prol(lr=0.05, lr_scaling=True, chunk=10, threshold=0.0)
    for kinds in ([0, 1, 2], [0]):
        learner.learn(pictures(kinds), kinds)
        assert learner.report()["lr"] == pytest.approx(0.001953125)
    other = make_prol(lr=0.05, lr_scaling=True, chunk=64, threshold=0.0)
    other.learn(pictures([0, 1]), [0, 1])
    assert other.report()["lr"] == pytest.approx(0.0125)
    unscaled = make_prol(lr=0.05, lr_scaling=False, chunk=64, threshold=0.0)
    unscaled.learn(pictures([0, 1]), [0, 1])
    assert unscaled.report()["lr"] == 0.05


def test_norms_learn_at_the_full_rate_in_the_first_task_and_slowly_afterwards() -> None:
    learner = make_prol(threshold=0.0)
    learner.learn(pictures([0, 1]), [0, 1])
    assert learner.report()["lr_norm"] == learner.report()["lr"] == 0.01
    learner.boundary([2, 3])
    learner.learn(pictures([2, 3]), [2, 3])
    assert learner.report()["lr_norm"] == pytest.approx(0.01 * 0.0005)


def rates(**options: Any) -> list[tuple[float, float]]:
    learner = at_second_task(threshold=1e9, t_max=4, eta_min=0.002, **options)
    found = []
    for number in range(9):
        r = step(learner, number)
        found.append((r["lr"], r["lr_norm"]))
    return found


def test_in_soft_mode_an_absolute_floor_lifts_the_norms_rate() -> None:
    found = rates()
    assert found[0] == (0.01, pytest.approx(0.01 * 0.0005))
    assert found[4] == (pytest.approx(0.002), pytest.approx(0.002))
    assert found[8] == (pytest.approx(0.01), pytest.approx(0.01 * 0.0005))


def test_a_proportional_floor_keeps_the_norms_rate_at_its_share() -> None:
    for lr, lr_norm in rates(norm_eta_min="proportional"):
        assert lr_norm == pytest.approx(lr * 0.0005)


def test_without_hard_soft_update_the_rate_is_constant() -> None:
    assert {lr for lr, _ in rates(hsu=False)} == {0.01}


def test_the_threshold_is_compared_with_the_weighted_cross_entropy() -> None:
    probe = step(at_second_task())
    for threshold, soft in ((probe["ce"] * 0.999, False), (probe["ce"] * 1.001, True)):
        learner = at_second_task(threshold=threshold)
        learner.pace.restart()
        step(learner)
        assert learner.pace.soft is soft


def test_a_clip_bounds_the_joint_length_of_all_gradients() -> None:
    assert differing(clip=1e-7)
    assert differing(clip=1e9) == set()


# Components and options


def test_without_a_bias_the_generators_is_neither_used_nor_moved() -> None:
    learner = make_prol(generator_bias=False)
    learner.learn(pictures([0, 1]), [0, 1])
    before, answers = tensors(learner), learner.predict(pictures([0, 1]))
    learner.learn(pictures([0, 1], 1), [0, 1])
    assert "source/generator.bias" not in changed(before, tensors(learner))
    learner.load_state(*(before | {"source/generator.bias": before["source/generator.bias"] + 1}, learner.state()[1]))
    assert torch.equal(learner.predict(pictures([0, 1])), answers)


@pytest.mark.parametrize(
    "options",
    [
        {"layer_sum": False},
        {"similarity_factor": "one"},
        {"similarity_factor": "released"},
        {"similarity_factor": "zero"},
        {"query": "class_token"},
        {"query": "patch_embedding"},
        {"generator": False},
        {"scalers": False},
        {"generator_bias": False},
    ],
    ids=str,
)
def test_each_switch_changes_the_answers_of_the_same_state(options: dict[str, Any]) -> None:
    plain = after_two_tasks(eps_a=0.5, eps_b=0.5)
    other = make_prol(eps_a=0.5, eps_b=0.5, **options)
    found, values = plain.state()
    sizes = {name: tensor for name, tensor in tensors(other).items() if name.startswith("source/generator")}
    found |= {name: tensor for name, tensor in sizes.items() if tensor.shape != found[name].shape}
    tables = {name: (found[name], tensors(other)[name]) for name in ("source/scaler", "source/shifter")}
    found |= {name: old.new_zeros(len(old), *own.shape[1:]) for name, (old, own) in tables.items() if not own.shape[-1]}
    other.load_state(found, values)
    images = pictures([0, 4, 1, 5])
    assert not torch.allclose(plain.predict(images), other.predict(images), atol=1e-5)


def test_prompt_selection_by_label_takes_the_labels_own_scalers_in_training() -> None:
    learner = make_prol(prompt_selection="label")
    learner.boundary(list(range(8)))
    before = tensors(learner)["source/scaler"]
    learner.learn(pictures([0, 3, 6]), [0, 3, 6])
    assert changed_rows(before, tensors(learner)["source/scaler"]) == {0, 3, 6}


def test_a_detached_factor_keeps_cross_entropy_from_moving_keys() -> None:
    learner = make_prol(detach_factor=True, sim=0.0, gen=0.0)
    learner.boundary([0, 1])
    before = tensors(learner)
    learner.learn(pictures([0, 1]), [0, 1])
    assert "source/keys" not in changed(before, tensors(learner))
    attached = make_prol(sim=0.0, gen=0.0)
    attached.boundary([0, 1])
    before = tensors(attached)
    attached.learn(pictures([0, 1]), [0, 1])
    assert "source/keys" in changed(before, tensors(attached))


@pytest.mark.parametrize(("length", "blocks"), [(1, 1), (3, 4), (7, 2)])
def test_length_and_blocks_set_the_sizes(length: int, blocks: int) -> None:
    learner = make_prol(length=length, blocks=blocks)
    learner.learn(pictures([0, 1]), [0, 1])
    found = tensors(learner)
    assert found["source/scaler"].shape == found["source/shifter"].shape == (2, 2, length)
    assert found["source/generator.weight"].shape == (blocks, 2, 4, 3)
    assert learner.predict(pictures([0, 1])).isfinite().all()


def test_more_blocks_than_the_backbone_has_are_refused_with_its_number() -> None:
    with pytest.raises(ValueError, match="blocks=4"):
        make_prol(blocks=5)


def test_an_input_range_changes_what_the_network_sees() -> None:
    plain, symmetric = make_prol(), make_prol(input_range="symmetric")
    assert plain.preprocessing.mean == (0, 0, 0)
    assert symmetric.preprocessing.mean == (0.5, 0.5, 0.5)
    plain.learn(pictures([0, 1]), [0, 1])
    symmetric.load_state(*plain.state())
    assert not torch.allclose(plain.predict(pictures([0, 1])), symmetric.predict(pictures([0, 1])), atol=1e-5)


VARIANTS: list[dict[str, Any]] = [
    *({"ablation": row} for row in ABLATIONS),
    {"preset": "literal"},
    {"preset": "released"},
    {"query": "class_token"},
    {"query": "patch_embedding"},
    {"prompt_selection": "label"},
    {"similarity_factor": "one"},
    {"similarity_factor": "released"},
    {"head": "growing"},
    {"thaw_heads": True},
    {"tune_norms": False},
    {"layer_sum": False},
    {"generator_bias": False},
    {"scalers": False},
    {"hsu": False},
    {"coefficients": "cifar100", "blocks": 4},
]


@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
def test_every_variant_learns_and_predicts(options: dict[str, Any]) -> None:
    learner = make_prol(**{"chunk": 6, "eta_min": 0.005, **options})
    for classes in ([0, 1, 2], [3, 4, 5]):
        learner.boundary(classes)
        losses = []
        for number in range(8):
            learner.learn(pictures(classes * 2, number), classes * 2)
            losses.append(learner.report()["inter"])
        assert losses[-1] < losses[0]
    answers = learner.predict(pictures([3, 4, 5] * 2, seed=99))
    assert answers.shape == (6, 6)
    assert (answers.argmax(1) == torch.tensor([3, 4, 5] * 2)).float().mean() > 0.8

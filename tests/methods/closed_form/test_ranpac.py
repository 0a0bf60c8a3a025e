"""RanPAC: its ridge, its memories, its counts, and the tuning of its first task."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import prol
from methods.small_streams import pictures, tensors
from prol.backbones import ViT, open_backbone
from prol.learner import Amount
from prol.methods.closed_form.ranpac import RanPAC
from prol.methods.closed_form.solvers import choose_ridge, mean_square, ridge
from prol.runs.inspection import count_parameters
from prol.testing.stream import difference

TASKS = ([0, 1, 2], [3, 4, 5])
TEST = pictures(list(range(6)), seed=7)


def make(vit: ViT, seed: int = 0, **options: Any) -> RanPAC:
    learner = prol.create("ranpac", vit, seed=seed, **({"features": 60} | options))
    assert isinstance(learner, RanPAC)
    return learner


def teach(learner: RanPAC, steps: int = 4, told: bool = True) -> RanPAC:
    for classes in TASKS:
        if told:
            learner.boundary(classes)
        for step in range(steps):
            learner.learn(pictures(classes, seed=step), classes)
    return learner


def predictions(learner: RanPAC) -> list[Any]:
    return [learner.classes[row] for row in learner.predict(TEST).argmax(1).tolist()]


@pytest.mark.parametrize(
    "options",
    [{}, {"classifier": "lda"}, {"features": None}, {"ridge": 0.1}, {"accumulate": "float32"}, {"adapt": "norms"}],
    ids=str,
)
def test_it_knows_the_classes_of_both_tasks(tiny: ViT, options: dict[str, Any]) -> None:
    assert predictions(teach(make(tiny, **options))) == [0, 1, 2, 3, 4, 5]


def test_the_ridge_is_chosen_from_what_is_held_out(tiny: ViT) -> None:
    learner = teach(make(tiny))
    fit, held = learner.recollection.totals(1, learner.embed)
    assert held is not None
    chosen = choose_ridge(fit, held)
    assert chosen != mean_square(fit)
    torch.testing.assert_close(learner.solve().weight, ridge(fit + held, chosen))


@pytest.mark.parametrize("memory", ["statistics", "all", "none", 1])
def test_the_first_task_chooses_the_ridge_for_good(tiny: ViT, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prol.methods.closed_form.ranpac.CHOSEN_AFTER", 6)
    learner = make(tiny, memory=memory)
    learner.boundary([0, 1, 2])
    learner.learn(pictures([0, 1, 2] * 10), [0, 1, 2, 1, 2] * 6)  # labels that are partly wrong want a penalty
    fit, held = learner.recollection.totals(0, learner.embed)
    assert held is not None
    chosen = choose_ridge(fit, held)
    learner.boundary([3, 4])
    assert learner.strength is None
    for kinds in ([3, 4, 3, 4, 3, 4], [4, 3, 4, 3, 4, 4]):
        learner.learn(pictures(kinds), kinds)
        assert learner.strength == pytest.approx(chosen)
    whole, held = learner.recollection.totals(1, learner.embed)
    assert held is None
    torch.testing.assert_close(learner.solve().weight, ridge(whole, chosen))
    twin = learner.clone()
    assert torch.equal(twin.predict(TEST), learner.predict(TEST))


def test_a_first_task_of_few_samples_chooses_nothing(tiny: ViT) -> None:
    assert teach(make(tiny)).strength is None


def test_before_a_fifth_sample_the_ridge_is_the_default(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(pictures([0, 1, 0, 1]), [0, 1, 0, 1])
    fit, _ = learner.recollection.totals(0, learner.embed)
    torch.testing.assert_close(learner.solve().weight, ridge(fit, mean_square(fit)))


def test_a_given_ridge_stores_nothing_to_choose_by(tiny: ViT) -> None:
    automatic, given = (teach(make(tiny, ridge=ridge)).footprint().statistics_stored for ridge in ("auto", 1.0))
    assert automatic.count == 2 * given.count == 2 * (60 * 60 + 6 * 61)


def test_the_random_layer_is_redrawn_from_the_seed_and_not_stored(tiny: ViT) -> None:
    learner = teach(make(tiny, seed=3))
    assert all(tuple(tensor.shape) != (tiny.width, 60) for tensor in tensors(learner).values())
    twin = make(tiny, seed=8)
    twin.load_state(*learner.state())
    assert torch.equal(twin.predict(TEST), learner.predict(TEST))
    assert twin.state()[1] == learner.state()[1]


@pytest.mark.parametrize("told", [True, False])
def test_without_memory_only_the_last_task_is_known(tiny: ViT, told: bool) -> None:
    learner = teach(make(tiny, memory="none", task_min_steps=4), told=told)
    scores = learner.predict(TEST)
    assert (scores[:, :3] == -torch.inf).all()
    assert predictions(learner)[3:] == [3, 4, 5]


def test_without_memory_the_last_task_predicts_until_the_next_ones_first_chunk(tiny: ViT) -> None:
    learner = teach(make(tiny, memory="none"))
    before = learner.predict(TEST)
    learner.boundary([6, 7])
    assert torch.equal(learner.predict(TEST)[:, :6], before)
    learner.learn(pictures([6, 7]), [6, 7])
    assert (learner.predict(TEST)[:, :6] == -torch.inf).all()


def test_a_stored_feature_a_class_is_enough_to_remember_it(tiny: ViT) -> None:
    learner = teach(make(tiny, memory=1))
    assert predictions(learner) == [0, 1, 2, 3, 4, 5]
    assert learner.footprint().samples_stored == Amount(6, 6 * tiny.width * 8)


def test_all_features_are_counted_as_samples(tiny: ViT) -> None:
    assert teach(make(tiny, memory="all")).footprint().samples_stored == Amount(24, 24 * tiny.width * 8)


def test_the_layer_norms_learn_in_the_first_task_only(tiny: ViT) -> None:
    learner = make(tiny, adapt="norms")
    learner.boundary(TASKS[0])
    fresh = tensors(learner)
    learner.learn(pictures(TASKS[0]), TASKS[0])
    learner.learn(pictures(TASKS[0], seed=1), TASKS[0])
    assert learner.report()["adapt"] > 0
    first = tensors(learner)
    norms = [name for name in fresh if name.startswith("first_task/norm/")]
    assert not any(torch.equal(fresh[name], first[name]) for name in norms)
    assert learner.footprint().trained_now.count == sum(
        p.numel() for p in tiny.fork("norms").trained().values()
    ) + 3 * (tiny.width + 1)
    learner.boundary(TASKS[1])
    learner.learn(pictures(TASKS[1]), TASKS[1])
    second = tensors(learner)
    assert all(torch.equal(first[name], second[name]) for name in norms)
    assert learner.footprint().trained_now == Amount(0, 0)
    assert learner.report() == {}
    assert all(tensor.numel() == 0 for name, tensor in second.items() if name.startswith("first_task/head/"))


def test_tuned_norms_leave_the_backbone_alone(tiny: ViT) -> None:
    before = {name: parameter.clone() for name, parameter in tiny.named_parameters()}
    teach(make(tiny, adapt="norms"))
    assert all(torch.equal(parameter, before[name]) for name, parameter in tiny.named_parameters())


def test_a_diverging_first_task_refuses_its_chunk(tiny: ViT) -> None:
    learner = make(tiny, adapt="norms", adapt_lr=1e100)
    with pytest.raises(ValueError, match="lower lr=1e\\+100"):  # noqa: PT012
        for step in range(10):
            before = learner.state()
            learner.learn(pictures([0, step], seed=step), [0, step])
    assert difference(before, learner.state()) == ""


def test_the_papers_count_is_a_head_that_does_not_exist() -> None:
    found = count_parameters("ranpac", {}, "vit_base_patch16_224", 200, 10)
    assert list(found["paper_convention"].values()) == [153_800]
    last = found["during_last_task"]
    assert last["parameters_stored"]["count"] == 768 * 10_000 + 200 * 10_000
    # ten block rows up to the diagonal, and the rows of 200 classes, twice
    gram = sum(min(1024, 10_000 - start) * min(start + 1024, 10_000) for start in range(0, 10_000, 1024))
    assert last["statistics_stored"]["count"] == 2 * (gram + 200 * 10_001)
    assert last["samples_stored"] == last["trained_now"] == {"count": 0, "bytes": 0}


def test_shapes_alone_take_no_memory() -> None:
    learner = RanPAC(open_backbone("vit_base_patch16_224", shapes_only=True), RanPAC.read_options({"adapt": "norms"}))
    learner.boundary(list(range(200)))
    assert all(tensor.is_meta for name, tensor in learner.stored.saved_tensors().items() if "recollection" in name)
    assert learner.footprint().trained_now.count == 38_400 + 153_800


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 0}, "features must be at least 1, or none, got 0"),
        ({"ridge": 0}, "ridge must be a finite number above 0, or auto, got 0"),
        ({"adapt_lr": -1}, "adapt_lr must be a finite number above 0, got -1"),
        ({"memory": 0}, "memory must be at least 1, or statistics, none, all, got 0"),
        ({"memory": "some"}, "memory='some' is not valid: it must be a whole number or one of statistics, none, all"),
        ({"task_min_steps": 0}, "task_min_steps must be at least 1, got 0"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RanPAC.read_options(options)

"""Saved learners that nobody saved like that: refused in one line, at once, and without much memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import prol
from deadline import deadline
from largest import Largest, homes
from methods.every_method import make, teach
from prol.learner import Learner
from prol.methods.closed_form.solvers import Totals, choose_ridge
from prol.runs.checkpoints import Checkpoints, restore_newest
from prol.runs.format import file_sha256
from prol.runs.loading import require_size
from prol.serve.settings import ServeOptions
from prol.serve.store import Store, open_service

Meta = dict[str, Any]
Tensors = dict[str, Tensor]


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    with deadline():
        yield


def spoilt(learner: Learner, place: Path, spoil: Callable[[Meta, Tensors], Any]) -> Path:
    """A folder with the learner, changed by somebody who can compute a checksum."""
    learner.save(place)
    meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
    tensors = load_file(place / "model.safetensors")
    spoil(meta, tensors)
    save_file(tensors, place / "model.safetensors")
    meta["model_sha256"] = file_sha256(place / "model.safetensors")
    (place / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return place


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises((ValueError, OSError)) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1000
    return str(raised.value)


def option(name: str, value: Any) -> Callable[[Meta, Tensors], Any]:
    return lambda meta, _: meta["options"].update({name: value})


def value(name: str, new: Any) -> Callable[[Meta, Tensors], Any]:
    def change(meta: Meta, _: Tensors) -> None:
        *groups, last = name.split("/")
        found = meta["state"]["method"]
        for group in groups:
            found = found[group]
        assert last in found
        found[last] = new

    return change


def tensor(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Meta, Tensors], Any]:
    return lambda _, tensors: tensors.update({name: change(tensors[name]).contiguous()})


SPOILS: list[tuple[str, Callable[[Meta, Tensors], Any], str]] = [
    ("ncm", tensor("counts", lambda t: t * torch.nan), "counts holds NaN or infinity"),
    ("ncm", tensor("counts", lambda t: -t), "a count of images is below 0"),
    ("ncm", tensor("counts", lambda t: t.bool()), "counts holds truth values, not floating-point numbers"),
    ("ncm", tensor("sums", lambda t: t[:1]), "sums has 1 rows for 2 classes"),
    ("ncm", tensor("sums", lambda t: t[:, :5]), "sums has shape [2, 5], not rows of [64]"),
    ("ncm", tensor("random", lambda t: t[:9]), "does not fit method 'ncm'"),
    ("ncm", lambda _, tensors: tensors.pop("sums"), "sums is missing"),
    ("ncm", value("calibration/count", float("inf")), "calibration/count is inf"),
    ("ncm", value("calibration/count", 10**400), "calibration/count is 1000"),
    ("ncm", value("calibration/images", "many"), "calibration/images is 'many'"),
    ("ncm", lambda meta, _: meta.update(seen={"images": 1, "per_class": [-1]}), "seen.per_class[0] is -1"),
    ("ncm", lambda meta, _: meta.update(method="n" * 10**6), "method has a name of 1000000 characters"),
    ("ncm", option("x" * 10**6, 1), "options has a name of 1000000 characters"),
    ("prol_plus", option("budget_mb", 1e30), "budget_mb must be at most 1e+06"),
    ("prol_plus", option("features", 2**31 - 1), "its option features is 2147483647, but only"),
    ("prol_plus", option("features", 10**6), "its options ask for"),
    ("prol_plus", option("features", 10**30), "features must be at most"),
    ("prol_plus", option("features", 10**400), "features must be at most"),
    ("prol_plus", option("budget_mb", 10**400), "budget_mb"),
    ("prol_plus", tensor("tuning/last", lambda t: t[:1]), "tuning/last has 1 rows for 2 classes"),
    ("prol_plus", tensor("scale/inverse", lambda t: t[1:]), "scale/inverse has not the shape of the mean"),
    ("knn", tensor("rows", lambda t: t + 10**9), "rows holds something else than rows from 0 to 1"),
    ("knn", tensor("features", lambda t: t[1:]), "rows has 4 rows, but features has 3"),
    ("head_only", tensor("adam/weight/square", lambda t: t[:, 1:]), "adam/weight/square has not the shape"),
    ("l2p", tensor("adam/keys/rows", lambda t: t + 10**9), "adam/keys/rows holds something else"),
    ("lae", tensor("online/down", lambda t: t[:, 1:]), "online/down has shape"),
    ("mos", option("align_epochs", 10**6), "align_epochs must be from 1 to 1000"),
    ("mos", value("first_rows", [0, 1, 1]), "1 adapters for 3 tasks"),
    ("mos", value("clock/first_row", 99), "clock/first_row is 99"),
    ("klda", option("ensemble", 10**6), "ensemble must be from 1 to 1000"),
    ("er", option("memory", 10**6), "its options ask for"),
    ("er", value("memory/filled", 10**12), "a memory with 1000000000000 samples was saved"),
]


@pytest.mark.parametrize(("method", "spoil", "message"), SPOILS, ids=[f"{m}: {text[:40]}" for m, _, text in SPOILS])
def test_a_state_that_no_learner_has_saved_is_refused(
    tmp_path: Path, method: str, spoil: Callable[[Meta, Tensors], Any], message: str
) -> None:
    learner = teach(make(method), tasks=[[0, 1]])
    folder = spoilt(learner, tmp_path / "saved", spoil)
    assert message in refusal(lambda: prol.load(folder, learner.backbone))


def test_the_size_of_a_learner_is_found_without_building_it() -> None:
    learner = teach(make("mos"), tasks=[[0]])
    options = type(learner).read_options({"bottleneck": 10**6})
    tensors, backbone = learner.state()[0], learner.backbone
    with Largest(homes([*tensors.values(), *backbone.model.parameters()])) as largest:
        assert "its options ask for" in refusal(lambda: require_size(type(learner), backbone, options, 0, tensors))
        require_size(type(learner), backbone, learner.options, 0, tensors)
    assert largest.numbers < 1000
    assert backbone.device.type == "cpu"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 10**7, "backbone.name has a name of 10000000 characters"),
        ("resnet18_cifar@99999", "at most 512"),
        ("resnet18_cifar@512", "million random weights"),
        ("vit_giant_patch14_clip_224@random", "million random weights"),
        ("vit_tiny_patch16_224:99999px@random", "image size 99999 is too large"),
    ],
)
def test_a_network_is_not_built_because_a_folder_names_it(tmp_path: Path, name: str, message: str) -> None:
    learner = teach(make("ncm"), tasks=[[0]])
    backbone = {"name": name, "sha256": "0" * 64}
    folder = spoilt(learner, tmp_path / "saved", lambda meta, _: meta.update(backbone=backbone))
    assert message in refusal(lambda: prol.load(folder, device="cpu"))


def test_a_ridge_is_chosen_even_if_errors_are_not_numbers() -> None:
    gram, counts = torch.eye(3, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    sums = torch.full((2, 3), 1e300, dtype=torch.float64)
    assert choose_ridge(Totals(gram, sums, counts), Totals(gram, sums, counts)) > 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content.update(records=[]), "records is [], not {}"),
        (lambda content: content["records"].update(answers=[[1]]), "not enough values"),
        (lambda content: content["records"].update(images_learnt=-1), "records.images_learnt is -1"),
        (lambda content: content["about"].pop("seed"), "about.seed is missing"),
        (lambda content: content["learner"].update(classes=[["ant"]]), "a label must be text"),
        (lambda content: content["about"]["backbone"].update(name="x" * 10**6), "has a name of 1000000 characters"),
    ],
)
def test_a_service_refuses_checkpoints_that_none_has_written(
    tmp_path: Path, micro_vit: str, spoil: Callable[[Meta], Any], message: str
) -> None:
    store = Store(tmp_path / "model", checkpoints=2)
    open_service(store, ServeOptions("ncm", micro_vit, device="cpu"), pytest.fail)
    newest = store.checkpoints.read_newest(pytest.fail)
    assert newest is not None
    spoil(newest[1])
    store.checkpoints.write(1, *newest)
    assert message in refusal(lambda: store.recover(pytest.fail))
    store.release()


def test_a_run_refuses_a_checkpoint_with_impossible_numbers(tmp_path: Path) -> None:
    learner = teach(make("ncm"), tasks=[[0, 1]])
    tensors, meta = learner.state()
    tensors["counts"] = -tensors["counts"]
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    checkpoints.write(1, tensors, {"begun_with": {}, "learner": meta, "cursor": {}, "timing": [], "events_bytes": 0})
    said = refusal(lambda: restore_newest(checkpoints, make("ncm"), {}, pytest.fail))
    assert "is damaged: a count of images is below 0; remove it to use another" in said

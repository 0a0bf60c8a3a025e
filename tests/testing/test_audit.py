"""The rehearsal audit tells what is kept; on learners that keep samples openly, in secret, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import prol
from golden_files import tiny_vit
from methods.every_method import METHODS, WITH_MEMORY, cases, make
from prol import registry
from prol.backbones import ViT, evaluation_input
from prol.learner import Learner
from prol.state import State
from prol.testing.audit import Audit, audit_learner
from prol.testing.audit_probe import Search, fitting_rows, highest_cosine
from prol.testing.stream import STREAM, difference, teach
from testing.colour_means import ColourMeans, ColourOptions

ADDS_UP = ["ncm", "slda", "ranpac", "randumb", "foal", "layup", "klda", "lr_rgda", "prol_plus", "mos", "ease"]
"""Methods that keep a sum for each class."""


def audited(learner: Learner, **how: Any) -> Audit:
    return audit_learner(learner, **({"images": 16} | how))


def test_a_head_that_is_dropped_while_the_audit_teaches_does_not_stop_it() -> None:
    options = {"budget_mb": 1, "blocks": 1, "features": 20, "adapt_steps": 3}
    learner = prol.create("prol_plus", tiny_vit(torch.float32), **options)
    assert audited(teach(learner)).keeps_no_samples()


@pytest.mark.parametrize("method", [name for name in METHODS if not registry.method(name).keeps_samples])
def test_no_other_method_stores_samples_and_a_class_of_one_is_found_where_classes_are_added_up(
    method: str,
) -> None:
    learner = teach(make(method, torch.float32))
    before = learner.state()
    found = audited(learner)
    assert difference(before, learner.state()) == ""
    assert (found.method, found.classes, found.samples_stored.count) == (method, 5, 0)
    assert found.keeps_no_samples()
    assert found.grow_with_samples == ()
    assert not found.probe.finds_one_of_several()
    assert found.probe.finds_a_class_of_one() == (method in ADDS_UP)
    assert {one.name for one in found.tensors} == set(before[0])
    kinds = {one.name: one.kind for one in found.tensors}
    assert kinds["random"] == "random state"
    assert "sample" not in kinds.values()
    assert "unknown" not in kinds.values()
    for one in found.tensors:
        if "adam" in one.name.split("/") or one.name.startswith("sgd/"):
            assert one.kind == "optimiser moment"
        if one.name.endswith(("sums", "counts")):
            assert (one.kind, one.grows_with) in {("statistic", "classes"), ("statistic", "not met")}
    assert sum(one.bytes for one in found.tensors) == sum(t.numel() * t.element_size() for t in before[0].values())


@pytest.mark.parametrize("method", cases(WITH_MEMORY, fast=("er", "ocm")))
def test_stored_images_are_named_and_counted(method: str) -> None:
    found = audited(teach(make(method, torch.float32)))
    assert not found.keeps_no_samples()
    assert found.samples_stored.count == 20
    assert found.samples_stored.bytes >= 20 * 3 * 16 * 16
    assert found.grow_with_samples == ()
    kinds = {one.name: one.kind for one in found.tensors}
    assert kinds["memory/images"] == "sample"
    assert "unknown" not in kinds.values()
    assert f"It stores 20 single samples, as images ({found.samples_stored.bytes:,} bytes)." == found.findings[0]


@pytest.mark.parametrize("memory", [2, "all"])
def test_stored_features_are_named_and_found(memory: Any) -> None:
    learner = teach(prol.create("randumb", tiny_vit(torch.float32), features=40, memory=memory))
    found = audited(learner)
    assert not found.keeps_no_samples()
    assert found.samples_stored.count == (10 if memory == 2 else 28)
    assert bool(found.grow_with_samples) == (memory == "all")
    assert found.probe.features.tensor == "recollection/kept/features"
    assert found.probe.finds_one_of_several()
    assert "single samples, as features" in found.findings[0]
    assert "sample" in {one.kind for one in found.tensors}


@pytest.mark.parametrize("method", ["knn", "logreg"])
def test_references_say_that_they_store_the_feature_of_every_image(method: str) -> None:
    found = audited(teach(make(method, torch.float32)))
    assert not found.keeps_no_samples()
    assert found.samples_stored.count == 28
    assert found.samples_stored.bytes == 28 * 4 * tiny_vit().width
    assert found.grow_with_samples == ("features", "rows")
    assert found.probe.features.tensor == "features"
    assert found.probe.finds_one_of_several()
    assert {one.name: one.kind for one in found.tensors if one.name != "random"} == {
        "features": "sample",
        "rows": "sample",
    }
    assert "28 single samples, as features" in found.findings[0]


class HidesFeatures(ColourMeans):
    """Stores the network's feature of every image among its weights, and says nothing of it."""

    def build(self, state: State) -> None:
        super().build(state)
        width = self.backbone.width
        self.hidden = state.table("head/weight", width, kind="parameter", combine=None, grows=False)

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        self.hidden.append(-3 * self.backbone.features(inputs).detach())


class HidesOnePicture(ColourMeans):
    """Stores the pixels of the last image, the same room whatever comes."""

    def build(self, state: State) -> None:
        super().build(state)
        self.last: Tensor | None = torch.zeros(1, 3 * 32 * 32)
        state.optional("bias", self, "last", kind="parameter")

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.last = torch.stack([image.flatten().float() / 255 for image in pixels])[1:2]


class HidesInJson(ColourMeans):
    def build(self, state: State) -> None:
        super().build(state)
        self.notes: list[int] = []
        state.value("notes", self)

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.notes += [int(image.sum()) for image in pixels]


def test_what_is_hidden_is_found(tiny: ViT) -> None:
    honest = audited(teach(ColourMeans(tiny, ColourOptions())))
    assert honest.keeps_no_samples()
    features = audited(teach(HidesFeatures(tiny, ColourOptions())))
    assert features.grow_with_samples == ("head/weight",)
    assert features.probe.features.found_several()
    picture = audited(teach(HidesOnePicture(tiny, ColourOptions())))
    assert picture.grow_with_samples == ()
    assert picture.probe.pixels.tensor == "bias"
    assert picture.probe.pixels.found_several()
    assert not picture.keeps_no_samples()
    notes = audited(teach(HidesInJson(tiny, ColourOptions())))
    assert notes.grow_with_samples == ("the JSON part",)
    assert not features.keeps_no_samples()
    assert not notes.keeps_no_samples()


def test_classes_of_few_images_are_named(tiny: ViT) -> None:
    learner = prol.create("ncm", tiny)
    learner.boundary(["nothing yet"])
    learner.learn(STREAM[0].images, ["ant", "ant", "ant", "bee", "bee", "bee", 7])
    found = audited(learner, few=3)
    assert [(one.label, one.count) for one in found.few] == [(7, 1)]
    assert "1 classes have fewer than 3 images" in found.findings[2]
    assert audited(learner, few=1).few == ()
    uncounted = audited(teach(prol.create("head_only", tiny)))
    assert not uncounted.counted
    assert "does not count" in uncounted.findings[2]


def test_rows_are_read_at_any_width() -> None:
    assert fitting_rows(torch.zeros(5, 2, 3), 6).shape == (5, 6)
    assert fitting_rows(torch.zeros(5, 2, 3), 3).shape == (10, 3)
    assert fitting_rows(torch.zeros(5, 2, 3), 4) is None
    assert fitting_rows(torch.zeros(()), 2) is None
    one = torch.tensor(np.array([[1.0, 0.0], [0.0, 2.0]]))
    assert highest_cosine(one, torch.tensor([[0.0, -5.0]])) == pytest.approx(1.0)


def test_numbers_that_make_no_sense_are_refused(tiny: ViT) -> None:
    with pytest.raises(ValueError, match="images at least 1"):
        audit_learner(prol.create("ncm", tiny), images=0)


def test_the_search_that_found_most_counts_then_the_one_whose_margin_is_widest() -> None:
    narrow, wide = Search("narrow", once=0.8, several=0.8, never=0.7), Search("wide", once=0.7, several=0.6, never=0.1)
    found = Search("found", once=0.99999, several=0.5, never=0.9)
    assert max(narrow, wide, Search(), key=Search.separation) == wide
    assert max(narrow, wide, found, key=Search.separation) == found

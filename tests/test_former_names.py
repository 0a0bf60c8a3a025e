"""Modules of version 0.1 are found under their former names, with a warning."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from prol import data, prediction, ranking
from prol.data import builtin, folder, prefetch, split, streams
from prol.runs import comparison, loading, saving

_FORMER = ("prol.answers", "prol.artifacts", "prol.datasets", "prol.experiments", "prol.streams")


@pytest.fixture(autouse=True)
def _not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(_FORMER)]:
        monkeypatch.delitem(sys.modules, name)


def test_data_sets_are_found_under_their_former_names() -> None:
    with pytest.warns(DeprecationWarning, match=r"prol\.datasets is deprecated: import from prol\.data"):
        former = import_module("prol.datasets")
    assert former.Dataset is data.Dataset
    assert former.Cut is data.TrainTestSplit
    for module, name, value in (
        ("digits", "digits", builtin.digits),
        ("glyphs", "glyphs", builtin.glyphs),
        ("folder", "folder", folder.folder),
        ("prefetch", "prefetched", prefetch.prefetched),
        ("cutting", "cut_content", split.split_content),
        ("base", "Loaded", data.Loaded),
    ):
        assert getattr(import_module(f"prol.datasets.{module}"), name) is value
    for name in ("cifar100", "cub200", "imagenet_a", "imagenet_r", "parquet"):
        assert callable(getattr(import_module(f"prol.datasets.{name}"), name))
    digits = builtin.digits()
    assert digits.cut is digits.split


def test_protocols_are_found_under_their_former_names() -> None:
    with pytest.warns(DeprecationWarning, match=r"prol\.streams is deprecated: import from prol\.data\.streams"):
        former = import_module("prol.streams")
    for name in streams.__all__:
        assert getattr(former, name) is getattr(streams, name)
    for name in ("disjoint", "blurry", "iblurry", "siblurry", "gradual", "imbalanced"):
        assert getattr(import_module(f"prol.streams.{name}"), name) is getattr(streams, name)
    assert import_module("prol.streams.base").Stream is streams.Stream


def test_saved_learners_are_found_under_their_former_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"prol\.artifacts is deprecated: import from prol\.runs"):
        former = import_module("prol.artifacts")
    assert former.load is loading.load
    assert former.save is saving.save
    assert former.Checkpoints.__module__ == "prol.runs.checkpoints"
    assert former.list_classes is former.ClassFolder.__init__.__globals__["list_classes"]
    with pytest.raises(AttributeError, match=r"module 'prol\.artifacts' has no attribute 'pickle'"):
        former.pickle  # noqa: B018


def test_many_runs_are_found_under_their_former_names() -> None:
    with pytest.warns(DeprecationWarning, match=r"prol\.experiments is deprecated: import from prol\.runs or"):
        former = import_module("prol.experiments")
    assert import_module("prol.experiments.comparison").compare is comparison.compare
    assert former.sweep.sweep.__module__ == "prol.runs.sweep"
    assert import_module("prol.experiments.sweep_file").read_sweep_file.__module__ == "prol.runs.grid"
    assert import_module("prol.experiments.paper.reproduction").reproduce.__module__ == "prol.paper.reproduction"
    assert former.paper.items.ITEMS is import_module("prol.paper.items").ITEMS


def test_predictions_are_found_under_their_former_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"prol\.answers is deprecated: import from prol\.ranking or"):
        former = import_module("prol.answers")
    assert former.ranked is ranking.ranked
    assert former.Answer is ranking.RankedLabel
    assert former.Classification is prediction.Classification


def test_modules_that_never_were_are_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"prol\.cutting"):
        import_module("prol.cutting")

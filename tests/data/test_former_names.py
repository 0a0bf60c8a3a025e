"""`prol.datasets` and `prol.streams` still work for one version, with a warning."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from prol import data
from prol.data import builtin, folder, prefetch, split, streams


@pytest.fixture(autouse=True)
def _not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("prol.datasets", "prol.streams"))]:
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

"""Deprecated: the former name of `prol.data`, which will be removed in the next version."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

from prol.data import ArraySplit, Dataset, Loaded, Split, Subset, Unreadable
from prol.data import TrainTestSplit as Cut
from prol.data.split import split_content as cut_content

__all__ = ["ArraySplit", "Cut", "Dataset", "Loaded", "Split", "Subset", "Unreadable", "cut_content"]

warnings.warn("prol.datasets is deprecated: import from prol.data", DeprecationWarning, stacklevel=2)

_MODULES = {
    "base": "base",
    "cifar100": "cifar100",
    "cub200": "cub200",
    "digits": "builtin",
    "folder": "folder",
    "glyphs": "builtin",
    "imagenet_a": "imagenet_variants",
    "imagenet_r": "imagenet_variants",
    "parquet": "parquet",
    "prefetch": "prefetch",
}
for _old, _new in _MODULES.items():
    sys.modules[f"{__name__}.{_old}"] = import_module(f"prol.data.{_new}")
sys.modules[f"{__name__}.cutting"] = sys.modules[__name__]  # for `cut_content`

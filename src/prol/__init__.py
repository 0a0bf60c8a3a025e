"""prol learns an image classifier from a stream in one pass, stores no sample, and predicts at any moment."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from prol.former_names import FormerModules

if TYPE_CHECKING:
    from prol.creation import create
    from prol.learner import Footprint, Learner
    from prol.loading import load, save
    from prol.merging import merge
    from prol.testing import check_learner

try:
    __version__ = version("prol")
except PackageNotFoundError:  # run from source
    __version__ = "0.1.0"

__all__ = ["Footprint", "Learner", "__version__", "check_learner", "create", "load", "merge", "save"]

sys.meta_path.append(FormerModules())

_LAZY = {
    "Footprint": "prol.learner",
    "Learner": "prol.learner",
    "check_learner": "prol.testing",
    "create": "prol.creation",
    "load": "prol.loading",
    "merge": "prol.merging",
    "save": "prol.loading",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: `prol --help` and `import prol` do not wait for torch.
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'prol' has no attribute {name!r}")

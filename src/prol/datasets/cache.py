"""Where this package may keep files of its own between processes."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/prol`, or `~/.cache/prol`."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG rules say that a relative path is to be ignored.
    return (named if named.is_absolute() else Path.home() / ".cache") / "prol"

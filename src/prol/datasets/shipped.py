"""Reads the arrays of the built-in data sets that are shipped inside the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_shipped(name: str, data: str | Path | None) -> dict[str, NDArray[Any]]:
    """The arrays of the built-in data set `name`; a path given by the user is refused, for there is nothing to read."""
    if data is not None:
        raise ValueError(
            f"data set {name!r} is built in and takes no data, got {str(data)!r}; for your own use 'folder'"
        )
    path = files("prol.datasets") / "builtin" / f"{name}.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)

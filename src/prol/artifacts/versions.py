"""The versions on which the bits of a result depend."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch

import prol


def versions() -> dict[str, str]:
    """By the name of what they are versions of."""
    return {
        "prol": prol.__version__,
        "torch": torch.__version__,
        "timm": version("timm"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        # Sums are ordered differently on another kind of processor, and the last bits with them.
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }

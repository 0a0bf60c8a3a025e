"""Shared fixtures."""

from __future__ import annotations

import pytest

from golden_files import tiny_vit
from prol.backbones import ViT


@pytest.fixture
def tiny() -> ViT:
    """The golden files' tiny ViT in float64."""
    return tiny_vit()

"""Shared fixtures."""

from __future__ import annotations

import pytest

from golden_files import tiny_vit
from prol.backbones import ViT


@pytest.fixture
def tiny() -> ViT:
    """The golden files' tiny ViT in float64."""
    return tiny_vit()


@pytest.fixture(scope="session")
def small_vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a ViT that sees 32 x 32 pixels as 4 patches."""
    from runs.small_runs import write_small_vit

    return write_small_vit(tmp_path_factory.mktemp("weights"))

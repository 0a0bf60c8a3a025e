"""A smaller network than elsewhere: what is tested here takes many steps."""

from __future__ import annotations

import pytest

from prol.backbones import ResNet


@pytest.fixture
def small_resnet() -> ResNet:
    """Two channels wide, for 16 x 16 pixels, in float64."""
    return ResNet(2, size=16, precision="float64")

from __future__ import annotations

import pytest

from runs.small_runs import write_small_vit


@pytest.fixture(scope="session")
def small_vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_vit(tmp_path_factory.mktemp("weights"))

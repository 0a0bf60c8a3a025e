"""Fixtures for reproductions."""

from __future__ import annotations

import pytest

from prol.paper import item_files


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than the runs."""
    monkeypatch.setattr(item_files, "plot_sheet", lambda *_: [])

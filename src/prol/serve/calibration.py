"""Opening the calibration of "none of these"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prol.serve.unknowns import Unknowns


def open_unknowns(state: dict[str, Any] | None) -> Unknowns | None:
    """The calibration in a state, or a new one; None where this version of prol has none."""
    try:
        from prol.serve.unknowns import Unknowns
    except ImportError:
        return None
    return Unknowns(state)

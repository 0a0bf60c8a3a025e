"""What was found in folders: runs that can be reported, and those that cannot, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prol.report.comparison import Content, RunFiles


@dataclass(frozen=True)
class ReadRun:
    """A finished run: where it lies, what its files hold, and, where it wrote that down, which class came when."""

    place: Path
    files: RunFiles
    presence: Content | None


@dataclass(frozen=True)
class LeftOut:
    """A run that is not in the report, or a folder that could not be looked into."""

    run: str
    reason: str


@dataclass(frozen=True)
class Found:
    """What lies in some folders."""

    runs: list[ReadRun]
    left_out: list[LeftOut]

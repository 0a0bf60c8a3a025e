"""A small reproduction, and executors that look at what they are given."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path

from prol.paper.scale import PaperScale, read_scale
from prol.runs import Plan
from prol.runs.display import Silent
from prol.runs.executors import Serial

Hear = Callable[[Path, str], None]
Outcomes = Generator[tuple[Path, str | None], None, None]


def small_scale(micro_vit: str) -> PaperScale:
    """Twenty digits through a small ViT, in two rows."""
    smoke = replace(read_scale("smoke").on("digits"), backbone=micro_vit, tiny_backbone=micro_vit, threads=1)
    return replace(smoke, picked={"ncm": {}, "PROL": {"blocks": "2"}})


class Recording:
    """An executor that remembers what it was given; without a number of jobs it counts as parallel."""

    jobs: int | None = None

    def __init__(self) -> None:
        self.asked: list[str] = []

    def execute(self, pending: Mapping[Path, Plan], hear: Hear) -> Outcomes:
        self.asked += [path.name for path in pending]
        yield from Serial(Silent()).execute(pending, hear)


class Noting(Recording):
    """An executor that only notes what it was given; to it, every run fails."""

    def execute(self, pending: Mapping[Path, Plan], hear: Hear) -> Outcomes:
        del hear
        for path in pending:
            self.asked.append(path.name)
            yield path, "only noted"

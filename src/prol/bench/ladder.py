"""From plain operations to the full path: the same training step in several ways, timed in turns in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prol.backbones import ViT, evaluation_input, open_backbone, pick_device
from prol.backbones.acceleration import Acceleration
from prol.bench.bare_passes import bare_passes, captured
from prol.bench.subject import Load, Subject, step_of
from prol.bench.timing import Pace, Step, waiting
from prol.bench.turns import Say, measure, row_of, silent

Row = dict[str, Any]
PlainStep = Callable[[NDArray[np.uint8], NDArray[np.int64]], object]
PlainMaker = Callable[[ViT, Any, int, int], PlainStep]
"""Makes a reference step from a float32 backbone, the method's options, and the classes of earlier and current task."""

READY, BARE = "full step on ready input", "bare passes"
_EAGER = Acceleration(compiled=False, captured=False)


@dataclass(frozen=True)
class Rung:
    """One way to compute a step."""

    name: str
    precision: str
    acceleration: Acceleration

    def row(self) -> Row:
        return {"rung": self.name, "precision": self.precision} | asdict(self.acceleration)


_FLOAT32 = Rung("float32", "float32", _EAGER)


def rungs(device: torch.device) -> list[Rung]:
    """The product's ways on a device, slowest first."""
    if device.type != "cuda":
        return [_FLOAT32]
    return [
        _FLOAT32,
        Rung("bf16", "bf16", _EAGER),
        Rung("bf16, captured", "bf16", Acceleration(compiled=False, captured=True)),
        Rung("bf16, compiled, captured", "bf16", Acceleration(compiled=True, captured=True)),
    ]


def ladder(
    subject: Subject,
    backbone: str,
    device: str,
    chunk: int,
    load: Load,
    pace: Pace,
    plain: PlainMaker | None = None,
    say: Say = silent,
) -> list[Row]:
    """One row a rung, with how many times faster than the first it is.

    A rung that fails holds its error instead, and the others go on. For PROL the last row is the bare passes through
    the network: no step can be faster on the same rung. On a GPU, the last but one is the whole step without what
    comes before it, from bytes in the host's memory to the network's input.

    Args:
        plain: a step of the same maths written without any care for speed; the first rung, where given.
        say: is told when a rung is ready: a compiler may take its time.
    """
    options, place = subject.resolved(chunk), pick_device(device)
    ways, last = rungs(place), rungs(place)[-1]
    makers: dict[Rung, Callable[[], Step]] = {}
    if plain is not None and subject.method == "prol":
        makers[replace(_FLOAT32, name="plain float32")] = partial(_plain, plain, options, backbone, device, chunk, load)
    for rung in ways:
        makers[rung] = partial(_product, subject, backbone, device, rung, chunk, load)
    if subject.method == "prol" and last.acceleration.captured:
        makers[replace(last, name=READY)] = partial(_ready, subject, backbone, device, last, chunk, load)
    if subject.method == "prol":
        makers[replace(last, name=BARE)] = partial(_bare, options, backbone, device, last, chunk)
    results = measure({rung.name: make for rung, make in makers.items()}, pace, waiting(place), say)
    return with_ratios([rung.row() | row_of(results[rung.name], chunk) for rung in makers])


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """The rows with how many times faster than the first timed one each is."""
    base = next((row["median"] for row in rows if "error" not in row), None)
    return [row if "error" in row else row | {"ratio": base / row["median"]} for row in rows]


def times_bare(rows: Sequence[Row]) -> float | None:
    """How many times as long as the bare passes the last way takes; None where one of the two is missing."""
    medians = {row["rung"]: row["median"] for row in rows if "error" not in row}
    ways = [row["rung"] for row in rows if row["rung"] not in (READY, BARE)]
    return medians[ways[-1]] / medians[BARE] if {BARE, *ways[-1:]} <= medians.keys() else None


def _open(backbone: str, device: str, rung: Rung) -> ViT:
    opened = open_backbone(backbone, device=device, precision=rung.precision)
    if not isinstance(opened, ViT):
        raise ValueError(f"the ladder climbs a ViT, got {opened.name}: give another --backbone")
    opened.acceleration = rung.acceleration
    return opened


def _product(subject: Subject, backbone: str, device: str, rung: Rung, chunk: int, load: Load) -> Step:
    learner = subject.learner(_open(backbone, device, rung), chunk)
    load.announce(learner)
    return step_of(learner, load.feed(chunk, learner.preprocessing.size))


def _ready(subject: Subject, backbone: str, device: str, rung: Rung, chunk: int, load: Load) -> Step:
    learner: Any = subject.learner(_open(backbone, device, rung), chunk)  # PROL, whose step is asked for by itself
    load.announce(learner)
    images, labels = load.feed(chunk, learner.preprocessing.size).chunk()
    vit = learner.backbone
    inputs = evaluation_input(vit.read(images), learner.preprocessing, vit.device, vit.dtype)
    rows = torch.tensor([learner.row_of[int(label)] for label in labels], device=vit.device)
    return lambda: learner.step(lambda: (inputs,), rows)


def _plain(plain: PlainMaker, options: Any, backbone: str, device: str, chunk: int, load: Load) -> Step:
    opened, classes = _open(backbone, device, _FLOAT32), load.current
    step, feed = plain(opened, options, classes.start, len(classes)), load.feed(chunk, opened.preprocessing.size)
    return lambda: step(*feed.chunk())


def _bare(options: Any, backbone: str, device: str, rung: Rung, chunk: int) -> Step:
    """As on the last rung: on a GPU compiled and captured."""
    # The graph is captured here, around both passes, and not by the network inside it.
    opened = _open(backbone, device, replace(rung, acceleration=replace(rung.acceleration, captured=False)))
    step = bare_passes(opened, chunk, options.blocks, options.length, options.tune_norms)
    return captured(step, opened.device) if rung.acceleration.captured else step

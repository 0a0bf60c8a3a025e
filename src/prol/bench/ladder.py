"""From plain operations to the full optimisation: the same training step in several ways, timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prol.backbones import ViT, evaluation_input, open_backbone, pick_device
from prol.backbones.base import Acceleration
from prol.bench.timing import Pace, Say, Step, measure, row_of, silent, synchronizer
from prol.bench.workload import MethodSpec, Workload, training_step

Row = dict[str, Any]
PlainStep = Callable[[NDArray[np.uint8], NDArray[np.int64]], object]
PlainMaker = Callable[[ViT, Any, int, int], PlainStep]
"""Makes a reference step from a float32 backbone, the options, and the numbers of earlier and current classes."""

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
    """The ways that prol has on a device, slowest first."""
    if device.type != "cuda":
        return [_FLOAT32]
    return [
        _FLOAT32,
        Rung("bf16", "bf16", _EAGER),
        Rung("bf16, captured", "bf16", Acceleration(compiled=False, captured=True)),
        Rung("bf16, compiled, captured", "bf16", Acceleration(compiled=True, captured=True)),
    ]


def ladder(
    method: MethodSpec,
    backbone: str,
    device: str,
    chunk: int,
    workload: Workload,
    pace: Pace,
    plain: PlainMaker | None = None,
    say: Say = silent,
) -> list[Row]:
    """One row per rung, with its speed relative to the first.

    A rung that fails holds its error instead, and the others continue. For PROL the last row is the bare passes through
    the network, a lower bound of the time of a step. On a GPU, the row before it is the full step without the
    preprocessing, from bytes in host memory to the network's input.

    Args:
        plain: makes a step with the same maths without any optimisation; the first rung, if given.
        say: receives a line when a rung is ready, since compiling may take long.
    """
    options, place = method.resolved(chunk), pick_device(device)
    ways, last = rungs(place), rungs(place)[-1]
    makers: dict[Rung, Callable[[], Step]] = {}
    if plain is not None and method.method == "prol":
        makers[replace(_FLOAT32, name="plain float32")] = partial(
            _plain, plain, options, backbone, device, chunk, workload
        )
    for rung in ways:
        makers[rung] = partial(_product, method, backbone, device, rung, chunk, workload)
    if method.method == "prol" and last.acceleration.captured:
        makers[replace(last, name=READY)] = partial(_ready, method, backbone, device, last, chunk, workload)
    if method.method == "prol":
        makers[replace(last, name=BARE)] = partial(_bare, options, backbone, device, last, chunk)
    results = measure({rung.name: make for rung, make in makers.items()}, pace, synchronizer(place), say)
    return with_ratios([rung.row() | row_of(results[rung.name], chunk) for rung in makers])


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """Adds to each row its speed relative to the first one that was timed."""
    base = next((row["median"] for row in rows if "error" not in row), None)
    return [row if "error" in row else row | {"ratio": base / row["median"]} for row in rows]


def times_bare(rows: Sequence[Row]) -> float | None:
    """The time of the last way relative to the bare passes; None if one of the two is missing."""
    medians = {row["rung"]: row["median"] for row in rows if "error" not in row}
    ways = [row["rung"] for row in rows if row["rung"] not in (READY, BARE)]
    return medians[ways[-1]] / medians[BARE] if {BARE, *ways[-1:]} <= medians.keys() else None


def _open(backbone: str, device: str, rung: Rung) -> ViT:
    opened = open_backbone(backbone, device=device, precision=rung.precision)
    if not isinstance(opened, ViT):
        raise ValueError(f"the ladder needs a ViT, got {opened.name}: give another --backbone")
    opened.acceleration = rung.acceleration
    return opened


def _product(method: MethodSpec, backbone: str, device: str, rung: Rung, chunk: int, workload: Workload) -> Step:
    learner = method.learner(_open(backbone, device, rung), chunk)
    workload.announce(learner)
    return training_step(learner, workload.chunks(chunk, learner.preprocessing.size))


def _ready(method: MethodSpec, backbone: str, device: str, rung: Rung, chunk: int, workload: Workload) -> Step:
    learner: Any = method.learner(_open(backbone, device, rung), chunk)  # PROL: its own `step` is called below
    workload.announce(learner)
    images, labels = workload.chunks(chunk, learner.preprocessing.size).next()
    vit = learner.backbone
    inputs = evaluation_input(vit.read(images), learner.preprocessing, vit.device, vit.dtype)
    rows = torch.tensor([learner.row_of[int(label)] for label in labels], device=vit.device)
    return lambda: learner.step(lambda: (inputs,), rows)


def _plain(plain: PlainMaker, options: Any, backbone: str, device: str, chunk: int, workload: Workload) -> Step:
    opened, classes = _open(backbone, device, _FLOAT32), workload.current
    step = plain(opened, options, classes.start, len(classes))
    chunks = workload.chunks(chunk, opened.preprocessing.size)
    return lambda: step(*chunks.next())


def _bare(options: Any, backbone: str, device: str, rung: Rung, chunk: int) -> Step:
    """The step of the last rung without the learner: on a GPU compiled and captured."""
    # The graph is captured here, around both passes, and not inside the network.
    opened = _open(backbone, device, replace(rung, acceleration=replace(rung.acceleration, captured=False)))
    step = bare_passes(opened, chunk, options.blocks, options.length, options.tune_norms)
    return captured(step, opened.device) if rung.acceleration.captured else step


def bare_passes(backbone: ViT, images: int, blocks: int, length: int, tune_norms: bool) -> Step:
    """The passes that a step of PROL cannot avoid: query, prompted, and backward to prefixes and trained LayerNorms.

    There is no preprocessing, no search among keys, no loss and no update.
    """
    device, dtype = backbone.device, backbone.dtype
    random = torch.Generator().manual_seed(0)
    side = backbone.preprocessing.size
    inputs = torch.randn(images, 3, side, side, generator=random).to(device, dtype)
    direction = torch.randn(images, backbone.width, generator=random).to(device, dtype)
    shape = (images, backbone.heads, length, backbone.width // backbone.heads)
    prefixes = {
        block: tuple(torch.randn(shape, generator=random).to(device, dtype).requires_grad_() for _ in "kv")
        for block in range(blocks)
    }
    working = backbone.fork("norms" if tune_norms else "none")
    leaves = [*(part for pair in prefixes.values() for part in pair), *working.trained().values()]

    def step() -> object:
        with torch.no_grad():
            tokens = backbone.embed(inputs)
            backbone.encode(tokens)
        feature = working.encode(tokens, {block: (k, v) for block, (k, v) in prefixes.items()}).feature
        return torch.autograd.grad((feature * direction).sum(), leaves)

    return step


def captured(step: Step, device: torch.device) -> Step:
    """The same step as one CUDA graph, replayed without the overhead of Python."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device):
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # libraries initialise themselves in the first runs, which must not be captured
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(beside)
        with torch.cuda.graph(graph, stream=beside):
            step()
    return graph.replay

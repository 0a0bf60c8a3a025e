"""A run from its plan to its result, and the same run taken up again after whatever stopped it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch

from prol.artifacts import Checkpoints
from prol.artifacts.atomic import write_json
from prol.artifacts.tensors import file_sha256
from prol.datasets.cutting import cut_content
from prol.evaluation import Event, Finished, run_stream
from prol.runs.checkpointing import CheckpointWriter, go_back
from prol.runs.display import Display, Silent
from prol.runs.folder import RunFolder, make_default_folder
from prol.runs.log import EventLog
from prol.runs.plan import Plan
from prol.runs.setup import FORMAT, Setup, changes, set_up
from prol.runs.step_times import logged_step_seconds


def start(plan: Plan, out: str | Path | None = None, display: Display | None = None) -> RunFolder:
    """Carries out a plan in a new folder, `runs/METHOD-DATASET-seedN` when none is given.

    Returns:
        The folder, with `config.json`, `events.jsonl`, `result.json`, `timing.json`, `checkpoint/` and `model/`,
        and `split.json` where the data were cut here.
    """
    if out is not None:
        RunFolder(out).require_free()
    with _threads(plan.threads):
        setup = set_up(plan)
        folder = make_default_folder(plan.method, plan.dataset, plan.seed) if out is None else RunFolder(out)
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder.locked():
            folder.require_free()
            write_json(folder.config, setup.config)
            if setup.dataset.cut is not None:
                write_json(folder.split, cut_content(setup.dataset.cut))
            _carry_out(folder, setup, display or Silent())
    return folder


def resume(path: str | Path, display: Display | None = None) -> RunFolder:
    """Goes on with an unfinished run from its last good checkpoint; a finished one is left as it is.

    The result is bit for bit that of a run that was never stopped, on the same processor and versions.
    """
    folder, display = RunFolder(path), display or Silent()
    folder.require_run()
    if folder.status() == "finished":
        return folder
    with folder.locked():
        config = folder.read(folder.config)
        if config["format"] != FORMAT:
            raise ValueError(
                f"{folder.path} was begun by another version of prol, whose run format is {config['format']}, not "
                f"{FORMAT}: go on with that version, or start a new run"
            )
        with _threads(config["threads"]):
            setup = set_up(Plan.from_config(config))
            _require_same(config, setup.config, display.warn)
            _carry_out(folder, setup, display)
    return folder


def _carry_out(folder: RunFolder, setup: Setup, display: Display) -> None:
    learner, checkpoints = setup.learner, Checkpoints(folder.checkpoints)
    cursor, timing, offset = go_back(checkpoints, learner, display.warn)
    plan = Plan.from_config(setup.config)
    with EventLog(folder.events, offset) as log, display.showing(setup, folder.path, cursor):
        writer = CheckpointWriter(checkpoints, setup.config["checkpoint_every"], learner, cursor, log, timing)
        for note in setup.dataset.notes:
            display.warn(note)
        events = run_stream(
            learner,
            setup.dataset,
            setup.stream,
            cursor,
            measures=plan.measures,
            clock=plan.clock,
            workers=setup.config["workers"],
        )
        last = tell(events, [timing, log, writer, display])
        log.settle()
    assert isinstance(last, Finished)
    learner.save(folder.model)
    reused = setup.config["measures"]["reuse_features"] and learner.fixed != "nothing"
    write_json(folder.timing, timing.summary(features_reused=reused))
    if plan.clock is not None:
        write_json(folder.steps, {"step_seconds": logged_step_seconds(folder.events)})
    # Last of all: whoever finds it may take the run as finished.
    write_json(folder.result, asdict(last.result) | {"config_sha256": file_sha256(folder.config)})


def tell(
    events: Iterable[Event],
    listeners: Sequence[Callable[[Event, float], None]],
    clock: Callable[[], float] = time.perf_counter,
) -> Event | None:
    """Passes each event to all listeners, with the seconds it took to come about; returns the last one."""
    source, last = iter(events), None
    while True:
        began = clock()
        event = next(source, None)
        if event is None:
            return last
        seconds, last = clock() - began, event
        for listen in listeners:
            listen(event, seconds)


def _require_same(then: dict[str, object], now: dict[str, object], warn: Callable[[str], None]) -> None:
    """Data, weights and settings must be those of the start; other versions may only change the last bits."""
    for name, (old, new) in changes(then, now).items():
        if not name.startswith("versions."):
            raise ValueError(f"the run began with {name} {old!r}, now it is {new!r}: restore it, or start a new run")
        warn(f"the run began with {name.removeprefix('versions.')} {old}, now it is {new}: results may differ slightly")


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Sums are split among threads, so their number decides the last bits of every result."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)

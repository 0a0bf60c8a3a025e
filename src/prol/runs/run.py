"""A run from its plan to its result, and the same run taken up again after whatever stopped it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from prol.artifacts import Checkpoints
from prol.artifacts.atomic import write_json
from prol.artifacts.tensors import file_sha256
from prol.data.split import split_content
from prol.evaluation import Event, Finished, run_stream
from prol.runs.checkpointing import CheckpointWriter, go_back, what_must_stay
from prol.runs.display import Display, Silent
from prol.runs.folder import RunFolder, make_default_folder
from prol.runs.following import Follower, Listener, RunInView, followed
from prol.runs.images_hash import images_sha256
from prol.runs.log import EventLog
from prol.runs.plan import Plan
from prol.runs.setup import FORMAT, Setup, require_same, set_up
from prol.runs.step_times import logged_step_seconds
from prol.runs.stream_file import stream_content


def start(
    plan: Plan,
    out: str | Path | None = None,
    display: Display | None = None,
    listeners: Sequence[Listener | Follower] = (),
) -> RunFolder:
    """Carries out a plan in a new folder, `runs/METHOD-DATASET-seedN` when none is given.

    Args:
        listeners: are told every event; what they raise stops the run. It may go on with others.

    Returns:
        The folder, with `config.json`, `stream.json`, `events.jsonl`, `result.json`, `timing.json`, `checkpoint/` and
        `model/`, and `split.json` where the data were cut here.
    """
    if out is not None:
        RunFolder(out).require_free()
    with _threads(plan.threads):
        setup = set_up(plan)
        folder = make_default_folder(plan.method, plan.dataset, plan.seed) if out is None else RunFolder(out)
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder.locked():
            folder.require_free()
            with folder.writing():
                write_json(folder.config, setup.config)
                write_json(folder.stream, stream_content(setup))
                if setup.dataset.split is not None:
                    write_json(folder.split, split_content(setup.dataset.split))
            _carry_out(folder, setup, setup.config, display or Silent(), listeners)
    return folder


def resume(
    path: str | Path, display: Display | None = None, listeners: Sequence[Listener | Follower] = ()
) -> RunFolder:
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
            require_same(config, setup.config, display.warn)
            _carry_out(folder, setup, config, display, listeners)
    return folder


def _carry_out(
    folder: RunFolder,
    setup: Setup,
    config: Mapping[str, Any],
    display: Display,
    listeners: Sequence[Listener | Follower],
) -> None:
    """`config` is that of the start; what is set up now may have other versions."""
    learner, checkpoints, plan = setup.learner, Checkpoints(folder.checkpoints), Plan.from_config(setup.config)
    begun_with = what_must_stay(config) | {"images_sha256": images_sha256(setup.dataset)}
    with folder.writing():
        cursor, timing, offset = go_back(checkpoints, learner, begun_with, display.warn)
        log = EventLog(folder.events, offset)
    run = RunInView(config, folder.path, cursor, timing, display.warn)
    with followed(run, listeners) as others:
        with log, display.showing(setup, folder.path, cursor):
            writers: list[Listener] = [_into(folder, log)]
            if plan.checkpoint_every is not None:
                every, share = plan.checkpoint_every, plan.checkpoint_share
                writer = CheckpointWriter(checkpoints, every, share, begun_with, learner, cursor, log, timing)
                writers.append(_into(folder, writer))
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
            # Others before the checkpoint: what is behind one was told to them, what is not will be told again.
            last = tell(events, [timing, *others, *writers, display])
            with folder.writing():
                log.settle()
        assert isinstance(last, Finished)
        reused = setup.config["measures"]["reuse_features"] and learner.encoding != "none" and learner.frozen
        with folder.writing():
            learner.save(folder.model)
            write_json(folder.timing, timing.summary(features_reused=reused))
            if plan.clock is not None:
                write_json(folder.steps, {"step_seconds": logged_step_seconds(folder.events)})
            # Last of all: whoever finds it may take the run as finished.
            write_json(folder.result, asdict(last.result) | {"config_sha256": file_sha256(folder.config)})


def _into(folder: RunFolder, listen: Listener) -> Listener:
    """A listener that writes to the folder, and says what to do when it cannot."""

    def guarded(event: Event, seconds: float) -> None:
        with folder.writing():
            listen(event, seconds)

    return guarded


def tell(
    events: Iterable[Event],
    listeners: Sequence[Listener],
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


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Sums are split among threads, so their number decides the last bits of every result."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)

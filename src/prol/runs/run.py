"""A run from its plan to its result, and the same run resumed after an interruption."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from prol.data.split import split_content
from prol.evaluation import Cursor, Event, Finished, run_stream
from prol.files import json_text, write_json
from prol.method_files import label
from prol.runs.checkpoints import Checkpoints, CheckpointWriter, EventLog, fixed_settings, restore_newest
from prol.runs.display import Display, Silent
from prol.runs.folder import RunFolder, make_default_folder
from prol.runs.loading import saved_backbone_name
from prol.runs.plan import Plan
from prol.runs.setup import FORMAT, NOT_SETTINGS, Setup, images_sha256, require_same, set_up, stream_content
from prol.runs.threads import free_threads, torch_threads
from prol.runs.timing import Timing, logged_step_seconds

Listener = Callable[[Event, float], None]
"""Receives each event with the seconds it took."""


@dataclass(frozen=True)
class RunInView:
    """A run that starts, or resumes at `cursor`.

    `cursor` and `timing` are the run's own and advance with it: they are for reading only.
    """

    config: Mapping[str, Any]
    folder: Path
    cursor: Cursor
    timing: Timing
    warn: Callable[[str], None]


@runtime_checkable
class Follower(Protocol):
    """Provides a listener for the duration of a run; the context receives the exception that ended the run, if any.

    A follower may follow several runs, one after another or each in its own process.
    """

    def follow(self, run: RunInView) -> AbstractContextManager[Listener]: ...


def start(
    plan: Plan,
    out: str | Path | None = None,
    display: Display | None = None,
    listeners: Sequence[Listener | Follower] = (),
) -> RunFolder:
    """Runs a plan in a new folder, by default `runs/METHOD-DATASET-seedN`.

    Args:
        listeners: receive every event; an exception in one of them stops the run, which can be resumed without it.

    Returns:
        The folder, with `config.json`, `stream.json`, `events.jsonl`, `result.json`, `timing.json`, `checkpoint/` and
        `model/`, and `split.json` if prol split the data.
    """
    if out is not None:
        RunFolder(out).require_free()
    threads = plan.threads or free_threads()
    with torch_threads(threads):
        setup = set_up(replace(plan, threads=threads))
        folder = make_default_folder(label(plan.method), plan.dataset, plan.seed) if out is None else RunFolder(out)
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder.locked():
            folder.require_free()
            config = setup.config | {"load_start": _machine_load(), "processors": os.cpu_count()}
            with folder.writing():
                write_json(folder.config, config)
                write_json(folder.stream, stream_content(setup.dataset, setup.stream))
                if setup.dataset.split is not None:
                    write_json(folder.split, split_content(setup.dataset.split))
            _execute(folder, setup, config, display or Silent(), listeners)
    return folder


def resume(
    path: str | Path,
    display: Display | None = None,
    listeners: Sequence[Listener | Follower] = (),
    *,
    side_by_side: bool = False,
    backbone: str | None = None,
) -> RunFolder:
    """Resumes an unfinished run from its last undamaged checkpoint; a finished one is left unchanged.

    The result is bit for bit that of an uninterrupted run, on the same processor and versions.

    Args:
        side_by_side: whether other runs are running at the same time.
        backbone: where the run's weights are now, if they moved; by default where the run found them.
    """
    folder, display = RunFolder(path), display or Silent()
    folder.require_run()
    if folder.status() == "finished":
        return folder
    with folder.locked():
        config = folder.read(folder.config)
        if config["format"] != FORMAT:
            raise ValueError(
                f"{folder.path} was started by another version of prol, whose run format is {config['format']}, not "
                f"{FORMAT}: resume it with that version, or start a new run"
            )
        with torch_threads(config["threads"]):
            name = backbone or saved_backbone_name(config["backbone"], folder.path)
            setup = set_up(replace(Plan.from_config(config), backbone=name))
            require_same(config, setup.config, display.warn)
            if side_by_side and not config.get("side_by_side"):
                with folder.writing():
                    write_json(folder.config, config | {"side_by_side": True})
            _execute(folder, setup, config, display, listeners)
    return folder


def _execute(
    folder: RunFolder,
    setup: Setup,
    config: Mapping[str, Any],
    display: Display,
    listeners: Sequence[Listener | Follower],
) -> None:
    """`config` is that of the start; the set-up may have other versions."""
    learner, checkpoints, plan = setup.learner, Checkpoints(folder.checkpoints), Plan.from_config(setup.config)
    begun_with = fixed_settings(config) | {"images_sha256": images_sha256(setup.dataset)}
    with folder.writing():
        cursor, timing, offset = restore_newest(checkpoints, learner, begun_with, display.warn)
        log = EventLog(folder.events, offset)
    run = RunInView(config, folder.path, cursor, timing, display.warn)
    with ExitStack() as followed:
        others = [followed.enter_context(one.follow(run)) if isinstance(one, Follower) else one for one in listeners]
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
            # Listeners before the checkpoint: events before one reached them, later ones will be sent again.
            last = dispatch(events, [timing, *others, *writers, display])
            with folder.writing():
                log.flush()
        assert isinstance(last, Finished)
        reused = setup.config["measures"]["reuse_features"] and learner.encoding != "none" and learner.frozen
        with folder.writing():
            learner.save(folder.model)
            write_json(folder.timing, timing.summary(features_reused=reused) | {"load_end": _machine_load()})
            if plan.clock is not None:
                write_json(folder.steps, {"step_seconds": logged_step_seconds(folder.events)})
            # Last of all: it marks the run as finished.
            write_json(folder.result, asdict(last.result) | {"config_sha256": config_sha256(config)})


def config_sha256(config: Mapping[str, Any]) -> str:
    """The hash of `config.json` without what cannot influence the result."""
    covered = {name: value for name, value in config.items() if name not in NOT_SETTINGS}
    return hashlib.sha256(json_text(covered).encode()).hexdigest()


def _machine_load() -> float | None:
    """The mean number of running processes over the last minute; None where the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _into(folder: RunFolder, listen: Listener) -> Listener:
    """A listener that writes to the folder, and says what to do if it cannot."""

    def guarded(event: Event, seconds: float) -> None:
        with folder.writing():
            listen(event, seconds)

    return guarded


def dispatch(
    events: Iterable[Event], listeners: Sequence[Listener], clock: Callable[[], float] = time.perf_counter
) -> Event | None:
    """Passes each event to all listeners, with the seconds it took; returns the last one."""
    source, last = iter(events), None
    while True:
        began = clock()
        event = next(source, None)
        if event is None:
            return last
        seconds, last = clock() - began, event
        for listen in listeners:
            listen(event, seconds)

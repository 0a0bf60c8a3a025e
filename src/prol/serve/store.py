"""What a service has on disk: a saved learner and, beside it in `service/`, numbered checkpoints and a journal.

A checkpoint is one file with the learner and the service's records, so that the two can never disagree. It is written
whole or not at all. The journal has what later commits have changed. `open_service` starts from the newest checkpoint
and its journal, else from the saved learner, else from a new learner.
"""

from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch
from filelock import BaseFileLock

from prol import registry
from prol.backbones import Backbone, open_backbone
from prol.backbones.opening import pick_device
from prol.classes import read_labels, require_distinct
from prol.creation import require_blocks
from prol.files import UnsafeFile, current_folder, require_no_links, take_lock
from prol.learner import Learner, SavedState
from prol.method_files import is_file_word
from prol.runs.checkpoints import Checkpoints
from prol.runs.format import (
    CARD_FILE,
    HUB_FILE,
    META_FILE,
    MODEL_FILE,
    NEW_MODEL_FILE,
    OPERATIONS_FILE,
    Description,
    long_name,
    read_meta,
)
from prol.runs.loading import load, open_saved_backbone, require_same_weights, restored
from prol.runs.saving import finish_saving, save_into, saved_sha256
from prol.serve.changes import Update, replayed
from prol.serve.journal import MOST_ENTRIES, Entry, Journal
from prol.serve.records import Records
from prol.serve.settings import ServeOptions
from prol.typed_json import Count, problem_of

FORMAT = 1
SERVICE = "service"
SEVERAL_FILE = "learners.json"
"""In a folder of several learners."""
DEFAULT_METHOD = "prol_plus"

_OWN_FILES = {SERVICE, MODEL_FILE, NEW_MODEL_FILE, META_FILE, CARD_FILE, OPERATIONS_FILE, HUB_FILE}
_OWN_FILES |= {f".{name}.new" for name in (META_FILE, CARD_FILE, OPERATIONS_FILE)}


class _StoredRecords(TypedDict):
    images_learnt: Count
    answered: Count
    correct: Count
    recent: list[list[Count]]
    answers: list[list[Any]]
    artifact: list[str]
    operations: list[dict[str, Any]]
    to_write_out: NotRequired[bool]


class _StoredLearner(TypedDict):
    classes: list[Any]
    method: dict[str, Any]


class _Stored(TypedDict):
    """What every checkpoint of a service holds besides tensors."""

    about: Description
    learner: _StoredLearner
    records: _StoredRecords


@dataclass(frozen=True)
class Recovered:
    """The last commit, from the newest good checkpoint and its journal; `description` is what `describe` gave."""

    version: int
    description: dict[str, Any]
    state: SavedState
    records: Records


class Store:
    """The folder of one service: its checkpoints, its saved learner, and the lock against a second server."""

    def __init__(self, folder: Path, checkpoints: int, journal: bool = True) -> None:
        self.folder = folder
        self.place = folder / SERVICE
        self.checkpoints = Checkpoints(self.place, checkpoints)
        self.journal = Journal(self.place)
        self.uses_journal = journal
        self._lock: BaseFileLock | None = None

    def lock(self) -> None:
        """Excludes other servers; the lock ends with the process at the latest."""
        for place in (self.folder, self.place):
            require_no_links(place)
        if self.place.exists() and not self.place.is_dir():
            raise ValueError(f"{self.place} is not a folder: the service stores its state there, so move it away")
        self.place.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = take_lock(self.place)
        except UnsafeFile:
            raise
        except ValueError:
            raise ValueError(f"another server is running in {self.folder}: stop it, or serve a copy") from None

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def recover(self, warn: Callable[[str], None], device: torch.device | str = "cpu") -> Recovered | None:
        """The last commit. Versions continue after the highest one, even if that one is damaged.

        Entries of the journal are replayed on a device; that of the learner gives the same bits.
        """
        highest = self.checkpoints.newest_number()
        newest = self.checkpoints.find_newest(warn, remove_damaged=False)
        if highest is None:
            return None
        if newest is None:
            raise ValueError(
                f"no checkpoint in {self.place} can be read: put back a copy of one, or move the folder away to start "
                "from the saved learner, which may lack what was learnt since"
            )
        content = newest.content
        if content.get("format") != FORMAT:
            raise ValueError(
                f"{self.place} has format {content.get('format')!r}, this version of prol reads {FORMAT}: "
                "serve it with a matching prol"
            )
        problem = problem_of(content, _Stored) or long_name(content["about"])
        try:
            if problem is not None:
                raise ValueError(problem)
            require_distinct(read_labels(content["learner"]["classes"]))
            records = Records.from_json(content["records"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"the newest checkpoint in {self.place} is damaged: {error}; remove it") from error
        state: SavedState = newest.tensors, content["learner"]
        try:
            entries, whole = self.journal.read(newest.number, newest.checksum, warn)
            for entry in entries:
                records = entry.records_after(records)
            # As they are read from a checkpoint: lists, not tuples.
            if (problem := problem_of(json.loads(json.dumps(records.to_json())), _StoredRecords)) is not None:
                raise ValueError(problem)
            state = replayed(state, [entry.update for entry in entries], device) if entries else state
            require_distinct(read_labels(state[1]["classes"]))
        except UnsafeFile:
            raise
        except (LookupError, TypeError, ValueError) as error:
            remedy = "move it away to start without it"
            raise ValueError(f"the journal in {self.place} is damaged: {error}; {remedy}") from error
        last = entries[-1].version if entries else newest.number
        if not whole:  # a version that was acknowledged must not be used again
            last = max(last, newest.number + MOST_ENTRIES)
        return Recovered(max(highest, last), content["about"], state, records)

    def append(self, version: int, update: Update, before: Records, after: Records) -> None:
        """Adds a commit to the journal, and returns when it is on disk; if it raises, the previous commit remains."""
        self._require_own(version)
        self.journal.append(Entry.of(version, update, before, after))

    def commit(self, version: int, description: dict[str, Any], state: SavedState, records: Records) -> None:
        """Returns when everything is on disk; if it raises, the previous checkpoint remains the newest."""
        self._require_own(version)
        content = {"format": FORMAT, "about": description, "learner": state[1], "records": records.to_json()}
        try:
            checksum = self.checkpoints.write(version, state[0], content)
        except BaseException:
            self.checkpoints.drop_after(version - 1)
            raise
        self.journal.restart(version, checksum)

    def _require_own(self, version: int) -> None:
        """A start would take a newer checkpoint for the service's own, and lose a commit of this version."""
        newest = self.checkpoints.newest_number()
        if newest is not None and newest >= version:
            raise FileExistsError(errno.EEXIST, f"somebody else has put checkpoint {newest} into its folder")

    def replaced(self, records: Records) -> str | None:
        """Says so if the saved learner in the folder is none that the service has written or read."""
        present = saved_sha256(self.folder)
        if present is None or present in records.artifact:
            return None
        return f"the saved learner in {self.folder} was replaced while it is being served: it stays as it is"

    def save(
        self, learner: Learner, announce: Callable[[str], None], operations: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Writes the saved learner; `announce` receives the hash of its model before anything is replaced."""
        save_into(learner, self.folder, announce, operations)


def describe(learner: Learner) -> dict[str, Any]:
    """Everything besides its state that is needed to build a learner again."""
    return {
        "method": learner.name,
        "options": dataclasses.asdict(learner.options),
        "seed": learner.seed,
        "precision": learner.backbone.precision,
        "backbone": {"name": learner.backbone.name, "sha256": learner.backbone.sha256},
        "preprocessing": dataclasses.asdict(learner.preprocessing),
    }


@dataclass(frozen=True)
class Opened:
    """A learner, the service's records, and the version of the commit that holds both."""

    learner: Learner
    records: Records
    version: int
    backbone: str | None = None
    """Where the weights of the backbone are, if not where the saved learner says."""


def open_service(
    store: Store, options: ServeOptions, warn: Callable[[str], None], backbone: Backbone | None = None
) -> Opened:
    """Opens or creates the service in the store's folder, and locks it. Everything it returns is durable.

    Without an open `backbone`, the one is opened that the options or the saved learner name.
    """
    folder = store.folder
    _require_usable(store)
    store.lock()
    finish_saving(folder)
    recovered = store.recover(warn, pick_device(options.device))
    if recovered is not None:
        opened = _from_checkpoint(store, recovered, options, backbone)
    elif (folder / META_FILE).exists():
        opened = _from_artifact(folder, options, backbone)
    else:
        opened = _new(store, options, backbone)
    store.journal.erase(before=store.checkpoints.newest_number() or 0)
    if opened.learner.needs_tasks():
        raise ValueError(f"{opened.learner.name} with these options needs task boundaries, which a service cannot give")
    if recovered is None:
        store.commit(opened.version, describe(opened.learner), opened.learner.state(), opened.records)
    return opened


def _require_usable(store: Store) -> None:
    """Says why a folder cannot be served; restores one that a killed `learner.save` has left under another name."""
    folder = store.folder
    current = current_folder(folder)
    if current != folder:
        current.rename(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name the folder of a saved learner, or one that does not exist yet")
    names = {part.name for part in folder.iterdir()} if folder.exists() else set()
    begun = SERVICE in names and (names <= _OWN_FILES or store.checkpoints.newest_number() is not None)
    if SEVERAL_FILE in names:
        raise ValueError(f"{folder} holds several learners: give --several, or name the folder of one")
    if names and META_FILE not in names and not begun:
        raise ValueError(f"{folder} holds {min(names)} and no saved learner: choose another folder")


def _from_checkpoint(store: Store, recovered: Recovered, options: ServeOptions, backbone: Backbone | None) -> Opened:
    folder, records = store.folder, recovered.records
    present = saved_sha256(folder)
    if present is not None and present not in records.artifact:
        raise ValueError(
            f"the saved learner in {folder} is not the one that its service wrote: to serve it as it is now and forget "
            f"what the service has learnt since, move {store.place} away; to resume what the service has learnt, "
            f"move {folder / META_FILE} away"
        )
    _require_no_new_options(folder, options)
    method = registry.registered_method(recovered.description["method"])
    if backbone is None:
        backbone = open_saved_backbone(recovered.description, folder, options.backbone, device=options.device)
    else:
        require_same_weights(backbone, recovered.description["backbone"], folder)
    learner = restored(method, backbone, recovered.description, recovered.state, folder)
    return Opened(learner, records, recovered.version, options.backbone)


def _from_artifact(folder: Path, options: ServeOptions, backbone: Backbone | None) -> Opened:
    _require_no_new_options(folder, options)
    learner, meta = load(folder, backbone or options.backbone, device=options.device), read_meta(folder)
    images = (meta.get("seen") or {}).get("images")
    records = Records(images_learnt=images or 0, artifact=[meta["model_sha256"]])
    return Opened(learner, records, 0, options.backbone)


def _new(store: Store, options: ServeOptions, backbone: Backbone | None) -> Opened:
    name = options.method or DEFAULT_METHOD
    if is_file_word(name):
        raise ValueError(f"a service restarts by itself and executes no file, such as {name}: register the method")
    method = registry.method(name)
    method_options = method.read_options(options.options)
    backbone = backbone or open_backbone(options.backbone or "builtin", device=options.device)
    require_blocks(method, backbone)
    learner = method(backbone, method_options, options.seed)
    written: list[str] = []
    store.save(learner, written.append)
    return Opened(learner, Records(artifact=written), 0)


def _require_no_new_options(folder: Path, options: ServeOptions) -> None:
    if options.method is not None or options.options:
        raise ValueError(
            f"{folder} holds a learner already: --method and --option are for a new one, so leave them out"
        )

"""What a service has on disk: a saved learner and, beside it in `service/`, numbered checkpoints.

A checkpoint is one file with the learner and the service's records, so that the two can never disagree. It is written
whole or not at all. `open_service` starts from the newest one, else from the saved learner, else from a new learner.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from filelock import BaseFileLock

from prol import registry
from prol.backbones import open_backbone
from prol.classes import Label, read_labels, require_distinct
from prol.creation import require_blocks
from prol.files import UnsafeFile, current_folder, require_no_links, take_lock
from prol.learner import Learner, SavedState
from prol.runfiles import Count, problem_of
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
from prol.runs.loading import load, open_saved_backbone, restored
from prol.runs.saving import finish_saving, save_into, saved_sha256
from prol.serve.settings import ServeOptions

FORMAT = 1
SERVICE = "service"
DEFAULT_METHOD = "prol_plus"
MAX_RECENT = 100

_OWN_FILES = {SERVICE, MODEL_FILE, NEW_MODEL_FILE, META_FILE, CARD_FILE, OPERATIONS_FILE, HUB_FILE}
_OWN_FILES |= {f".{name}.new" for name in (META_FILE, CARD_FILE, OPERATIONS_FILE)}


@dataclass(frozen=True)
class Key:
    """An idempotency key and the request's content, both as hashes."""

    name: str
    content: str

    @classmethod
    def of(cls, given: str, content: str) -> Key:
        return cls(digest(given.encode("ascii")), content)


def digest(*parts: bytes) -> str:
    """A hash of 128 bits that also depends on where each part ends."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.hexdigest()[:32]


def labels_digest(labels: Sequence[Label]) -> bytes:
    """Distinguishes text from integers: 1 is not "1"."""
    return digest(*(f"{type(label).__name__}:{label}".encode() for label in labels)).encode()


@dataclass
class Records:
    """What of the service itself must survive a crash. The field names are the keys in the checkpoint.

    `answered` and `correct` count predictions that were labelled later, `recent` both for the last such chunks.
    `answers` holds the results of requests with an idempotency key, by the key's hash, oldest first. `artifact`
    holds hashes of saved models that the service has written or read, `operations` the changes of classes since.
    `to_write_out`: older files hold a class that was removed.
    """

    images_learnt: int = 0
    answered: int = 0
    correct: int = 0
    recent: list[tuple[int, int]] = field(default_factory=list)
    answers: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    artifact: list[str] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    to_write_out: bool = False

    def copy(self) -> Records:
        """Independent except for the results in `answers`, which are never changed."""
        return dataclasses.replace(
            self,
            recent=list(self.recent),
            answers=dict(self.answers),
            artifact=list(self.artifact),
            operations=list(self.operations),
        )

    def remember(self, key: Key, result: dict[str, Any], max_keys: int) -> None:
        self.answers[key.name] = key.content, result
        while len(self.answers) > max_keys:
            del self.answers[next(iter(self.answers))]

    def count_labelled(self, images: int, correct: int) -> None:
        self.answered += images
        self.correct += correct
        self.recent = [*self.recent, (images, correct)][-MAX_RECENT:]

    def to_json(self) -> dict[str, Any]:
        answers = [[name, content, result] for name, (content, result) in self.answers.items()]
        return {part.name: getattr(self, part.name) for part in dataclasses.fields(self)} | {"answers": answers}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Records:
        answers = {name: (digested, result) for name, digested, result in content["answers"]}
        recent = [(images, correct) for images, correct in content["recent"]]
        # Services of 0.1.0 had a calibration of their own; the learner has one since.
        current = {name: value for name, value in content.items() if name != "novelty"}
        return cls(**(current | {"answers": answers, "recent": recent}))


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
    """The content of the newest good checkpoint; `description` is what `describe` gave."""

    version: int
    description: dict[str, Any]
    state: SavedState
    records: Records


class Store:
    """The folder of one service: its checkpoints, its saved learner, and the lock against a second server."""

    def __init__(self, folder: Path, checkpoints: int) -> None:
        self.folder = folder
        self.place = folder / SERVICE
        self.checkpoints = Checkpoints(self.place, checkpoints)
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

    def recover(self, warn: Callable[[str], None]) -> Recovered | None:
        """The newest good checkpoint. Versions continue after the highest one, even if that one is damaged."""
        highest = self.checkpoints.newest_number()
        newest = self.checkpoints.read_newest(warn, remove_damaged=False)
        if highest is None:
            return None
        if newest is None:
            raise ValueError(
                f"no checkpoint in {self.place} can be read: put back a copy of one, or move the folder away to start "
                "from the saved learner, which may lack what was learnt since"
            )
        tensors, content = newest
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
        return Recovered(highest, content["about"], (tensors, content["learner"]), records)

    def commit(self, version: int, description: dict[str, Any], state: SavedState, records: Records) -> None:
        """Returns when everything is on disk; if it raises, the previous checkpoint remains the newest."""
        newest = self.checkpoints.newest_number()
        if newest is not None and newest >= version:  # a start would take it for the service's own, and lose this one
            raise FileExistsError(errno.EEXIST, f"somebody else has put checkpoint {newest} into its folder")
        content = {"format": FORMAT, "about": description, "learner": state[1], "records": records.to_json()}
        try:
            self.checkpoints.write(version, state[0], content)
        except BaseException:
            self.checkpoints.drop_after(version - 1)
            raise

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


def open_service(store: Store, options: ServeOptions, warn: Callable[[str], None]) -> Opened:
    """Opens or creates the service in the store's folder, and locks it. Everything it returns is durable."""
    folder = store.folder
    _require_usable(store)
    store.lock()
    finish_saving(folder)
    recovered = store.recover(warn)
    if recovered is not None:
        opened = _from_checkpoint(store, recovered, options)
    elif (folder / META_FILE).exists():
        opened = _from_artifact(folder, options)
    else:
        opened = _new(store, options)
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
    if names and META_FILE not in names and not begun:
        raise ValueError(f"{folder} holds {min(names)} and no saved learner: choose another folder")


def _from_checkpoint(store: Store, recovered: Recovered, options: ServeOptions) -> Opened:
    folder, records = store.folder, recovered.records
    present = saved_sha256(folder)
    if present is not None and present not in records.artifact:
        raise ValueError(
            f"the saved learner in {folder} is not the one that its service wrote: to serve it as it is now and forget "
            f"what the service has learnt since, move {store.place} away; to resume what the service has learnt, "
            f"move {folder / META_FILE} away"
        )
    _require_no_new_options(folder, options)
    method = registry.method(recovered.description["method"])
    backbone = open_saved_backbone(recovered.description, folder, options.backbone, device=options.device)
    learner = restored(method, backbone, recovered.description, recovered.state, folder)
    return Opened(learner, records, recovered.version)


def _from_artifact(folder: Path, options: ServeOptions) -> Opened:
    _require_no_new_options(folder, options)
    learner, meta = load(folder, options.backbone, device=options.device), read_meta(folder)
    images = (meta.get("seen") or {}).get("images")
    return Opened(learner, Records(images_learnt=images or 0, artifact=[meta["model_sha256"]]), 0)


def _new(store: Store, options: ServeOptions) -> Opened:
    method = registry.method(options.method or DEFAULT_METHOD)
    method_options = method.read_options(options.options)
    backbone = open_backbone(options.backbone or "builtin", device=options.device)
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

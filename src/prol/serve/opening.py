"""What a service starts from: its newest checkpoint, else a saved learner, else a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prol import registry
from prol.backbones import open_backbone
from prol.files import current_folder
from prol.learner import Learner
from prol.runs.format import CARD_FILE, HUB_FILE, META_FILE, MODEL_FILE, NEW_MODEL_FILE, OPERATIONS_FILE, read_meta
from prol.runs.loading import load, open_saved_backbone, restored
from prol.runs.saving import finish_saving, saved_sha256
from prol.serve.records import Records
from prol.serve.settings import Plan
from prol.serve.store import SERVICE, Recovered, Store, about

DEFAULT_METHOD = "prol_plus"

_OWN = {SERVICE, MODEL_FILE, NEW_MODEL_FILE, META_FILE, CARD_FILE, OPERATIONS_FILE, HUB_FILE}
_OWN |= {f".{name}.new" for name in (META_FILE, CARD_FILE, OPERATIONS_FILE)}


@dataclass(frozen=True)
class Opened:
    """A learner, the service's records, and the number of the commit that holds both."""

    learner: Learner
    records: Records
    version: int


def open_service(store: Store, plan: Plan, warn: Callable[[str], None]) -> Opened:
    """Opens or makes what lies in the store's folder, which is locked from here on. All of it is durable then."""
    folder = store.folder
    _require_usable(store)
    store.lock()
    finish_saving(folder)
    recovered = store.recover(warn)
    if recovered is not None:
        opened = _from_checkpoint(store, recovered, plan)
    elif (folder / META_FILE).exists():
        opened = _from_artifact(folder, plan)
    else:
        opened = _new(store, plan)
    if opened.learner.needs_tasks():
        raise ValueError(f"{opened.learner.name} with these options must be told of tasks, which a service cannot do")
    if recovered is None:
        store.commit(opened.version, about(opened.learner), opened.learner.state(), opened.records)
    return opened


def _require_usable(store: Store) -> None:
    """Says why a folder cannot be served; puts one back that a killed `learner.save` has left under another name."""
    folder = store.folder
    waiting = current_folder(folder)
    if waiting != folder:
        waiting.rename(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name the folder of a saved learner, or one that does not exist yet")
    names = {part.name for part in folder.iterdir()} if folder.exists() else set()
    begun = SERVICE in names and (names <= _OWN or store.checkpoints.newest_number() is not None)
    if names and META_FILE not in names and not begun:
        raise ValueError(f"{folder} holds {min(names)} and no saved learner: choose another folder")


def _from_checkpoint(store: Store, recovered: Recovered, plan: Plan) -> Opened:
    folder, records = store.folder, recovered.records
    present = saved_sha256(folder)
    if present is not None and present not in records.artifact:
        raise ValueError(
            f"the saved learner in {folder} is not the one that its service wrote: to serve it as it is now and forget "
            f"what the service has learnt since, move {store.place} away; to go on with what the service has learnt, "
            f"move {folder / META_FILE} away"
        )
    _require_nothing_new(folder, plan)
    kind = registry.method(recovered.about["method"])
    backbone = open_saved_backbone(recovered.about, folder, plan.backbone, device=plan.device)
    learner = restored(kind, backbone, recovered.about, recovered.state, folder)
    return Opened(learner, records, recovered.version)


def _from_artifact(folder: Path, plan: Plan) -> Opened:
    _require_nothing_new(folder, plan)
    learner, meta = load(folder, plan.backbone, device=plan.device), read_meta(folder)
    images = (meta.get("seen") or {}).get("images")
    return Opened(learner, Records(images_learnt=images or 0, artifact=[meta["model_sha256"]]), 0)


def _new(store: Store, plan: Plan) -> Opened:
    kind = registry.method(plan.method or DEFAULT_METHOD)
    options = kind.read_options(plan.options)
    learner = kind(open_backbone(plan.backbone or "builtin", device=plan.device), options, plan.seed)
    written: list[str] = []
    store.save(learner, written.append)
    return Opened(learner, Records(artifact=written), 0)


def _require_nothing_new(folder: Path, plan: Plan) -> None:
    if plan.method is not None or plan.options:
        raise ValueError(
            f"{folder} holds a learner already: --method and --option are for a new one, so leave them out"
        )

"""`prol.load` and `prol.save`: learners in folders, and from a hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from prol.runs.loading import load as load_folder
from prol.runs.saving import save as save_folder

if TYPE_CHECKING:
    from prol.backbones import Backbone
    from prol.learner import Learner

HUB = "hub:"


def load(
    source: str | Path,
    backbone: Backbone | str | None = None,
    *,
    device: str = "auto",
    precision: str | None = None,
    method: type[Learner] | str | None = None,
) -> Learner:
    """A learner that resumes where the saved one was.

    Args:
        source: the folder that `learner.save` wrote, or "hub:OWNER/NAME" or "hub:OWNER/NAME@REVISION", which is
            fetched and checked, and not stored.
        backbone: an open one to use, the name of one to open, or a copy of a built-in network's file; without it, the
            one named in the artifact is opened, and of the networks that come with prol the one with its hash.
        device: where to open the backbone.
        precision: of the backbone to open; as saved when not given, but float32 for bf16 on a CPU.
        method: the learner's class, or `FILE.py:Class`, for a method that is not registered under a name. A file is
            executed only if it is named here, and has the hash that it had when the learner was saved.
    """
    if not str(source).startswith(HUB):
        return load_folder(source, backbone, device=device, precision=precision, method=method)
    from prol.integrations.hub import pull

    repository, _, revision = str(source).removeprefix(HUB).partition("@")
    with tempfile.TemporaryDirectory(prefix="prol-") as place:
        folder = Path(place, "pulled")
        pull(repository, folder, revision=revision or None)
        return load_folder(folder, backbone, device=device, precision=precision, method=method)


def save(learner: Learner, folder: str | Path, least_count: int = 0) -> None:
    """Writes `model.safetensors`, `meta.json` and a model card; `load(folder)` resumes from there.

    Classes of fewer than `least_count` images are omitted.
    """
    save_folder(learner, Path(folder), least_count=least_count)

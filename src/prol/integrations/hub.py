"""Saved learners on a Hugging Face hub: three files go up, and those three come down, checked before they appear."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prol.files import write_folder, write_json
from prol.integrations.hub_errors import LOG_IN, HubError, told_plainly
from prol.runs.format import CARD_FILE, HUB_FILE, META_FILE, MODEL_FILE, require_no_pickles
from prol.runs.loading import read_checked
from prol.runs.saving import require_replaceable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FILES = (MODEL_FILE, META_FILE, CARD_FILE)
"""All that is ever sent or fetched."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Commit:
    """Where files lie on the hub: a repository, and the commit's full hash."""

    repository: str
    commit: str


def push(
    folder: str | Path,
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    endpoint: str | None = None,
    token: str | None = None,
) -> Commit:
    """Uploads a saved learner as one commit; nothing else that may lie in the folder goes along.

    Args:
        folder: what `learner.save` or `prol export` wrote; a damaged one is refused.
        repository: OWNER/NAME, made if it is not there.
        private: whether only its owner may see it; one that is there and open to all is refused then.
        revision: the branch, made if it is not there; main by default.
        endpoint: address of the hub; as HF_ENDPOINT says by default.
        token: a token that may write; the one logged in with by default.
    """
    place = Path(folder).resolve()
    _require_name(repository)
    _, model = read_checked(place)
    if not (place / CARD_FILE).is_file():
        raise FileNotFoundError(f"{place} has no {CARD_FILE}, the model card: load it and save it again")
    api = _api(endpoint, token)
    from huggingface_hub import CommitOperationAdd, get_token

    if api.token is None and get_token() is None:
        raise HubError(f"sending something to the hub needs a token: {LOG_IN}")
    with told_plainly(repository, revision, api.endpoint):
        if private:
            api.create_repo(repository, private=True, exist_ok=True)
        else:  # as its owner's settings have it
            api.create_repo(repository, exist_ok=True)
        if private and not api.model_info(repository).private:
            raise HubError(f"{repository} is there already and open to all: nothing was sent; choose another name")
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        # A save that was killed half way has left the model that meta.json tells of under another name.
        files = [CommitOperationAdd(name, str(model if name == MODEL_FILE else place / name)) for name in FILES]
        made = api.create_commit(repository, files, commit_message="A learner saved by prol", revision=revision)
    return Commit(repository, made.oid)


def pull(
    repository: str,
    folder: str | Path,
    *,
    revision: str | None = None,
    endpoint: str | None = None,
    token: str | None = None,
) -> Commit:
    """Fetches a saved learner; the folder appears when all of it is there and its checksum is right, or not at all.

    Beside the three files it holds `hub.json`, which says where they come from.

    Args:
        repository: OWNER/NAME.
        folder: where to put it; a saved learner that is there is replaced, anything else refused.
        revision: a branch, a tag or a commit; main by default.
        endpoint: address of the hub; as HF_ENDPOINT says by default.
        token: a token that may read; the one logged in with by default.
    """
    place = Path(folder).resolve()
    _require_name(repository)
    require_replaceable(place)
    api = _api(endpoint, token)
    with told_plainly(repository, revision, api.endpoint):
        found = api.model_info(repository, revision=revision)
    names = {part.rfilename for part in found.siblings or ()}
    require_no_pickles(names, f"{repository} on the hub")
    missing = [name for name in FILES if name not in names]
    if missing:
        raise HubError(f"{repository} on the hub is not a saved learner of prol: it has no {missing[0]}")
    if found.sha is None:
        raise HubError(f"{repository} on the hub has no commit: nothing was ever sent there")
    commit = Commit(repository, found.sha)

    def fill(unfinished: Path) -> None:
        with told_plainly(repository, revision, api.endpoint):
            for name in FILES:
                # Into the folder itself, never out of a cache: what was damaged once would stay so.
                api.hf_hub_download(repository, name, revision=commit.commit, local_dir=unfinished, force_download=True)
        shutil.rmtree(unfinished / ".cache", ignore_errors=True)
        try:
            read_checked(unfinished)
        except (ValueError, OSError) as error:
            said = str(error).replace(f"{unfinished}{os.sep}", "").replace(str(unfinished), "the folder")
            raise HubError(f"{repository} at {commit.commit[:12]} was not taken: {said}") from error
        origin = {"repository": repository, "revision": revision or "main", "commit": commit.commit}
        write_json(unfinished / HUB_FILE, origin)

    write_folder(place, fill)
    return commit


def _api(endpoint: str | None, token: str | None) -> HfApi:
    from huggingface_hub import HfApi

    import prol

    where = endpoint or os.environ.get("HF_ENDPOINT") or None
    return HfApi(endpoint=where, token=token, library_name="prol", library_version=prol.__version__)


def _require_name(repository: str) -> None:
    if not _NAME.fullmatch(repository):
        raise ValueError(f"{repository!r} is no repository of a hub: write OWNER/NAME")

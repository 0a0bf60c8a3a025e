"""Saved learners on the Hugging Face Hub: three files are uploaded, and those three are downloaded and verified."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prol.files import write_folder, write_json
from prol.integrations import first_line
from prol.runs.format import CARD_FILE, HUB_FILE, META_FILE, MODEL_FILE, require_no_pickles
from prol.runs.loading import read_checked
from prol.runs.saving import require_replaceable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FILES = (MODEL_FILE, META_FILE, CARD_FILE)
"""Only these are ever uploaded or downloaded."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
_CLIENT_PACKAGES = ("huggingface_hub", "httpx", "requests", "urllib3", "hf_xet")
"""Packages whose exceptions concern the Hub or the connection to it."""


class HubError(ValueError):
    """An upload or a download failed."""


@dataclass(frozen=True)
class Commit:
    """A repository on the Hub, and the full hash of a commit."""

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
    """Uploads a saved learner as one commit; other files in the folder are not uploaded.

    Args:
        folder: what `learner.save` or `prol export` wrote; a damaged one is refused.
        repository: OWNER/NAME, created if it does not exist.
        private: whether only its owner may see it; an existing public repository is then refused.
        revision: the branch, created if it does not exist; main by default.
        endpoint: URL of the Hub; HF_ENDPOINT by default.
        token: a token with write access; the stored login by default.
    """
    place = Path(folder).resolve()
    _require_name(repository)
    _, model = read_checked(place)
    if not (place / CARD_FILE).is_file():
        raise FileNotFoundError(f"{place} has no {CARD_FILE}, the model card: load it and save it again")
    api = _api(endpoint, token)
    from huggingface_hub import CommitOperationAdd, get_token

    if api.token is None and get_token() is None:
        raise HubError(f"uploading to the Hub needs a token: {_LOG_IN}")
    with _hub_errors(repository, revision, api.endpoint):
        if private:
            api.create_repo(repository, private=True, exist_ok=True)
        else:  # the visibility is left to the settings of its owner
            api.create_repo(repository, exist_ok=True)
        if private and not api.model_info(repository).private:
            raise HubError(f"{repository} exists and is public: nothing was uploaded; choose another name")
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        # A save that was killed half way has left the model that meta.json describes under another name.
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
    """Downloads a saved learner; the folder appears complete and with the right checksum, or not at all.

    Besides the three files it contains `hub.json`, which records their origin.

    Args:
        repository: OWNER/NAME.
        folder: where to write it; an existing saved learner is replaced, anything else is refused.
        revision: a branch, a tag or a commit; main by default.
        endpoint: URL of the Hub; HF_ENDPOINT by default.
        token: a token with read access; the stored login by default.
    """
    place = Path(folder).resolve()
    _require_name(repository)
    require_replaceable(place)
    api = _api(endpoint, token)
    with _hub_errors(repository, revision, api.endpoint):
        found = api.model_info(repository, revision=revision)
    names = {part.rfilename for part in found.siblings or ()}
    require_no_pickles(names, f"{repository} on the Hub")
    missing = [name for name in FILES if name not in names]
    if missing:
        raise HubError(f"{repository} on the Hub is not a saved learner of prol: it has no {missing[0]}")
    if found.sha is None:
        raise HubError(f"{repository} on the Hub has no commit: nothing was ever uploaded there")
    commit = Commit(repository, found.sha)

    def fill(unfinished: Path) -> None:
        with _hub_errors(repository, revision, api.endpoint):
            for name in FILES:
                # Never from the cache: a damaged file there would stay damaged.
                api.hf_hub_download(repository, name, revision=commit.commit, local_dir=unfinished, force_download=True)
        shutil.rmtree(unfinished / ".cache", ignore_errors=True)
        try:
            read_checked(unfinished)
        except (ValueError, OSError) as error:
            reason = str(error).replace(f"{unfinished}{os.sep}", "").replace(str(unfinished), "the folder")
            raise HubError(f"{repository} at {commit.commit[:12]} was refused: {reason}") from error
        origin = {"repository": repository, "revision": revision or "main", "commit": commit.commit}
        write_json(unfinished / HUB_FILE, origin)

    write_folder(place, fill)
    return commit


def _api(endpoint: str | None, token: str | None) -> HfApi:
    from huggingface_hub import HfApi

    import prol

    url = endpoint or os.environ.get("HF_ENDPOINT") or None
    return HfApi(endpoint=url, token=token, library_name="prol", library_version=prol.__version__)


def _require_name(repository: str) -> None:
    if not _NAME.fullmatch(repository):
        raise ValueError(f"{repository!r} is not the name of a repository: write OWNER/NAME")


@contextmanager
def _hub_errors(repository: str, revision: str | None, endpoint: str) -> Iterator[None]:
    """Turns every error of the Hub or of the connection into a `HubError` of one line; other errors pass through."""
    try:
        yield
    except Exception as error:
        chain: list[BaseException] = [error]
        while (cause := chain[-1].__cause__) is not None:
            chain.append(cause)
        from_client = any(type(e).__module__.startswith(_CLIENT_PACKAGES) for e in chain)
        if not from_client and not any(isinstance(e, ConnectionError | TimeoutError) for e in chain):
            raise
        kinds = {type(e).__name__ for e in chain}
        statuses = (getattr(getattr(e, "response", None), "status_code", None) for e in chain)
        status = next((code for code in statuses if isinstance(code, int)), None)
        if "OfflineModeIsEnabled" in kinds:
            message = "HF_HUB_OFFLINE is set, so the Hub is not contacted: unset it"
        elif status is None:
            message = f"the Hub at {endpoint} cannot be reached ({first_line(chain[-1])}): are you offline?"
        elif "RevisionNotFoundError" in kinds:
            message = f"{repository} has no revision {revision!r} on the Hub: see its branches, tags and commits there"
        elif "GatedRepoError" in kinds:
            message = f"{repository} is gated: request access on its page, then {_LOG_IN}"
        elif status == 401:
            message = f"the Hub denies access to {repository} (401): check the name; where it needs a token, {_LOG_IN}"
        elif status == 403:
            message = f"the Hub refuses {repository} (403): the token has no access to it; use another one, {_LOG_IN}"
        elif status == 404:
            message = f"the Hub has no repository {repository} (404): check the name; for a private one, {_LOG_IN}"
        else:
            message = f"the Hub returned {status} for {repository}: {first_line(error)}"
        raise HubError(message) from error

"""What a model hub or the way to it has to complain about, in one line that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"

_THEIRS = ("huggingface_hub", "httpx", "requests", "urllib3", "hf_xet")
"""Packages whose errors are those of the hub or of the way to it."""


class HubError(ValueError):
    """Why something could not be sent to a hub, or had from it."""


@contextmanager
def told_plainly(repository: str, revision: str | None, endpoint: str) -> Iterator[None]:
    """Turns whatever goes wrong between here and the hub into a `HubError`; other errors stay as they are."""
    try:
        yield
    except Exception as error:
        causes = list(_causes(error))
        if not any(isinstance(cause, ConnectionError | TimeoutError) or _is_theirs(cause) for cause in causes):
            raise
        status = next((found for cause in causes if (found := _status(cause)) is not None), None)
        kinds = {type(cause).__name__ for cause in causes}
        if status is None:
            raise HubError(_unreached(causes, kinds, endpoint)) from error
        raise HubError(_refused(status, kinds, repository, revision, _line(causes[0]))) from error


def _unreached(causes: list[BaseException], kinds: set[str], endpoint: str) -> str:
    if "OfflineModeIsEnabled" in kinds:
        return "HF_HUB_OFFLINE is set, so the hub is not asked: unset it"
    return f"the hub at {endpoint} cannot be reached ({_line(causes[-1])}): are you offline?"


def _refused(status: int, kinds: set[str], repository: str, revision: str | None, said: str) -> str:
    if "RevisionNotFoundError" in kinds:
        return f"{repository} has no revision {revision!r} on the hub: look there for its branches, tags and commits"
    if "GatedRepoError" in kinds:
        return f"{repository} is open only to those whom its owner lets in: ask for access on its page, then {LOG_IN}"
    if status == 401:
        return f"the hub does not let you at {repository} (401): check the name; where it needs a token, {LOG_IN}"
    if status == 403:
        return f"the hub refuses {repository} (403): the token has no right to it; use another one, {LOG_IN}"
    if status == 404:
        return f"the hub has no repository {repository} (404): check the name; for a private one, {LOG_IN}"
    return f"the hub answers {status} for {repository}: {said}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, the first cause last."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__


def _is_theirs(error: BaseException) -> bool:
    return type(error).__module__.startswith(_THEIRS)


def _status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _line(error: BaseException) -> str:
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return said[:200]

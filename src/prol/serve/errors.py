"""The errors that a client receives."""

from __future__ import annotations

import errno
import math
from typing import Any

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RequestError(Exception):
    """A request that is refused: HTTP status, a code for programs, and a message that says what to do."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}

    def content(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}


def not_written(error: Exception) -> RequestError:
    """The error of a request whose commit failed: nothing of it was learnt."""
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        message = "No space is left on the disk, so nothing of this was learnt: free some space and try again."
        return RequestError(507, "no_room", message, retry_after=5)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    message = f"The update could not be written ({reason}), so nothing of this was learnt: try again later."
    return RequestError(503, "not_written", message, retry_after=5)


def stopping() -> RequestError:
    return RequestError(503, "stopping", "The service is stopping: try again when it is back.", retry_after=5)


def starting() -> RequestError:
    return RequestError(503, "starting", "The service is loading its state: try again in a moment.", retry_after=1)

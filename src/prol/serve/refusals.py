"""What a client is told that cannot have what it asked for."""

from __future__ import annotations

import errno
import math
from typing import Any

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Refusal(Exception):
    """A status, a code for programs, and a sentence for people that says what to do."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}

    def content(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}


def not_written(error: Exception) -> Refusal:
    """For requests whose commit failed: nothing of them was learnt."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        message = "There is no room left to write to, so nothing of this was learnt: make room and try again."
        return Refusal(507, "no_room", message, retry_after=5)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    message = f"What was learnt could not be written ({reason}), so nothing of this was learnt: try again later."
    return Refusal(503, "not_written", message, retry_after=5)


def stopping() -> Refusal:
    return Refusal(503, "stopping", "The service is stopping: try again when it is back.", retry_after=5)


def starting() -> Refusal:
    return Refusal(503, "starting", "The service is reading its state: try again in a moment.", retry_after=1)

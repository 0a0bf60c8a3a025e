"""Access control: bearer tokens, rate limits, and hosts and origins where there are no tokens.

`AccessControl.check` runs once for each request, before any of its body is read.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from prol.serve.errors import RequestError
from prol.serve.service import Lifecycle

Right = Literal["none", "read", "write"]

_OPEN = ("/", "/healthz", "/readyz")
_PREDICTING = ("/predict", "/predict/again")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_MAX_CLIENTS = 10_000


@dataclass(frozen=True)
class Tokens:
    """SHA-256 digests of the tokens. Without any token, everybody who can connect may do everything."""

    read: bytes | None = None
    write: bytes | None = None
    admin: bytes | None = None
    """Of whoever creates and deletes learners, and may do everything with each of them."""

    @classmethod
    def of(cls, read: str | None, write: str | None, admin: str | None = None) -> Tokens:
        if read is not None and read == write:
            raise ValueError("the read token and the write token are the same: whoever may read could write")
        return cls(*(None if token is None else digest_of(token) for token in (read, write, admin)))

    @property
    def required(self) -> bool:
        return any(token is not None for token in (self.read, self.write, self.admin))

    def right_of(self, authorization: str | None) -> Right:
        """The right that the header `Authorization: Bearer TOKEN` grants; writing includes reading."""
        if not self.required:
            return "write"
        scheme, _, token = (authorization or "").partition(" ")
        given = digest_of(token.strip() if scheme.lower() == "bearer" else "")
        # All are always compared, so that time tells nothing about any of them.
        writes, reads, administers = (
            known is not None and hmac.compare_digest(given, known) for known in (self.write, self.read, self.admin)
        )
        return "write" if writes or administers else "read" if reads else "none"


def read_token(file: Path | None, variable: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The first line of a file, or else the value of an environment variable; None where neither is given."""
    if file is None:
        source, token = f"environment variable {variable}", environment.get(variable)
        if token is None:
            return None
    else:
        source, token = f"token file {file}", next(iter(file.read_text(encoding="utf-8").splitlines()), "")
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"{source} holds no token: write one word of printable ASCII characters into it")
    return token


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class RateLimiter:
    """A token bucket per client, refilled with `per_second` requests and as large as one second's worth, at least 1."""

    def __init__(self, per_second: float) -> None:
        self.per_second, self.capacity = per_second, max(1.0, per_second)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, client: str, now: float) -> float:
        """Seconds until the client's next request is allowed; 0 if it is allowed now, in which case it is counted.

        >>> rate = RateLimiter(2)
        >>> [rate.wait("a", 0.0), rate.wait("a", 0.0), rate.wait("a", 0.0), rate.wait("b", 0.0), rate.wait("a", 0.5)]
        [0.0, 0.0, 0.5, 0.0, 0.0]
        """
        with self._lock:
            left, then = self._buckets.pop(client, (self.capacity, now))
            left = min(self.capacity, left + (now - then) * self.per_second)
            allowed = left >= 1
            self._buckets[client] = (left - 1 if allowed else left, now)
            while len(self._buckets) > _MAX_CLIENTS:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self.per_second


@dataclass(frozen=True)
class AccessControl:
    """Decides whether a request may proceed. Without tokens only this machine is admitted."""

    lifecycle: Lifecycle
    tokens: Tokens
    rate: RateLimiter | None

    def check(self, scope: Scope) -> None:
        """Raises RequestError, or lets the request through."""
        method, path, headers = scope["method"], path_of(scope), Headers(scope=scope)
        if not self.tokens.required:
            _require_local(headers, method)
        required = required_right(method, path)
        if path in ("/healthz", "/readyz"):
            return
        if self.rate is not None:
            wait = self.rate.wait(scope["client"][0] if scope.get("client") else "", time.monotonic())
            if wait:
                raise RequestError(429, "too_often", "Too many requests: wait before the next one.", retry_after=wait)
        if required == "none":
            return
        right = self.tokens.right_of(headers.get("authorization"))
        if right == "none":
            error = RequestError(401, "no_token", "A token is needed: send it as Authorization: Bearer TOKEN.")
            error.headers["WWW-Authenticate"] = "Bearer"
            raise error
        if required == "write" and right != "write":
            raise RequestError(403, "read_only", "This token may only read: send the write token.")
        unavailable = self.lifecycle.unavailable()
        if unavailable is not None:
            raise unavailable


def path_of(scope: Scope) -> str:
    """The path of a request below the one under which a learner is served, if there are several."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def required_right(method: str, path: str) -> Right:
    """The right that a request needs. Unlisted routes need "write", or "read" if their method cannot change anything.

    >>> required_right("GET", "/page/app.js"), required_right("POST", "/predict"), required_right("PUT", "/none")
    ('none', 'read', 'write')
    """
    if method in _SAFE_METHODS:
        return "none" if path in _OPEN or path.startswith("/page/") else "read"
    return "read" if method == "POST" and path in _PREDICTING else "write"


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "127.0.0.1.example.org")]
    [True, True, True, False, False]
    """
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _require_local(headers: Headers, method: str) -> None:
    """Without tokens, a browser would admit others: through DNS rebinding, or a page of theirs that sends requests."""
    host = headers.get("host", "")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        message = "Without tokens, only loopback names such as localhost are served: set up tokens to serve others."
        raise RequestError(403, "foreign_host", message)
    origin = headers.get("origin")
    if method not in _SAFE_METHODS and origin is not None:
        try:
            place = urlsplit(origin).netloc.lower()
        except ValueError:
            place = ""
        if not place or place != host.lower():
            raise RequestError(403, "foreign_origin", "Pages of other hosts may not change anything here.")

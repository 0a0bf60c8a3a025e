"""Who gets in: one check of every request, before anything of its body is read."""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from prol.serve.lifecycle import Lifecycle
from prol.serve.rate import Rate
from prol.serve.refusals import Refusal
from prol.serve.tokens import Right, Tokens

_OPEN = ("/", "/healthz", "/readyz")
_READING = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Guard:
    """Rights, rates and origins. Without tokens only this machine is let in."""

    lifecycle: Lifecycle
    tokens: Tokens
    rate: Rate | None

    def check(self, scope: Scope) -> None:
        """Raises a refusal, or lets the request through."""
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        if not self.tokens.needed:
            _require_here(headers, method)
        needed = needed_right(method, path)
        if path in ("/healthz", "/readyz"):
            return
        if self.rate is not None:
            wait = self.rate.wait(scope["client"][0] if scope.get("client") else "", time.monotonic())
            if wait:
                raise Refusal(429, "too_often", "You ask too often: wait before the next request.", retry_after=wait)
        if needed == "none":
            return
        right = self.tokens.right_of(headers.get("authorization"))
        if right == "none":
            refusal = Refusal(401, "no_token", "A token is needed: send it as Authorization: Bearer TOKEN.")
            refusal.headers["WWW-Authenticate"] = "Bearer"
            raise refusal
        if needed == "write" and right != "write":
            raise Refusal(403, "read_only", "This token may only read: send the one that may write.")
        refusal_now = self.lifecycle.refusal()
        if refusal_now is not None:
            raise refusal_now


def needed_right(method: str, path: str) -> Right:
    """What a request needs; whatever is not named here needs the right to write, or to read where it only can.

    >>> needed_right("GET", "/page/app.js"), needed_right("POST", "/predict"), needed_right("DELETE", "/classes/cat")
    ('none', 'read', 'write')
    """
    if method in _READING:
        return "none" if path in _OPEN or path.startswith("/page/") else "read"
    return "read" if (method, path) == ("POST", "/predict") else "write"


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


def _require_here(headers: Headers, method: str) -> None:
    """Without tokens a browser is the way in for strangers: by a name that leads here, or by a page that sends here."""
    host = headers.get("host", "")
    if not is_loopback(_hostname(f"//{host}")):
        message = "This service answers to loopback names only, such as localhost: set up tokens to serve others."
        raise Refusal(403, "foreign_host", message)
    origin = headers.get("origin")
    if method not in _READING and origin is not None and _place(origin) != host.lower():
        raise Refusal(403, "foreign_origin", "Pages of other hosts may not change anything here.")


def _hostname(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _place(origin: str) -> str | None:
    """Host and port of an origin."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None

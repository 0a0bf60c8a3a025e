"""Who may read and who may write: bearer tokens, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Right = Literal["none", "read", "write"]


@dataclass(frozen=True)
class Tokens:
    """Digests of the tokens; without any, everybody who can connect may do everything."""

    read: bytes | None = None
    write: bytes | None = None

    @classmethod
    def of(cls, read: str | None, write: str | None) -> Tokens:
        if read is not None and read == write:
            raise ValueError("the read token and the write token are the same: whoever may read could write")
        return cls(*(None if token is None else _digest(token) for token in (read, write)))

    @property
    def needed(self) -> bool:
        return self.read is not None or self.write is not None

    def right_of(self, authorization: str | None) -> Right:
        """What the header `Authorization: Bearer TOKEN` entitles to; the write token includes reading."""
        if not self.needed:
            return "write"
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip() if scheme.lower() == "bearer" else "")
        # Both are always compared, so that time tells nothing about either.
        writes = self.write is not None and hmac.compare_digest(given, self.write)
        reads = self.read is not None and hmac.compare_digest(given, self.read)
        return "write" if writes else "read" if reads else "none"


def read_token(file: Path | None, variable: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The first line of a file, or else an environment variable's value; None where neither is given."""
    if file is None:
        source, token = f"environment variable {variable}", environment.get(variable)
        if token is None:
            return None
    else:
        source, token = f"token file {file}", next(iter(file.read_text(encoding="utf-8").splitlines()), "")
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"{source} holds no token: write one word of visible ASCII signs into it")
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()

"""The learner that checks are run on, and how they fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prol.learner import Learner


@dataclass(frozen=True)
class Subject:
    """The learner to check: `fresh` makes one that has learnt nothing; `modes` says with and without announcements."""

    fresh: Callable[[], Learner]
    modes: tuple[bool, ...]


def require(holds: bool, seen: str) -> None:
    # Not an assert statement: checks must also check under python -O.
    if not holds:
        raise AssertionError(seen)


def require_refusal(what: str, verb: Callable[..., Any], *given: Any) -> None:
    try:
        verb(*given)
    except ValueError:
        return
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}; expected a ValueError") from error
    raise AssertionError(f"{what} were accepted; expected a ValueError")

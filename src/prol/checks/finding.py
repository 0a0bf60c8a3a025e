"""What a check is and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from prol.checks.subject import Subject

Status = Literal["issue", "tip", "passed", "not applicable"]
STATUSES: tuple[Status, ...] = ("issue", "tip", "passed", "not applicable")
"""Worst first."""
PAGE = "docs/check.md"


@dataclass(frozen=True)
class Outcome:
    """What a check says: a sentence, and the places it speaks of."""

    status: Status
    message: str
    places: tuple[str, ...] = ()

    @classmethod
    def absent(cls, reason: str) -> Outcome:
        """The check does not apply, for a reason."""
        return cls("not applicable", reason)


@dataclass(frozen=True)
class Check:
    """A diagnosis with a code that never changes its meaning. Another package's codes must not begin with PC."""

    code: str
    title: str
    look: Callable[[Subject], Outcome]

    def __call__(self, subject: Subject) -> Finding:
        try:
            outcome = self.look(subject)
        except Exception as error:  # one check that fails must not hide what the others find
            outcome = Outcome.absent(f"the check failed ({type(error).__name__}: {' '.join(str(error).split())})")
        return Finding(self.code, self.title, outcome.status, outcome.message, outcome.places)


def check(code: str, title: str) -> Callable[[Callable[[Subject], Outcome]], Check]:
    """Makes a check of a function that looks at a subject."""
    return lambda look: Check(code, title, look)


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    code: str
    title: str
    status: Status
    message: str
    places: tuple[str, ...] = ()

    @property
    def page(self) -> str | None:
        """Where the documentation explains the code; None for a check of another package."""
        return f"{PAGE}#{self.code.lower()}" if self.code.startswith("PC") else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"places": list(self.places), "page": self.page}


def listed(names: tuple[str, ...] | list[str], most: int = 5) -> str:
    """The first names for a message, and the number of the others.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")

"""`prol.check_learner`: whether a learner satisfies the interface's contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from prol.learner import Learner
from prol.testing.learner_checks import CHECKS, classes_need_no_announcement
from prol.testing.stream import Subject


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one check; an exempt one was not run, for the reason that the learner states."""

    name: str
    outcome: Literal["passed", "exempt"]
    reason: str = ""


def check_learner(learner: Learner | Callable[[], Learner]) -> list[CheckResult]:
    """Runs every check that the learner is not exempt from by name.

    Args:
        learner: one that has learnt nothing yet, or a function that makes such a one. It is not changed: the checks
            work on others made with the same backbone, options and seed. Give it a CPU: on a GPU passes that are
            replayed differ in their last bits from those that are not, and some checks look at every bit.

    Raises:
        AssertionError: with one line for each check that failed, its name first.

    >>> import prol
    >>> results = prol.check_learner(prol.create("ncm", "tiny", device="cpu"))
    >>> {result.outcome for result in results}
    {'passed'}
    """
    fresh = _maker(learner)
    sample = fresh()
    if sample.classes:
        raise ValueError(f"check_learner needs a learner that has learnt nothing, this one knows {sample.classes[:3]}")
    exempt = sample.exemptions()
    for name in exempt:
        if name not in CHECKS:
            raise ValueError(f"exemption from unknown check {name!r}; the checks are: {', '.join(CHECKS)}")
    modes = (True,) if classes_need_no_announcement.__name__ in exempt else (True, False)
    results, failures = [], []
    for name, check in CHECKS.items():
        if name in exempt:
            results.append(CheckResult(name, "exempt", exempt[name]))
            continue
        try:
            check(Subject(fresh, modes))
        except Exception as error:
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            failures.append((f"check {name} failed: {kind}{error}", error))
        else:
            results.append(CheckResult(name, "passed"))
    if failures:
        raise AssertionError("\n".join(line for line, _ in failures)) from failures[0][1]
    return results


def _maker(learner: Learner | Callable[[], Learner]) -> Callable[[], Learner]:
    if not isinstance(learner, Learner):
        return learner
    given = learner
    if given.classes:
        raise ValueError(f"check_learner needs a learner that has learnt nothing, this one knows {given.classes[:3]}")
    return lambda: type(given)(given.backbone, given.options, given.seed)

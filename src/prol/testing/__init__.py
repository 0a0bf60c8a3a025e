"""Checks that every learner must pass, and the rehearsal audit of what a learner stores."""

from prol.testing.checks import CheckResult, check_learner

__all__ = ["CheckResult", "check_learner"]


def __dir__() -> list[str]:
    return __all__

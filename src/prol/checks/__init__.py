"""Diagnoses with stable codes, from files alone: what may be wrong with images, a saved learner or runs.

Another package adds a check by an entry point in the group `prol.checks` whose name is the check's code.
"""

from prol.checks.diagnosis import Diagnosis, all_checks, diagnose
from prol.checks.finding import Check, Finding, Outcome, check
from prol.checks.subject import Learnt, Subject

__all__ = ["Check", "Diagnosis", "Finding", "Learnt", "Outcome", "Subject", "all_checks", "check", "diagnose"]


def __dir__() -> list[str]:
    return __all__

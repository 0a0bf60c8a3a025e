"""Runs as folders: started, resumed, compared in great number, and learners saved, loaded and merged."""

from prol.runs.display import Display, display_for
from prol.runs.folder import RunFolder
from prol.runs.plan import Plan
from prol.runs.run import Follower, Listener, RunInView, resume, start

__all__ = ["Display", "Follower", "Listener", "Plan", "RunFolder", "RunInView", "display_for", "resume", "start"]


def __dir__() -> list[str]:
    return __all__

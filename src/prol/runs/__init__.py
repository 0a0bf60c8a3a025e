"""Runs as folders: the loop with its log, checkpoints and display, and going on after an interruption."""

from prol.runs.display import Display, display_for
from prol.runs.folder import RunFolder
from prol.runs.following import Follower, Listener, RunInView
from prol.runs.plan import Plan
from prol.runs.run import resume, start

__all__ = ["Display", "Follower", "Listener", "Plan", "RunFolder", "RunInView", "display_for", "resume", "start"]

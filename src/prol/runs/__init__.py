"""Runs as folders: the loop with its log, checkpoints and display, and going on after an interruption."""

from prol.runs.display import Display, display_for
from prol.runs.folder import RunFolder
from prol.runs.plan import Plan
from prol.runs.run import resume, start

__all__ = ["Display", "Plan", "RunFolder", "display_for", "resume", "start"]

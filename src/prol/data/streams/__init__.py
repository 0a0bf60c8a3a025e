"""Protocols: the order in which samples arrive, as pure functions of labels, options and a seed."""

from prol.data.streams.blurry import blurry, iblurry, siblurry
from prol.data.streams.disjoint import disjoint, imbalanced
from prol.data.streams.gradual import gradual
from prol.data.streams.stream import SHARED_ARGUMENTS, Chunk, Stream, TaskSummary, class_presence, summarise_tasks

__all__ = [
    "SHARED_ARGUMENTS",
    "Chunk",
    "Stream",
    "TaskSummary",
    "blurry",
    "class_presence",
    "disjoint",
    "gradual",
    "iblurry",
    "imbalanced",
    "siblurry",
    "summarise_tasks",
]

"""Orders of samples: pure functions of labels, options and a seed."""

from prol.streams.base import SHARED_ARGUMENTS, Chunk, Stream
from prol.streams.blurry import blurry
from prol.streams.disjoint import disjoint
from prol.streams.gradual import gradual
from prol.streams.iblurry import iblurry
from prol.streams.imbalanced import imbalanced
from prol.streams.presence import TaskSummary, class_presence, summarise_tasks
from prol.streams.siblurry import siblurry

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

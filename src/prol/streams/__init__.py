"""Orders of samples: pure functions of labels, options and a seed."""

from prol.streams.base import Chunk, Stream
from prol.streams.disjoint import disjoint

__all__ = ["Chunk", "Stream", "disjoint"]

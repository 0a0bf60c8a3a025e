"""Data sets and streams: images with labels and class names, and the order in which they arrive.

Each function that opens a data set has its own module (`prol.data.folder`, `prol.data.parquet`, ...), so that importing
this package stays light. The protocols are in `prol.data.streams`.
"""

from prol.data.base import ArraySplit, Dataset, Loaded, Split, Subset, TrainTestSplit, Unreadable

__all__ = ["ArraySplit", "Dataset", "Loaded", "Split", "Subset", "TrainTestSplit", "Unreadable"]


def __dir__() -> list[str]:
    return __all__

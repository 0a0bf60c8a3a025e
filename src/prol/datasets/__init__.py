"""Images, labels and class names: built-in sets and files people already have.

The functions that open a data set live in modules of their own, so that importing this package stays light.
"""

from prol.datasets.base import ArraySplit, Cut, Dataset, Loaded, Split, Subset, Unreadable

__all__ = ["ArraySplit", "Cut", "Dataset", "Loaded", "Split", "Subset", "Unreadable"]

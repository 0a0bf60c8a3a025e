"""Images of one place in an order of their own, before anyone has cut them into train and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prol.datasets.base import Split


@dataclass(frozen=True)
class Collection:
    """Images of one place in a fixed order of their own, not yet cut into halves.

    Parameters
    ----------
    class_names
        The name of each class number.
    images
        Every image with its label.
    image_names
        One stable name an image, such as "CLASS/file.jpg" or "shard.parquet#row": a cut is bound to these names.
    notes
        Sentences a user should read, such as one that names classes without images.
    """

    class_names: tuple[str, ...]
    images: Split
    image_names: Sequence[str]
    notes: tuple[str, ...] = ()


def without_images(kind: str, names: Sequence[str], most: int = 20) -> tuple[str, ...]:
    """The note that names empty classes, or none.

    >>> without_images("classes", ["cat", "dog"])
    ('2 classes without images are left out: cat, dog',)
    >>> without_images("classes", [])
    ()
    """
    if not names:
        return ()
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (f"{len(names)} {kind} without images are left out: {', '.join(names[:most])}{more}",)

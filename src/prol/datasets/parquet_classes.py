"""One list of class names for many parquet files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prol.datasets.parquet_labels import Shard

_NAMED_AT_MOST = 8


def agreed_names(shards: Sequence[Shard]) -> tuple[str, ...]:
    """The class names that all files give; where they give none, the distinct labels, numbers in numeric order."""
    if not any(len(shard.labels) for shard in shards):
        raise ValueError(f"no images in {_paths(shards)}: the parquet files have no rows")
    first = shards[0]
    for other in shards[1:]:
        if other.names != first.names:
            raise ValueError(
                f"{str(first.path)!r} and {str(other.path)!r} do not agree on the classes: {_difference(first, other)}"
            )
    if first.names is not None:
        return first.names
    values = {value for shard in shards for value in shard.values}
    texts = sorted(value for value in values if isinstance(value, str))
    numbers = sorted(value for value in values if isinstance(value, int))
    if texts and numbers:
        raise ValueError(f"the labels are text in some files and numbers in others: {_paths(shards)}")
    return tuple(texts or map(str, numbers))


def class_numbers(shards: Sequence[Shard], names: tuple[str, ...]) -> NDArray[np.int64]:
    """The labels of all rows as places in `names`, file after file."""
    number = {name: i for i, name in enumerate(names)}
    labels = [np.zeros(0, dtype=np.int64)]
    for shard in shards:
        if shard.names is not None:
            labels.append(shard.labels)
        else:
            labels.append(np.array([number[str(value)] for value in shard.values], dtype=np.int64)[shard.labels])
    return np.concatenate(labels)


def _difference(first: Shard, other: Shard) -> str:
    if first.names is None or other.names is None:
        return f"only {(other if first.names is None else first).path.name} names its classes"
    one, two = set(first.names) - set(other.names), set(other.names) - set(first.names)
    if one or two:
        return f"only the first has {_listed(one)}; only the second has {_listed(two)}"
    place = next(i for i, pair in enumerate(zip(first.names, other.names, strict=True)) if len(set(pair)) > 1)
    return f"class number {place} is {first.names[place]!r} in the first and {other.names[place]!r} in the second"


def _listed(names: set[str]) -> str:
    more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
    return ", ".join(sorted(names)[:_NAMED_AT_MOST]) + more if names else "none of its own"


def _paths(shards: Sequence[Shard]) -> str:
    return ", ".join(str(shard.path) for shard in shards[:_NAMED_AT_MOST])

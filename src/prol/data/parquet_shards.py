"""The label columns of parquet files, and one list of class names for many files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from prol.data.base import listed

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target", "wnid")
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Shard:
    """One parquet file without its images.

    If the file names its classes, `names` are these and `labels[i]` is the class number of row i. Else `names` is None
    and `labels[i]` is the index of its label in `values`, the distinct labels.
    """

    path: Path
    image_column: str
    labels: NDArray[np.int64]
    values: tuple[int, ...] | tuple[str, ...] = ()
    names: tuple[str, ...] | None = None


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The parquet file, read in small pieces; any error becomes one sentence."""
    try:
        # Without a buffer size the whole column of a row group would be read at once.
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{str(path)!r} is not a parquet file, or is damaged or truncated ({reason}): get it again"
        ) from error


def read_shard(path: Path, image_column: str | None = None, label_column: str | None = None) -> Shard:
    """Reads the label column; of the images, only the schema."""
    with opened(path) as file:
        schema = file.schema_arrow
        image = _column(path, schema.names, image_column, IMAGE_COLUMNS, "image_column")
        label = _column(path, schema.names, label_column, LABEL_COLUMNS, "label_column")
        _require_images(path, image, schema.field(image).type)
        kind = schema.field(label).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        names = _class_names(path, schema.metadata, label) if pa.types.is_integer(kind) else None
        pieces = _pieces(path, file, label)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return Shard(path, image, *_enumerated(pieces))
        if not pa.types.is_integer(kind):
            raise ValueError(
                f"column {label!r} of {str(path)!r} contains {kind}: labels are whole numbers or text; "
                f"give their column with label_column="
            )
        numbers = np.concatenate([np.zeros(0, np.int64), *(np.asarray(piece, dtype=np.int64) for piece in pieces)])
    _require_in_range(path, label, numbers, names)
    if names is not None:
        return Shard(path, image, numbers, names=names)
    values, places = np.unique(numbers, return_inverse=True)
    return Shard(path, image, places.astype(np.int64), tuple(values.tolist()))


def agreed_names(shards: Sequence[Shard]) -> tuple[str, ...]:
    """The class names of all files; if they give none, the distinct labels, numbers in numeric order."""
    paths = ", ".join(str(shard.path) for shard in shards[:8])
    if not any(len(shard.labels) for shard in shards):
        raise ValueError(f"no images in {paths}: the parquet files have no rows")
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
        raise ValueError(f"the labels are text in some files and numbers in others: {paths}")
    return tuple(texts or map(str, numbers))


def class_numbers(shards: Sequence[Shard], names: tuple[str, ...]) -> NDArray[np.int64]:
    """The labels of all rows as indices into `names`, file after file."""
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
    one, two = (sorted(set(a) - set(b)) for a, b in ((first.names, other.names), (other.names, first.names)))
    if one or two:
        return f"only the first has {listed(one) or 'no other'}; only the second has {listed(two) or 'no other'}"
    place = next(i for i, pair in enumerate(zip(first.names, other.names, strict=True)) if len(set(pair)) > 1)
    return f"class number {place} is {first.names[place]!r} in the first and {other.names[place]!r} in the second"


def _column(path: Path, here: Sequence[str], wanted: str | None, known: Sequence[str], option: str) -> str:
    found = [name for name in ((wanted,) if wanted else known) if name in here]
    if not found:
        missing = f"no column {wanted!r}" if wanted else f"none of the columns {', '.join(known)}"
        raise ValueError(f"{str(path)!r} has {missing}: choose one of these with {option}=: {', '.join(here)}")
    return found[0]


def _require_images(path: Path, column: str, kind: Any) -> None:
    stored = kind
    if pa.types.is_struct(kind):
        kinds = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        stored = kinds.get("bytes", kind)
    fits = pa.types.is_binary(stored) or pa.types.is_large_binary(stored)
    if not fits and not (pa.types.is_struct(kind) and pa.types.is_null(stored)):
        raise ValueError(
            f"column {column!r} of {str(path)!r} contains {kind}: encoded images are needed, as binary or as "
            f"struct<bytes, path>; give their column with image_column="
        )


def _class_names(path: Path, metadata: dict[bytes, bytes] | None, label: str) -> tuple[str, ...] | None:
    """The names that the Hugging Face library writes into the schema, as a list or numbered; None if there are none."""
    try:
        feature = json.loads((metadata or {})[b"huggingface"])["info"]["features"][label]
        feature = feature.get("dtype", {}).get("class_label", feature) if "names" not in feature else feature
        names = feature["names"]
        ordered = [names[str(number)] for number in range(len(names))] if isinstance(names, dict) else list(names)
    except (KeyError, TypeError, AttributeError, ValueError):  # no such metadata, or metadata of something else
        return None
    twice = [str(name) for name, count in Counter(ordered).items() if count > 1]
    if twice:
        raise ValueError(
            f"{str(path)!r} has several classes of one name: {', '.join(twice)}; class names must be unique"
        )
    return tuple(str(name) for name in ordered)


def _pieces(path: Path, file: Any, label: str) -> Iterator[Any]:
    """The label column as arrays without nulls."""
    row = 0
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[label], use_threads=False):
        piece = batch.column(0)
        if piece.null_count:
            empty = row + int(np.flatnonzero(piece.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(
                f"row {empty} of {str(path)!r} has no value in column {label!r}: every image needs a label"
            )
        row += len(piece)
        yield piece.dictionary_decode() if pa.types.is_dictionary(piece.type) else piece


def _enumerated(pieces: Iterator[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Text labels as numbers, and the text of each number."""
    number: dict[str, int] = {}
    labels = [np.zeros(0, dtype=np.int64)]
    for piece in pieces:
        encoded = piece.dictionary_encode()
        texts = [number.setdefault(text, len(number)) for text in encoded.dictionary.to_pylist()]
        labels.append(np.array(texts, dtype=np.int64)[encoded.indices.to_numpy()])
    return np.concatenate(labels), tuple(number)


def _require_in_range(path: Path, column: str, labels: NDArray[np.int64], names: tuple[str, ...] | None) -> None:
    top = np.iinfo(np.int64).max if names is None else len(names) - 1
    bad = np.flatnonzero((labels < 0) | (labels > top))
    if len(bad):
        row = int(bad[0])
        allowed = "0 or more" if names is None else f"from 0 to {top}, because the file names {len(names)} classes"
        raise ValueError(
            f"row {row} of {str(path)!r} has {int(labels[row])} in column {column!r}: a label must be {allowed} "
            f"({len(bad)} such rows)"
        )

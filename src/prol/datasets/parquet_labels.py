"""What one parquet file says of its rows: which columns matter, the label of every row, the names of the classes."""

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

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target", "wnid")
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Shard:
    """One parquet file without its images.

    Where the file names its classes, `names` are these and `labels[i]` is the class number of row i. Else `names` is
    None and `labels[i]` is the place of its label in `values`, the distinct ones.
    """

    path: Path
    image_column: str
    labels: NDArray[np.int64]
    values: tuple[int, ...] | tuple[str, ...] = ()
    names: tuple[str, ...] | None = None


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The parquet file, read in small pieces; whatever is wrong with it becomes one sentence."""
    try:
        # Without a buffer size the whole column of a row group would be read at once.
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())
        raise ValueError(
            f"{str(path)!r} is no parquet file, or is damaged or cut short ({said}): get it again"
        ) from error


def read_shard(path: Path, image_column: str | None = None, label_column: str | None = None) -> Shard:
    """Reads the label column alone, and of the images no more than what the column is called."""
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
            labels, texts = _numbered(pieces)
            return Shard(path, image, labels, texts)
        if not pa.types.is_integer(kind):
            raise ValueError(
                f"column {label!r} of {str(path)!r} holds {kind}: labels are whole numbers or text; "
                f"say which column has them with label_column="
            )
        numbers = np.concatenate([np.zeros(0, np.int64), *(np.asarray(piece, dtype=np.int64) for piece in pieces)])
    _require_in_range(path, label, numbers, names)
    if names is not None:
        return Shard(path, image, numbers, names=names)
    values, places = np.unique(numbers, return_inverse=True)
    return Shard(path, image, places.astype(np.int64), tuple(values.tolist()))


def _column(path: Path, here: Sequence[str], wanted: str | None, known: Sequence[str], option: str) -> str:
    found = [name for name in ((wanted,) if wanted else known) if name in here]
    if not found:
        missing = f"no column {wanted!r}" if wanted else f"none of the columns {', '.join(known)}"
        raise ValueError(f"{str(path)!r} has {missing}: say which of these it is with {option}=: {', '.join(here)}")
    return found[0]


def _require_images(path: Path, column: str, kind: Any) -> None:
    if pa.types.is_struct(kind):
        kinds = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        fits = "bytes" in kinds and (pa.types.is_null(kinds["bytes"]) or _is_binary(kinds["bytes"]))
    else:
        fits = _is_binary(kind)
    if not fits:
        raise ValueError(
            f"column {column!r} of {str(path)!r} holds {kind}: encoded images are needed, as binary or as "
            f"struct<bytes, path>; say which column has them with image_column="
        )


def _is_binary(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _class_names(path: Path, metadata: dict[bytes, bytes] | None, label: str) -> tuple[str, ...] | None:
    """The names that the Hugging Face library leaves in the schema, as a list or numbered; None where it left none."""
    try:
        feature = json.loads((metadata or {})[b"huggingface"])["info"]["features"][label]
        feature = feature.get("dtype", {}).get("class_label", feature) if "names" not in feature else feature
        names = feature["names"]
        listed = [names[str(number)] for number in range(len(names))] if isinstance(names, dict) else list(names)
    except (KeyError, TypeError, AttributeError, ValueError):  # no such notes, or notes about something else
        return None
    twice = [str(name) for name, count in Counter(listed).items() if count > 1]
    if twice:
        raise ValueError(
            f"{str(path)!r} has several classes of one name: {', '.join(twice)}; every class needs a name of its own"
        )
    return tuple(str(name) for name in listed)


def _pieces(path: Path, file: Any, label: str) -> Iterator[Any]:
    """The label column as arrays without gaps."""
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


def _numbered(pieces: Iterator[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Texts as numbers, and what each number stands for."""
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
        allowed = "0 or more" if names is None else f"from 0 to {top}, for the file names {len(names)} classes"
        raise ValueError(
            f"row {row} of {str(path)!r} has {int(labels[row])} in column {column!r}: a label must be {allowed} "
            f"({len(bad)} such rows)"
        )

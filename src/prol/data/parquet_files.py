"""Parquet files: labels are read at once; encoded images are copied to a spool file, and decoded in any order."""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from prol.data.base import Loaded, listed
from prol.data.decoding import decode_all
from prol.data.download import cache_root

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target", "wnid")
_BYTES_AT_ONCE = 1 << 21
_RESIDENT = 1 << 23  # bytes read before their pages are released
_INLINE, _EXTERNAL = b"\0", b"\1"  # the first byte of a record: the image follows, or the path of its file


@dataclass(frozen=True)
class Shard:
    """One parquet file without its images.

    `labels[i]` is the index of row i's label in `values`: the class names if the file is `named`, that is, lists its
    classes; else the distinct labels. `rows`, ascending, are those that are read, None for all; `labels` are theirs.
    """

    path: Path
    image_column: str
    labels: NDArray[np.int64]
    values: tuple[int, ...] | tuple[str, ...] = ()
    named: bool = False
    rows: NDArray[np.int64] | None = None

    def part(self, rows: NDArray[np.int64]) -> Shard:
        """Some rows of the file; other row groups than theirs are not read."""
        return replace(self, labels=self.labels[rows], rows=rows)


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
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not text and not pa.types.is_integer(kind):
            raise ValueError(
                f"column {label!r} of {str(path)!r} contains {kind}: labels are whole numbers or text; "
                f"give their column with label_column="
            )
        labels = file.read(columns=[label], use_threads=False).column(0).cast(kind).combine_chunks()
        if labels.null_count:
            empty = int(np.flatnonzero(labels.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(
                f"row {empty} of {str(path)!r} has no value in column {label!r}: every image needs a label"
            )
        encoded = labels.dictionary_encode() if text else _label_numbers(path, label, labels, names)
        values, rows = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    if names is not None:
        return Shard(path, image, np.array(values, dtype=np.int64)[rows], names, named=True)
    return Shard(path, image, rows.astype(np.int64), tuple(values))


def agreed_names(shards: Sequence[Shard]) -> tuple[str, ...]:
    """The class names of all files; if they give none, the distinct labels, numbers in numeric order."""
    paths = ", ".join(str(shard.path) for shard in shards[:8])
    if not any(len(shard.labels) for shard in shards):
        raise ValueError(f"no images in {paths}: the parquet files have no rows")
    first = shards[0]
    for other in shards[1:]:
        if other.named != first.named or (first.named and other.values != first.values):
            raise ValueError(
                f"{str(first.path)!r} and {str(other.path)!r} do not agree on the classes: {_difference(first, other)}"
            )
    if first.named:
        return tuple(map(str, first.values))
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
        labels.append(np.array([number[str(value)] for value in shard.values], dtype=np.int64)[shard.labels])
    return np.concatenate(labels)


def _difference(first: Shard, other: Shard) -> str:
    if not (first.named and other.named):
        return f"only {(first if first.named else other).path.name} names its classes"
    names = tuple(map(str, first.values)), tuple(map(str, other.values))
    one, two = (sorted(set(a) - set(b)) for a, b in (names, names[::-1]))
    if one or two:
        return f"only the first has {listed(one) or 'no other'}; only the second has {listed(two) or 'no other'}"
    place, pair = next((i, pair) for i, pair in enumerate(zip(*names, strict=True)) if len(set(pair)) > 1)
    return f"class number {place} is {pair[0]!r} in the first and {pair[1]!r} in the second"


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
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):  # none, or those of something else
        return None
    ordered = [str(name) for name in ordered]
    twice = [name for name, count in Counter(ordered).items() if count > 1]
    if twice:
        raise ValueError(
            f"{str(path)!r} has several classes of one name: {', '.join(twice)}; class names must be unique"
        )
    return tuple(ordered)


def _label_numbers(path: Path, column: str, labels: Any, names: tuple[str, ...] | None) -> Any:
    """Whole numbers in the allowed range, dictionary-encoded."""
    encoded = labels.dictionary_encode()
    top = np.iinfo(np.int64).max if names is None else len(names) - 1
    outside = [place for place, value in enumerate(encoded.dictionary.to_pylist()) if not 0 <= value <= top]
    bad = np.flatnonzero(np.isin(encoded.indices.to_numpy(), outside))
    if len(bad):
        row = int(bad[0])
        allowed = "0 or more" if names is None else f"from 0 to {top}, because the file names {len(names)} classes"
        raise ValueError(
            f"row {row} of {str(path)!r} has {labels[row].as_py()} in column {column!r}: a label must be {allowed} "
            f"({len(bad)} such rows)"
        )
    return encoded


class ParquetSplit:
    """The images of some shards with their labels; only labels are read before the first `load`.

    Args:
        root: the folder of the data set: rows may name image files below it, and no others. By default the folder that
            all shards are in.
    """

    def __init__(self, shards: Sequence[Shard], labels: NDArray[np.int64], root: Path | None = None) -> None:
        self.labels = labels
        self._root = (_common_folder(shards) if root is None else root).resolve()
        self._shards = tuple(shards)
        self._starts = np.cumsum([0, *(len(shard.labels) for shard in shards)])
        self._spool = Spool(lambda: _records(self._shards))

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(shard.path for shard in self._shards)

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        return decode_all(indices, self._encoded, self._name)

    def _encoded(self, index: int) -> Path | memoryview | str:
        record = self._spool[index]
        if record[:1] != _EXTERNAL:
            return record[1:]
        named = self._place(index)[0].parent / str(record[1:], "utf-8")
        if _is_below(named, self._root):
            return named
        return f"its path is outside of the data set's folder {str(self._root)!r}"

    def _name(self, index: int) -> str:
        encoded, (path, row) = self._encoded(index), self._place(index)
        return str(encoded) if isinstance(encoded, Path) else f"{path}#{row}"

    def _place(self, index: int) -> tuple[Path, int]:
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        rows, place = self._shards[shard].rows, index - int(self._starts[shard])
        return self._shards[shard].path, place if rows is None else int(rows[place])


class Spool:
    """Byte strings of any length, written to an unnamed file at the first access, and read in any order; thread-safe.

    The file is in `$XDG_CACHE_HOME/prol` or `~/.cache/prol`, or in the system's temporary folder if that is not
    writable. It has no name, so nothing remains when the process ends. It is memory-mapped, and pages are released at
    intervals, so that they do not accumulate.

    Args:
        records: returns all records in order. It is called once; if it raises, the caller gets the error and the next
            access calls it again.

    >>> spool = Spool(lambda: [b"one", b"", b"three"])
    >>> bytes(spool[2]), bytes(spool[0]), bytes(spool[1])
    (b'three', b'one', b'')
    """

    def __init__(self, records: Callable[[], Iterable[bytes]]) -> None:
        self._records = records
        self._writing = threading.Lock()
        self._map: mmap.mmap | None = None
        self._bounds: NDArray[np.int64] | None = None
        self._read = 0

    def __getitem__(self, index: int) -> memoryview:
        bounds = self._bounds
        if bounds is None:
            with self._writing:
                bounds = self._write() if self._bounds is None else self._bounds
        start, stop = int(bounds[index]), int(bounds[index + 1])
        if self._map is None:  # every record is empty
            return memoryview(b"")
        self._release_pages(stop - start)
        return memoryview(self._map)[start:stop]

    def _write(self) -> NDArray[np.int64]:
        bounds = array("q", [0])
        try:
            with _unnamed_file() as file:
                for record in self._records():
                    file.write(record)
                    bounds.append(bounds[-1] + len(record))
                file.flush()
                if bounds[-1]:
                    self._map = mmap.mmap(file.fileno(), bounds[-1], access=mmap.ACCESS_READ)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the images could not be copied after {bounds[-1] / 1e6:.0f} MB ({error.strerror}): free space in "
                f"{cache_root()}, or set XDG_CACHE_HOME to a folder on a larger disk",
            ) from error
        # Last, because readers that see the bounds use the map.
        self._bounds = np.frombuffer(bounds, dtype=np.int64)
        return self._bounds

    def _release_pages(self, read: int) -> None:
        self._read += read
        if self._read > _RESIDENT and self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._read = 0
            self._map.madvise(mmap.MADV_DONTNEED)


def _unnamed_file() -> IO[bytes]:
    # The cache first: a system's temporary folder is often in memory.
    try:
        cache_root().mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=cache_root())
    except OSError:
        return tempfile.TemporaryFile()


def row_names(shards: Sequence[Shard]) -> Iterator[str]:
    """A name for every row, such as "train-0.parquet#12"; folders common to all files are left out.

    >>> shards = [Shard(Path("birds", name), "image", np.zeros(2)) for name in ("a.parquet", "more/b.parquet")]
    >>> list(row_names(shards))
    ['a.parquet#0', 'a.parquet#1', 'more/b.parquet#0', 'more/b.parquet#1']
    """
    places, shared = [Path(os.path.abspath(shard.path)) for shard in shards], _common_folder(shards)
    for shard, place in zip(shards, places, strict=True):
        name = place.relative_to(shared).as_posix()
        yield from (f"{name}#{row}" for row in range(len(shard.labels)))


def _common_folder(shards: Sequence[Shard]) -> Path:
    return Path(os.path.commonpath([Path(os.path.abspath(shard.path)).parent for shard in shards]))


def _is_below(path: Path, root: Path) -> bool:
    """Whether a file lies in a folder, itself resolved, whatever links and `..` its path has."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, ValueError, RuntimeError):  # a zero byte, or links in a circle
        return False


def _records(shards: Sequence[Shard]) -> Iterator[bytes]:
    """One record per row; only a few megabytes of each file are in memory."""
    for shard in shards:
        row = found = 0
        with opened(shard.path) as file:
            wanted = np.arange(file.metadata.num_rows) if shard.rows is None else shard.rows
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group)
                if not len(_between(wanted, row, row + size.num_rows)):
                    row += size.num_rows
                    continue
                at_once = max(1, _BYTES_AT_ONCE * size.num_rows // max(1, size.total_byte_size))
                for batch in file.iter_batches(
                    batch_size=min(1000, at_once), row_groups=[group], columns=[shard.image_column], use_threads=False
                ):
                    here = _between(wanted, row, row + len(batch))
                    yield from _encoded_rows(batch.column(0).take(pa.array(here - row)))
                    row, found = row + len(batch), found + len(here)
        if found != len(shard.labels):
            raise ValueError(
                f"{str(shard.path)!r} had {len(shard.labels)} rows when it was opened and has {found} now: "
                f"do not change it while it is in use"
            )


def _between(numbers: NDArray[np.int64], low: int, high: int) -> NDArray[np.int64]:
    """Those of ascending numbers that are at least `low` and less than `high`."""
    first, stop = np.searchsorted(numbers, (low, high))
    return numbers[first:stop]


def _encoded_rows(column: Any) -> Iterator[bytes]:
    images, paths = column, None
    if pa.types.is_struct(column.type):
        names = [column.type.field(i).name for i in range(column.type.num_fields)]
        parts = dict(zip(names, column.flatten(), strict=True))
        images, paths = parts["bytes"], parts.get("path")
    located = [None] * len(images) if paths is None else paths.to_pylist()
    for image, path in zip(images.to_pylist(), located, strict=True):
        yield _EXTERNAL + str(path).encode() if image is None and path else _INLINE + (image or b"")

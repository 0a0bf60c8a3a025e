"""The encoded images of parquet files: copied once to a spool file, and decoded from there in any order."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from prol.data.base import Loaded
from prol.data.decoding import decode_all
from prol.data.download import cache_root
from prol.data.parquet_shards import Shard, opened

_BYTES_AT_ONCE = 1 << 21
_RESIDENT = 1 << 23  # bytes read before their pages are released
_INLINE, _EXTERNAL = b"\0", b"\1"  # the first byte of a record: the image follows, or the path of its file


class ParquetSplit:
    """The images of some shards with their labels; only labels are read before the first `load`."""

    def __init__(self, shards: Sequence[Shard], labels: NDArray[np.int64]) -> None:
        self.labels = labels
        self._shards = tuple(shards)
        self._starts = np.cumsum([0, *(len(shard.labels) for shard in shards)])
        self._spool = Spool(lambda: _records(self._shards))

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(shard.path for shard in self._shards)

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        return decode_all(indices, self._encoded, self._name)

    def _encoded(self, index: int) -> Path | memoryview:
        record = self._spool[index]
        if record[:1] == _EXTERNAL:
            return self._place(index)[0].parent / str(record[1:], "utf-8")
        return record[1:]

    def _name(self, index: int) -> str:
        encoded, (path, row) = self._encoded(index), self._place(index)
        return str(encoded) if isinstance(encoded, Path) else f"{path}#{row}"

    def _place(self, index: int) -> tuple[Path, int]:
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._shards[shard].path, index - int(self._starts[shard])


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
        with _unnamed_file() as file:
            for record in self._records():
                try:
                    file.write(record)
                except OSError as error:
                    raise _no_space(bounds[-1], error) from error
                bounds.append(bounds[-1] + len(record))
            try:
                file.flush()
            except OSError as error:
                raise _no_space(bounds[-1], error) from error
            if bounds[-1]:
                self._map = mmap.mmap(file.fileno(), bounds[-1], access=mmap.ACCESS_READ)
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


def _no_space(written: int, error: OSError) -> OSError:
    return OSError(
        error.errno,
        f"the images could not be copied after {written / 1e6:.0f} MB ({error.strerror}): free space in "
        f"{cache_root()}, or set XDG_CACHE_HOME to a folder on a larger disk",
    )


def row_names(shards: Sequence[Shard]) -> Iterator[str]:
    """A name for every row, such as "train-0.parquet#12"; folders common to all files are left out.

    >>> shards = [Shard(Path("birds", name), "image", np.zeros(2)) for name in ("a.parquet", "more/b.parquet")]
    >>> list(row_names(shards))
    ['a.parquet#0', 'a.parquet#1', 'more/b.parquet#0', 'more/b.parquet#1']
    """
    places = [Path(os.path.abspath(shard.path)) for shard in shards]
    shared = os.path.commonpath([place.parent for place in places])
    for shard, place in zip(shards, places, strict=True):
        name = place.relative_to(shared).as_posix()
        yield from (f"{name}#{row}" for row in range(len(shard.labels)))


def _records(shards: Sequence[Shard]) -> Iterator[bytes]:
    """One record per row; only a few megabytes of each file are in memory."""
    for shard in shards:
        rows = 0
        with opened(shard.path) as file:
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group)
                at_once = max(1, _BYTES_AT_ONCE * size.num_rows // max(1, size.total_byte_size))
                for batch in file.iter_batches(
                    batch_size=min(1000, at_once), row_groups=[group], columns=[shard.image_column], use_threads=False
                ):
                    rows += len(batch)
                    yield from _encoded_rows(batch.column(0))
        if rows != len(shard.labels):
            raise ValueError(
                f"{str(shard.path)!r} had {len(shard.labels)} rows when it was opened and has {rows} now: "
                f"do not change it while it is in use"
            )


def _encoded_rows(column: Any) -> Iterator[bytes]:
    images, paths = column, None
    if pa.types.is_struct(column.type):
        names = [column.type.field(i).name for i in range(column.type.num_fields)]
        parts = dict(zip(names, column.flatten(), strict=True))
        images, paths = parts["bytes"], parts.get("path")
    located = [None] * len(images) if paths is None else paths.to_pylist()
    for image, path in zip(images.to_pylist(), located, strict=True):
        yield _EXTERNAL + str(path).encode() if image is None and path else _INLINE + (image or b"")

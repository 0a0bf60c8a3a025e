"""The encoded images of parquet files: copied once to a spool, from there decoded in any order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from prol.datasets.base import Loaded
from prol.datasets.decoding import decode_all
from prol.datasets.parquet_labels import Shard, opened
from prol.datasets.spool import Spool

_BYTES_AT_ONCE = 1 << 21
_HERE, _ELSEWHERE = b"\0", b"\1"  # the first byte of a record: the image follows, or the path of its file


class ParquetSplit:
    """The images of some shards with their labels; nothing but labels is read before the first `load`."""

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
        if record[:1] == _ELSEWHERE:
            return self._place(index)[0].parent / str(record[1:], "utf-8")
        return record[1:]

    def _name(self, index: int) -> str:
        encoded, (path, row) = self._encoded(index), self._place(index)
        return str(encoded) if isinstance(encoded, Path) else f"{path}#{row}"

    def _place(self, index: int) -> tuple[Path, int]:
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._shards[shard].path, index - int(self._starts[shard])


class RowNames(Sequence[str]):
    """A name for every row, such as "train-0.parquet#12", made when asked for; folders that all share are left out.

    >>> names = RowNames([Path("birds/a.parquet"), Path("birds/more/b.parquet")], [2, 1])
    >>> list(names)
    ['a.parquet#0', 'a.parquet#1', 'more/b.parquet#0']
    """

    def __init__(self, files: Sequence[Path], rows: Sequence[int]) -> None:
        places = [Path(os.path.abspath(path)) for path in files]
        shared = os.path.commonpath([place.parent for place in places])
        self._files = [place.relative_to(shared).as_posix() for place in places]
        self._starts = np.cumsum([0, *rows])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        file = int(np.searchsorted(self._starts, row, side="right")) - 1
        return f"{self._files[file]}#{row - int(self._starts[file])}"


def _records(shards: Sequence[Shard]) -> Iterator[bytes]:
    """One record a row; of each file no more is in memory than a few megabytes."""
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
                f"leave it alone while it is in use"
            )


def _encoded_rows(column: Any) -> Iterator[bytes]:
    if pa.types.is_struct(column.type):
        names = [column.type.field(i).name for i in range(column.type.num_fields)]
        parts = dict(zip(names, column.flatten(), strict=True))
        images = parts["bytes"].to_pylist()
        paths = parts["path"].to_pylist() if "path" in parts else [None] * len(images)
    else:
        images, paths = column.to_pylist(), [None] * len(column)
    for image, path in zip(images, paths, strict=True):
        if image is None and path:
            yield _ELSEWHERE + str(path).encode()
        else:
            yield _HERE + (image or b"")

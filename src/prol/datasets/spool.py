"""Byte strings kept in a nameless file: written once, read in any order, gone with the process whatever ends it."""

from __future__ import annotations

import mmap
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from prol.datasets.cache import cache_root

_RESIDENT = 1 << 23  # bytes read before their pages are handed back


class Spool:
    """Records of any length, written to disk when the first is asked for; may be used from several threads.

    The file lies in `$XDG_CACHE_HOME/prol` or `~/.cache/prol`, or in the system's folder for temporary files where that
    cannot be written. It has no name, so nothing is left of it when the process ends. It is memory-mapped: what is read
    again comes from the system's file cache, and pages are handed back now and then, so that they never add up.

    Parameters
    ----------
    records
        Gives all records in order. It is called once; if it raises, the error goes to whoever asked and the next one
        who asks starts anew.

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
        self._hand_back(stop - start)
        return memoryview(self._map)[start:stop]

    def _write(self) -> NDArray[np.int64]:
        bounds = array("q", [0])
        with _nameless_file() as file:
            for record in self._records():
                try:
                    file.write(record)
                except OSError as error:
                    raise _no_room(bounds[-1], error) from error
                bounds.append(bounds[-1] + len(record))
            try:
                file.flush()
            except OSError as error:
                raise _no_room(bounds[-1], error) from error
            if bounds[-1]:
                self._map = mmap.mmap(file.fileno(), bounds[-1], access=mmap.ACCESS_READ)
        # Last, for whoever sees the bounds uses the map.
        self._bounds = np.frombuffer(bounds, dtype=np.int64)
        return self._bounds

    def _hand_back(self, read: int) -> None:
        self._read += read
        if self._read > _RESIDENT and self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._read = 0
            self._map.madvise(mmap.MADV_DONTNEED)


def spool_folders() -> tuple[Path, Path]:
    """Where a spool may lie, the better place first: a system's temporary folder is often kept in memory."""
    return cache_root(), Path(tempfile.gettempdir())


def _nameless_file() -> IO[bytes]:
    better, other = spool_folders()
    try:
        better.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=better)
    except OSError:
        return tempfile.TemporaryFile(dir=other)


def _no_room(written: int, error: OSError) -> OSError:
    return OSError(
        error.errno,
        f"the images could not be put aside after {written / 1e6:.0f} MB ({error.strerror}): make room in "
        f"{spool_folders()[0]}, or set XDG_CACHE_HOME to a folder on a larger disk",
    )

"""Unpacks archives into folders that appear whole or not at all, and keeps two processes from doing it at once."""

from __future__ import annotations

import gzip
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_UNFINISHED = ".unpacking-"


def extract(archive: Path, target: Path) -> None:
    """Unpacks a tar archive, compressed or not, into the new folder `target`.

    The folder is filled under a hidden name and renamed when all of it is there. What a killed process left under such
    a name is removed, so call it inside `locked(target.parent)`.

    Parameters
    ----------
    archive
        The file. Members that would land outside of the folder, links out of it and devices are refused.
    target
        The folder; it must not be there yet, its parent must.
    """
    if not hasattr(tarfile, "data_filter"):
        raise ValueError(f"unpacking {archive} safely needs Python 3.11.4 or newer: unpack it yourself")
    for leftover in target.parent.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover)
    print(f"unpacking {archive.name} into {target}, once", file=sys.stderr, flush=True)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=target.parent))
    try:
        with tarfile.open(archive) as file:
            file.extractall(unfinished, filter="data")
        unfinished.chmod(0o755)  # a temporary folder is its owner's alone, a cache may be shared
        unfinished.rename(target)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} is damaged, cut short or unsafe ({error}): get it again") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the folder and keeps other processes out of it; the lock goes with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"cannot make the folder {str(folder)!r} ({error.strerror}): set XDG_CACHE_HOME to one that you may write"
        ) from error
    with (folder / ".lock").open("w") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                print(f"waiting for another process at work in {folder}", file=sys.stderr, flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
        yield

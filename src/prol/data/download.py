"""Downloads archives into the cache: resumes broken downloads, verifies checksums, unpacks safely."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import queue
import shutil
import sys
import tarfile
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

_BLOCK = 1 << 18
_READ_TIMEOUT = 30.0
_RANGE_NOT_SATISFIABLE = 416
_UNFINISHED = ".unpacking-"
# A time or a length in a header may be too large for the system, and a member may be in a file or in place of a folder.
_DAMAGED = (
    *(tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError),
    *(OverflowError, NotADirectoryError, IsADirectoryError),
)

Show = Callable[[int, int | None], None]
"""Called with the number of bytes received, and the total if the server gives it."""


class DownloadError(ValueError):
    """Why a file could not be downloaded."""


class _Interrupted(Exception):
    """A failure that may be temporary."""


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/prol`, or `~/.cache/prol`."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says that relative paths are ignored.
    return (named if named.is_absolute() else Path.home() / ".cache") / "prol"


def offline_setting() -> str | None:
    """The setting that forbids network access, such as "PROL_OFFLINE=1"; None if there is none."""
    for name in ("PROL_OFFLINE", "HF_HUB_OFFLINE"):
        value = os.environ.get(name, "")
        if value.lower() in ("1", "true", "yes", "on"):
            return f"{name}={value}"
    return None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Creates the folder and locks it against other processes; the lock is released with the process."""
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"cannot make the folder {str(folder)!r} ({error.strerror}): set XDG_CACHE_HOME to one that you may write"
        ) from error
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        print(f"waiting for another process that uses {folder}", file=sys.stderr, flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def is_archive(path: Path) -> bool:
    """Whether a file is a tar archive, compressed or not, whose first header can be read."""
    try:
        return tarfile.is_tarfile(path)
    except _DAMAGED:
        return False


def extract(archive: Path, target: Path) -> None:
    """Unpacks a tar archive, compressed or not, into the new folder `target`.

    The folder is filled under a hidden name and renamed when it is complete. Leftovers of a killed process are removed,
    so call it inside `locked(target.parent)`. Members outside of the folder, links, pipes and devices are refused.
    """
    if not hasattr(tarfile, "data_filter"):
        raise ValueError(f"unpacking {archive} safely needs Python 3.11.4 or newer: unpack it yourself")
    for leftover in target.parent.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover)
    print(f"unpacking {archive.name} into {target}, once", file=sys.stderr, flush=True)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=target.parent))
    try:
        with tarfile.open(archive) as file:
            file.extractall(unfinished, filter=_files_only)
        unfinished.chmod(0o755)  # a temporary folder is private, a cache may be shared
        unfinished.rename(target)
    except _DAMAGED as error:
        raise ValueError(f"{archive} is damaged, truncated or unsafe ({error}): get it again") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _files_only(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
    """No data set needs links, and through chains of them Python's own filter can be passed (CVE-2025-4517)."""
    if not (member.isfile() or member.isdir()):
        raise tarfile.FilterError(f"{member.name!r} is neither a file nor a folder")
    return tarfile.data_filter(member, place)


def fetch(address: str, target: Path, md5: str, *, tries: int = 5, patience: float = 8.0, pause: float = 1.0) -> None:
    """Downloads a file to `target`. Until it is complete it is called `target.part`, and a later call resumes it.

    Args:
        address: an http or https address.
        target: the file to write; its folder must exist.
        md5: checksum of the whole file. A file with another one is removed.
        tries: the number of consecutive attempts without progress, for a server that has sent something before.
        patience: seconds to wait for the server's response.
        pause: seconds before the next attempt after one without progress, multiplied by their number.

    >>> fetch("ftp://example.org/birds.tgz", Path("birds.tgz"), "")
    Traceback (most recent call last):
    prol.data.download.DownloadError: 'ftp://example.org/birds.tgz' does not begin with https:// or http://
    """
    if not address.startswith(("https://", "http://")):
        raise DownloadError(f"{address!r} does not begin with https:// or http://")
    part = target.with_name(f"{target.name}.part")
    most, failures, has_sent = _size(part), 0, False
    with _progress(target.name, address) as show:
        while True:
            try:
                _receive(address, part, patience, show)
                break
            except _Interrupted as error:
                if _size(part) > most:
                    most, failures, has_sent = _size(part), 0, True
                else:
                    failures += 1
                # Without a network every attempt is a useless wait: only a server that responded before is retried.
                if failures >= (tries if has_sent else 1):
                    stored = f"; {_megabytes(most)} are stored and the next attempt resumes from there" if most else ""
                    raise DownloadError(f"{error}{stored}") from error
                time.sleep(pause * failures)
    with part.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != md5:
        part.unlink()
        raise DownloadError(f"the file from {address} has the md5 {found} instead of {md5}, so it was removed")
    part.replace(target)


def _receive(address: str, part: Path, patience: float, show: Show) -> None:
    """Appends the rest of the file to `part`, or rewrites it if the server only sends whole files."""
    have = _size(part)
    headers = {"User-Agent": "prol"} | ({"Range": f"bytes={have}-"} if have else {})
    response = _response(Request(address, headers=headers), patience)
    if response is None:
        return
    with response:
        done = have if response.status == 206 else 0
        total = None if response.length is None else done + response.length
        with part.open("ab" if done else "wb") as file:
            show(done, total)
            while (total is None or done < total) and (block := _read(response)):
                file.write(block)
                done += len(block)
                show(done, total)
    if total is not None and done < total:
        raise _Interrupted(f"the connection ended after {_megabytes(done)} of {_megabytes(total)}")


def _response(request: Request, patience: float) -> HTTPResponse | None:
    """The server's response, None if it has nothing more to send.

    Requested in a thread, because `urlopen` has no limit on name resolution, which may take half a minute offline.
    """
    responses: queue.SimpleQueue[HTTPResponse | Exception] = queue.SimpleQueue()

    def send() -> None:
        try:
            responses.put(urlopen(request, timeout=_READ_TIMEOUT))
        except Exception as error:
            responses.put(error)

    threading.Thread(target=send, daemon=True).start()
    try:
        response = responses.get(timeout=patience)
    except queue.Empty:
        raise _Interrupted(f"no response from {request.host} in {patience:g} seconds") from None
    if isinstance(response, HTTPError):
        response.close()
        if response.code == _RANGE_NOT_SATISFIABLE:
            return None
        problem = f"{request.host} responds {response.code} {response.reason}"
        raise _Interrupted(problem) if response.code >= 500 else DownloadError(problem)
    if isinstance(response, Exception):
        reason = response.reason if isinstance(response, URLError) else response
        raise _Interrupted(f"{request.host} cannot be reached: {reason}")
    return response


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK)
    except (OSError, HTTPException) as error:
        raise _Interrupted(f"the connection broke: {error}") from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


@contextmanager
def _progress(name: str, address: str) -> Iterator[Show]:
    """A progress bar on a terminal, a few plain lines elsewhere; always on standard error."""
    if not sys.stderr.isatty():
        yield _lines(name, address)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn(name, markup=False), *columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(name: str, address: str) -> Show:
    shown = -1

    def show(done: int, total: int | None) -> None:
        nonlocal shown
        fifth = 5 * done // total if total else 0
        if fifth > shown:
            of = f", {20 * fifth} % of {_megabytes(total)}" if total else ""
            print(f"downloading {name} from {address}{of}", file=sys.stderr, flush=True)
            shown = fifth

    return show

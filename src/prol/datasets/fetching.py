"""Downloads a file: goes on where it broke off, and keeps it only if its checksum is right."""

from __future__ import annotations

import hashlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

_BLOCK = 1 << 18
_SILENCE = 30.0  # seconds a server that has answered may send nothing
_ALL_SENT = 416  # "range not satisfiable": there is nothing after what we have

Show = Callable[[int, int | None], None]
"""Told how many bytes are there, and of how many if the server says so."""


class FetchError(ValueError):
    """Why a file could not be had."""


class _BrokeOff(Exception):
    """A failure that may be gone when the server is asked again."""


def fetch(address: str, target: Path, md5: str, *, tries: int = 5, patience: float = 8.0, pause: float = 1.0) -> None:
    """Downloads a file to `target`; until it is whole it is called `target.part`, and a later call goes on with that.

    Parameters
    ----------
    address
        An http or https address.
    target
        The file to write; its folder must be there.
    md5
        Checksum of the whole file. One that differs is removed.
    tries
        How often in a row a server that has sent something before may send nothing new.
    patience
        Seconds to wait for the server's first answer.
    pause
        Seconds before a server that sent nothing new is asked again; one more of them each time.

    >>> fetch("ftp://example.org/birds.tgz", Path("birds.tgz"), "")
    Traceback (most recent call last):
    prol.datasets.fetching.FetchError: 'ftp://example.org/birds.tgz' is no address that begins with https:// or http://
    """
    if not address.startswith(("https://", "http://")):
        raise FetchError(f"{address!r} is no address that begins with https:// or http://")
    part = target.with_name(f"{target.name}.part")
    most, failures, has_sent = _size(part), 0, False
    with _progress(target.name, address) as show:
        while True:
            try:
                _receive(address, part, patience, show)
                break
            except _BrokeOff as error:
                if _size(part) > most:
                    most, failures, has_sent = _size(part), 0, True
                else:
                    failures += 1
                # Without a network every attempt is a wait for nothing: only one that worked before is repeated.
                if failures >= (tries if has_sent else 1):
                    kept = f"; {_megabytes(most)} are kept and the next attempt goes on from there" if most else ""
                    raise FetchError(f"{error}{kept}") from error
                time.sleep(pause * failures)
    _check(part, md5, address)
    part.replace(target)


def _receive(address: str, part: Path, patience: float, show: Show) -> None:
    """Appends to `part` what the server has beyond it, or writes it anew where the server only sends whole files."""
    have = _size(part)
    headers = {"User-Agent": "prol"} | ({"Range": f"bytes={have}-"} if have else {})
    response = _answer(Request(address, headers=headers), patience)
    if response is None:
        return
    with response:
        done = have if response.status == 206 else 0
        total = None if response.length is None else done + response.length
        with part.open("ab" if done else "wb") as file:
            show(done, total)
            while total is None or done < total:
                block = _read(response)
                if not block:
                    break
                file.write(block)
                done += len(block)
                show(done, total)
    if total is not None and done < total:
        raise _BrokeOff(f"the connection ended after {_megabytes(done)} of {_megabytes(total)}")


def _answer(request: Request, patience: float) -> HTTPResponse | None:
    """The server's answer, None if it has nothing more to send.

    Asked from a thread, since looking up a name takes as long as it takes: no network may mean half a minute.
    """
    answers: queue.SimpleQueue[HTTPResponse | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urlopen(request, timeout=_SILENCE))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=patience)
    except queue.Empty:
        raise _BrokeOff(f"no answer from {request.host} in {patience:g} seconds") from None
    if isinstance(answer, HTTPError):
        answer.close()
        if answer.code == _ALL_SENT:
            return None
        said = f"{request.host} answers {answer.code} {answer.reason}"
        raise _BrokeOff(said) if answer.code >= 500 else FetchError(said)
    if isinstance(answer, Exception):
        reason = answer.reason if isinstance(answer, URLError) else answer
        raise _BrokeOff(f"{request.host} cannot be reached: {reason}")
    return answer


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK)
    except (OSError, HTTPException) as error:
        raise _BrokeOff(f"the connection broke: {error}") from error


def _check(part: Path, md5: str, address: str) -> None:
    with part.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != md5:
        part.unlink()
        raise FetchError(f"the file from {address} has the md5 {found} instead of {md5}, so it was removed")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


@contextmanager
def _progress(name: str, address: str) -> Iterator[Show]:
    """A moving bar on a terminal, a few plain lines elsewhere; always on standard error."""
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
    said = -1

    def show(done: int, total: int | None) -> None:
        nonlocal said
        fifth = 5 * done // total if total else 0
        if fifth > said:
            of = f", {20 * fifth} % of {_megabytes(total)}" if total else ""
            print(f"downloading {name} from {address}{of}", file=sys.stderr, flush=True)
            said = fifth

    return show

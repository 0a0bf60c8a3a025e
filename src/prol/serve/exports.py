"""The committed learner as a file to download: an archive of the saved learner, or an ONNX model.

What is written on the way lies in `DIR/service/exported` and is removed before the response begins; the file that is
sent has no name, so that nothing remains of it when the response ends or the process is killed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Literal
from zipfile import ZipFile

from prol.serve.errors import RequestError, stopping
from prol.serve.store import Store
from prol.serve.writer import Writer

Form = Literal["zip", "onnx"]

EXPORTED = "exported"
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
ONNX_SECONDS = 900.0
PIECE = 2**18


@dataclass(frozen=True)
class Download:
    """An open file without a name on the disk, and the name that a browser gives to it."""

    name: str
    size: int
    file: IO[bytes]

    def pieces(self) -> Iterator[bytes]:
        with self.file:
            while piece := self.file.read(PIECE):
                yield piece


class Exporter:
    """Makes one download at a time. `backbone` is where the weights of the learner are, if not where it says."""

    def __init__(self, store: Store, writer: Writer, backbone: str | None) -> None:
        self._store, self._writer, self._backbone = store, writer, backbone
        self._place = store.place / EXPORTED
        self._busy = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False
        self._clear()  # a killed process may have left something

    def make(self, form: Form) -> Download:
        if form == "onnx":
            require_onnx()
            if not self._writer.committed.classes:
                raise RequestError(409, "nothing_learnt", "Nothing is learnt yet: there is no prediction to export.")
        if not self._busy.acquire(blocking=False):
            raise RequestError(429, "export_running", "Another download is being made: try again soon.", retry_after=5)
        try:
            return self._make(form)
        except OSError as error:
            message = f"The download could not be written: {error.strerror or type(error).__name__}."
            raise RequestError(507, "no_room", message, retry_after=5) from error
        finally:
            self._clear()
            self._busy.release()

    def stop(self) -> None:
        """Ends a download that is being made, and makes none any more."""
        self._stopped = True
        if (process := self._process) is not None:
            process.kill()

    def _make(self, form: Form) -> Download:
        title = re.sub(r"[^A-Za-z0-9._-]+", "-", self._store.folder.name).strip(".-") or "learner"
        saved = self._place / title
        version = self._writer.write_out(saved)
        name = f"{title}-{version}.{form}"
        with _unnamed(self._store.place) as file:
            if form == "zip":
                with ZipFile(file, "w") as archive:
                    for part in sorted(saved.iterdir()):
                        archive.write(part, f"{title}/{part.name}")
            else:
                with self._onnx(saved).open("rb") as written:
                    shutil.copyfileobj(written, file)
            size = file.tell()
            file.seek(0)
        return Download(name, size, file)

    def _onnx(self, saved: Path) -> Path:
        """A process of its own: tracing changes the network for a while, with which others predict meanwhile."""
        target = self._place / "model.onnx"
        command = [sys.executable, "-m", "prol", "onnx", str(saved), str(target)]
        command += [] if self._backbone is None else ["--backbone", self._backbone]
        threads = os.environ | {"OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            command, env=threads, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as self._process:
            if self._stopped:
                self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                said = self._process.communicate(timeout=ONNX_SECONDS)[1]
                if self._process.returncode == 0:
                    return target
                if self._stopped:
                    raise stopping()
                reason = (said.strip().splitlines() or ["it was stopped"])[-1].removeprefix("prol: ").rstrip(".")
                raise RequestError(409, "not_exportable", f"This learner cannot be exported to ONNX: {reason}.")
            self._process.kill()
        raise RequestError(503, "too_slow", "The export took too long: use `prol onnx` instead.", retry_after=60)

    def _clear(self) -> None:
        if self._place.is_symlink():
            self._place.unlink()
        shutil.rmtree(self._place, ignore_errors=True)


@contextmanager
def _unnamed(folder: Path) -> Iterator[IO[bytes]]:
    """A file without a name, which is closed only if something goes wrong."""
    file: IO[bytes] = TemporaryFile(dir=folder)  # noqa: SIM115
    try:
        yield file
    except BaseException:
        file.close()
        raise


def require_onnx() -> None:
    missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        message = f"Without {missing[0]} no ONNX can be written: run pip install 'prol[onnx]' where the service runs."
        raise RequestError(501, "no_onnx", message)

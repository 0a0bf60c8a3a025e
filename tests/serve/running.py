"""Servers in processes of their own, clients for them, and images to send."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from runs.small_runs import environment

DEADLINE = 60.0


class Nursery:
    """Starts servers quickly; see nursery.py."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("nursery.py"))]
        self.process = subprocess.Popen(
            command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
        )

    def start(self, arguments: list[str], output: Path, **variables: str) -> int:
        asked = {"arguments": arguments, "environment": variables, "output": str(output)}
        return int(self._ask(asked))

    def wait(self, pid: int) -> int:
        return int(self._ask({"wait": pid, "until_it_ends": True}))

    def has_ended(self, pid: int) -> bool:
        return self._ask({"wait": pid, "until_it_ends": False}) != "runs"

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(DEADLINE)

    def _ask(self, asked: dict[str, Any]) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


class Server:
    """One server, on a port it has picked itself."""

    def __init__(self, nursery: Nursery, folder: Path, *flags: str, **variables: str) -> None:
        self.nursery, self.folder, self.flags, self.variables = nursery, folder, flags, variables
        self.output = folder.with_name(f"{folder.name}.output")
        self.ended: int | None = None
        self.output.write_text("")
        arguments = ["serve", str(folder), "--port", "0", "--device", "cpu", *flags]
        self.pid = nursery.start(arguments, self.output, **variables)
        self.url = eventually(self._url)

    def _url(self) -> str | None:
        for line in self.said().splitlines():
            if line.startswith(f"serving {self.folder} on "):
                return line.rpartition(" ")[2]
        if self.nursery.has_ended(self.pid):
            raise AssertionError(f"it did not start: {self.said()}")
        return None

    def said(self) -> str:
        return self.output.read_text()

    def client(self, **settings: Any) -> httpx.Client:
        return client_of(self.url, **settings)

    def end(self, sign: int = signal.SIGTERM) -> int:
        """The exit code, or the signal that ended it as a negative number."""
        if self.ended is None:
            os.kill(self.pid, sign)
            self.ended = self.nursery.wait(self.pid)
        return self.ended


def client_of(url: str, **settings: Any) -> httpx.Client:
    # Reading the system's certificates, which nobody needs here, takes longer than most requests.
    return httpx.Client(base_url=url, timeout=DEADLINE, verify=False, **settings)


@contextmanager
def running(nursery: Nursery, folder: Path, *flags: str, **variables: str) -> Iterator[Server]:
    server = Server(nursery, folder, *flags, **variables)
    try:
        yield server
    finally:
        server.end(signal.SIGKILL)


def refused_start(nursery: Nursery, folder: Path, *flags: str) -> str:
    """What a server says that exits with status 2."""
    output = folder.with_name(f"{folder.name}.refused")
    output.unlink(missing_ok=True)
    pid = nursery.start(["serve", str(folder), "--port", "0", "--device", "cpu", *flags], output)
    assert nursery.wait(pid) == 2
    return output.read_text()


def eventually(look: Callable[[], Any]) -> Any:
    """The first value that is not None, False or 0, within a deadline."""
    until = time.monotonic() + DEADLINE
    while not (found := look()):
        if time.monotonic() > until:
            raise AssertionError("it did not happen in time")
        time.sleep(0.01)
    return found


def picture(seed: int, size: int = 32, kind: str = "PNG") -> bytes:
    """An encoded image of noise."""
    noise = np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, kind)
    return file.getvalue()


def files(*images: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    return [("images", (f"../{number}", data)) for number, data in enumerate(images)]


def learn(
    client: httpx.Client, images: list[bytes], labels: list[Any], key: str | None = None, **fields: str
) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post("/learn", files=files(*images), data={"labels": labels, **fields}, headers=headers)


def predict(client: httpx.Client, *images: bytes, **query: Any) -> dict[str, Any]:
    answer = client.post("/predict", files=files(*images), params=query)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def counts(client: httpx.Client) -> dict[Any, int]:
    listed = client.get("/classes").json()["classes"]
    return {one["label"]: one["count"] for one in listed}


def error(answer: httpx.Response) -> tuple[int, str]:
    """Status and code; the answer must have the form that all errors have."""
    content = answer.json()
    assert content.keys() == {"error"}
    assert content["error"].keys() == {"code", "message"}
    assert content["error"]["message"].endswith(".")
    return answer.status_code, content["error"]["code"]

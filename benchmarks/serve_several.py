"""Memory, time to load on demand, and rates of a service with 50 learners over one network.

    python benchmarks/serve_several.py --backbone small --loaded-bytes 700000000 --out results/serve/several.json

First the memory of learners that stay loaded, by method. Then 50 learners in a service that has room for some of them:
clients use them in random order, and the resident memory of the process is looked at all the time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
from serve_load import CHUNK, learn, pictures

from prol.bench.machine import document

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "slda": ("slda", {}),
    "prol": ("prol", {}),
    "prol_plus 10 MB": ("prol_plus", {"budget_mb": 10}),
    "prol_plus 45 MB": ("prol_plus", {"budget_mb": 45}),
    "ranpac 2000": ("ranpac", {"features": 2000}),
}
MANY = {"slda": 18, "prol": 8, "prol_plus 10 MB": 12, "prol_plus 45 MB": 8, "ranpac 2000": 4}
"""Learners of each kind in the mixture."""


class Watched:
    """A server, and the most memory that it was seen to have."""

    def __init__(self, address: str, pid: int) -> None:
        self.address, self._status, self._ended = address, Path(f"/proc/{pid}/status"), threading.Event()
        self.most = self.now()
        threading.Thread(target=self._watch, daemon=True).start()

    def now(self) -> int:
        line = next(line for line in self._status.read_text().splitlines() if line.startswith("VmRSS"))
        return 1024 * int(line.split()[1])

    def end(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self.most = max(self.most, self.now())

    def client(self, name: str | None = None) -> httpx.Client:
        return httpx.Client(base_url=self.address if name is None else f"{self.address}/v1/{name}", timeout=300)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backbone", default="small", help="as for `prol serve`")
    parser.add_argument("--loaded-bytes", type=int, default=700_000_000, help="as for `prol serve`")
    parser.add_argument("--alike", type=int, default=3, help="learners of a kind whose memory is compared")
    parser.add_argument("--chunks", type=int, default=3, help="of 10 images that each learner is taught")
    parser.add_argument("--rounds", type=int, default=3, help="in which each learner is used once, in random order")
    parser.add_argument("--seconds", type=float, default=10, help="for which each rate is measured")
    parser.add_argument("--threads", type=int, default=1, help="of the server")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    content = document("serve_several", torch.device("cpu"), command, settings)
    images, labels = pictures()
    content["rows"] = [memory_of(kind, images, labels, given) for kind in KINDS]
    with tempfile.TemporaryDirectory() as folder:
        content["several"] = mixture(Path(folder), images, labels, given)
    print(json.dumps(content["several"], indent=2))
    if given.out is not None:
        given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def memory_of(kind: str, images: list[bytes], labels: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """What each further learner of a kind takes while it is loaded and has just learnt, beside its checkpoint."""
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), given, 10**11) as watched:
        resident = [watched.now()]
        for number in range(given.alike + 1):
            teach(watched, create(watched, kind, number), images, labels, given.chunks)
            resident.append(watched.now())
        with watched.client() as client:
            sizes = [one["bytes"] for one in client.get("/v1").json()["learners"]]
    row = {
        "kind": kind,
        "checkpoint_bytes": statistics.median(sizes),
        "resident_without": resident[0],
        "resident_per_learner": (resident[-1] - resident[1]) / given.alike,
    }
    print(row, flush=True)
    return row


def mixture(folder: Path, images: list[bytes], labels: list[str], given: argparse.Namespace) -> dict[str, Any]:
    draw = random.Random(0)
    with server(folder, given, given.loaded_bytes) as watched:
        began = watched.now()
        names = [create(watched, kind, number) for kind, many in MANY.items() for number in range(many)]
        draw.shuffle(names)
        for name in names:
            teach(watched, name, images, labels, given.chunks)
        sizes = [one["bytes"] for one in listed(watched)]
        cold: list[tuple[str, float, int]] = []
        warm: list[float] = []
        for _ in range(given.rounds):
            draw.shuffle(names)
            for name in names:
                [one] = [one for one in listed(watched) if one["name"] == name]
                taken = [ask(watched, name, images[0]) for _ in range(3)]
                if not one["loaded"]:
                    cold.append((name, taken[0], one["bytes"]))
                warm += taken[1:]
        small = [seconds for _, seconds, size in cold if size < 5e6]
        large = [seconds for _, seconds, size in cold if size > 4e7]
        loaded = [one["name"] for one in listed(watched) if one["loaded"]]
        rates = {
            "one learner": rate(watched, ["slda-0"], images, labels, given.seconds),
            "four learners": rate(watched, [f"slda-{n}" for n in range(4)], images, labels, given.seconds),
            "all learners in random order": rate_of_all(watched, names, images, labels, given.seconds, draw),
        }
        with watched.client() as client:
            counts = client.get("/metrics").text.splitlines()
        return {
            "learners": len(names),
            "bytes_of_checkpoints": {"all": sum(sizes), "least": min(sizes), "most": max(sizes)},
            "resident": {"without_learners": began, "most": watched.most, "at_the_end": watched.now()},
            "loaded_at_a_time": len(loaded),
            "first_prediction_seconds": {
                "below 5 MB, not loaded": spread(small),
                "above 40 MB, not loaded": spread(large),
                "loaded": spread(warm),
            },
            "images_learnt_per_second": rates,
            **{
                line.split()[0]: float(line.split()[1])
                for line in counts
                if line.startswith(("prol_loads", "prol_load_s", "prol_written"))
            },
        }


def spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"count": len(ordered), "median": statistics.median(ordered), "most": ordered[-1]}


@contextmanager
def server(folder: Path, given: argparse.Namespace, loaded_bytes: int) -> Iterator[Watched]:
    command = [sys.executable, "-m", "prol", "serve", str(folder / "learners"), "--several", "--port", "0"]
    command += ["--backbone", given.backbone, "--device", "cpu", "--threads", str(given.threads)]
    command += ["--loaded-bytes", str(loaded_bytes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "http://" in line)
        threading.Thread(target=process.stdout.read, daemon=True).start()
        watched = Watched("http://" + line.rpartition("http://")[2].strip(), process.pid)
        yield watched
        watched.end()
    finally:
        process.terminate()
        process.wait(300)


def create(watched: Watched, kind: str, number: int) -> str:
    method, options = KINDS[kind]
    name = f"{kind.lower().replace(' ', '-')}-{number}"
    with watched.client() as client:
        wanted = {"name": name, "method": method, "options": options}
        client.post("/v1", json=wanted).raise_for_status()
    return name


def listed(watched: Watched) -> list[dict[str, Any]]:
    with watched.client() as client:
        found: list[dict[str, Any]] = client.get("/v1").json()["learners"]
    return found


def teach(watched: Watched, name: str, images: list[bytes], labels: list[str], chunks: int) -> None:
    with watched.client(name) as client:
        for chunk in range(chunks):
            learn(client, images, labels, chunk)


def ask(watched: Watched, name: str, image: bytes) -> float:
    with watched.client(name) as client:
        began = time.perf_counter()
        client.post("/predict", files=[("images", ("one.png", image))]).raise_for_status()
        return time.perf_counter() - began


def rate(watched: Watched, names: list[str], images: list[bytes], labels: list[str], seconds: float) -> dict[str, Any]:
    """Images per second of learners that are taught at the same time, one client each."""
    learnt = dict.fromkeys(names, 0)
    until = time.monotonic() + seconds

    def client_of(name: str) -> None:
        with watched.client(name) as client:
            while time.monotonic() < until:
                learn(client, images, labels, learnt[name])
                learnt[name] += 1

    threads = [threading.Thread(target=client_of, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    each = [CHUNK * count / seconds for count in learnt.values()]
    return {"all": sum(each), "least": min(each), "most": max(each)}


def rate_of_all(
    watched: Watched, names: list[str], images: list[bytes], labels: list[str], seconds: float, draw: random.Random
) -> float:
    """Images per second where each chunk is for another learner, which mostly is not loaded."""
    began, chunks = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        teach(watched, draw.choice(names), images, labels, 1)
        chunks += 1
    return CHUNK * chunks / (time.monotonic() - began)


if __name__ == "__main__":
    main()

"""Predictions a second and their latency, without and with learning at the same time, against a real server.

    python benchmarks/serve_load.py --method prol_plus --seconds 20 --out serve_load.json

Both are measured in turns in one run, so that the ratio holds on a machine whose speed changes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
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
from PIL import Image

from prol.bench.machine import document
from prol.data.builtin import glyphs

CHUNK = 10


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--method", default="prol_plus", help="as for `prol serve`")
    parser.add_argument("--seconds", type=float, default=20, help="of a turn")
    parser.add_argument("--turns", type=int, default=3, help="of each kind, in alternation")
    parser.add_argument("--clients", type=int, default=2, help="that ask, one image a request, each as fast as it can")
    parser.add_argument("--learn-rate", type=float, default=2, help="chunks of 10 images a second that are offered")
    parser.add_argument("--threads", type=int, default=2, help="of the server")
    parser.add_argument("--backbone", default="vit_tiny_patch8_64.tiny_imagenet", help="of the server")
    parser.add_argument("--device", default="cpu", help="of the server")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    content = document(
        "serve_load", torch.device(given.device), shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]), settings
    )
    images, labels = pictures()
    with tempfile.TemporaryDirectory() as folder, server(Path(folder) / "model", given) as address:
        teach(address, images, labels, chunks=30)
        turns: dict[str, list[dict[str, Any]]] = {"alone": [], "while learning": []}
        for _ in range(given.turns):
            turns["alone"].append(ask(address, images, given, None))
            turns["while learning"].append(ask(address, images, given, labels))
            print({kind: rows[-1] for kind, rows in turns.items()}, flush=True)
    content["turns"] = turns
    content["ratios"] = {
        name: statistics.median(b[name] / a[name] for a, b in zip(*turns.values(), strict=True))
        for name in ("requests_per_second", "p50_ms", "p99_ms")
    }
    print(f"while learning, against alone: {content['ratios']}")
    if given.out is not None:
        given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def pictures() -> tuple[list[bytes], list[str]]:
    """Images of the built-in characters as PNG files, and their labels."""
    train = glyphs().train
    chosen = range(0, len(train.labels), 5)
    files = []
    for image in train.load(chosen).images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        files.append(file.getvalue())
    return files, [str(train.labels[index]) for index in chosen]


@contextmanager
def server(folder: Path, given: argparse.Namespace) -> Iterator[str]:
    """The address of a server of its own."""
    command = [sys.executable, "-m", "prol", "serve", str(folder), "--method", given.method, "--port", "0"]
    command += ["--backbone", given.backbone, "--device", given.device, "--threads", str(given.threads)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "http://" in line)
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield "http://" + line.rpartition("http://")[2].strip()
    finally:
        process.terminate()
        process.wait(120)


def teach(address: str, images: list[bytes], labels: list[str], chunks: int) -> None:
    with httpx.Client(base_url=address, timeout=300) as client:
        for chunk in range(chunks):
            learn(client, images, labels, chunk)


def learn(client: httpx.Client, images: list[bytes], labels: list[str], chunk: int) -> None:
    places = [(chunk * CHUNK + k) * 37 % len(images) for k in range(CHUNK)]
    files = [("images", (f"{k}.png", images[place], "image/png")) for k, place in enumerate(places)]
    client.post("/learn", files=files, data={"labels": [labels[place] for place in places]}).raise_for_status()


def ask(address: str, images: list[bytes], given: argparse.Namespace, labels: list[str] | None) -> dict[str, Any]:
    """One turn: what the clients saw; with labels somebody teaches at the same time."""
    until, taken, learnt = time.monotonic() + given.seconds, [], [0]
    failures: list[BaseException] = []

    def client_of(number: int) -> None:
        try:
            with httpx.Client(base_url=address, timeout=300) as client:
                step = number
                while time.monotonic() < until:
                    begin = time.perf_counter()
                    one = [("images", ("one.png", images[step * 11 % len(images)], "image/png"))]
                    client.post("/predict", files=one).raise_for_status()
                    taken.append(time.perf_counter() - begin)
                    step += 1
        except BaseException as error:
            failures.append(error)

    def teacher(labels: list[str]) -> None:
        try:
            with httpx.Client(base_url=address, timeout=300) as client:
                while (begin := time.monotonic()) < until:
                    learn(client, images, labels, learnt[0])
                    learnt[0] += 1
                    wait = threading.Event()
                    wait.wait(max(0.0, min(until, begin + 1 / given.learn_rate) - time.monotonic()))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client_of, args=(number,)) for number in range(given.clients)]
    threads += [] if labels is None else [threading.Thread(target=teacher, args=(labels,))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    times = sorted(taken)
    return {
        "requests_per_second": len(times) / given.seconds,
        "p50_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[min(len(times) - 1, int(0.99 * len(times)))],
        "images_learnt_per_second": CHUNK * learnt[0] / given.seconds,
    }


if __name__ == "__main__":
    main()

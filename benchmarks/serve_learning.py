"""Images learnt a second through the service and in a plain loop, and how soon predictions know of a chunk.

    python benchmarks/serve_learning.py --out serve_learning.json

Both take the same encoded images in chunks of 10, in turns in one run, so that the ratio holds on a machine whose speed
changes. The loop decodes and learns them in this process, with as many threads as the server, and saves nothing. The
processor time of both is less disturbed by other processes than the rates are.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from PIL import Image
from serve_load import pictures

import prol
from prol.bench.machine import document

CHUNK = 10
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ncm": ("ncm", {}),
    "prol_plus, tuned": ("prol_plus", {"adapt_steps": 0}),
    "prol_plus, tuning": ("prol_plus", {"adapt_steps": 100_000}),
    "prol": ("prol", {}),
}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--backbone", default="tiny")
    parser.add_argument("--chunks", type=int, default=30, help="of a turn")
    parser.add_argument("--turns", type=int, default=3, help="of each kind, in alternation")
    parser.add_argument("--begin", type=int, default=20, help="chunks learnt before anything is measured")
    parser.add_argument("--updates", "--lessons", type=int, default=10, help="chunks that are followed by predictions")
    parser.add_argument("--clients", type=int, default=1, help="that send chunks to the server at the same time")
    parser.add_argument("--threads", type=int, default=1, help="of the server and of the loop")
    parser.add_argument("--flags", default="", help="more flags for `prol serve`")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    content = document("serve_learning", torch.device("cpu"), command, settings)
    images, labels = pictures()
    for case in given.cases:
        content["rows"].append({"case": case, **measure(case, images, labels, given)})
        print(json.dumps(content["rows"][-1]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def measure(case: str, images: list[bytes], labels: list[str], given: argparse.Namespace) -> dict[str, Any]:
    method, options = CASES[case]
    learner = prol.create(method, given.backbone, device="cpu", **options)

    def learn_here(number: int) -> None:
        places = of_chunk(number, len(images))
        decoded = [np.asarray(Image.open(io.BytesIO(images[place])).convert("RGB")) for place in places]
        learner.learn(decoded, [labels[place] for place in places])

    with tempfile.TemporaryDirectory() as folder:
        flags = [flag for name, value in options.items() for flag in ("--option", f"{name}={value}")]
        flags += ["--method", method, "--backbone", given.backbone, "--threads", str(given.threads)]
        with (
            server(Path(folder) / "model", [*flags, *shlex.split(given.flags)]) as (address, pid),
            httpx.Client(base_url=address, timeout=300) as client,
        ):

            def learn_there(number: int) -> int:
                places = of_chunk(number, len(images))
                files = [("images", (f"{k}.png", images[place], "image/png")) for k, place in enumerate(places)]
                answer = client.post("/learn", files=files, data={"labels": [labels[place] for place in places]})
                version: int = answer.raise_for_status().json()["version"]
                return version

            for number in range(given.begin):
                learn_here(number)
                learn_there(number)
            loop, served = [], []
            for number in range(given.turns):
                # The same chunks: some take longer, because a learner predicts them first to calibrate itself.
                chunks = range(given.begin + number * given.chunks, given.begin + (number + 1) * given.chunks)
                loop.append(turn(learn_here, chunks, time.process_time))
                served.append(turn(learn_there, chunks, lambda: processor_seconds(pid), given.clients))
            visible = [seen_after(client, images[0], learn_there(number)) for number in range(given.updates)]
    ratios = [there[0] / here[0] for here, there in zip(loop, served, strict=True)]
    return {
        "loop_images_per_second": statistics.median(row[0] for row in loop),
        "served_images_per_second": statistics.median(row[0] for row in served),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "loop_processor_ms_per_image": statistics.median(row[2] for row in loop),
        "served_processor_ms_per_image": statistics.median(row[2] for row in served),
        "longest_learn_seconds": max(row[1] for row in served),
        "longest_step_of_the_loop_seconds": max(row[1] for row in loop),
        "visible_seconds": statistics.median(visible),
        "visible_seconds_longest": max(visible),
    }


def of_chunk(number: int, count: int) -> list[int]:
    return [(number * CHUNK + k) * 37 % count for k in range(CHUNK)]


def turn(
    learn: Callable[[int], object], chunks: range, used: Callable[[], float], clients: int = 1
) -> tuple[float, float, float]:
    """Images per second, the longest chunk, and milliseconds of processor time per image."""

    def seconds(number: int) -> float:
        began = time.perf_counter()
        learn(number)
        return time.perf_counter() - began

    with ThreadPoolExecutor(clients) as senders:
        begin, before = time.perf_counter(), used()
        longest = max(senders.map(seconds, chunks))
    images = CHUNK * len(chunks)
    return images / (time.perf_counter() - begin), longest, 1000 * (used() - before) / images


def processor_seconds(pid: int) -> float:
    """Of all threads of a process so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def seen_after(client: httpx.Client, image: bytes, version: int) -> float:
    """Seconds until a prediction comes from that version or a later one."""
    began = time.perf_counter()
    one = [("images", ("one.png", image, "image/png"))]
    while client.post("/predict", files=one).raise_for_status().json()["version"] < version:
        pass
    return time.perf_counter() - began


@contextmanager
def server(folder: Path, flags: list[str]) -> Iterator[tuple[str, int]]:
    """The address of a server of its own, and its process."""
    command = [sys.executable, "-m", "prol", "serve", str(folder), "--port", "0", "--device", "cpu", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "http://" in line)
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield "http://" + line.rpartition("http://")[2].strip(), process.pid
    finally:
        process.terminate()
        process.wait(120)


if __name__ == "__main__":
    main()

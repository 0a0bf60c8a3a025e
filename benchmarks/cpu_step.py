"""A training step of PROL on a CPU, in turns in one run: plain, as shipped, and the bare passes it cannot do without.

    python benchmarks/cpu_step.py --backbone vit_base_patch16_224@random --threads 2 --out cpu_step.json

The two steps begin with the same uint8 images in memory; the bare passes have no images to prepare. `prol bench show`
prints and draws the file.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import torch
from plain_prol import make_step

from prol.bench.ladder import ladder, times_bare
from prol.bench.machine import document
from prol.bench.timing import Pace
from prol.bench.workload import MethodSpec, Workload


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backbone", default="vit_tiny_patch8_64.tiny_imagenet", help="as for `prol run`")
    parser.add_argument("--chunk", type=int, default=10, help="images of a step")
    parser.add_argument("--classes", type=int, default=100, help="known, the last 10 of the task being learnt")
    parser.add_argument("--frozen-norms", action="store_true", help="leave the backbone's LayerNorms alone")
    parser.add_argument("--rounds", type=int, default=9, help="turns; the median of a step's times counts")
    parser.add_argument("--steps", type=int, help="steps of a turn; as many as take half a second by default")
    parser.add_argument("--threads", type=int, help="of the processor; as torch chooses by default")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    if given.threads is not None:
        torch.set_num_threads(given.threads)

    subject, cpu = MethodSpec("prol", {"tune_norms": not given.frozen_norms}), torch.device("cpu")
    settings = {name: value for name, value in vars(given).items() if name != "out"} | {"methods": [subject.name]}
    content = document("ladder", cpu, shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]), settings)
    pace = Pace.for_device(cpu, repeats=given.rounds, steps=given.steps)
    content["rows"] = ladder(subject, given.backbone, "cpu", given.chunk, Workload(given.classes), pace, make_step)
    content["times_bare"] = times_bare(content["rows"])
    report(content)
    if given.out is not None:
        given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def report(content: dict[str, Any]) -> None:
    names = {"plain float32": "plain step", "float32": "product's step"}
    for row in content["rows"]:
        name = names.get(row["rung"], row["rung"])
        if "error" in row:
            print(f"{name}: {row['error']}")
            continue
        low, middle, high = (1000 * row[what] for what in ("low", "median", "high"))
        speed = f"{row['images_per_second']:.1f} images/s, {row['ratio']:.2f} times as fast as the first"
        print(f"{name}: {middle:.1f} ms ({low:.1f} to {high:.1f}), {speed}")
    if content["times_bare"] is not None:
        print(f"the product takes {content['times_bare']:.2f} times as long as the bare passes")


if __name__ == "__main__":
    main()

"""What PROL's step takes on a GPU with a chunk of a size not seen before: its attention as it is, and planned.

    python benchmarks/new_sizes.py --backbone vit_base_patch16_224@random --out new_sizes.json

Each size is learnt twice, first without a plan of cuDNN's, as the product does, then with one: whatever else is made
ready for a size is on the first one's account. The step of the usual size is replayed from its graph.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from prol.backbones import open_backbone, pick_device
from prol.backbones.base import Acceleration
from prol.bench.machine import document
from prol.bench.timing import Pace, synchronizer, time_step
from prol.bench.workload import MethodSpec, Workload, training_step

ONCE = Pace(warmup=0, repeats=1, steps=1)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backbone", default="vit_tiny_patch8_64.tiny_imagenet", help="as for `prol run`")
    parser.add_argument("--device", default="auto", help="auto, cuda or cuda:N")
    parser.add_argument("--precision", default="auto", help="as for `prol run`")
    parser.add_argument("--chunk", type=int, default=10, help="images of a usual step; all sizes below it are new")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    device = pick_device(given.device)
    if device.type != "cuda":
        parser.error("cuDNN plans on a GPU only, and there is none here")
    content = document("new sizes", device, command, settings)

    vit = open_backbone(given.backbone, device=given.device, precision=given.precision)
    vit.acceleration = Acceleration(captured=vit.acceleration.captured)  # compiling has no part in this
    learner, load, wait = MethodSpec("prol", {"seed": 0}).learner(vit, given.chunk), Workload(), synchronizer(device)
    load.announce(learner)
    usual = training_step(learner, load.chunks(given.chunk, learner.preprocessing.size))
    content["usual"] = time_step(usual, Pace.for_device(device), wait).median
    for size in range(given.chunk - 1, 0, -1):
        step = training_step(learner, load.chunks(size, learner.preprocessing.size))
        as_it_is = time_step(step, ONCE, wait).median
        with patch.object(torch.backends.cuda, "enable_cudnn_sdp"):  # nobody switches plans off
            planned = time_step(step, ONCE, wait).median
        content["rows"].append({"size": size, "as it is": as_it_is, "planned": planned})
        print(f"{size:3} images: {1000 * as_it_is:7.1f} ms, planned {1000 * planned:7.1f} ms")
    ratio = median(row["planned"] / row["as it is"] for row in content["rows"])
    print(f"planned / as it is {ratio:.1f} (median); {given.chunk} images, replayed: {1000 * content['usual']:.1f} ms")
    if given.out is not None:
        given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


if __name__ == "__main__":
    main()

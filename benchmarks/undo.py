"""What undo costs: the time of a chunk with and without its record, in turns, and the record's bytes.

    python benchmarks/undo.py --backbone tiny --threads 1 --out results/undo/cpu.json

Both learners of a method get the same chunks of random images; all classes are known before.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from prol.backbones import open_backbone, pick_device
from prol.bench.machine import document
from prol.bench.timing import Pace, Step, measure, row_of, synchronizer
from prol.bench.workload import MethodSpec, Workload, training_step
from prol.learner import Learner


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", nargs="+", default=["ncm", "prol_plus", "prol"])
    parser.add_argument("--backbone", default="tiny", help="as for `prol run`")
    parser.add_argument("--device", default="cpu", help="as for `prol run`")
    parser.add_argument("--chunk", type=int, default=10, help="images of a chunk")
    parser.add_argument("--classes", type=int, default=100, help="known, the last 10 of the task being learnt")
    parser.add_argument("--repeats", type=int, default=9, help="turns; the median of the ratios of a turn counts")
    parser.add_argument("--steps", type=int, help="chunks of a turn; as many as take half a second by default")
    parser.add_argument("--threads", type=int, help="of the processor; as torch chooses by default")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    device, settings = pick_device(given.device), {name: value for name, value in vars(given).items() if name != "out"}
    content = document("undo", device, shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]), settings)
    backbone, load = open_backbone(given.backbone, device=given.device), Workload(given.classes)
    pace = Pace.for_device(device, repeats=given.repeats, steps=given.steps)
    for name in given.methods:
        pair = {how: MethodSpec(name).learner(backbone, given.chunk) for how in ("off", "on")}
        pair["on"].enable_undo()
        makers = {how: _maker(learner, load, given.chunk) for how, learner in pair.items()}
        timed = {how: row_of(found, given.chunk) for how, found in measure(makers, pace, synchronizer(device)).items()}
        ratios = [on / off for on, off in zip(timed["on"]["seconds"], timed["off"]["seconds"], strict=True)]
        record = pair["on"].undo_record.bytes
        content["rows"].append({"method": name, **timed, "ratio": median(ratios), "record_bytes": record})
        times = [f"{how} {1000 * timed[how]['median']:.2f} ms" for how in ("off", "on")]
        print(f"{name}: {', '.join(times)}, ratio {median(ratios):.3f}, record {record:,} bytes")
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def _maker(learner: Learner, load: Workload, chunk: int) -> Callable[[], Step]:
    def make() -> Step:
        load.announce(learner)
        return training_step(learner, load.chunks(chunk, learner.preprocessing.size))

    return make


if __name__ == "__main__":
    main()

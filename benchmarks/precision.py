"""How far one bf16 step's gradients of PROL are from those in float32: the same weights, images and labels.

    python benchmarks/precision.py --backbone vit_base_patch16_224@random --out bf16_gradients.json

For each trained part: the length of the difference by the length of the float32 gradient.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prol.backbones import evaluation_input, open_backbone, pick_device
from prol.bench.machine import document
from prol.bench.workload import MethodSpec, Workload
from prol.engine.adam import part_gradients
from prol.methods.prol.learner import PROL


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backbone", default="vit_tiny_patch8_64.tiny_imagenet", help="as for `prol run`")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--chunk", type=int, default=10, help="images of a step")
    parser.add_argument("--classes", type=int, default=100, help="known, the last 10 of the task being learnt")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    content = document("precision", pick_device(given.device), command, settings)
    (exact_loss, exact), (loss, found) = (gradients(given, precision) for precision in ("float32", "bf16"))
    content["loss"] = {"float32": exact_loss, "bf16": loss}
    content["rows"] = [{"part": name, "difference": difference(found[name], exact[name])} for name in exact]
    for row in content["rows"]:
        print(f"{row['part']:24} {100 * row['difference']:6.2f} %")
    print(f"loss {exact_loss:.6f} in float32, {loss:.6f} in bf16")
    if given.out is not None:
        given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def gradients(given: argparse.Namespace, precision: str) -> tuple[float, dict[str, Tensor]]:
    """The loss, and its gradients by part; all LayerNorms as one."""
    vit = open_backbone(given.backbone, device=given.device, precision=precision)
    learner = MethodSpec("prol", {"seed": 0}).learner(vit, given.chunk)
    assert isinstance(learner, PROL)
    load = Workload(given.classes)
    load.announce(learner)
    images, labels = load.chunks(given.chunk, learner.preprocessing.size).next()
    inputs = evaluation_input(vit.read(images), learner.preprocessing, vit.device, vit.dtype)
    rows = torch.tensor([learner.row_of[int(label)] for label in labels], device=vit.device)
    total, _, parts = learner.network.losses(*learner.network.query(inputs), rows)
    found = {name: gradient.double().flatten() for name, gradient in part_gradients(total, parts).items()}
    norms = torch.cat([gradient for name, gradient in found.items() if name.startswith("norm.")])
    return total.item(), {name: g for name, g in found.items() if not name.startswith("norm.")} | {"norms": norms}


def difference(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm()) if bool(exact.any()) else float(found.norm())


if __name__ == "__main__":
    main()

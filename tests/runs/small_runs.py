"""Runs that take a moment: a few digits through a small ViT."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from prol.runs import Plan
from prol.runs.setup import NOT_SETTINGS

WHAT_MUST_BE_EQUAL = ("config.json", "events.jsonl", "result.json", "model/model.safetensors", "model/meta.json")


def write_small_vit(folder: Path, architecture: str = "vit_tiny_patch16_224") -> str:
    """Random weights of a ViT that sees 32 x 32 pixels as 4 patches; returns the backbone's name."""
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model(architecture, img_size=32, num_classes=0).half()
    save_file(model.state_dict(), folder / "small.safetensors")
    return f"{architecture}@{folder / 'small.safetensors'}"


def small_plan(small_vit: str, method: str = "ncm", **changes: Any) -> Plan:
    """Three tasks of 4, 3 and 3 digits in 9 chunks, with checkpoints more often than anyone needs."""
    settings: dict[str, Any] = {
        "options": {"blocks": 2} if method == "prol" else {},
        "device": "cpu",
        "tasks": 3,
        "chunk": 5,
        "limit_per_class": 4,
        "checkpoint_every": 2,
        "checkpoint_share": 1.0,
        "threads": 1,
    }
    return Plan(method, "digits", **({"backbone": small_vit} | settings | changes))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a finished run that must not depend on when or how often it was interrupted."""
    files = {name: (folder / name).read_bytes() for name in WHAT_MUST_BE_EQUAL}
    config = json.loads(files["config.json"])
    settings = {name: value for name, value in config.items() if name not in NOT_SETTINGS}
    return files | {"config.json": json.dumps(settings).encode()}


def environment() -> dict[str, str]:
    """For a process of its own that imports what this one does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}

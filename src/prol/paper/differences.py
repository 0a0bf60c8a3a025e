"""Differences between runs and the paper's setting, in words."""

from __future__ import annotations

from collections.abc import Sequence

from prol.paper.scale import CHUNK, PAPER_BACKBONE, PAPER_TINY_BACKBONE, TASKS
from prol.runfiles import RunFiles


def differences(item: str, runs: Sequence[RunFiles]) -> list[tuple[str, str, str]]:
    """Triples of setting, value here, and value in the paper, from the configs of the runs."""
    ordered = {"seeds": sorted(runs, key=lambda run: run.config["seed"])}
    found = []
    for what, paper in _paper_settings(item).items():
        values = (value for run in ordered.get(what, runs) for value in _settings(run)[what])
        here = ", ".join(dict.fromkeys(values))
        if here and here != paper:  # settings that runs did not record are omitted
            found.append((what, here, paper))
    return found


def _settings(run: RunFiles) -> dict[str, list[str]]:
    config = run.config
    dataset, protocol, how = config["dataset"], config["protocol"], config.get("preprocessing")
    limit, rate = dataset.get("limit_per_class"), config["options"].get("lr")
    tasks, notes = str(protocol["tasks"]), dataset.get("notes") or []
    data = "; ".join([f"{dataset['train_images']:,} + {dataset['test_images']:,} images", *notes])
    return {
        "backbone": [f"{config['backbone']['name']} ({config['backbone']['sha256'][:12]})"],
        "image size": [] if how is None else [f"{how['size']} pixels"],
        "data": [f"{dataset['name']} ({data})"],
        "limit per class": ["none" if limit is None else str(limit)],
        "tasks": [tasks if tasks == str(TASKS) else f"{tasks} ({dataset['name']})"],
        "chunk": [str(protocol["chunk"])],
        "seeds": [str(config["seed"])],
        "precision": [f"{config['precision']} on {config['device'].partition(':')[0]}"],
        "hardware": run.hardware,
        "learning rates": [] if rate is None else [f"{config['method']} {rate:g} ({dataset['name']})"],
    }


def _paper_settings(item: str) -> dict[str, str]:
    data = {
        "main": "CIFAR-100, ImageNet-R, ImageNet-A, CUB-200",
        "history": "CIFAR-100, ImageNet-R, ImageNet-A, CUB-200",
        "appendix": "CIFAR-100, ImageNet-R, ImageNet-A, CUB-200; times on ImageNet-R",
        "non-ptm": "CIFAR-100",
    }
    without_ptm = item == "non-ptm"
    return {
        "backbone": f"ResNet-18; PROL {PAPER_TINY_BACKBONE}" if without_ptm else PAPER_BACKBONE,
        "image size": "32; PROL 224 pixels" if without_ptm else "224 pixels",
        "data": data.get(item, "ImageNet-R"),
        "limit per class": "none",
        "tasks": str(TASKS),
        "chunk": str(CHUNK),
        "seeds": "three by the text; most printed numbers fit a single run",
        "precision": "not said; one A100 of 40 GB",
        "hardware": "one A100 of 40 GB",
        "learning rates": "from a grid of 0.001 to 0.1, choice not said",
    }

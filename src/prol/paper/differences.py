"""Differences between runs and the paper's setting, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prol.paper.scale import CHUNK, PAPER_BACKBONE, PAPER_TINY_BACKBONE, TASKS
from prol.runfiles import RunFiles
from prol.runs.engine import damaged, read_finished
from prol.runs.folder import RunFolder

Difference = tuple[str, str, str]


def read_beside_paper(run: RunFolder) -> RunFiles:
    """The content of a finished run, from which all differences to the paper can be read."""
    files = read_finished(run)
    try:
        differences("main", [files])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged(run, error) from error
    return files


def differences(item: str, runs: Sequence[RunFiles]) -> list[Difference]:
    """Triples of setting, value here, and value in the paper, from the configs of the runs."""
    configs = [run.config for run in runs]
    if not configs:
        return []
    seeds = sorted({config["seed"] for config in configs})
    found: list[Difference] = [
        ("backbone", _listed(map(_backbone, configs)), _paper_backbone(item)),
        ("image size", _listed(map(_size, configs)), "32; PROL 224 pixels" if item == "non-ptm" else "224 pixels"),
        ("data", _listed(map(_data, configs)), _paper_data(item)),
        ("limit per class", _listed(_limit(config) for config in configs), "none"),
        ("tasks", _listed(_by_data(config, "tasks") for config in configs), str(TASKS)),
        ("chunk", _listed(str(config["protocol"]["chunk"]) for config in configs), str(CHUNK)),
        ("seeds", ", ".join(map(str, seeds)), "three by the text; most printed numbers fit a single run"),
        ("precision", _listed(_precision(config) for config in configs), "not said; one A100 of 40 GB"),
        ("hardware", _listed(name for run in runs for name in run.hardware), "one A100 of 40 GB"),
        (
            "learning rates",
            _listed(_rate(config) for config in configs),
            "from a grid of 0.001 to 0.1, choice not said",
        ),
    ]
    # Settings that older runs did not record are omitted.
    return [(what, here, paper) for what, here, paper in found if here and here != paper]


def _paper_backbone(item: str) -> str:
    return f"ResNet-18; PROL {PAPER_TINY_BACKBONE}" if item == "non-ptm" else PAPER_BACKBONE


def _paper_data(item: str) -> str:
    if item in ("main", "history"):
        return "CIFAR-100, ImageNet-R, ImageNet-A, CUB-200"
    if item == "appendix":
        return "CIFAR-100, ImageNet-R, ImageNet-A, CUB-200; times on ImageNet-R"
    return "CIFAR-100" if item == "non-ptm" else "ImageNet-R"


def _backbone(config: Any) -> str:
    return f"{config['backbone']['name']} ({config['backbone']['sha256'][:12]})"


def _data(config: Any) -> str:
    dataset = config["dataset"]
    said = "; ".join([f"{dataset['train_images']:,} + {dataset['test_images']:,} images", *dataset["notes"]])
    return f"{dataset['name']} ({said})"


def _size(config: Any) -> str:
    return f"{config['preprocessing']['size']} pixels"


def _limit(config: Any) -> str:
    limit = config["dataset"]["limit_per_class"]
    return "none" if limit is None else str(limit)


def _by_data(config: Any, key: str) -> str:
    value = str(config["protocol"][key])
    return value if value == str(TASKS) else f"{value} ({config['dataset']['name']})"


def _precision(config: Any) -> str:
    return f"{config['precision']} on {config['device'].partition(':')[0]}"


def _rate(config: Any) -> str:
    rate = config["options"].get("lr")
    return "" if rate is None else f"{config['method']} {rate:g} ({config['dataset']['name']})"


def _listed(values: Any) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))

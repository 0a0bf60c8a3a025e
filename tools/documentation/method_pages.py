"""What pages on methods get from the code and from result files, so that it cannot go stale."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from option_tables import option_table

from prol import registry

ALL_METHODS = "<!-- table of methods -->"
SHUFFLED = "cifar100_shuffled"
MEASURED_ON = {"cifar100": "CIFAR-100", "cub200": "CUB-200", SHUFFLED: "CIFAR-100, classes in drawn orders"}
"""Folders of results, and what they are on."""
OPTIONS_HEADING = "## Every option"


def dressed(text: str, page: PurePosixPath, root: Path) -> str:
    """The text of a page with its generated parts; other pages stay as they are."""
    if ALL_METHODS in text:
        return text.replace(ALL_METHODS, _all_methods(page, root))
    if page.parent.name != "methods" or page.stem not in registry.names("methods"):
        return text
    before, heading, rest = text.partition("\n## ")
    options = (
        f"{OPTIONS_HEADING}\nAs `prol methods {page.stem}` prints them; `key=value` behind `prol run`, "
        f"keyword arguments of `prol.create`.\n\n{option_table(page.stem)}\n"
    )
    return f"{before.rstrip()}\n\n{_glance(page.stem, page, root)}\n{heading}{rest.rstrip()}\n\n{options}"


def what_it_needs(method: str) -> str:
    """What a method makes of what it is told."""
    if registry.method(method).uses_tasks:
        return "labels; boundaries where there are any, else [a rule](prol.md#streams-without-boundaries) finds tasks"
    return "labels; boundaries change nothing"


def _glance(method: str, page: PurePosixPath, root: Path) -> str:
    kind = registry.method(method)
    rows = {
        "family": kind.family,
        "source": kind.citation,
        "network": "trained from scratch" if kind.from_scratch else "pre-trained",
        "keeps samples": "yes" if kind.keeps_samples else "no",
        "is told": what_it_needs(method),
    }
    for dataset, title in MEASURED_ON.items():
        row = _measured(dataset, root).get(method)
        if row is not None:
            rows[title] = (
                f"FAA {_number(row['faa'])}, CAA {_number(row['caa'])}, {_bytes(row)} kept: "
                f"`{_command(row, dataset)}` ([files]({_up(page)}results/{dataset}/comparison.md))"
            )
    return "| at a glance | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def _all_methods(page: PurePosixPath, root: Path) -> str:
    """One row a method, best on CIFAR-100 first."""
    measured = _measured(SHUFFLED, root) | _measured("cifar100", root)
    lines = [
        f"| method | family | kept, beside the frozen network | FAA on CIFAR-100 | "
        f"[command]({_up(page)}results/README.md) |",
        "|---|---|---|---|---|",
    ]
    order = sorted(
        registry.names("methods"), key=lambda name: -measured[name]["faa"]["mean"] if name in measured else 0
    )
    for name in order:
        row = measured.get(name)
        described = (root / "docs" / page.parent / f"{name}.md").is_file()
        shown = f"[`{name}`]({name}.md)" if described else f"`{name}`"
        folder = "cifar100" if name in _measured("cifar100", root) else SHUFFLED
        result = ["", "", ""] if row is None else [_bytes(row), _number(row["faa"]), f"`{_command(row, folder)}`"]
        lines.append("| " + " | ".join([shown, registry.method(name).family, *result]) + " |")
    return "\n".join(lines)


@cache
def _measured(dataset: str, root: Path) -> dict[str, Any]:
    """Of each method the best row with its default options but for the learning rate."""
    rows = json.loads((root / "results" / dataset / "comparison.json").read_text(encoding="utf-8"))["rows"]
    best: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: -row["faa"]["mean"]):
        if all(option.startswith("lr=") for option in _given(row)):
            best.setdefault(row["method"], row)
    return best


def _given(row: Any) -> list[str]:
    options: str = row["name"].partition(":")[2]
    return options.split(",") if options else []


def _command(row: Any, folder: str) -> str:
    flags = ["--class-order shuffled"] if folder == SHUFFLED else []
    if not registry.method(row["method"]).from_scratch:
        flags.append("--backbone vit_tiny_patch8_64.tiny_imagenet")  # "builtin" when these were measured
    return " ".join(["prol run", row["method"], folder.partition("_")[0], *_given(row), *flags])


def _number(measure: Any) -> str:
    deviation = f" ± {measure['deviation']:.1f}" if len(measure["values"]) > 1 else ""
    return f"{measure['mean']:.1f}{deviation}"


def _bytes(row: Any) -> str:
    kept = sum(row["footprint"][name]["bytes"] for name in ("parameters_stored", "statistics_stored", "samples_stored"))
    return f"{kept / 1e6:.1f} MB"


def _up(page: PurePosixPath) -> str:
    """From a page to the repository's root."""
    return "../" * len(page.parts)

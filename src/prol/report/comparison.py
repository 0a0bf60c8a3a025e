"""Runs of many methods on one stream as rows, from the contents of their files alone, and the table of these rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from rich.table import Table as RichTable

from prol.report.table import Cell, Spread, Table, readable, spread, text
from prol.runfiles import STORED, Content, RunFiles

BESIDE = "*"
RAN_BESIDE = f"{BESIDE} Other runs were running at the same time: alone it is faster."


_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t distribution: exact to four digits up to ten degrees of freedom, then nearly.

    >>> round(t_quantile(2), 2), round(t_quantile(19), 3)
    (4.3, 2.093)
    """
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    z = 1.959964  # Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5)
    second, third = (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (z**3 + z) / (4 * freedom) + second / freedom**2 + third / freedom**3


@dataclass(frozen=True)
class Row:
    """One method of a comparison. Accuracies are in percent, `history` holds the average accuracy after each task.

    `bytes_kept` counts all stored state besides the frozen backbone: parameters, statistics and samples.
    """

    name: str
    method: str
    options: Content
    seeds: tuple[int, ...]
    faa: Spread
    caa: Spread
    forgetting: Spread
    a_auc: Spread | None
    history: tuple[Spread, ...]
    images_per_second: float | None
    side_by_side: bool
    footprint: Content
    bytes_kept: int
    told_boundaries: bool
    told_classes: bool


def compare_runs(runs: Sequence[RunFiles]) -> list[Row]:
    """One row per method, best final accuracy first; runs that cannot be compared are refused."""
    require_same_stream(runs)
    ordered = sorted(runs, key=lambda run: (run.name, run.config["seed"]))
    rows = [_row(name, list(group)) for name, group in groupby(ordered, key=lambda run: run.name)]
    return sorted(rows, key=lambda row: -row.faa.mean)


def paired_difference(one: Row, other: Row) -> tuple[float, float, int] | None:
    """Mean difference in final accuracy over the seeds of both rows, half its 95 % interval, and how many these are.

    None for fewer than two common seeds.
    """
    first, second = (dict(zip(row.seeds, row.faa.values, strict=True)) for row in (one, other))
    differences = Spread.of([first[seed] - second[seed] for seed in first if seed in second] or [0.0])
    count = len(differences.values)
    if differences.deviation is None:
        return None
    return differences.mean, t_quantile(count - 1) * differences.deviation / count**0.5, count


def _row(name: str, runs: list[RunFiles]) -> Row:
    results = [run.result for run in runs]
    footprints: list[Content] = [result["footprint"] for result in results]
    a_auc = [value for result in results if (value := result["anytime"]["a_auc"]) is not None]
    speeds = [run.timing["train_images_per_second"] for run in runs if run.timing is not None]
    return Row(
        name=name,
        method=runs[0].config["method"],
        options=runs[0].config["options"],
        seeds=tuple(run.config["seed"] for run in runs),
        faa=Spread.of([result["metrics"]["faa"] for result in results]),
        caa=Spread.of([result["metrics"]["caa"] for result in results]),
        forgetting=Spread.of([result["metrics"]["forgetting"] for result in results]),
        a_auc=Spread.of(a_auc) if len(a_auc) == len(runs) else None,
        history=tuple(map(Spread.of, zip(*(r["metrics"]["average_accuracy"] for r in results), strict=True))),
        images_per_second=fmean(speeds) if speeds else None,
        side_by_side=any(run.side_by_side for run in runs),
        footprint=_largest(footprints),
        bytes_kept=max(sum(footprint[kind]["bytes"] for kind in STORED) for footprint in footprints),
        told_boundaries=any(result["told"]["task_boundaries"] for result in results),
        told_classes=any(result["told"]["classes_of_next_task"] for result in results),
    )


def _largest(footprints: Sequence[Content]) -> dict[str, dict[str, int]]:
    """The largest of each amount, where a method does not store the same with every seed."""
    return {
        kind: {unit: max(footprint[kind][unit] for footprint in footprints) for unit in ("count", "bytes")}
        for kind in ("trained_now", *STORED)
    }


def require_same_stream(runs: Sequence[RunFiles]) -> None:
    """Refuses runs on different data, streams or backbones, and runs of one name with different settings."""
    if not runs:
        return
    first_of: dict[str, RunFiles] = {}
    like = next((run for run in runs if not from_scratch(run.config)), runs[0])
    for run in runs:
        _require_none(like, run, stream_differences(like.config, run.config))
        first = first_of.setdefault(run.name, run)
        _require_none(first, run, _differences(own_settings(first.config), own_settings(run.config)))


def from_scratch(config: Content) -> bool:
    """Whether the method trained the whole network from random weights: then the network is a part of the method."""
    return bool(config["backbone"].get("from_scratch", False))


def stream_differences(one: Content, other: Content) -> dict[str, tuple[Any, Any]]:
    """Settings that must be the same for numbers to be compared and are not, by dotted name, with both values.

    A pretrained network must be the same for all methods that use it; one that a method trains from scratch, and its
    precision, is the method's own.
    """
    first, second = stream_settings(one), stream_settings(other)
    if from_scratch(one) or from_scratch(other):
        first, second = (
            {name: value for name, value in settings.items() if name.partition(".")[0] not in ("backbone", "precision")}
            for settings in (first, second)
        )
    return _differences(first, second)


def stream_settings(config: Content) -> dict[str, Any]:
    """What must be the same for numbers to be compared, by dotted name."""
    protocol, dataset = config["protocol"], config["dataset"]
    # Where the files are does not matter; the hash of the labels identifies them.
    return flat(
        {
            "dataset": {"development": False}  # as in files from before there was one
            | {name: value for name, value in dataset.items() if name not in ("data", "options", "notes")},
            "dataset.options": {name: value for name, value in dataset["options"].items() if name != "split"},
            "protocol": {name: protocol[name] for name in ("name", "tasks", "chunk", "class_order", "options")},
            "backbone": _backbone(config),
            "device": config["device"].partition(":")[0],
            "precision": config["precision"],
            "points": config["measures"]["points"],
            "clock": config["clock"],
        }
    )


def _backbone(config: Content) -> Content:
    """The network under its present name: version 0.1.0 stored its only built-in one as "builtin"."""
    network: Content = config["backbone"]
    return {**network, "name": "vit_tiny_patch8_64.tiny_imagenet"} if network["name"] == "builtin" else network


def own_settings(config: Content) -> dict[str, Any]:
    """What must be the same for runs to be of one method, by dotted name."""
    protocol = config["protocol"]
    given = {"boundaries": protocol["boundaries"], "announce": protocol["announce"]}
    network = {"backbone": _backbone(config), "precision": config["precision"]}
    return flat({"method": config["method"], "options": config["options"], **given, **network})


def _differences(first: Content, second: Content) -> dict[str, tuple[Any, Any]]:
    names = sorted(first.keys() | second.keys())
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def _require_none(one: RunFiles, other: RunFiles, differences: Mapping[str, tuple[Any, Any]]) -> None:
    for name, (first, second) in differences.items():
        raise ValueError(
            f"{one.folder} and {other.folder} cannot be compared: {name} is {first!r} in the one and "
            f"{second!r} in the other; put them in different folders"
        )


def flat(content: Content, above: str = "") -> dict[str, Any]:
    """Nested content by dotted name."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return found


def describe_stream(runs: Sequence[RunFiles]) -> str:
    """What all runs of a comparison have in common, in one line."""
    scratch = [run for run in runs if from_scratch(run.config)]
    config = next((run.config for run in runs if not from_scratch(run.config)), runs[0].config)
    protocol = config["protocol"]
    seeds = sorted({run.config["seed"] for run in runs})
    versions = sorted({run.config["versions"]["prol"] for run in runs})
    split = ", development split" if config["dataset"].get("development") else ""
    return (
        f"{config['dataset']['name']}{split}: {config['dataset']['train_images']} training and "
        f"{config['dataset']['test_images']} test images, {protocol['tasks']} tasks ({protocol['name']}), chunks of "
        f"{protocol['chunk']}, {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}, backbone "
        f"{_network(config)}, prol {', '.join(versions)}{_own_networks(scratch) if len(scratch) < len(runs) else ''}"
    )


def _network(config: Content) -> str:
    backbone, place = config["backbone"], config["device"].partition(":")[0]
    known = "trained from scratch" if from_scratch(config) else backbone["sha256"][:12]
    return f"{backbone['name']} {known}, {place} {config['precision']}"


def _own_networks(runs: Sequence[RunFiles]) -> str:
    networks: dict[str, list[str]] = {}
    for run in runs:
        networks.setdefault(_network(run.config), []).append(run.name)
    return "".join(f"; {', '.join(sorted(set(names)))} on {network}" for network, names in networks.items())


def comparison_table(rows: Sequence[Row]) -> RichTable:
    """One row per method, on two lines: means and counts above, deviations and bytes below."""
    cells = []
    for row in rows:
        method, _, options = row.name.partition(":")
        name = "\n".join(filter(None, (method, options.replace(",", " "), _missing_seeds(row, rows))))
        cells.append([text(name), *_cells(row, rows, "\n±", "\n{}", ",\n")])
    return _table(_titles(rows, "\n"), cells).rich(dense=True)


def comparison_sheet(rows: Sequence[Row], mark: str = "") -> Table:
    """The same with one line for each method and its seeds in a column; `mark` is put around names."""
    method, *titles = _titles(rows, " ")
    cells = [
        [
            text(f"{mark}{row.name}{mark}"),
            text(", ".join(map(str, row.seeds))),
            *_cells(row, rows, " ± ", " ({})", ", "),
        ]
        for row in rows
    ]
    return _table([method, "seeds", *titles], cells)


def comparison_markdown(headline: str, rows: Sequence[Row], failures: Sequence[str]) -> str:
    """The table as a page, with the runs that are not finished."""
    lines = [f"# Comparison on {headline.partition(':')[0]}", "", f"{headline}.", ""]
    lines += [*comparison_sheet(rows, "`").markdown(), "", *notes(rows)]
    if failures:
        lines += ["", "## Not finished", "", *(f"- {failure}" for failure in failures)]
    return "\n".join(lines) + "\n"


def notes(rows: Sequence[Row]) -> list[str]:
    """What must be known to read the table."""
    notes = [
        "Accuracies and forgetting in %, as mean ± sample deviation over seeds. Amounts are those during the last "
        "task, besides the frozen backbone and the optimiser's moments; bytes stored are those of parameters, "
        "statistics and samples together."
    ]
    if len(rows) > 1 and (paired := paired_difference(*rows[:2])) is not None:
        mean, half, count = paired
        notes.append(
            f"Paired by seed, FAA of {rows[0].name} is {mean:.2f} points above that of {rows[1].name}, 95 % interval "
            f"{mean - half:.2f} to {mean + half:.2f} ({count} seeds). A seed varies the order of the samples, initial "
            "values and augmentation; training and test images are the same for all seeds."
        )
    return notes + [RAN_BESIDE] * any(row.side_by_side for row in rows)


def speed(row: Row) -> Cell:
    """Images per second while learning, with a star where other runs were running beside it."""
    value = row.images_per_second
    if value is None:
        return Cell("-")
    return Cell(f"{value:,.{0 if value >= 10 else 1}f}{BESIDE if row.side_by_side else ''}", value)


def _table(titles: Sequence[str], cells: Sequence[Sequence[Cell]]) -> Table:
    return Table(titles, cells, "l" + "r" * (len(titles) - 2) + "l")


def _titles(rows: Sequence[Row], gap: str) -> list[str]:
    measures = ["FAA", "CAA", "forgetting"] + ["A_AUC"] * any(row.a_auc for row in rows)
    stored = [f"{kind}{gap}stored" for kind in ("parameters", "statistics", "samples", "bytes")]
    return ["method", *measures, f"images/s{gap}learning", f"trained{gap}now", *stored, "given"]


def _cells(row: Row, rows: Sequence[Row], gap: str, size: str, comma: str) -> list[Cell]:
    measures = [row.faa, row.caa, row.forgetting] + [row.a_auc] * any(one.a_auc for one in rows)
    kinds = ("trained_now", "parameters_stored", "statistics_stored", "samples_stored")
    given = ["boundaries"] * row.told_boundaries + ["classes"] * row.told_classes
    return [
        *(spread(measure, gap) for measure in measures),
        speed(row),
        *(text(_amount(row.footprint[kind], size, "none" if kind == "samples_stored" else "0")) for kind in kinds),
        text(readable(row.bytes_kept, "B")),
        text(comma.join(given) or "nothing"),
    ]


def _missing_seeds(row: Row, rows: Sequence[Row]) -> str:
    """The seeds of a row where others have more."""
    everything = {seed for one in rows for seed in one.seeds}
    if everything == set(row.seeds):
        return ""
    return f"({'seeds' if len(row.seeds) > 1 else 'seed'} {', '.join(map(str, row.seeds))} only)"


def _amount(amount: Mapping[str, int], size: str, none: str) -> str:
    if not amount["count"] and not amount["bytes"]:
        return none
    return readable(amount["count"]) + size.format(readable(amount["bytes"], "B"))

"""Sections of the page: the runs on one stream, as rows with their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prol.report.comparison import (
    Row,
    compare_runs,
    describe_stream,
    from_scratch,
    own_settings,
    stream_differences,
    stream_settings,
)
from prol.report.page.naming import canonical, names_of, setting, unique
from prol.report.page.search import Found, LeftOut
from prol.report.table import printable
from prol.runfiles import Content, RunFiles

_IMPLIED = ("dataset.labels_sha256", "dataset.train_images", "dataset.test_images", "dataset.classes")
"""Settings that differ because another one does."""


@dataclass(frozen=True)
class Section:
    """All runs on one stream; `key` names its files, `runs_of[name]` are the runs of a row by seed."""

    key: str
    title: str
    headline: str
    rows: list[Row]
    runs_of: Mapping[str, list[RunFiles]]

    @property
    def first(self) -> RunFiles:
        """The run whose stream is drawn: of the best method, with its lowest seed."""
        return self.runs_of[self.rows[0].name][0]


def sections_of(found: Found) -> tuple[list[Section], list[LeftOut]]:
    """One section per stream in the order in which they were found; and the runs left out as duplicates."""
    duplicates: list[LeftOut] = []
    streams = [_without_duplicates(runs, duplicates) for runs in _by_stream(found.runs)]
    titles = _titles(streams)
    sections: list[Section] = []
    for title, runs in zip(titles, streams, strict=True):
        named = _named(runs)
        rows = compare_runs(named)
        ordered = sorted(named, key=lambda run: run.config["seed"])
        runs_of = {row.name: [run for run in ordered if run.name == row.name] for row in rows}
        folder = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:80] or "stream"
        key = unique(folder, [section.key for section in sections], "{}-{}")
        sections.append(Section(key, title, describe_stream(ordered), rows, runs_of))
    return sections, duplicates


def _grouped(runs: Sequence[RunFiles], key: Callable[[RunFiles], str]) -> list[list[RunFiles]]:
    groups: dict[str, list[RunFiles]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def _by_stream(runs: Sequence[RunFiles]) -> list[list[RunFiles]]:
    """Runs of one stream and backbone; those trained from scratch join the first of their stream."""
    groups = _grouped([run for run in runs if not from_scratch(run.config)], _stream_key)
    for run in (run for run in runs if from_scratch(run.config)):
        config = run.config
        fitting = (group for group in groups if not stream_differences(group[0].config, config))
        group = next(fitting, None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return groups


def _stream_key(run: RunFiles) -> str:
    return canonical(stream_settings(run.config))


def _method_key(run: RunFiles) -> str:
    return canonical(own_settings(run.config))


def _without_duplicates(runs: Sequence[RunFiles], duplicates: list[LeftOut]) -> list[RunFiles]:
    """A seed counts once: the same method with the same options and seed again would weigh twice in a mean."""
    first: dict[tuple[str, int], RunFiles] = {}
    for run in runs:
        counted = first.setdefault((_method_key(run), run.config["seed"]), run)
        if counted is not run:
            duplicates.append(LeftOut(str(run.path), f"it has method, options, stream and seed of {counted.path}"))
    return list(first.values())


def _named(runs: Sequence[RunFiles]) -> list[RunFiles]:
    """Gives runs of one method with the same options one name, and others another."""
    groups = _grouped(runs, _method_key)
    names = names_of(groups)
    return [replace(run, label=name) for name, group in zip(names, groups, strict=True) for run in group]


def _titles(streams: Sequence[Sequence[RunFiles]]) -> list[str]:
    """A short title for each stream, with the settings that are unusual among streams of the same title."""
    configs = [runs[0].config for runs in streams]
    titles = [_plain_title(config) for config in configs]
    whole = list(titles)
    for title in dict.fromkeys(titles):
        alike = [number for number, other in enumerate(titles) if other == title]
        settings = [stream_settings(configs[number]) for number in alike]
        for number, unusual in zip(alike, _unusual(settings), strict=True):
            wanted = f"{title} ({unusual})" if unusual else title
            whole[number] = unique(wanted, [whole[other] for other in alike if other < number], "{}, again ({})")
    return [printable(title) for title in whole]


def _plain_title(config: Content) -> str:
    protocol, rate = config["protocol"], (config["clock"] or {}).get("rate")
    waiting = "" if rate is None else f", {rate} images per second"
    return f"{config['dataset']['name']}: {protocol['name']}, {protocol['tasks']} tasks{waiting}"


def _unusual(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each of some settings, those values that most of them do not have."""
    names = sorted({name for one in settings for name in one})
    usual = {name: Counter(canonical(one.get(name)) for one in settings).most_common(1)[0][0] for name in names}
    texts = []
    for one in settings:
        unlike = [name for name in names if canonical(one.get(name)) != usual[name]]
        plain = [name for name in unlike if name not in _IMPLIED]
        texts.append(", ".join(setting(name, one) for name in plain or unlike))
    return texts

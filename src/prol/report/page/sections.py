"""Sections of the page: the runs on one stream, as rows named by method and distinguishing options."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
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
from prol.report.page.search import FoundRuns, LeftOut
from prol.report.table import printable
from prol.runfiles import Content, RunFiles

_IMPLIED = ("dataset.labels_sha256", "dataset.train_images", "dataset.test_images", "dataset.classes")
"""Settings that differ because another one does."""

_LONGEST_HASH, _LONGEST_LIST = 12, 8


def shown(value: Any) -> str:
    """A value as text: a hash by its beginning, a long list by its length.

    >>> shown(None), shown(True), shown([1, 2]), shown([0.1] * 100), shown("63fb1a20a19ea6abb750c3b2665615ce")
    ('none', 'true', '[1, 2]', '100 values', '63fb1a20a19e')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and len(value) > _LONGEST_LIST:
        return f"{len(value)} values"
    text = str(value)
    return text[:_LONGEST_HASH] if re.fullmatch(r"[0-9a-f]{32,}", text) else text


def canonical(value: Any) -> str:
    """A text that is the same for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def setting(name: str, settings: Mapping[str, Any]) -> str:
    """One setting of a dotted name with its value.

    >>> setting("protocol.class_order", {"protocol.class_order": "label"})
    'class order label'
    """
    return f"{name.rpartition('.')[2].replace('_', ' ')} {shown(settings.get(name))}"


def differing_names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names, sorted, whose values are not the same in all settings.

    >>> differing_names([{"lr": 0.1, "length": 3}, {"lr": 0.2, "length": 3}])
    ['lr']
    """
    names = sorted({name for one in settings for name in one})
    return [name for name in names if len({canonical(one.get(name)) for one in settings}) > 1]


def names_of(groups: Sequence[Sequence[RunFiles]]) -> list[str]:
    """A unique name for each group of runs that differ in nothing but their seeds.

    Options are those given, or those in the folder's name of a comparison; elsewhere those that most rows of the method
    do not have.
    """
    names = [printable(_spelt(group) or _distinguished(group[0], groups)) for group in groups]
    settings = [own_settings(group[0].config) for group in groups]

    def differences(alike: Sequence[int]) -> list[str]:
        wanted = differing_names([settings[number] for number in alike])
        return [", ".join(setting(name, settings[number]) for name in wanted) for number in alike]

    names = _with_more(names, differences)
    # Values that are shortened when shown can still read the same.
    names = _with_more(names, lambda alike: [f"in {groups[number][0].folder}" for number in alike])
    taken: list[str] = []
    for name in names:
        taken.append(unique(name, taken))
    return taken


def _with_more(names: Sequence[str], more: Callable[[Sequence[int]], Sequence[str]]) -> list[str]:
    """Adds what `more` says about rows that have the same name."""
    longer = list(names)
    for name in dict.fromkeys(names):
        alike = [number for number, other in enumerate(names) if other == name]
        if len(alike) > 1:
            for number, addition in zip(alike, more(alike), strict=True):
                longer[number] = f"{name} ({printable(addition)})" if addition else name
    return longer


def unique(name: str, taken: Collection[str], form: str = "{} ({})") -> str:
    """A name that is not taken, with a number if need be.

    >>> unique("ncm", ["slda"]), unique("ncm", ["ncm", "ncm (2)"])
    ('ncm', 'ncm (3)')
    """
    numbered = (form.format(name, number) for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def _spelt(group: Sequence[RunFiles]) -> str | None:
    """A method as on the command line, where that is recorded or a folder is called METHOD[-OPTION=VALUE,...]-seedN."""
    for run in group:
        if run.name_as_given is not None:
            return run.name_as_given
        method, end = run.config["method"], f"-seed{run.config['seed']}"
        if run.folder == f"{method}{end}":
            return method
        if run.folder.startswith(f"{method}-") and run.folder.endswith(end):
            spelt = run.folder.removeprefix(f"{method}-").removesuffix(end)
            pairs = [pair.partition("=") for pair in re.split(r",(?=\w+=)", spelt)]
            given = run.config["options"]
            if all(name in given and _same(value, given[name]) for name, _, value in pairs):
                return f"{method}:{spelt}"
    return None


def _same(text: str, value: Any) -> bool:
    """Whether an option's value is spelt so; in folders of sweeps, settings of the stream follow the options.

    >>> _same("1e-3", 0.001), _same("5,2,1", [5, 2, 1]), _same("false", False), _same("0.01-digits", 0.01)
    (True, True, True, False)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    # Characters that a folder's name cannot have are underscores there.
    one, other = (re.sub(r"[\W_]+", "", str(words)).lower() for words in (text, value))
    return one == other


def _distinguished(run: RunFiles, groups: Sequence[Sequence[RunFiles]]) -> str:
    """The method with the options in which the run differs from most rows of the method."""
    method, options = run.config["method"], run.config["options"]
    rows = [group[0].config["options"] for group in groups if group[0].config["method"] == method]
    unusual = [name for name in sorted(options) if _usual(name, rows) != canonical(options[name])]
    return f"{method}:{','.join(f'{name}={shown(options[name])}' for name in unusual)}" if unusual else method


def _usual(name: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The value that more rows have than any other, None where several are as frequent.

    >>> rows = [{"lr": 0.1}, {"lr": 0.1}, {"lr": 0.5}]
    >>> _usual("lr", rows), _usual("lr", rows[1:])
    ('0.1', None)
    """
    first, *others = Counter(canonical(row.get(name)) for row in rows).most_common(2)
    return None if others and others[0][1] == first[1] else first[0]


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


def sections_of(found: FoundRuns) -> tuple[list[Section], list[LeftOut]]:
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
    own, pretrained = ([run for run in runs if from_scratch(run.config) is scratch] for scratch in (True, False))
    groups = _grouped(pretrained, lambda run: canonical(stream_settings(run.config)))
    for run in own:
        group = next((one for one in groups if not stream_differences(one[0].config, run.config)), None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return groups


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
    """For each of the settings, those values that most of them do not have."""
    names = sorted({name for one in settings for name in one})
    usual = {name: Counter(canonical(one.get(name)) for one in settings).most_common(1)[0][0] for name in names}
    texts = []
    for one in settings:
        unlike = [name for name in names if canonical(one.get(name)) != usual[name]]
        plain = [name for name in unlike if name not in _IMPLIED]
        texts.append(", ".join(setting(name, one) for name in plain or unlike))
    return texts

"""What rows are called: the method, with the options that tell it from others on its stream."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prol.report.comparison import RunFiles, own_settings
from prol.report.page.wording import printable, setting, shown, unlike_names, written


def names_of(groups: Sequence[Sequence[RunFiles]]) -> list[str]:
    """A name for each group of runs that differ in nothing but their seeds; no two have the same.

    Options are those that the folder of a comparison spells; elsewhere those in which runs of the method differ here.
    """
    spelt = [_spelt(group) for group in groups]
    names = [printable(name or _told(group[0], groups, spelt)) for name, group in zip(spelt, groups, strict=True)]
    settings = [own_settings(group[0].config) for group in groups]

    def differences(alike: Sequence[int]) -> list[str]:
        wanted = unlike_names([settings[number] for number in alike])
        return [", ".join(setting(name, settings[number]) for name in wanted) for number in alike]

    names = _with_more(names, differences)
    # Values that are shortened when shown can still be the same in words.
    return _numbered(_with_more(names, lambda alike: [f"in {groups[number][0].folder}" for number in alike]))


def _with_more(names: Sequence[str], more: Callable[[Sequence[int]], Sequence[str]]) -> list[str]:
    """Adds what `more` says about rows that have the same name."""
    longer = list(names)
    for name in dict.fromkeys(names):
        alike = [number for number, other in enumerate(names) if other == name]
        if len(alike) > 1:
            for number, words in zip(alike, more(alike), strict=True):
                longer[number] = f"{name} ({printable(words)})" if words else name
    return longer


def _numbered(names: Sequence[str]) -> list[str]:
    """The last resort: whatever is called the same is counted.

    >>> _numbered(["ncm", "ncm", "ncm (2)"])
    ['ncm', 'ncm (2)', 'ncm (2) (2)']
    """
    taken: list[str] = []
    for name in names:
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name} ({number})", number + 1
        taken.append(unique)
    return taken


def _spelt(group: Sequence[RunFiles]) -> str | None:
    """As on the command line, where a folder is called so: METHOD[-OPTION=VALUE,...]-seedN."""
    for files in group:
        method, end = files.config["method"], f"-seed{files.config['seed']}"
        if files.folder == f"{method}{end}":
            return str(method)
        if files.folder.startswith(f"{method}-") and files.folder.endswith(end):
            spelt = files.folder.removeprefix(f"{method}-").removesuffix(end)
            pairs = [pair.partition("=") for pair in re.split(r",(?=\w+=)", spelt)]
            given = files.config["options"]
            if all(name in given and _same(value, given[name]) for name, _, value in pairs):
                return f"{method}:{spelt}"
    return None


def _same(text: str, value: Any) -> bool:
    """Whether an option's value is spelt so; folders of sweeps go on with settings of the stream behind it.

    >>> _same("1e-3", 0.001), _same("5,2,1", [5, 2, 1]), _same("false", False), _same("0.01-digits", 0.01)
    (True, True, True, False)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    # Signs that a folder cannot have stand there as underscores.
    one, other = (re.sub(r"[\W_]+", "", str(words)).lower() for words in (text, value))
    return one == other


def _told(files: RunFiles, groups: Sequence[Sequence[RunFiles]], spelt: Sequence[str | None]) -> str:
    """The options that tell it from the row called by the method alone; without such a row, from its usual rows."""
    method, options = files.config["method"], files.config["options"]
    plain = [group[0].config["options"] for group, name in zip(groups, spelt, strict=True) if name == method]
    rows = plain[:1] or [group[0].config["options"] for group in groups if group[0].config["method"] == method]
    told = [name for name in unlike_names([options, *rows]) if name in options]
    beside = [name for name, group in zip(spelt, groups, strict=True) if name and group[0].config["method"] == method]
    if not beside:
        told = [name for name in told if _usual(name, rows) != written(options[name])]
    elif not plain:  # beside names that a comparison spells, what goes without saying would be another thing
        named = {option for name in beside for option in re.findall(r"[:,](\w+)=", name)}
        told = sorted(name for name in options if name in named or name in told)
    return f"{method}:{','.join(f'{name}={shown(options[name])}' for name in told)}" if told else str(method)


def _usual(name: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The value that more rows have than any other, None where several are as frequent.

    >>> rows = [{"lr": 0.1}, {"lr": 0.1}, {"lr": 0.5}]
    >>> _usual("lr", rows), _usual("lr", rows[1:])
    ('0.1', None)
    """
    first, *others = Counter(written(row.get(name)) for row in rows).most_common(2)
    return None if others and others[0][1] == first[1] else first[0]

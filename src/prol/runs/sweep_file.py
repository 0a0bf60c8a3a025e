"""A sweep from a TOML file, and flags that replace what it says."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from prol.options import coerce_options
from prol.runs.grid import (
    Request,
    data_options,
    method_options,
    named_values,
    protocol_options,
    protocols_of,
)
from prol.runs.plan import Plan, read_method

_OTHERWISE = {"method", "dataset", "options", "seed", "data", "measures", "clock", "side_by_side"}
_OTHERWISE |= {"protocol_options", "dataset_options"}
SETTINGS = ({field.name for field in fields(Plan)} - _OTHERWISE) | {"points"}
"""Settings that a sweep may give to all runs, by the names of their flags."""

_KEYS = ("methods", "datasets", "seeds", "grid", "settings", "data")


def read_sweep_file(file: str | Path) -> Request:
    """The request in a file.

    Its keys are `methods`, `datasets` and `seeds` (lists), and the tables `grid` (lists of values, or "paper" for a
    learning rate), `settings` (by the names of flags) and `data` (the folder of a data set, by its name).
    """
    path = Path(file)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}: give a sweep as a TOML file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    require_names(content, _KEYS, f"{path}")
    for key in _KEYS[:3]:
        if not isinstance(content.get(key, []), list):
            raise ValueError(f"{path}: {key} must be a list, got {content[key]!r}")
    for key in _KEYS[3:]:
        if not isinstance(content.get(key, {}), dict):
            raise ValueError(f"{path}: {key} must be a table, got {content[key]!r}")
    for seed in content.get("seeds", []):
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"{path}: seeds must be whole numbers, got {seed!r}")
    seeds = {"seeds": tuple(content["seeds"])} if "seeds" in content else {}
    return Request(
        methods=[str(word) for word in content.get("methods", [])],
        datasets=[str(name) for name in content.get("datasets", [])],
        grid=_axes(content.get("grid", {})),
        settings=checked_settings(content.get("settings", {}), f"{path}, settings"),
        data={name: str(place) for name, place in content.get("data", {}).items()},
        **seeds,
    )


def replaced_by_flags(
    request: Request,
    methods: Sequence[str],
    datasets: Sequence[str],
    axes: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Any],
) -> Request:
    """A file's request, in which flags replace what it says about the same setting."""

    protocols = protocols_of(request.grid, request.settings)
    before, now = ([read_method(word)[0] for word in words] for words in (request.methods, methods or request.methods))
    owners: dict[str, tuple[Callable[[str], Sequence[str]], Sequence[str], Sequence[str]]] = {
        "": (method_options, before, now),
        "data": (data_options, request.datasets, datasets or request.datasets),
        "protocol": (protocol_options, protocols, protocols_of(axes, settings, protocols)),
    }

    def stays(axis: str) -> bool:
        owner, _, option = axis.rpartition(".")
        if axis in settings or axis in axes:
            return False
        if owner not in owners:
            return option not in axes and (owner in now or owner not in before)
        options, had, have = owners[owner]
        # An option that nobody has stays, to be refused as a mistake.
        return any(option in options(name) for name in have) or not any(option in options(name) for name in had)

    return replace(
        request,
        methods=methods or request.methods,
        datasets=datasets or request.datasets,
        grid={axis: values for axis, values in request.grid.items() if stays(axis)} | dict(axes),
        settings={name: value for name, value in request.settings.items() if name not in axes} | dict(settings),
        # The file may know where other data sets are.
        data={name: place for name, place in request.data.items() if not datasets or name in datasets},
    )


def checked_settings(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings by their names in `Plan`, with its types."""
    plain = {name.replace("-", "_"): value for name, value in settings.items()}
    require_names(plain, SETTINGS, where)
    points = {name: value for name, value in plain.items() if name == "points"}
    if points and (type(points["points"]) is not int or points["points"] < 0):
        raise ValueError(f"{where}: points must be 0 or more, got {points['points']!r}")
    return coerce_options(Plan, {name: value for name, value in plain.items() if name != "points"}) | points


def require_names(names: Iterable[str], known: Iterable[str], where: str) -> None:
    valid = sorted(known)
    for name in names:
        if name not in valid:
            near = get_close_matches(name, valid, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{where}: unknown name {name!r}{hint}; known: {', '.join(valid)}")


def _axes(table: Mapping[str, Any], above: str = "") -> dict[str, list[Any]]:
    """The axes; dotted names are nested tables in TOML."""
    axes: dict[str, list[Any]] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            axes |= _axes(value, f"{above}{name}.")
        else:
            values = value if isinstance(value, list) else [value]
            if not values:
                raise ValueError(f"grid.{above}{name} holds no value: give at least one")
            axes[f"{above}{name}"] = list(named_values(f"{above}{name}", values))
    return axes

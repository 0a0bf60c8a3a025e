"""From values to try, given as flags or in a TOML file, to plans: every combination that makes sense, once."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from prol import registry
from prol.data.streams import SHARED_ARGUMENTS
from prol.evaluation import Measures
from prol.options import bind_arguments, coerce_options, did_you_mean, own_arguments, spell_method
from prol.runs.plan import Plan, read_method

PAPER_RATES = (0.001, 0.005, 0.01, 0.05, 0.1)
"""The paper's grid of learning rates, for every method."""

CONDITIONS = (
    *("backbone", "precision", "protocol", "tasks", "chunk", "class_order"),
    *("boundaries", "announce", "limit_per_class"),
)
"""Settings of a stream that may take several values. Results under different ones are not compared."""

_PROTOCOL, _DATA = "protocol.", "data."

_OTHERWISE = {"method", "dataset", "options", "seed", "data", "measures", "clock", "side_by_side"}
_OTHERWISE |= {"protocol_options", "dataset_options"}
SETTINGS = ({field.name for field in fields(Plan)} - _OTHERWISE) | {"points"}
"""Settings that a sweep may give to all runs, by the names of their flags."""

_KEYS = ("methods", "datasets", "seeds", "grid", "settings", "data")


@dataclass(frozen=True)
class Request:
    """A requested sweep.

    Args:
        methods: words such as `prol:blocks=4`; options after the colon are the same in all runs of the word.
        grid: values to try, by name: a setting of the stream (`CONDITIONS`), `protocol.OPTION`, `data.OPTION`,
            `METHOD.OPTION`, or the name of an option, which is tried with every method that has it.
        settings: settings of all plans, by their names in `Plan`; `points` as in `Measures`.
        data: paths of data sets, by the name of the data set.
    """

    methods: Sequence[str]
    datasets: Sequence[str]
    seeds: Sequence[int] = (0, 1, 2)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GridPoint:
    """One run of a sweep: `condition` holds the settings of its stream, the plan's options are what is tried."""

    plan: Plan
    condition: Mapping[str, Any]


def points_of(request: Request) -> list[GridPoint]:
    """Every run of a sweep, first all settings with the first seed. Unknown names and bad values are refused."""
    words = [read_method(word) for word in request.methods]
    _require_some(request)
    _require_known_axes(request, [method for method, _ in words])
    _require_not_fixed(request, words)
    return _different(
        GridPoint(plan, condition)
        for seed, dataset, (method, fixed) in product(request.seeds, request.datasets, words)
        for condition in _conditions(request, dataset)
        for options in _choices(request, method, fixed)
        for plan in (_plan(request, method, dataset, options, condition, seed),)
    )


def parse_axis(text: str) -> tuple[str, list[str]]:
    """A name and its values; a semicolon separates values that hold commas, `paper` stands for the paper's rates.

    >>> parse_axis("lr=0.001,0.01")
    ('lr', ['0.001', '0.01'])
    >>> parse_axis("convprompt.schedule=5,2;4,2")
    ('convprompt.schedule', ['5,2', '4,2'])
    >>> parse_axis("lr=paper")
    ('lr', ['0.001', '0.005', '0.01', '0.05', '0.1'])
    """
    name, equals, values = text.partition("=")
    found = [value.strip() for value in values.split(";" if ";" in values else ",")]
    if not (name and equals and all(found)):
        raise ValueError(f"{text!r} is not an axis: write it as name=value,value, for example lr=0.01,0.05")
    return name, [str(value) for value in named_values(name, found)]


def named_values(name: str, values: Sequence[Any]) -> Sequence[Any]:
    """The values, or those for which a single name stands."""
    if list(values) != ["paper"]:
        return values
    if name.rpartition(".")[2].rpartition("_")[2] != "lr":
        raise ValueError(f"{name}=paper is not known: the paper names a grid for learning rates (lr=paper) alone")
    return PAPER_RATES


def _different(points: Iterable[GridPoint]) -> list[GridPoint]:
    """All points. A second one with the same plan is refused when it comes: a long list of values has many of them."""
    found: list[GridPoint] = []
    seen: set[str] = set()
    for point in points:
        plan = point.plan
        content = json.dumps(dataclasses.asdict(plan), sort_keys=True, default=str)
        if content in seen:
            raise ValueError(f"{spell_method(plan.method, plan.options)} is there twice: give each value once")
        seen.add(content)
        found.append(point)
    return found


def _require_some(request: Request) -> None:
    if not request.methods or not request.datasets or not request.seeds:
        raise ValueError("a sweep needs at least one method, one data set and one seed")
    for name, values in {"methods": request.methods, "data sets": request.datasets, "seeds": request.seeds}.items():
        if len(set(values)) < len(values):
            raise ValueError(f"{name} {', '.join(map(str, values))} hold one twice: give each once")
    for name in request.data:
        if name not in request.datasets:
            raise ValueError(f"data are given for {name}, which is not in this sweep")


def _require_known_axes(request: Request, methods: Sequence[str]) -> None:
    """Each axis must apply to some part of the sweep."""
    everything = known_axes(request)
    for axis in request.grid:
        if axis in request.settings:
            raise ValueError(f"{axis} is given as {request.settings[axis]!r} and to be tried: give it once")
        owner, _, option = axis.rpartition(".")
        if owner not in ("", "protocol", "data", *methods):
            raise ValueError(
                f"{axis}: {owner!r} is no method of this sweep; write METHOD.OPTION, protocol.OPTION or data.OPTION"
            )
        if axis not in everything:
            known = [name.rpartition(".")[2] for name in everything if name.rpartition(".")[0] == owner]
            hint = did_you_mean(option, known)
            raise ValueError(f"nothing in this sweep has {axis!r} to try{hint}; there are: {', '.join(sorted(known))}")


def known_axes(request: Request) -> set[str]:
    """Every name under which something in the sweep has values to try."""
    protocols = request.grid.get("protocol", [request.settings.get("protocol", "disjoint")])
    of_methods = {method: method_options(method) for method, _ in map(read_method, request.methods)}
    return {
        *CONDITIONS,
        *(option for options in of_methods.values() for option in options),
        *(f"{method}.{option}" for method, options in of_methods.items() for option in options),
        *(f"{_PROTOCOL}{option}" for name in protocols for option in protocol_options(name)),
        *(f"{_DATA}{option}" for name in request.datasets for option in data_options(name)),
    }


def _require_not_fixed(request: Request, words: Sequence[tuple[str, Mapping[str, str]]]) -> None:
    """An axis for all methods must vary in at least one of them."""
    for axis in request.grid:
        having = [fixed for method, fixed in words if axis in method_options(method)]
        if axis not in CONDITIONS and having and all(axis in fixed for fixed in having):
            raise ValueError(
                f"{axis} is to be tried, but each method that has it gives it after its colon: give it once"
            )


def _conditions(request: Request, dataset: str) -> Iterator[dict[str, Any]]:
    settings = {axis: values for axis, values in request.grid.items() if axis in CONDITIONS}
    own = _under(request.grid, _DATA, data_options(dataset))
    for chosen in _combinations(settings, partial(coerce_options, Plan)):
        protocol = chosen.get("protocol", request.settings.get("protocol", "disjoint"))
        orders = _under(request.grid, _PROTOCOL, protocol_options(protocol))
        ordered = partial(bind_arguments, registry.protocol(protocol), reserved=SHARED_ARGUMENTS)
        opened = partial(bind_arguments, registry.dataset(dataset), reserved=("data",))
        for order in _combinations(orders, ordered):
            for data in _combinations(own, opened):
                yield chosen | _prefixed(_PROTOCOL, order) | _prefixed(_DATA, data)


def _choices(request: Request, method: str, fixed: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The options to try with one method; its own axes take precedence over those for all."""
    kind, valid = registry.method(method).Options, method_options(method)
    general = {axis: values for axis, values in request.grid.items() if axis in valid and axis not in CONDITIONS}
    own = _under(request.grid, f"{method}.", valid)
    for name in own.keys() & fixed.keys():
        raise ValueError(f"{name} of {method} is given after its colon and to be tried: give it once")
    axes = {name: values for name, values in (general | own).items() if name not in fixed}
    given = coerce_options(kind, fixed)
    for chosen in _combinations(axes, partial(coerce_options, kind)):
        yield given | chosen


def _plan(
    request: Request, method: str, dataset: str, options: Mapping[str, Any], condition: Mapping[str, Any], seed: int
) -> Plan:
    settings = dict(request.settings)
    measures = Measures(settings.pop("points", 0))
    return Plan(
        method=method,
        dataset=dataset,
        options=options,
        seed=seed,
        data=request.data.get(dataset),
        protocol_options=_without(_PROTOCOL, condition),
        dataset_options=_without(_DATA, condition),
        measures=measures,
        **settings | {name: value for name, value in condition.items() if name in CONDITIONS},
    )


def _combinations(
    axes: Mapping[str, Sequence[Any]], convert: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Each combination of one value per axis, converted to the types of its owner."""
    for values in product(*axes.values()):
        yield convert(dict(zip(axes, values, strict=True)))


def _under(grid: Mapping[str, Sequence[Any]], prefix: str, valid: Iterable[str]) -> dict[str, Sequence[Any]]:
    return {name: values for name, values in _without(prefix, grid).items() if name in set(valid)}


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in values.items()}


def _without(prefix: str, condition: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in condition.items() if name.startswith(prefix)}


def method_options(name: str) -> list[str]:
    return [option.name for option in dataclasses.fields(registry.method(name).Options)]


def protocol_options(name: str) -> list[str]:
    return list(own_arguments(registry.protocol(name), SHARED_ARGUMENTS))


def data_options(name: str) -> list[str]:
    return list(own_arguments(registry.dataset(name), ("data",)))


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
        return _request_in(tomllib.loads(path.read_text(encoding="utf-8")), path)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    except RecursionError:
        raise ValueError(f"{path} is no sweep: its values are nested too deeply") from None


def _request_in(content: Mapping[str, Any], path: Path) -> Request:
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

    def is_replaced(axis: str) -> bool:
        owner, _, option = axis.rpartition(".")
        of_a_method = owner not in ("", "protocol", "data")
        return axis in settings or axis in axes or (of_a_method and option in axes)

    now = replace(
        request,
        methods=methods or request.methods,
        datasets=datasets or request.datasets,
        grid={axis: values for axis, values in request.grid.items() if not is_replaced(axis)} | dict(axes),
        settings={name: value for name, value in request.settings.items() if name not in axes} | dict(settings),
        # The file may know where other data sets are.
        data={name: place for name, place in request.data.items() if not datasets or name in datasets},
    )
    # An axis goes with what has its option. One that nothing ever had stays, to be refused as a mistake.
    gone = known_axes(request) - known_axes(now) - axes.keys()
    return replace(now, grid={axis: values for axis, values in now.grid.items() if axis not in gone})


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
            hint = did_you_mean(name, valid)
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

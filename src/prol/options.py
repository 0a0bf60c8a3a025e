"""Options of a method, a protocol or a data set, from Python values or from the command line's key=value.

A method's options are a frozen dataclass that inherits from `Options`; its annotations say which values are allowed. A
protocol's or a data set's options are arguments of its function.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

LARGEST_WHOLE = 2**31 - 1
"""No count of steps, features or samples is larger: files from elsewhere may hold any number."""
LARGEST_MB = 1e6
"""Upper limit of options in megabytes, whose names end in `_mb`."""


@dataclasses.dataclass(frozen=True)
class Range:
    """Which numbers an option may be: finite, at least `least` or above `above`, and at most `most`."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    whole: bool = False

    def holds(self, number: float) -> bool:
        return (
            (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (number <= self.most if self.most is not None else number < float("inf"))
        )

    def __str__(self) -> str:
        if self.most is not None and self.least is not None:
            return f"from {self.least:g} to {self.most:g}"
        if self.most is not None:
            return f"above {self.above:g} and at most {self.most:g}"
        bound = f"at least {self.least:g}" if self.above is None else f"above {self.above:g}"
        return bound if self.whole else f"a finite number {'of ' if self.above is None else ''}{bound}"


Count = Annotated[int, Range(least=1, whole=True)]
ChunkSize = Annotated[int, Range(least=1, most=10_000, whole=True)]
Repeats = Annotated[int, Range(least=1, most=1000, whole=True)]
"""Passes over what is stored, or parts of one learner: a prediction may wait for all of them."""
Whole = Annotated[int, Range(least=0, whole=True)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(least=0, most=1)]
CropShare = Annotated[float, Range(above=0, most=1)]


RENAMED: Mapping[str, str] = {
    "frequency": "bandwidth",
    "carry": "drift_correction",
}
"""Option names of version 0.1, and what they are called now: files and commands may use either for one version."""


@dataclasses.dataclass(frozen=True)
class Options:
    """A method's options. Numbers must lie in the ranges of their annotations."""

    # Options of version 0.1 that have no effect any more: files of that version hold them. An annotation would make
    # this an option.
    retired = frozenset[str]()

    def __post_init__(self) -> None:
        require_ranges(self)


def require_ranges(settings: object) -> None:
    """Refuses numbers outside the ranges that the annotations of a dataclass give them."""
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        value, allowed = getattr(settings, name), option_range(hint)
        if allowed is None or isinstance(value, str | bool) or value is None:
            continue
        if not allowed.holds(value):
            others = [_describe(kind) for kind in _alternatives(hint) if kind is type(None) or _is_literal(kind)]
            besides = "".join(f", or {words.removeprefix('one of ')}" for words in others)
            raise ValueError(f"{name} must be {allowed}{besides}, got {value}")
        most = LARGEST_WHOLE if allowed.whole else LARGEST_MB if name.endswith("_mb") else float("inf")
        if value > most:
            raise ValueError(f"{name} must be at most {most:g}, got {value!r:.40}")


def option_range(hint: Any) -> Range | None:
    """The range among the annotations of a type, if there is one."""
    for kind in _alternatives(hint):
        if get_origin(kind) is Annotated:
            return next((extra for extra in get_args(kind)[1:] if isinstance(extra, Range)), None)
    return None


def build_options(kind: type[T], values: Mapping[str, Any]) -> T:
    """Builds `kind(**values)`; unknown names and values of the wrong type are refused with what is allowed."""
    return kind(**coerce_options(kind, values))


def coerce_options(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the types that the dataclass `kind` wants, not yet checked against each other."""
    valid = [field.name for field in dataclasses.fields(kind)]
    return _coerce_all(current_names(_without_retired(kind, values), valid), get_type_hints(kind), valid)


def current_names(values: Mapping[str, Any], valid: Collection[str]) -> dict[str, Any]:
    """The values under the names that options have now, where a name of version 0.1 is not among the `valid` ones."""
    current: dict[str, Any] = {}
    for name, value in values.items():
        now = name if name in valid else RENAMED.get(name, name)
        now = now if now in valid else name
        if now in current:
            raise ValueError(f"option {now!r} is given twice, once as {name!r}")
        current[now] = value
    return current


def _without_retired(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    retired = [name for name in values if name in getattr(kind, "retired", ())]
    if retired:
        words = "options without effect since version 0.2: %s"
        logging.getLogger("prol").warning(words, ", ".join(sorted(retired)))
    return {name: value for name, value in values.items() if name not in retired}


def bind_arguments(
    function: Callable[..., Any], values: Mapping[str, Any], reserved: Collection[str] = ()
) -> dict[str, Any]:
    """The values with the types that the arguments of `function` want; unknown names are refused with the valid ones.

    Args:
        function: its type hints say what each argument may be; one without a hint takes the value as it is.
        values: Python values or texts, by the names of arguments.
        reserved: arguments that are set in another way, and may not be set here.

    >>> def order(labels: list[int], width: float = 0.5, shape: Literal["line", "curve"] = "line") -> None: ...
    >>> bind_arguments(order, {"width": "1", "shape": "curve"}, reserved=["labels"])
    {'width': 1.0, 'shape': 'curve'}
    >>> bind_arguments(order, {"with": 1}, reserved=["labels"])
    Traceback (most recent call last):
    ValueError: unknown option 'with'; did you mean 'width'?; valid options: shape, width
    """
    valid = list(own_arguments(function, reserved))
    for name in values:
        if name in reserved:
            raise ValueError(f"option {name!r} cannot be given here: it has its own setting; {_listed(valid)}")
    return _coerce_all(values, get_type_hints(function), valid)


def own_arguments(function: Callable[..., Any], reserved: Collection[str] = ()) -> dict[str, Any]:
    """The arguments of `function` that can be given by name, but for the reserved ones, with their defaults."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name: argument.default
        for name, argument in inspect.signature(function).parameters.items()
        if argument.kind in by_name and name not in reserved
    }


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """["lr=0.05", "length=3"] as a dictionary of texts."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"{pair!r} is not an option: write it as key=value, for example lr=0.05")
        if name in values:
            raise ValueError(f"option {name!r} is given twice")
        values[name] = value
    return values


def describe_options(kind: type | Callable[..., Any]) -> dict[str, str]:
    """The allowed values of each option of the dataclass, or argument of the function, `kind`, in words."""
    return {name: _describe_all(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _describe_all(hint: Any) -> str:
    return " or ".join(_describe(part) for part in _alternatives(hint))


def _coerce_all(values: Mapping[str, Any], hints: Mapping[str, Any], valid: Collection[str]) -> dict[str, Any]:
    for name in values:
        if name not in valid:
            raise ValueError(f"unknown option {name!r}{did_you_mean(name, valid)}; {_listed(valid)}")
    return {name: _coerce(name, value, hints[name]) if name in hints else value for name, value in values.items()}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is nearest to an unknown one; empty if none is near."""
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _listed(valid: Collection[str]) -> str:
    return f"valid options: {', '.join(sorted(valid)) or 'none'}"


def _coerce(name: str, value: Any, hint: Any) -> Any:
    for kind in _alternatives(hint):
        fits, converted = _as_kind(value, kind)
        if fits:
            return converted
    raise ValueError(f"option {name}={value!r} is not valid: it must be {_describe_all(hint)}")


def _alternatives(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, types.UnionType):
        return [kind for part in get_args(hint) for kind in _alternatives(part)]
    return [hint]


def _as_kind(value: Any, kind: Any) -> tuple[bool, Any]:
    if get_origin(kind) is Literal:
        return (value in get_args(kind) and isinstance(value, str), value)
    if kind is type(None):
        return (value is None or value == "none", None)
    if kind is bool:
        words = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
        if isinstance(value, str) and value.lower() in words:
            return True, words[value.lower()]
        return isinstance(value, bool), value
    if isinstance(value, bool):
        return False, value
    if kind in (int, float):
        try:
            number = kind(value)
        except (TypeError, ValueError, OverflowError):
            return False, value
        exact = kind is float or isinstance(value, str) or number == value
        return exact and number == number, number
    return isinstance(value, kind), value


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _describe(kind: Any) -> str:
    if _is_literal(kind):
        return "one of " + ", ".join(get_args(kind))
    allowed = option_range(kind)
    if allowed is not None:
        bounds = str(allowed).removeprefix("a finite number ")
        of = "of " if allowed.whole and allowed.most is None else ""
        return f"a {'whole ' if allowed.whole else ''}number {of}{bounds}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    return words.get(kind, str(kind))


def spell_method(method: str, options: Mapping[str, Any]) -> str:
    """A method with its options as one word of a command line.

    >>> spell_method("prol", {"lr": 0.05, "freeze": True, "clip": None})
    'prol:clip=none,freeze=true,lr=0.05'
    """
    return f"{method}:{spell_options(options)}" if options else method


def spell_options(options: Mapping[str, Any]) -> str:
    """Options as on a command line, in alphabetical order."""
    return ",".join(f"{name}={spell(value)}" for name, value in sorted(options.items()))


def spell(value: Any) -> str:
    """A value as on a command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)

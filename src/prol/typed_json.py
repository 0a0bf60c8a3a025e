"""JSON files that anybody may have written: what is read is checked once against a TypedDict.

Keys that are not declared are ignored. A number may be declared as `Annotated[int, (least, most)]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NotRequired, cast, get_args, get_origin, get_type_hints, is_typeddict

from prol.files import read_text

LARGEST = 2**53
"""No count of images or bytes comes near it, and no larger number can be drawn."""
_TOLERANCE, _DEEPEST = 1e-6, 20

Count = Annotated[int, (0, LARGEST)]


class DamagedFile(ValueError):
    """A JSON file that is not what it must be; `reason` names it without its folder."""

    def __init__(self, file: Path, problem: str) -> None:
        said = f"{problem}; the file is damaged or was written by another version of prol"
        super().__init__(f"{file}: {said}")
        self.reason = f"{file.name}: {said}"


def read_file(file: Path, kind: Any) -> dict[str, Any]:
    """The content of a JSON file that holds what `kind`, a TypedDict, declares."""
    try:
        content = json.loads(read_text(file), parse_constant=_refuse_nan)
        _require_shallow(content)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(file, f"it cannot be read as JSON ({error})") from error
    if (problem := problem_of(content, kind)) is not None:
        raise DamagedFile(file, problem)
    return cast(dict[str, Any], content)


def problem_of(value: Any, kind: Any, name: str = "") -> str | None:
    """The first thing about a value that is not as declared, None if all is."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return None
    if is_typeddict(kind):
        return _first(_problems_of_keys(value, kind, name)) if isinstance(value, dict) else _unlike(value, name, "{}")
    if origin is list:
        if not isinstance(value, list):
            return _unlike(value, name, "a list")
        return _first(problem_of(one, inner[0], f"{name}[{number}]") for number, one in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            return _unlike(value, name, "{}")
        return _first(problem_of(one, inner[1], f"{name}.{key}") for key, one in value.items())
    if type(None) in inner:
        return None if value is None else problem_of(value, inner[0], name)
    if kind in (str, bool):
        return None if isinstance(value, kind) else _unlike(value, name, {str: "text", bool: "true or false"}[kind])
    number, (low, high) = inner if origin is Annotated else (kind, (-LARGEST, LARGEST))
    if not isinstance(value, int if number is int else int | float) or isinstance(value, bool):
        return _unlike(value, name, "a whole number" if number is int else "a number")
    return None if low - _TOLERANCE <= value <= high + _TOLERANCE else _unlike(value, name, f"from {low} to {high}")


def _problems_of_keys(value: Mapping[str, Any], kind: Any, name: str) -> Iterable[str | None]:
    for key, inner in _hints(kind).items():
        path, optional = f"{name}.{key}" if name else key, get_origin(inner) is NotRequired
        if key in value:
            yield problem_of(value[key], get_args(inner)[0] if optional else inner, path)
        elif not optional:
            yield f"{path} is missing"


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _unlike(value: Any, name: str, wanted: str) -> str:
    return f"{name or 'the whole'} is {value!r:.40}, not {wanted}"


def _refuse_nan(constant: str) -> float:
    if constant == "NaN":
        raise ValueError("it holds NaN, which equals nothing")
    return float(constant)


def _require_shallow(value: Any, depth: int = 0) -> None:
    """Whoever compares or prints contents goes through them by recursion."""
    if depth > _DEEPEST:
        raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _require_shallow(inner, depth + 1)

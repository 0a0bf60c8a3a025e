"""Options from Python values and from key=value texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from prol.options import bind_arguments, build_options, own_arguments, parse_pairs


@dataclass(frozen=True)
class Dials:
    """Some dials of every kind."""

    size: int = 3
    rate: float = 0.5
    fast: bool = True
    mode: Literal["slow", "steady"] = "slow"
    word: str = "a"
    limit: float | None = None


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("size", 7, 7),
        ("size", "7", 7),
        ("size", "-7", -7),
        ("size", 7.0, 7),
        ("rate", 2, 2.0),
        ("rate", "2", 2.0),
        ("rate", "1e-3", 0.001),
        ("fast", False, False),
        ("fast", "false", False),
        ("fast", "False", False),
        ("fast", "no", False),
        ("fast", "off", False),
        ("fast", "true", True),
        ("fast", "yes", True),
        ("fast", "on", True),
        ("mode", "steady", "steady"),
        ("word", "7", "7"),
        ("limit", None, None),
        ("limit", "none", None),
        ("limit", "1.5", 1.5),
        ("limit", 2, 2.0),
    ],
)
def test_values_and_texts_become_what_the_option_holds(name: str, given: Any, read: Any) -> None:
    value = getattr(build_options(Dials, {name: given}), name)
    assert value == read
    assert type(value) is type(read)


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("size", 7.5, "a whole number"),
        ("size", "7.5", "a whole number"),
        ("size", "many", "a whole number"),
        ("size", True, "a whole number"),
        ("size", None, "a whole number"),
        ("size", [7], "a whole number"),
        ("size", float("inf"), "a whole number"),
        ("rate", "fast", "a number"),
        ("rate", True, "a number"),
        ("rate", "nan", "a number"),
        ("rate", float("nan"), "a number"),
        ("fast", 1, "true or false"),
        ("fast", "1", "true or false"),
        ("fast", "maybe", "true or false"),
        ("mode", "quick", "one of slow, steady"),
        ("mode", 3, "one of slow, steady"),
        ("word", 3, "text"),
        ("limit", "some", "a number or none"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_the_value_and_what_it_must_be(
    name: str, given: Any, wanted: str
) -> None:
    with pytest.raises(ValueError, match=f"option {name}=.*must be {wanted}") as refusal:
        build_options(Dials, {name: given})
    assert repr(given) in str(refusal.value)


@pytest.mark.parametrize("name", ["sizes", "zzz", "", "Rate"])
def test_an_unknown_name_is_refused_with_all_valid_ones(name: str) -> None:
    with pytest.raises(ValueError, match=f"unknown option {name!r}.*fast, limit, mode, rate, size, word") as refusal:
        build_options(Dials, {name: 1})
    assert "\n" not in str(refusal.value)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'size'"):
        build_options(Dials, {"sizes": 1})


def test_what_is_not_given_keeps_its_default() -> None:
    assert build_options(Dials, {}) == Dials()
    assert build_options(Dials, {"rate": 1}) == Dials(rate=1.0)


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert parse_pairs(["lr=0.05", "word=a=b", "empty="]) == {"lr": "0.05", "word": "a=b", "empty": ""}
    assert parse_pairs([]) == {}


@pytest.mark.parametrize("pair", ["lr", "=3", "", "--lr"])
def test_what_is_no_pair_is_refused_with_an_example(pair: str) -> None:
    with pytest.raises(ValueError, match="key=value"):
        parse_pairs([pair])


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'lr' is given twice"):
        parse_pairs(["lr=1", "length=2", "lr=1"])


def order(
    labels: list[int],
    /,
    data: str | None = None,
    *,
    tasks: int = 10,
    shape: Literal["line", "curve"] = "line",
    width: float = 0.5,
    told: bool | None = None,
    loose=None,
    **rest: int,
) -> None:
    """A function with arguments of every kind."""


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("data", "photos", "photos"),
        ("tasks", "5", 5),
        ("shape", "curve", "curve"),
        ("width", "1", 1.0),
        ("told", "yes", True),
        ("told", "none", None),
        ("loose", "5", "5"),
        ("loose", [5], [5]),
    ],
)
def test_values_and_texts_become_what_an_argument_takes(name: str, given: Any, read: Any) -> None:
    bound = bind_arguments(order, {name: given})
    assert bound == {name: read}
    assert type(bound[name]) is type(read)


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("tasks", "few", "a whole number"),
        ("shape", "arc", "one of line, curve"),
        ("told", "perhaps", "true or false or none"),
    ],
)
def test_a_wrong_value_of_an_argument_is_refused_with_what_it_must_be(name: str, given: str, wanted: str) -> None:
    with pytest.raises(ValueError, match=f"option {name}='{given}' is not valid: it must be {wanted}"):
        bind_arguments(order, {name: given})


@pytest.mark.parametrize("name", ["with", "labels", "rest", "return", ""])
def test_what_is_no_argument_to_be_named_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(ValueError, match=f"unknown option '{name}'.*valid options: loose, shape, told, width$"):
        bind_arguments(order, {name: "1"}, reserved=["data", "tasks"])


def test_a_reserved_argument_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="'tasks' cannot be given here: it has its own setting; valid options: d"):
        bind_arguments(order, {"tasks": "5"}, reserved=("tasks",))


def test_a_function_without_own_arguments_says_so() -> None:
    with pytest.raises(ValueError, match="unknown option 'x'; valid options: none"):
        bind_arguments(lambda data: data, {"x": "1"}, reserved=("data",))


def test_own_arguments_come_with_their_defaults() -> None:
    assert own_arguments(order, ("data", "told")) == {"tasks": 10, "shape": "line", "width": 0.5, "loose": None}
    assert bind_arguments(order, {}) == {}

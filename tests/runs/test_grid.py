from __future__ import annotations

from typing import Any

import pytest

from prol.runs.grid import PAPER_RATES, Request, parse_axis, points_of


def tried(**asked: Any) -> list[tuple[Any, ...]]:
    """Method, data set, options and condition of each run."""
    request = Request(**({"datasets": ["digits"], "seeds": [0]} | asked))
    plans = [(point.plan, point.condition) for point in points_of(request)]
    return [(plan.method, plan.dataset, dict(plan.options), dict(condition)) for plan, condition in plans]


def test_an_axis_is_tried_with_every_method_that_has_it_and_multiplies_no_other() -> None:
    assert tried(methods=["head_only", "ncm"], grid={"lr": ["0.1", "1"]}) == [
        ("head_only", "digits", {"lr": 0.1}, {}),
        ("head_only", "digits", {"lr": 1.0}, {}),
        ("ncm", "digits", {}, {}),
    ]


def test_an_axis_of_one_method_comes_before_one_of_all_and_a_fixed_option_before_both() -> None:
    found = tried(
        methods=["head_only", "prol", "l2p:lr=0.5"], grid={"lr": [0.1], "prol.lr": [0.2, 0.3], "prol.length": [2]}
    )
    assert [options for _, _, options, _ in found] == [
        {"lr": 0.1},
        {"lr": 0.2, "length": 2},
        {"lr": 0.3, "length": 2},
        {"lr": 0.5},
    ]


def test_settings_of_the_stream_are_conditions_and_reach_the_plan() -> None:
    points = points_of(
        Request(
            ["ncm"],
            ["digits"],
            [0],
            grid={"chunk": ["5", "10"], "protocol": ["disjoint", "blurry"], "protocol.minor": ["20"]},
            settings={"tasks": 2, "points": 3},
        )
    )
    plans = [point.plan for point in points]
    assert [(plan.chunk, plan.protocol, dict(plan.protocol_options)) for plan in plans] == [
        (5, "disjoint", {}),
        (5, "blurry", {"minor": 20.0}),
        (10, "disjoint", {}),
        (10, "blurry", {"minor": 20.0}),
    ]
    assert {(plan.tasks, plan.measures.points) for plan in plans} == {(2, 3)}
    assert points[1].condition == {"chunk": 5, "protocol": "blurry", "protocol.minor": 20.0}


def test_runs_are_every_combination_with_the_first_seed_first() -> None:
    points = points_of(
        Request(["prol:blocks=2", "head_only"], ["digits", "glyphs"], [3, 1], {"lr": PAPER_RATES, "chunk": [5, 10]})
    )
    assert len(points) == 2 * 2 * 2 * 5 * 2
    assert [point.plan.seed for point in points] == [3] * 40 + [1] * 40


def test_the_paper_names_learning_rates_alone() -> None:
    assert parse_axis("mos.align_lr=paper")[1] == [str(rate) for rate in PAPER_RATES]
    with pytest.raises(ValueError, match="length=paper is not known"):
        parse_axis("length=paper")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"methods": []}, "at least one method"),
        ({"methods": ["nmc"]}, "unknown method 'nmc'; did you mean 'ncm'"),
        ({"datasets": ["digit"]}, "unknown dataset 'digit'; did you mean 'digits'"),
        ({"seeds": [1, 1]}, "hold one twice"),
        ({"grid": {"lenght": [1]}}, "nothing in this sweep has 'lenght' to try; did you mean 'length'"),
        ({"grid": {"prol.lenght": [1]}}, "did you mean 'length'"),
        ({"grid": {"l2p.lr": [1]}}, "'l2p' is no method of this sweep"),
        ({"grid": {"protocol.widht": [1]}}, "nothing in this sweep has 'protocol.widht'"),
        ({"grid": {"length": ["long"]}}, "option length='long' is not valid: it must be a whole number"),
        ({"grid": {"chunk": ["0"]}}, "chunk must be at least 1, got 0"),
        ({"grid": {"lr": ["0.1", "0.10"]}}, "prol:lr=0.1 is there twice"),
        ({"grid": {"chunk": [5]}, "settings": {"chunk": 10}}, "chunk is given as 10 and to be tried"),
        ({"methods": ["prol:lr=1"], "grid": {"prol.lr": [2]}}, "lr of prol is given after its colon and to be tried"),
        ({"data": {"glyphs": "x"}}, "data are given for glyphs, which is not in this sweep"),
    ],
)
def test_mistakes_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tried(**({"methods": ["prol", "ncm"]} | asked))

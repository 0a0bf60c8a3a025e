"""What closed-form methods owe to their formulas: order and chunks do not matter, and what equals what."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import prol
from evaluation.small_data import colours, stream_over
from methods.small_streams import pictures
from prol.backbones import ViT, evaluation_input
from prol.evaluation import Finished, Result, run_stream
from prol.learner import Learner
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.ranpac import RanPAC
from prol.methods.closed_form.solvers import ridge

KINDS = [0, 1, 2, 0, 1, 0, 2, 3, 1, 0]
IMAGES = pictures(KINDS)
TEST = pictures([0, 1, 2, 3], seed=7)
FEATURES = 40

METHODS = {
    "slda": ("slda", {}),
    "ranpac": ("ranpac", {"features": FEATURES, "ridge": 0.5}),
    "ranpac, lda": ("ranpac", {"features": FEATURES, "classifier": "lda"}),
    "ranpac, without projection": ("ranpac", {"features": None, "ridge": 0.5}),
    "ranpac, all": ("ranpac", {"features": FEATURES, "ridge": 0.5, "memory": "all"}),
    "randumb": ("randumb", {"features": FEATURES, "gamma": 0.05}),
    "foal": ("foal", {"features": FEATURES}),
    "layup": ("layup", {}),
    "klda": ("klda", {"features": FEATURES, "gamma": 0.05, "ensemble": 2}),
    "knn": ("knn", {}),
}


def make(vit: ViT, method: str, options: dict[str, Any]) -> Learner:
    learner = prol.create(method, vit, **options)
    learner.boundary([0, 1, 2, 3])
    return learner


def in_chunks(learner: Learner, edges: list[int], order: list[int]) -> Learner:
    for start, end in pairwise(edges):
        chunk = order[start:end]
        learner.learn(IMAGES[chunk], [KINDS[i] for i in chunk])
    return learner


@pytest.mark.parametrize("variant", METHODS)
@given(cuts=st.sets(st.integers(1, 9), max_size=5), order=st.permutations(range(10)))
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_neither_chunks_nor_their_order_matter(tiny: ViT, variant: str, cuts: set[int], order: list[int]) -> None:
    whole = in_chunks(make(tiny, *METHODS[variant]), [0, 10], list(range(10)))
    parts = in_chunks(make(tiny, *METHODS[variant]), [0, *sorted(cuts), 10], order)
    torch.testing.assert_close(parts.predict(TEST), whole.predict(TEST), rtol=1e-6, atol=1e-6)


@given(cuts=st.sets(st.integers(1, 9), max_size=5), order=st.permutations(range(10)))
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_accumulated_ridge_is_joint_ridge(tiny: ViT, cuts: set[int], order: list[int]) -> None:
    learner = in_chunks(make(tiny, *METHODS["ranpac"]), [0, *sorted(cuts), 10], order)
    assert isinstance(learner, RanPAC)
    joint = Totals.of(learner.embed(features(tiny, IMAGES)), torch.tensor(KINDS), 4)
    torch.testing.assert_close(learner.solve().weight, ridge(joint, 0.5), rtol=0, atol=1e-8)


def features(vit: ViT, images: object) -> Tensor:
    return vit.features(evaluation_input(vit.read(images), vit.preprocessing, torch.device("cpu"), torch.float64))


@pytest.mark.parametrize("memory", ["statistics", "all"])
def test_ten_chunks_of_one_equal_one_of_ten_also_with_a_chosen_ridge(tiny: ViT, memory: str) -> None:
    ten, one = (make(tiny, "ranpac", {"features": FEATURES, "memory": memory}) for _ in range(2))
    in_chunks(ten, list(range(11)), list(range(10)))
    in_chunks(one, [0, 10], list(range(10)))
    torch.testing.assert_close(ten.predict(TEST), one.predict(TEST), rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ["ranpac", "randumb"])
def test_storing_all_features_equals_storing_statistics(tiny: ViT, method: str) -> None:
    everything, statistics = (
        in_chunks(make(tiny, method, {"features": FEATURES, "memory": memory}), [0, 4, 8, 10], list(range(10)))
        for memory in ("all", "statistics")
    )
    torch.testing.assert_close(everything.predict(TEST), statistics.predict(TEST), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", ["ranpac", "randumb"])
def test_a_reservoir_that_is_never_full_equals_storing_statistics(tiny: ViT, method: str) -> None:
    options = {"features": FEATURES} | ({"ridge": 0.5} if method == "ranpac" else {})
    kept, statistics = (prol.create(method, tiny, memory=memory, **options) for memory in (10, "statistics"))
    for learner in (kept, statistics):
        for classes in ([0, 1], [2, 3], [0, 3]):
            learner.boundary()
            learner.learn(pictures(classes * 3), classes * 3)
    torch.testing.assert_close(kept.predict(TEST), statistics.predict(TEST), rtol=1e-6, atol=1e-6)


def result_of(learner: Learner) -> Result:
    dataset = colours()
    *_, last = run_stream(learner, dataset, stream_over(dataset))
    assert isinstance(last, Finished)
    return last.result


@pytest.mark.parametrize("method", ["ranpac", "randumb"])
def test_without_memory_old_tasks_score_nothing_and_the_average_is_the_last_task_over_the_number_of_tasks(
    tiny: ViT, method: str
) -> None:
    result = result_of(prol.create(method, tiny, features=FEATURES, memory="none"))
    matrix = result.accuracy_matrix
    assert [matrix[i][t] for t in range(3) for i in range(t)] == [0.0, 0.0, 0.0]
    assert matrix[2][2] > 0
    assert result.metrics.faa_task_mean == pytest.approx(matrix[2][2] / 3)
    assert result.told.samples_stored == 0


@pytest.mark.parametrize("method", ["ranpac", "randumb"])
def test_with_statistics_old_tasks_are_known_and_nothing_is_stored_of_a_sample(tiny: ViT, method: str) -> None:
    result = result_of(prol.create(method, tiny, features=FEATURES))
    assert min(row[2] for row in result.accuracy_matrix) > 50
    assert result.told.samples_stored == 0

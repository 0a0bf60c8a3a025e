from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from golden_files import golden
from prol.evaluation import accuracy_matrix, compute_metrics

_COUNTS = st.integers(1, 6).flatmap(
    lambda tasks: st.tuples(
        arrays(np.float64, (tasks, tasks), elements=st.floats(0, 100)).map(np.triu),
        st.lists(st.integers(1, 50), min_size=tasks, max_size=tasks),
    )
)


def test_every_golden_metric_is_reproduced() -> None:
    stored = {name: tensor.numpy() for name, tensor in golden("metrics").items()}
    metrics = compute_metrics(stored["acc_matrix"], stored["n_test"].astype(int).tolist())
    close = {"abs": 1e-9, "rel": 0}
    assert metrics.average_accuracy == pytest.approx(stored["AA_micro"].tolist(), **close)
    assert metrics.average_accuracy_task_mean == pytest.approx(stored["AA_macro"].tolist(), **close)
    assert metrics.caa == pytest.approx(float(stored["CAA_micro"]), **close)
    assert metrics.caa_task_mean == pytest.approx(float(stored["CAA_macro"]), **close)
    assert metrics.forgetting_history[1:] == pytest.approx(stored["FM_released"].tolist(), **close)
    assert metrics.forgetting == pytest.approx(float(stored["FM_released"][-1]), **close)
    assert metrics.forgetting_paper == pytest.approx(float(stored["FM_paper_final"]), **close)


def test_bwt_is_the_mean_change_since_a_task_was_learnt() -> None:
    metrics = compute_metrics([[90, 80, 60], [0, 50, 70], [0, 0, 40]], [1, 1, 1])
    assert metrics.bwt == pytest.approx(((60 - 90) + (70 - 50)) / 2)


def test_after_a_single_task_nothing_is_forgotten() -> None:
    metrics = compute_metrics([[75.0]], [8])
    assert (metrics.faa, metrics.caa, metrics.faa_task_mean, metrics.caa_task_mean) == (75.0, 75.0, 75.0, 75.0)
    assert (metrics.forgetting, metrics.forgetting_paper, metrics.bwt) == (0.0, 0.0, 0.0)
    assert metrics.forgetting_history == (0.0,)


def test_a_task_without_test_images_is_left_out_of_every_mean() -> None:
    with_empty = compute_metrics([[90, 80, 70], [0, 0, 0], [0, 0, 60]], [10, 0, 30])
    without = compute_metrics([[90, 70], [0, 60]], [10, 30])
    assert with_empty.faa == without.faa
    assert with_empty.faa_task_mean == without.faa_task_mean
    assert (with_empty.forgetting, with_empty.bwt) == (without.forgetting, without.bwt)


def test_accuracy_is_the_percentage_of_correct_answers() -> None:
    assert accuracy_matrix([[3, 1], [0, 5]], [[4, 4], [0, 5]]).tolist() == [[75.0, 25.0], [0.0, 100.0]]


@pytest.mark.parametrize(("matrix", "sizes"), [([[1.0, 2.0]], [1]), ([[1.0]], [1, 2]), (np.zeros((0, 0)), [])])
def test_a_matrix_that_is_not_square_over_the_tasks_is_refused(matrix: list[list[float]], sizes: list[int]) -> None:
    with pytest.raises(ValueError, match=r"\[T, T\]"):
        compute_metrics(matrix, sizes)


@given(_COUNTS)
def test_metrics_stay_within_their_bounds(case: tuple[np.ndarray, list[int]]) -> None:
    metrics = compute_metrics(*case)
    for value in (*metrics.average_accuracy, *metrics.average_accuracy_task_mean, metrics.caa, metrics.caa_task_mean):
        assert -1e-9 <= value <= 100 + 1e-9
    assert all(-1e-9 <= value <= 100 + 1e-9 for value in metrics.forgetting_history)
    # The released maximum also looks at the last task, and the best is at least what it was when learnt.
    assert metrics.forgetting >= metrics.forgetting_paper - 1e-9
    assert metrics.forgetting >= -metrics.bwt - 1e-9
    assert metrics.faa == metrics.average_accuracy[-1]


@given(_COUNTS, st.integers(1, 100))
def test_test_sets_of_one_size_weigh_alike(case: tuple[np.ndarray, list[int]], size: int) -> None:
    matrix, sizes = case
    metrics = compute_metrics(matrix, [size] * len(sizes))
    assert metrics.average_accuracy == pytest.approx(metrics.average_accuracy_task_mean)


@given(_COUNTS, st.randoms(use_true_random=False))
def test_the_final_accuracy_does_not_depend_on_the_order_of_tasks(case: tuple[np.ndarray, list[int]], random) -> None:
    matrix, sizes = case
    order = random.sample(range(len(sizes)), len(sizes))
    shuffled = compute_metrics(matrix[order], [sizes[i] for i in order])
    metrics = compute_metrics(matrix, sizes)
    assert shuffled.faa == pytest.approx(metrics.faa)
    assert shuffled.faa_task_mean == pytest.approx(metrics.faa_task_mean)

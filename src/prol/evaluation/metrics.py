"""Measures of a run, as pure functions of its accuracy matrix and the sizes of its test sets.

`A[i, t]` is the accuracy in percent on the test images of task i after task t (0 where i is not learnt yet), and
`n[i]` their number. Tasks without test images are left out of every mean; a mean over no task at all is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Metrics:
    """All measures in percent; T is the last task. After a single task nothing can have been forgotten: those are 0."""

    faa: float
    """Final average accuracy AA_T with AA_t = sum_{i<=t} n_i A_it / sum_{i<=t} n_i (PROL's released code)."""

    caa: float
    """Cumulative average accuracy: mean over t of that same AA_t (PROL paper, with the released code's AA_t)."""

    faa_task_mean: float
    """Final average accuracy by the paper's formula: mean over i of A_iT, each task counting alike."""

    caa_task_mean: float
    """Cumulative average accuracy by the paper's formula: mean over t of mean_{i<=t} A_it."""

    forgetting: float
    """Mean over i<T of (max_{i<=s<=T} A_is) - A_iT, as PROL's released code computes it; never negative."""

    forgetting_paper: float
    """Mean over i<T of (max_{i<=s<=T-1} A_is) - A_iT (Chaudhry et al. 2018, PROL paper); negative if tasks gain."""

    bwt: float
    """Backward transfer: mean over i<T of A_iT - A_ii (Lopez-Paz and Ranzato 2017)."""

    average_accuracy: tuple[float, ...]
    """The sample-weighted AA_t for each t; its last value is `faa`."""

    average_accuracy_task_mean: tuple[float, ...]
    """mean_{i<=t} A_it for each t; its last value is `faa_task_mean`."""

    forgetting_history: tuple[float, ...]
    """The forgetting after each task t, by the definition of `forgetting`; the first value is 0."""


@dataclass(frozen=True)
class AnytimeMetrics:
    """Measures in percent that look inside tasks; None where the run did not measure them."""

    a_auc: float | None
    """Mean accuracy at equally spaced points of the stream, on all classes seen so far (Koh et al. 2022)."""

    prequential: float | None
    """Share of training images predicted rightly before they were learnt (Gama et al. 2013)."""

    learning_curve_area: float | None
    """LCA_b: mean over s = 0..b of Z_s, the mean over tasks of A_tt after s chunks of t (Chaudhry et al. 2019)."""

    calibration_error: float | None
    """At the end: sum over bins k of n_k / n |accuracy_k - mean confidence_k|, 15 equal bins (Guo et al. 2017)."""


_BINS = 15


def confidence_bins(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> Matrix:
    """Predictions by confidence: images, right ones and summed confidence of each bin, `[N] -> [15, 3]`."""
    place = np.clip(np.ceil(confidence * _BINS).astype(np.int64) - 1, 0, _BINS - 1)
    columns = [np.bincount(place, weights, _BINS) for weights in (None, right.astype(np.float64), confidence)]
    return np.stack(columns, axis=1).astype(np.float64)


def calibration_error(bins: Matrix) -> float | None:
    """The expected calibration error in percent of bins `[K, 3]`; None without any image.

    >>> calibration_error(np.array([[4.0, 1.0, 1.2], [6.0, 6.0, 5.4]]))
    8.0
    """
    total = bins[:, 0].sum()
    return round(float(100 * np.abs(bins[:, 1] - bins[:, 2]).sum() / total), 10) if total else None


def anytime_metrics(
    points: Sequence[Sequence[int]],
    prequential: Sequence[Sequence[int]],
    shots: Sequence[Sequence[Sequence[int]]],
    bins: Matrix,
) -> AnytimeMetrics:
    """From pairs (correct, total): at each point, before each task's chunks, after each task's first chunks."""
    predicted = sum(total for _, total in prequential)
    by_shot = [
        [_percent(*task[shot]) for task in shots if shot < len(task) and task[shot][1]]
        for shot in range(max(map(len, shots), default=0))
    ]
    curve = [float(np.mean(accuracies)) for accuracies in by_shot if accuracies]
    return AnytimeMetrics(
        a_auc=_mean([_percent(*pair) for pair in points if pair[1]]),
        prequential=_percent(sum(correct for correct, _ in prequential), predicted) if predicted else None,
        learning_curve_area=_mean(curve),
        calibration_error=calibration_error(bins),
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _percent(correct: int, total: int) -> float:
    return 100.0 * correct / total if total else 0.0


def accuracy_matrix(correct: Sequence[Sequence[int]], total: Sequence[Sequence[int]]) -> Matrix:
    """Percent correct `[T, T]` from counts `[T, T]`; 0 where nothing was tested.

    >>> accuracy_matrix([[3, 2], [0, 1]], [[4, 4], [0, 2]]).tolist()
    [[75.0, 50.0], [0.0, 50.0]]
    """
    hits, tested = np.asarray(correct, dtype=np.float64), np.asarray(total, dtype=np.float64)
    return 100.0 * hits / np.where(tested > 0, tested, 1.0)


def compute_metrics(accuracy: Sequence[Sequence[float]] | Matrix, sizes: Sequence[int]) -> Metrics:
    """Every measure of a run from its accuracy matrix `[T, T]` and the sizes of its test sets `[T]`."""
    matrix, counts = np.asarray(accuracy, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    if matrix.shape != (len(counts), len(counts)) or not len(counts):
        raise ValueError(f"the accuracy matrix must be [T, T] for T test sizes, got {matrix.shape} and {len(counts)}")
    row, column = np.indices(matrix.shape)
    tested = (counts > 0)[:, None]
    seen, old = (row <= column) & tested, (row < column) & tested

    weighted = _column_means(matrix, seen * counts[:, None])
    unweighted = _column_means(matrix, seen)
    lost = _column_means(np.maximum.accumulate(matrix, axis=1) - matrix, old)
    best_before_last = matrix[:, :-1].max(axis=1, initial=0.0)
    lost_paper = _column_means((best_before_last - matrix[:, -1])[:, None], old[:, -1:])
    gained = _column_means((matrix[:, -1] - matrix.diagonal())[:, None], old[:, -1:])
    return Metrics(
        faa=weighted[-1],
        caa=float(np.mean(weighted)),
        faa_task_mean=unweighted[-1],
        caa_task_mean=float(np.mean(unweighted)),
        forgetting=lost[-1],
        forgetting_paper=lost_paper[0],
        bwt=gained[0],
        average_accuracy=weighted,
        average_accuracy_task_mean=unweighted,
        forgetting_history=lost,
    )


def _column_means(values: Matrix, weights: NDArray[np.bool_] | Matrix) -> tuple[float, ...]:
    """Weighted mean of each column `[rows, columns] -> [columns]`; 0 where all weights are 0."""
    total = weights.sum(axis=0)
    means = (values * weights).sum(axis=0) / np.where(total > 0, total, 1.0)
    return tuple(float(mean) for mean in means)

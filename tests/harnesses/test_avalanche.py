"""A prol learner as a strategy of Avalanche: the same learner, the same measures, and every hook of its plugins."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets, split_online_stream, task_incremental_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.core import SupervisedPlugin
from avalanche.evaluation.metrics import accuracy_metrics, bwt_metrics, forgetting_metrics, loss_metrics
from avalanche.evaluation.metrics.acc_matrix import AccuracyMatrixPluginMetric
from avalanche.training import Naive
from avalanche.training.plugins import EvaluationPlugin
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from docs.pages import DOCS, blocks
from harnesses.digit_stream import CHUNK, CLASSES, METHODS, TASKS, create, evaluated, same_state, tasks
from prol.evaluation import compute_metrics
from prol.integrations.avalanche import PROLStrategy

POINTS = TASKS * 4
"""Every chunk; a task has four."""
HOOKS = [name for name in dir(SupervisedPlugin) if name.startswith(("before_", "after_"))]


def benchmark(count: int = TASKS) -> Any:
    some = tasks()[:count]
    return benchmark_from_datasets(
        train=[as_classification_dataset(task.train) for task in some],
        test=[as_classification_dataset(task.test) for task in some],
    )


class Run:
    """Avalanche's training and evaluation of one method, with its measures."""

    def __init__(self, method: str) -> None:
        self.matrix = AccuracyMatrixPluginMetric()
        evaluator = EvaluationPlugin(
            accuracy_metrics(epoch=True, stream=True),
            loss_metrics(stream=True),
            forgetting_metrics(experience=True, stream=True),
            bwt_metrics(experience=True, stream=True),
            self.matrix,
        )
        learner = create(method)
        self.strategy = PROLStrategy(
            learner=learner,
            num_classes=CLASSES,
            boundaries=True,
            train_mb_size=CHUNK,
            eval_mb_size=learner.predict_batch,
            evaluator=evaluator,
            eval_every=1,
            peval_mode="iteration",
        )
        whole = benchmark()
        for number, experience in enumerate(whole.train_stream):
            self.strategy.train(experience, eval_streams=[whole.test_stream[: number + 1]])
        self.recorded = evaluator.get_all_metrics()
        self.last = evaluator.get_last_metrics()

    def series(self, name: str) -> dict[int, float]:
        """The last value of a metric at each reading of their clock."""
        [found] = [values for key, values in self.recorded.items() if key.startswith(f"{name}/")]
        return dict(zip(*found, strict=True))

    def at_the_end(self, name: str) -> list[float]:
        return [value for key, value in sorted(self.last.items()) if key.startswith(f"{name}/")]


@cache
def trained(method: str) -> Run:
    return Run(method)


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_their_loop_teaches_the_same_learner_bit_for_bit(method: str) -> None:
    _, learner = evaluated(method, POINTS)
    assert same_state(trained(method).strategy.learner, learner)


def test_their_accuracy_matrix_is_ours(method: str) -> None:
    ours, _ = evaluated(method, POINTS)
    matrix = 100 * trained(method).matrix.result().numpy().T
    np.testing.assert_allclose(matrix, ours.accuracy_matrix, rtol=1e-6)
    by_their_matrix = compute_metrics(matrix, ours.test_sizes)
    for name in ("faa", "caa", "faa_task_mean", "forgetting", "forgetting_paper", "bwt"):
        assert getattr(by_their_matrix, name) == pytest.approx(getattr(ours.metrics, name), rel=1e-5), name


def test_their_backward_transfer_is_ours(method: str) -> None:
    ours, _ = evaluated(method, POINTS)
    [stream] = trained(method).at_the_end("StreamBWT")
    assert ours.metrics.bwt < 0
    assert 100 * stream == pytest.approx(ours.metrics.bwt)
    matrix = np.array(ours.accuracy_matrix)
    np.testing.assert_allclose(
        [100 * value for value in trained(method).at_the_end("ExperienceBWT")],
        (matrix[:, -1] - matrix.diagonal())[:-1],
        atol=1e-9,
    )


def test_their_forgetting_is_ours_where_no_accuracy_rises_after_its_task(method: str) -> None:
    """Theirs is the first accuracy less the last, ours the highest less the last: here equal for `ncm` alone."""
    ours, _ = evaluated(method, POINTS)
    [stream] = trained(method).at_the_end("StreamForgetting")
    matrix = np.array(ours.accuracy_matrix)
    assert 100 * stream == pytest.approx((matrix.diagonal() - matrix[:, -1])[:-1].mean())
    assert 100 * stream <= ours.metrics.forgetting + 1e-9
    risen = (matrix.max(axis=1) > matrix.diagonal())[:-1].any()
    assert (100 * stream == pytest.approx(ours.metrics.forgetting)) == (not risen)


def test_their_anytime_accuracy_is_ours(method: str) -> None:
    ours, _ = evaluated(method, POINTS)
    series = trained(method).series("Top1_Acc_Stream")
    points = [series[steps] for steps in range(POINTS)]  # their clock counts a step after its evaluation
    np.testing.assert_allclose(points, [correct / total for _, _, correct, total in ours.points], rtol=1e-6)
    assert 100 * np.mean(points) == pytest.approx(ours.anytime.a_auc)


def test_their_training_accuracy_is_our_prequential_accuracy(method: str) -> None:
    """Each minibatch is predicted before it is learnt."""
    ours, _ = evaluated(method, POINTS)
    found = list(trained(method).series("Top1_Acc_Epoch").values())
    np.testing.assert_allclose(found, [correct / total for correct, total in ours.prequential])


def test_the_loss_is_that_of_calibrated_probabilities(method: str) -> None:
    run = trained(method)
    learner, images = run.strategy.learner, torch.cat([task.test.tensors[0] for task in tasks()])
    labels = torch.cat([task.test.tensors[1] for task in tasks()])
    probabilities = learner.classify((images * 255).round().to(torch.uint8)).probabilities
    right = probabilities[torch.arange(len(labels)), [learner.row_of[label] for label in labels.tolist()]]
    assert run.at_the_end("Loss_Stream") == [pytest.approx(-float(right.log().mean()), rel=1e-4)]


class Recorder(SupervisedPlugin):
    """Notes each hook as it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []


def _note(hook: str) -> Any:
    def noted(self: Recorder, *_: Any, **__: Any) -> None:
        self.called.append(hook)

    return noted


for _hook in HOOKS:
    setattr(Recorder, _hook, _note(_hook))


def test_plugins_hear_the_same_hooks_as_with_their_own_strategy() -> None:
    mine, theirs = Recorder(), Recorder()
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
    naive = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        train_mb_size=CHUNK,
        eval_mb_size=64,
        plugins=[theirs],
        evaluator=None,
    )
    strategy = PROLStrategy(learner=create("ncm"), num_classes=CLASSES, plugins=[mine], evaluator=None)
    for one in (naive, strategy):
        one.train(benchmark(2).train_stream)
        one.eval(benchmark(2).test_stream)
    assert mine.called == theirs.called
    assert set(mine.called) == set(HOOKS)


@pytest.mark.parametrize("shuffle", [False, True])
def test_nothing_is_shuffled_unless_requested(shuffle: bool) -> None:
    class Order(SupervisedPlugin):
        def after_update(self, strategy: Any, **_: Any) -> None:
            seen.append(strategy.mb_x.cpu())

    seen: list[Tensor] = []
    strategy = PROLStrategy(learner=create("ncm"), num_classes=CLASSES, plugins=[Order()], evaluator=None)
    torch.manual_seed(0)
    strategy.train(benchmark(1).train_stream, **({"shuffle": True} if shuffle else {}))
    assert torch.equal(torch.cat(seen), tasks()[0].train.tensors[0]) == (not shuffle)


def test_benchmarks_with_task_labels_and_online_streams_teach_the_same() -> None:
    plain, labelled, online = (
        PROLStrategy(learner=create("prol_plus"), num_classes=CLASSES, boundaries=True, evaluator=None)
        for _ in range(3)
    )
    plain.train(benchmark(2).train_stream)
    labelled.train(task_incremental_benchmark(benchmark(2)).train_stream)
    parts = split_online_stream(
        benchmark(2).train_stream, experience_size=CHUNK, shuffle=False, access_task_boundaries=True
    )
    online.train(parts)
    assert plain.learner.clock.number == 1
    assert same_state(labelled.learner, plain.learner)
    assert same_state(online.learner, plain.learner)


def test_a_plugin_can_stop_the_training() -> None:
    class Stop(SupervisedPlugin):
        def after_training_iteration(self, strategy: Any, **_: Any) -> None:
            strategy.stop_training()

    strategy = PROLStrategy(learner=create("ncm"), num_classes=CLASSES, plugins=[Stop()], evaluator=None)
    strategy.train(benchmark(1).train_stream)
    assert int(strategy.learner.class_counts().sum()) == CHUNK


@pytest.mark.parametrize(
    ("change", "classes", "kind", "says"),
    [
        (lambda images: images - 0.5, CLASSES, ValueError, "leave out Normalize"),
        (lambda images: images.long(), CLASSES, ValueError, "uint8, or floats"),
        (lambda images: images, 2, IndexError, "Target 4 is out of bounds"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_learnt(change: Any, classes: int, kind: Any, says: str) -> None:
    images, labels = tasks()[0].train[:CHUNK]
    data = TensorDataset(change(images), labels)
    data.targets = labels.tolist()
    stream = benchmark_from_datasets(train=[as_classification_dataset(data)]).train_stream
    strategy = PROLStrategy(learner=create("ncm"), num_classes=classes, evaluator=None)
    with pytest.raises(kind, match=says):
        strategy.train(stream)
    assert strategy.learner.classes == []


def test_a_learner_of_other_classes_is_refused() -> None:
    learner, (images, _) = create("ncm"), tasks()[0].train[:2]
    learner.learn((images * 255).round().to(torch.uint8), ["cat", "dog"])
    strategy = PROLStrategy(learner=learner, num_classes=CLASSES, evaluator=None)
    with pytest.raises(ValueError, match="the class 'cat', which is no number from 0 to 9"):
        strategy.train(benchmark(1).train_stream)


def test_the_example_of_the_page_runs() -> None:
    [block] = [block for block in blocks(DOCS / "harnesses.md") if block.mark == "avalanche"]
    exec(compile(block.text, block.place, "exec"), names := {})
    results = names["results"]
    assert {name.split("/")[0] for name in results} == {"Top1_Acc_Exp", "Top1_Acc_Stream", "StreamBWT"}
    assert next(value for name, value in results.items() if name.startswith("Top1_Acc_Stream")) > 0.9

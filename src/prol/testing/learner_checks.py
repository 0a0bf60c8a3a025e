"""The learner contract, one function per check; a failed one raises AssertionError with what was observed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

import prol
from prol.classes import Label
from prol.learner import Amount, Learner
from prol.testing.live_tensors import bytes_held, held_by_graph, watching_tensors
from prol.testing.rollback_checks import (
    bad_input_changes_nothing,
    failed_updates_leave_no_trace,
    undo_restores_the_state,
)
from prol.testing.stream import (
    CHUNK,
    HEIGHT,
    STREAM,
    TASKS,
    WIDTH,
    Subject,
    count_values,
    difference,
    global_randomness,
    make_chunk,
    make_images,
    require,
    require_refusal,
    same_bits,
    teach,
)

# Scores may differ by rounding when the same image is computed in a batch of another size.
_ROUNDING = {"float64": 1e-9, "float32": 1e-4, "bf16": 5e-2}


def predict_before_learning(subject: Subject) -> None:
    """Before anything is learnt, scores of N images are `[N, 0]`."""
    shape = tuple(subject.fresh().predict(make_images(3, seed=0)).shape)
    require(shape == (3, 0), f"predict on 3 images before any learn gave shape {shape}, expected (3, 0)")


def scores_have_a_column_for_each_class(subject: Subject) -> None:
    """After every learn, scores are float32 `[N, C]` without NaN, on the CPU."""
    learner = subject.fresh()
    for number in range(len(STREAM)):
        teach(learner, STREAM[number : number + 1])
        scores = learner.predict(make_images(2, seed=5))
        expected = (2, len(learner.classes))
        require(tuple(scores.shape) == expected, f"scores have shape {tuple(scores.shape)}, expected {expected}")
        require(scores.dtype == torch.float32, f"scores are {scores.dtype}, expected torch.float32")
        require(scores.device.type == "cpu", f"scores are on {scores.device}, expected the CPU")
        require(not bool(scores.isnan().any()), f"scores hold NaN: {scores}")
    announced = [name for task in TASKS for name in task]
    require(learner.classes == announced, f"classes are {learner.classes}, expected the order announced: {announced}")


def predict_is_pure(subject: Subject) -> None:
    """A prediction changes nothing, neither later predictions nor later learning."""
    queried, silent = teach(subject.fresh(), STREAM[:2]), teach(subject.fresh(), STREAM[:2])
    before, images = queried.state(), make_images(4, seed=6)
    first = queried.predict(images)
    queried.predict(make_images(9, seed=7))
    changed = difference(before, queried.state())
    require(not changed, f"predict changed the state: {changed}")
    require(same_bits(first, queried.predict(images)), "the same images got other scores after other predictions")
    teach(queried, STREAM[2:]), teach(silent, STREAM[2:])
    changed = difference(queried.state(), silent.state())
    require(not changed, f"a learner that predicted in between learnt something else: {changed}")


def batch_independence(subject: Subject) -> None:
    """An image gets the same scores alone, among few and among many."""
    learner, images = teach(subject.fresh()), make_images(11, seed=8)
    whole = learner.predict(images)
    for size in (1, 4):
        parts = torch.cat([learner.predict(images[i : i + size]) for i in range(0, len(images), size)])
        _require_same_scores(learner, parts, whole, f"in batches of {size} instead of {len(images)}")
    learner.predict_batch = 3
    _require_same_scores(learner, learner.predict(images), whole, "with predict_batch=3")


def encodings_stay(subject: Subject) -> None:
    """Encodings that are said to be frozen do not change, and a prediction that starts from them is the same."""
    learner, images = subject.fresh(), make_images(9, seed=17)
    if learner.encoding == "none" or not learner.frozen:
        return
    teach(learner, STREAM[:1])
    early = learner.encode_images(images)
    teach(learner, STREAM[1:])
    require(same_bits(early, learner.encode_images(images)), "encodings were changed by learning")
    whole = learner.predict(images)
    known = learner.predict_encoded(early, images if learner.encoding == "query" else None)
    _require_same_scores(learner, known, whole, "from encodings instead of images")


def save_and_load(subject: Subject) -> None:
    """A saved and loaded learner predicts and continues to learn bit for bit like the one saved."""
    for announced in subject.modes:
        # One that has learnt nothing is the same with and without announcements.
        for steps in (0, 1, 3) if announced == subject.modes[0] else (1, 3):
            learner = teach(subject.fresh(), STREAM[:steps], announced)
            with TemporaryDirectory() as place:
                learner.save(Path(place) / "learner")
                twin = prol.load(Path(place) / "learner", learner.backbone, method=type(learner))
            _require_equal_futures(learner, twin, steps, announced, "loaded")


def clones_are_independent(subject: Subject) -> None:
    """A clone is equal, and what either learns afterwards leaves the other alone."""
    for announced in subject.modes:
        learner = teach(subject.fresh(), STREAM[:1], announced)
        before, twin = learner.state(), learner.clone()
        teach(twin, STREAM[1:3], announced)
        changed = difference(before, learner.state())
        require(not changed, f"teaching a clone changed the original: {changed}")
        taught = twin.state()
        teach(learner, STREAM[1:2], announced)
        changed = difference(taught, twin.state())
        require(not changed, f"teaching the original changed its clone: {changed}")
        _require_equal_futures(learner, learner.clone(), 2, announced, "cloned")


def seeded_runs_are_identical(subject: Subject) -> None:
    """Two learners with one seed become the same, whatever the process's own random numbers are."""
    for announced in subject.modes:
        states = []
        for elsewhere in (1, 2):
            with global_randomness(elsewhere):
                states.append(teach(subject.fresh(), announced=announced).state())
        changed = difference(*states)
        require(not changed, f"the same seed and the same chunks gave two states: {changed}")


def inputs_are_left_alone(subject: Subject) -> None:
    """Images are not written to, and writing to them after the step has no effect."""
    intact, spoilt = subject.fresh(), subject.fresh()
    for step in STREAM[:2]:
        teach(intact, [step])
        images, tensor = list(step.images.copy()), torch.from_numpy(step.images.copy())
        if step.announced:
            spoilt.boundary(step.announced)
        labels: list[Label] = list(step.labels)
        spoilt.learn(images, labels)
        require(np.array_equal(np.stack(images), step.images), "learn changed the images it was given")
        require(labels == list(step.labels), "learn changed the labels it was given")
        spoilt.predict(tensor)
        require(np.array_equal(tensor.numpy(), step.images), "predict changed the images it was given")
        for image in images:
            image.fill(0)
        tensor.zero_()
        labels.clear()
    changed = difference(intact.state(), spoilt.state())
    require(not changed, f"the learner still looks at images of an earlier step: {changed}")


def nothing_outlives_its_step(subject: Subject) -> None:
    """After a step neither its images nor anything computed from each of them is alive."""
    learner = teach(subject.fresh(), STREAM[:1])
    with watching_tensors() as made_since:
        for kind in (np.asarray, torch.from_numpy):
            given: list[Any] = list(kind(make_images(CHUNK, seed=9)))
            witnesses = [weakref.ref(image) for image in given]
            learner.learn(given, list(STREAM[1].labels))
            given.clear()
            new = made_since()
            alive = sum(witness() is not None for witness in witnesses)
            require(not alive, f"{alive} of {CHUNK} images are still alive after their step")
            shapes = [tuple(tensor.shape) for tensor in new + held_by_graph(new) if _looks_like_samples(tensor)]
            require(not shapes, f"tensors made from the {CHUNK} images of a step are still alive: shapes {shapes}")
            del new


def memory_is_bounded(subject: Subject) -> None:
    """Learning more of the same classes does not need ever more memory."""
    learner = teach(subject.fresh(), STREAM[:2])
    sizes = []
    with watching_tensors() as made_since:
        for window in range(15):
            teach(learner, [make_chunk(TASKS[0], 20 + 2 * window), make_chunk(TASKS[0], 21 + 2 * window)])
            sizes.append(_sizes(learner, made_since))
    for what in sizes[0]:
        # A class may come into play once, at any time; more rises than classes can only come from samples.
        history = [size[what] for size in sizes]
        rises = sum(after > before for before, after in pairwise(history))
        require(rises <= len(TASKS[0]), f"{what} grow with the steps on the same classes: {history}")


def labels_may_be_text_or_numbers(subject: Subject) -> None:
    """1 and "1" are two classes, and numbers from arrays are plain numbers."""
    learner, images = subject.fresh(), make_images(4, seed=11)
    learner.boundary([1, "1", 2])
    learner.learn(images, [1, "1", 2, 1])
    learner.learn(images[:2], np.array([2, 1]))
    learner.learn(images[:2], torch.tensor([1, 2]))
    require(learner.classes == [1, "1", 2], f"classes are {learner.classes}, expected [1, '1', 2]")
    kinds = [type(name).__name__ for name in learner.classes]
    require(kinds == ["int", "str", "int"], f"classes have types {kinds}, expected int, str, int")


def classes_need_no_announcement(subject: Subject) -> None:
    """Classes may simply appear, also at a boundary that announces none; rows follow the order of appearance."""
    learner = subject.fresh()
    learner.learn(make_images(2, seed=12), ["cat", 7])
    learner.boundary()
    learner.learn(make_images(3, seed=13), ["ant", "cat", "ant"])
    require(learner.classes == ["cat", 7, "ant"], f"classes are {learner.classes}, expected ['cat', 7, 'ant']")
    width = learner.predict(make_images(1, seed=14)).shape[1]
    require(width == 3, f"scores have {width} columns for 3 classes")


def classes_may_go_and_come_anew(subject: Subject) -> None:
    """Where classes can be renamed, merged and removed, the others stay in order and learning continues."""
    learner, images = teach(subject.fresh()), make_images(3, seed=18)
    if learner.contents().refusal:
        require_refusal("removing a class", learner.remove_class, "bee")
        return
    learner.remove_class("bee")
    learner.rename_class("cat", "lynx")
    left = ["ant", "lynx", "dog", "eel"]
    if not learner.contents().merge_refusal:
        learner.merge_classes("eel", "ant")
        left.remove("eel")
    for steps in range(2):
        require(learner.classes == left, f"classes are {learner.classes} after changes to them, expected {left}")
        shape = tuple(learner.predict(images).shape)
        require(shape == (3, len(left)), f"scores have shape {shape}, expected {(3, len(left))}")
        rows = {name: row for row, name in enumerate(left)}
        require(learner.row_of == rows, f"rows are {learner.row_of}, expected {rows}")
        counts = learner.class_counts()
        require(counts is None or len(counts) == len(left), f"{counts} are counts of other classes than {left}")
        changed = difference(learner.state(), learner.clone().state())
        require(not changed, f"a clone is not equal after changes to the classes: {changed}")
        if not steps:
            if False not in subject.modes:
                learner.boundary(["bee"])
            learner.learn(images, ["bee", "ant", "bee"])
            left = [*left, "bee"]


def merged_learners_equal_one(subject: Subject) -> None:
    """Where learners can be merged, two that learnt apart are one that learnt everything, up to rounding."""
    base = teach(subject.fresh(), STREAM[:2])
    if not base.additive:
        return
    parts = [teach(base.clone(), STREAM[number : number + 1]) for number in (2, 3)]
    try:
        merged = prol.merge(parts, base=base)
    except ValueError:
        return
    whole, images = teach(base.clone(), STREAM[2:]), make_images(5, seed=20)
    require(merged.classes == whole.classes, f"classes are {merged.classes}, expected {whole.classes}")
    _require_same_scores(whole, merged.predict(images), whole.predict(images), "merged instead of learnt by one")
    counts, expected = merged.class_counts(), whole.class_counts()
    same = counts is None or expected is None or torch.equal(counts.double(), expected.double())
    require(same, f"merged counts are {counts}, expected {expected}")


CHECKS: dict[str, Callable[[Subject], None]] = {
    check.__name__: check
    for check in (
        predict_before_learning,
        scores_have_a_column_for_each_class,
        predict_is_pure,
        batch_independence,
        encodings_stay,
        save_and_load,
        clones_are_independent,
        seeded_runs_are_identical,
        inputs_are_left_alone,
        nothing_outlives_its_step,
        memory_is_bounded,
        labels_may_be_text_or_numbers,
        classes_need_no_announcement,
        bad_input_changes_nothing,
        failed_updates_leave_no_trace,
        undo_restores_the_state,
        merged_learners_equal_one,
        classes_may_go_and_come_anew,
    )
}


def _require_same_scores(learner: Learner, scores: Tensor, expected: Tensor, how: str) -> None:
    """Equal up to rounding; classes that cannot win have -inf in both."""
    finite = expected.isfinite()
    require(torch.equal(finite, scores.isfinite()), f"{how}, other scores are finite")
    worst = float((scores - expected)[finite].abs().max())
    limit = _ROUNDING[learner.backbone.precision] * max(1.0, float(expected[finite].abs().max()))
    require(worst <= limit, f"{how}, scores differ by {worst:.3g}")


def _require_equal_futures(learner: Learner, twin: Learner, steps: int, announced: bool, how: str) -> None:
    changed = difference(learner.state(), twin.state())
    require(not changed, f"the {how} learner is not equal after {steps} steps: {changed}")
    images = make_images(5, seed=16)
    require(same_bits(learner.predict(images), twin.predict(images)), f"the {how} learner returns other scores")
    teach(learner, STREAM[steps:], announced), teach(twin, STREAM[steps:], announced)
    changed = difference(learner.state(), twin.state())
    require(not changed, f"the {how} learner continues differently after {steps} steps: {changed}")
    require(same_bits(learner.predict(images), twin.predict(images)), f"the {how} learner continues to other scores")


def _looks_like_samples(tensor: Tensor) -> bool:
    shape = tensor.shape
    return shape[:1] == (CHUNK,) or shape[-2:] == (HEIGHT, WIDTH) or shape[-3:-1] == (HEIGHT, WIDTH)


def _sizes(learner: Learner, made_since: Callable[[], list[Tensor]]) -> dict[str, int]:
    tensors, meta = learner.state()
    stored = Amount.of(*tensors.values()).bytes
    del tensors
    return {
        "bytes of the state": stored,
        "values in its JSON": count_values(meta),
        "bytes of live tensors": Amount.of(*made_since()).bytes,
        "bytes of arrays and texts held": bytes_held(learner.__dict__, besides=learner.backbone),
    }

"""Checks of rollback: input that is refused, updates that fail, and chunks that are undone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from prol.classes import Label
from prol.testing.stream import HEIGHT, STREAM, WIDTH, Subject, difference, make_images, require, require_refusal, teach


def bad_input_changes_nothing(subject: Subject) -> None:
    """What cannot be learnt from is refused with a ValueError before anything changes."""
    images, unseen = make_images(2, seed=15), ["gnu", "hen"]
    floats = images.astype(np.float32) / 255
    chunks: dict[str, tuple[Any, Any]] = {
        "float images": (floats, unseen),
        "images with NaN": (np.where(floats > 0.5, np.nan, floats), unseen),
        "images with two channels": (np.zeros((2, HEIGHT, WIDTH, 2), dtype=np.uint8), unseen),
        "images with five axes": (images[None], unseen),
        "no images": ([], []),
        "no images but labels": ([], unseen),
        "more labels than images": (images, [*unseen, "ibis"]),
        "fewer labels than images": (images, unseen[:1]),
        "a fraction as label": (images, ["gnu", 0.5]),
        "a truth value as label": (images, ["gnu", True]),
        "no label": (images, ["gnu", None]),
    }
    for learner in (subject.fresh(), teach(subject.fresh(), STREAM[:2])):
        before = learner.state()
        for what, (given, labels) in chunks.items():
            require_refusal(what, learner.learn, given, labels)
            changed = difference(before, learner.state())
            require(not changed, f"learn refused {what}, but the state had changed: {changed}")
        require_refusal("float images in predict", learner.predict, floats)
        require_refusal("a class announced twice", learner.boundary, ["gnu", "gnu"])
        changed = difference(before, learner.state())
        require(not changed, f"predict and boundary refused bad input, but the state had changed: {changed}")


def failed_updates_leave_no_trace(subject: Subject) -> None:
    """An update that fails on inputs that are not finite changes nothing, whether it brought new classes or not."""
    images = make_images(4, seed=19)
    for announced in subject.modes:
        for steps in (0, 1, len(STREAM)):
            learner = teach(subject.fresh(), STREAM[:steps], announced)
            usual = learner.preprocessing
            if announced:
                learner.boundary(["fox", "gnu"])
            elif learner.clock is not None and steps == len(STREAM):
                learner.clock.steps = learner.clock.min_steps  # so that the update that fails also begins a task
            before = learner.state()
            learner.preprocessing = replace(usual, std=(0.0, 0.0, 0.0))
            try:
                learner.learn(images, ["fox", "gnu", "fox", "fox" if not steps else "ant"])
                learner.flush()
            except ValueError:
                changed = difference(before, learner.state())
                require(not changed, f"an update failed after {steps} steps, but the state had changed: {changed}")
                learner.preprocessing = usual
                twin = learner.clone()
                for one in (learner, twin):
                    one.learn(images, ["fox", "gnu", "fox", "fox"])
                changed = difference(learner.state(), twin.state())
                require(not changed, f"after an update failed, the learner continues differently: {changed}")


def undo_restores_the_state(subject: Subject) -> None:
    """A chunk that is undone leaves no trace, whether it brought new classes or not; learning it again is the same."""
    for announced in subject.modes:
        learner = subject.fresh()
        try:
            learner.enable_undo()
        except ValueError:  # its record would be too large
            return
        for number, step in enumerate(STREAM):
            if announced and step.announced:
                learner.boundary(step.announced)
            before, labels = learner.state(), list[Label](step.labels)
            learner.learn(step.images.copy(), labels)
            once = learner.state()
            learner.undo()
            changed = difference(before, learner.state())
            require(not changed, f"chunk {number + 1} was undone, but the state had changed: {changed}")
            require_refusal("undoing a second time", learner.undo)
            learner.learn(step.images.copy(), labels)
            changed = difference(once, learner.state())
            require(not changed, f"chunk {number + 1}, undone and learnt again, has another result: {changed}")

"""Images a second: learnt in chunks, and answered in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from prol.backbones import Backbone
from prol.bench.arithmetic import work_of
from prol.bench.subject import Load, Subject, answer_of, free, step_of
from prol.bench.timing import Pace, Step, waiting
from prol.bench.turns import measure, row_of

Row = dict[str, Any]


def speed(
    subjects: Sequence[Subject],
    backbone: Backbone,
    chunks: Sequence[int],
    batches: Sequence[int],
    load: Load,
    pace: Pace,
    peak: float | None = None,
) -> Iterator[Row]:
    """One row for each method and chunk size, then one for each batch size.

    A row whose step fails holds the error instead of times, and the others go on.

    Args:
        peak: operations a second that the device can do at most; rows of methods whose arithmetic is known then say
            what share of it they reach.
    """
    for subject in subjects:  # mistakes in options are told before anything is timed
        subject.resolved(chunks[0])
    for subject in subjects:
        if backbone.device.type == "cuda":
            torch.compiler.reset()  # torch keeps a limited number of compiled shapes: each method begins anew
        for chunk in chunks:
            yield _row(subject, backbone, "train", chunk, chunk, load, pace, peak)
        for batch in batches:
            yield _row(subject, backbone, "predict", batch, chunks[0], load, pace, peak)


def _row(
    subject: Subject,
    backbone: Backbone,
    what: str,
    images: int,
    chunk: int,
    load: Load,
    pace: Pace,
    peak: float | None,
) -> Row:
    def make() -> Step:
        learner = subject.learner(backbone, chunk)
        load.announce(learner)
        step = step_of(learner, load.feed(chunk, learner.preprocessing.size))
        if what == "train":
            return step
        step()  # some methods have no answer before they have learnt
        return answer_of(learner, load.feed(images, learner.preprocessing.size))

    free(backbone.device)
    result = measure({what: make}, pace, waiting(backbone.device))[what]
    row: Row = {"method": subject.name, "what": what} | row_of(result, images)
    work = work_of(subject.method, subject.resolved(chunk), backbone)
    if work is None or "error" in row:
        return row
    flop = work.train if what == "train" else work.predict
    share = None if peak is None else flop * row["images_per_second"] / peak
    return row | {"flop_per_image": flop, "share_of_peak": share}

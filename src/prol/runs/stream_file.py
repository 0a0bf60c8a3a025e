"""`stream.json`: which class came when, for whoever looks at a run without its data."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from prol.data.streams import class_presence, summarise_tasks
from prol.runs.setup import Setup

_MOST_BINS = 100


def stream_content(setup: Setup) -> dict[str, Any]:
    """Names of the classes by task, and a line of counts for each: its samples in equal stretches of the stream."""
    labels, stream = setup.dataset.train.labels, setup.stream
    sizes = [task.samples for task in summarise_tasks(stream, labels)]
    counts = class_presence(stream, labels, min(_MOST_BINS, sum(sizes)))
    return {
        "samples": sum(sizes),
        "task_starts": list(accumulate(sizes[:-1], initial=0)),
        "classes": [setup.dataset.class_names[number] for group in stream.task_classes for number in group],
        # Text, for a list in JSON would have a line a number.
        "presence": [" ".join(map(str, row)) for row in counts.tolist()],
    }

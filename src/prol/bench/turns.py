"""Several steps timed in turns, where one may fail without costing the others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from prol.bench.timing import Clock, Pace, Step, Timed, time_block, warm_up

Say = Callable[[str], object]


def silent(line: str) -> None:
    """Tells nobody."""
    del line


def measure(
    makers: Mapping[str, Callable[[], Step]],
    pace: Pace,
    wait: Step,
    say: Say = silent,
    clock: Clock = time.perf_counter,
) -> dict[str, Timed | str]:
    """Makes several steps, warms them up, and times them in turns: what slows the machine down slows all of them.

    A step that fails on the device gives its error in one line, and the others go on: a compiler's trouble must not
    cost a whole run. A ValueError while a step is made is a mistake in what was asked for, and is raised.
    """
    results: dict[str, Timed | str] = {}
    ready: dict[str, Timed] = {}
    steps: dict[str, Step] = {}
    for name, make in makers.items():
        start = clock()
        try:
            steps[name] = make()
        except RuntimeError as error:
            results[name] = in_a_line(error)
            continue
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warnings.filterwarnings("ignore", module=r"torch\b")  # its compiler's advice is not about this step
                size = warm_up(steps[name], pace, wait, clock)
        except Exception as error:
            results[name] = in_a_line(error)
            continue
        said = tuple(dict.fromkeys(_short(str(warning.message)) for warning in caught))
        ready[name] = Timed((), size, clock() - start, said)
        say(f"{name}: ready after {ready[name].warmup:.1f} s")
    for _ in range(pace.repeats):
        for name, timed in list(ready.items()):
            try:
                seconds = time_block(steps[name], timed.steps, wait, clock) / timed.steps
                ready[name] = replace(timed, seconds=(*timed.seconds, seconds))
            except Exception as error:
                results[name] = in_a_line(error)
                del ready[name]
    return {name: ready[name] if name in ready else results[name] for name in makers}


def row_of(result: Timed | str, images: int) -> dict[str, Any]:
    """What came of a step on `images` images, as a result file holds it."""
    return {"error": result} if isinstance(result, str) else result.row(images)


def in_a_line(error: Exception) -> str:
    """What went wrong, as a row holds it."""
    return _short(f"{type(error).__name__}: {error}")


def _short(text: str) -> str:
    return " ".join(text.split())[:500]

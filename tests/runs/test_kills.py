from __future__ import annotations

import os
from pathlib import Path

import pytest

from prol import registry
from runs.kills import kill_and_compare

METHODS = sorted(registry.names("methods"))
MANY = 50


@pytest.mark.slow
@pytest.mark.parametrize("method", ["prol", "ease", "lae", "slda", "ranpac", "derpp"])
def test_a_command_killed_at_a_random_instant_ends_as_if_it_had_not_been(
    tmp_path: Path, micro_vit: str, method: str
) -> None:
    in_checkpoint = method == "ranpac"
    story = kill_and_compare(tmp_path, micro_vit, method, 1, seed=7, per_class=4, one_in_checkpoint=in_checkpoint)
    assert story.different == []
    assert in_checkpoint <= story.kills[0].in_checkpoint


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_command_killed_again_and_again_ends_as_if_it_had_not_been(
    tmp_path: Path, micro_vit: str, method: str
) -> None:
    """Fifty kills over all methods; PROL_KILL_LOG names a file to which a line for each run is added."""
    number = METHODS.index(method)
    kills = MANY // len(METHODS) + (number < MANY % len(METHODS))
    # PROL+ makes its choices at 128 and 256 samples.
    story = kill_and_compare(tmp_path, micro_vit, method, kills, seed=number, per_class=30 if "plus" in method else 12)
    if "PROL_KILL_LOG" in os.environ:
        with Path(os.environ["PROL_KILL_LOG"]).open("a") as log:
            log.write(story.line() + "\n")
    assert story.different == []
    assert len(story.kills) == kills

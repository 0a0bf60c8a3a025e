from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from prol.data.streams import class_presence
from prol.runs import start
from prol.runs.setup import set_up
from runs.small_runs import small_plan


def test_a_run_writes_down_which_class_came_when(micro_vit: str, tmp_path: Path) -> None:
    plan = small_plan(micro_vit, protocol="blurry", class_order="shuffled")
    content = json.loads((start(plan, tmp_path / "run").path / "stream.json").read_text())
    setup = set_up(plan)
    written = np.array([[int(count) for count in row.split()] for row in content["presence"]])
    assert np.array_equal(written, class_presence(setup.stream, setup.dataset.train.labels, written.shape[1]))
    assert written.sum() == content["samples"] == len(setup.dataset.train.labels)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert content["classes"] == [name for task in result["task_classes"] for name in task]
    assert len(content["task_starts"]) == 3
    assert written[:, -1].any()

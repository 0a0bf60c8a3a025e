from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent.parent / "tools" / "measure_memory.py"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ncm", "prol"])
def test_memory_does_not_grow_with_the_length_of_the_stream(tmp_path: Path, method: str) -> None:
    file = tmp_path / "memory.json"
    command = [sys.executable, str(TOOL), "--method", method, "--images", "10000", "--out", str(file)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=900)
    measured = json.loads(file.read_text())
    used = [reading["bytes"] for reading in measured["readings"]]
    assert len(used) == 20
    # The images of the last three quarters have 23 MB; allocators come and go by a few.
    assert used[-1] - used[4] < 10_000_000

"""The benches on a GPU, small. Needs one: `make test-gpu`. Nothing looks at the times."""

from __future__ import annotations

import pytest
import torch

from prol.backbones import open_backbone
from prol.bench.ladder import bare_passes, captured, ladder
from prol.bench.machine import copy_peak, document, matrix_peak
from prol.bench.throughput import growth, speed
from prol.bench.timing import Pace
from prol.bench.workload import MethodSpec, Workload

pytestmark = pytest.mark.gpu

PACE = Pace(warmup=6, repeats=2, steps=3)
PROL = MethodSpec("prol")


def test_every_rung_works(small_vit: str) -> None:
    rows = ladder(PROL, small_vit, "cuda", 4, Workload(30), PACE)
    assert [(row["rung"], row.get("error"), row.get("warnings")) for row in rows] == [
        (name, None, None)
        for name in (
            "float32",
            "bf16",
            "bf16, captured",
            "bf16, compiled, captured",
            "full step on ready input",
            "bare passes",
        )
    ]


def test_captured_passes_are_replayed(small_vit: str) -> None:
    vit = open_backbone(small_vit, device="cuda")
    passes, count = bare_passes(vit, 2, blocks=3, length=5, tune_norms=True), torch.zeros((), device="cuda")

    def step() -> None:
        passes()
        count.add_(1)

    replay = captured(step, vit.device)
    before = int(count)
    replay()
    replay()
    assert int(count) == before + 2


def test_speed_growth_and_peaks_are_measured(small_vit: str) -> None:
    vit = open_backbone(small_vit, device="cuda")
    rows = list(speed([PROL], vit, [1, 4], [4, 16], Workload(30), PACE, peak=1e15))
    assert [row.get("error") for row in rows] == [None] * 4
    rows = list(growth(PROL, vit, [10, 1000], 4, 4, PACE))
    assert [(row.get("error"), row["memory"]) for row in rows] == [(None, "tensors on the GPU")] * 2
    assert rows[0]["memory_bytes"] < rows[1]["memory_bytes"]
    before = torch.get_float32_matmul_precision()
    for precision in ("bf16", "tf32", "float32"):
        assert matrix_peak(vit.device, precision, PACE, side=256)["flop_per_second"] > 0
    assert torch.get_float32_matmul_precision() == before
    assert copy_peak(vit.device, PACE, size=1 << 20)["bytes_per_second"] > 0
    assert document("speed", vit.device, "", {})["machine"]["device"] == torch.cuda.get_device_name(vit.device)

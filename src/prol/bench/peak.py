"""What the machine can do at most: its measured rate of matrix products, and of copying memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from prol.bench.timing import Pace, time_step, waiting

_SIDE = {"cuda": 8192, "cpu": 2048}
_COPIED_BYTES = {"cuda": 1 << 30, "cpu": 1 << 28}
_TYPES = {"bf16": torch.bfloat16, "tf32": torch.float32, "float32": torch.float32, "float64": torch.float64}


def peak(device: torch.device, pace: Pace) -> Iterator[dict[str, Any]]:
    """One row a kind of matrix product that the device is asked for here, and one for copying."""
    for precision in ("bf16", "tf32", "float32") if device.type == "cuda" else ("float32",):
        yield matrix_peak(device, precision, pace)
    yield copy_peak(device, pace)


def matrix_peak(device: torch.device, precision: str, pace: Pace, side: int | None = None) -> dict[str, Any]:
    """Operations a second of square matrix products: 2 side³ operations each, on random numbers."""
    side = side or _SIDE[device.type]
    a, b, out = (torch.randn(side, side, device=device).to(_TYPES[precision]) for _ in range(3))
    with _products(tf32=precision == "tf32"):
        timed = time_step(lambda: torch.mm(a, b, out=out), pace, waiting(device))
    rate = 2 * side**3 / timed.median
    return {"what": f"matrix product, {precision}", "side": side, "flop_per_second": rate} | timed.row()


def copy_peak(device: torch.device, pace: Pace, size: int | None = None) -> dict[str, Any]:
    """Bytes a second of copying memory on the device, read and written bytes both counted."""
    size = size or _COPIED_BYTES[device.type]
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    timed = time_step(lambda: target.copy_(source), pace, waiting(device))
    return {"what": "copy", "bytes": size, "bytes_per_second": 2 * size / timed.median} | timed.row()


@contextmanager
def _products(tf32: bool) -> Iterator[None]:
    """How float32 products are computed on a GPU meanwhile: with rounded factors, or in full."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)

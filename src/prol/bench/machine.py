"""The machine: its description in result files, its peak memory, and its measured peak performance."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import prol
from prol.backbones.processor import processor_name
from prol.bench.timing import Pace, synchronizer, time_step

FORMAT = 1

_SIDE = {"cuda": 8192, "cpu": 2048}
_COPIED_BYTES = {"cuda": 1 << 30, "cpu": 1 << 28}
_TYPES = {"bf16": torch.bfloat16, "tf32": torch.float32, "float32": torch.float32, "float64": torch.float64}
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def document(bench: str, device: torch.device, command: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A result file without rows: the benchmark, the machine, the settings and the command line."""
    return {
        "format": FORMAT,
        "bench": bench,
        "command": command,
        "versions": {
            "prol": prol.__version__,
            "torch": torch.__version__,
            "timm": version("timm"),
            "python": platform.python_version(),
        },
        "machine": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "processor": f"{processor_name()} {torch.backends.cpu.get_cpu_capability()}",
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "settings": settings,
        "rows": [],
    }


class PeakMemory:
    """Peak memory since construction: that of tensors on a GPU, else the resident memory of the process."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.kind = "tensors on the GPU" if device.type == "cuda" else "resident memory of the process"
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            _CLEAR.write_text("5", encoding="ascii")  # resets the peak to what is resident now
        except OSError:
            self.kind = "resident memory of the process, since it started"

    def read(self) -> int:
        """Bytes."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        if _STATUS.is_file():
            for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
                if line.startswith("VmHWM:"):
                    return 1024 * int(line.split()[1])
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most


def peak(device: torch.device, pace: Pace) -> Iterator[dict[str, Any]]:
    """One row for each kind of matrix product, and one for copying memory."""
    for precision in ("bf16", "tf32", "float32") if device.type == "cuda" else ("float32",):
        yield matrix_peak(device, precision, pace)
    yield copy_peak(device, pace)


def matrix_peak(device: torch.device, precision: str, pace: Pace, side: int | None = None) -> dict[str, Any]:
    """Operations per second of square matrix products of random numbers, 2 side³ operations each."""
    side = side or _SIDE[device.type]
    a, b, out = (torch.randn(side, side, device=device).to(_TYPES[precision]) for _ in range(3))
    with _float32_products(tf32=precision == "tf32"):
        timed = time_step(lambda: torch.mm(a, b, out=out), pace, synchronizer(device))
    rate = 2 * side**3 / timed.median
    return {"what": f"matrix product, {precision}", "side": side, "flop_per_second": rate} | timed.row()


def copy_peak(device: torch.device, pace: Pace, size: int | None = None) -> dict[str, Any]:
    """Bytes per second of copying memory on the device; bytes read and written both count."""
    size = size or _COPIED_BYTES[device.type]
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    timed = time_step(lambda: target.copy_(source), pace, synchronizer(device))
    return {"what": "copy", "bytes": size, "bytes_per_second": 2 * size / timed.median} | timed.row()


@contextmanager
def _float32_products(tf32: bool) -> Iterator[None]:
    """Whether a GPU computes float32 products in TF32 meanwhile."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)

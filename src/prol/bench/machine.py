"""What a measurement was made on and with: versions, processor, GPU, memory."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import prol
from prol.backbones.processor import processor_name

FORMAT = 1

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def document(bench: str, device: torch.device, command: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A result file without its rows: which bench, on what machine, with which settings and command line."""
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
    """The most memory in use since `reset`: that of tensors on a GPU, else the process's resident memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.kind = "tensors on the GPU" if device.type == "cuda" else "resident memory of the process"
        self.reset()

    def reset(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            return
        try:
            _CLEAR.write_text("5", encoding="ascii")  # sets the peak back to what is resident now
        except OSError:
            self.kind = "resident memory of the process, since it began"

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

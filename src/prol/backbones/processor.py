"""The processor or GPU: its name, and whether it supports what it claims to."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch

_TRIAL = """
import torch
import torch.nn.functional as F
x = torch.randn(650, 192).bfloat16().requires_grad_()
layer = torch.nn.Linear(192, 768).bfloat16()
out = layer(x)
out.float().square().sum().backward()
heads = torch.randn(2, 3, 65, 64).bfloat16()
F.scaled_dot_product_attention(heads, heads, heads)
F.conv2d(torch.randn(2, 3, 64, 64).bfloat16(), torch.randn(192, 3, 8, 8).bfloat16(), stride=8)
exact = F.linear(x.float(), layer.weight.float(), layer.bias.float())
raise SystemExit(0 if (out.float() - exact).abs().max() < 0.1 else 3)
"""


class _Threads:
    """Whether torch's threads exist in this process, or were lost when it was forked."""

    started = lost = False


def _after_fork() -> None:
    _Threads.lost = _Threads.lost or (_Threads.started and torch.get_num_threads() > 1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def require_threads() -> None:
    """Refuses to compute in a process that was forked after prol had computed in its parent.

    A fork copies one thread. The child's first parallel operation would wait for the others for ever.
    """
    if _Threads.lost and torch.get_num_threads() > 1:
        raise RuntimeError(
            "this process was forked after torch had run in its parent, so torch's threads are missing here and it "
            "would wait for them for ever: start it with multiprocessing's 'spawn' or 'forkserver', fork before the "
            "first image, or call torch.set_num_threads(1) in it"
        )
    _Threads.started = True


def hardware_name(device: torch.device) -> str:
    """The GPU's name, or the processor's."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()


def processor_name() -> str:
    """The name that the system has for it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


@cache
def bf16_trial() -> int:
    """How a small bf16 product ended in another process: 0 if well, minus the signal's number if that killed it.

    In a separate process, since some processors crash on instructions that they announce.
    """
    return subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False).returncode


def require_bf16_processor() -> None:
    """Refuses bf16 on a processor that crashes on it or computes it wrongly."""
    ended = bf16_trial()
    if ended:
        how = f"ended with signal {-ended}" if ended < 0 else "failed"
        raise ValueError(f"precision bf16 does not work on this processor: a trial product {how}; use float32")

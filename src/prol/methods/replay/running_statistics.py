"""Running statistics that a step moves along, and takes back where the step is not valid."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def noted(running: Mapping[str, Tensor]) -> Tensor:
    """All of them end to end, as they are now."""
    return torch.cat([tensor.reshape(-1) for tensor in running.values()])


@torch.no_grad()
def keep_if(valid: Tensor, running: Mapping[str, Tensor], before: Tensor) -> None:
    """Leaves them as they are where `valid`, a bool scalar, else puts back what was noted; the host waits for nothing.

    A choice and not a weighted sum: what a bad step has made of them may be NaN.
    """
    homes = list(running.values())
    chosen = torch.split(torch.where(valid, noted(running), before), [home.numel() for home in homes])
    torch._foreach_copy_(homes, [part.view_as(home) for part, home in zip(chosen, homes, strict=True)])

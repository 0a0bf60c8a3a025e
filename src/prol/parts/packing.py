"""Groups of tensors in one flat dictionary, as a state wants it: "group/name"."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def packed(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All tensors of all groups, each under its group's name."""
    return {f"{group}/{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}


def unpacked(group: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one group, under their own names."""
    return {name.removeprefix(f"{group}/"): t for name, t in tensors.items() if name.startswith(f"{group}/")}

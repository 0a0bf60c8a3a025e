"""Checks of a saved state before and while a learner takes it over: anybody may have written the file.

Names, shapes and kinds of numbers are checked against the declared state when it is loaded (`prol.state`). Here are the
checks that only files need: that a learner is not much larger than its file, and that what it holds is plausible.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from prol.tables import Amount, Value, get_value, holds, join, within

if TYPE_CHECKING:
    from prol.backbones import Backbone
    from prol.learner import Learner

MOST_TIMES, SPARE_BYTES = 4, 1 << 27
"""A learner takes at most so many times the bytes of its file, and these besides: random layers are not in the file."""
_ANY_COUNT = 10**6
"""Options that are counts may be as large whatever was saved, and those of steps larger."""
_LARGEST = 2**63 - 1


def require_size(
    kind: type[Learner], backbone: Backbone, options: Any, seed: int, tensors: Mapping[str, Tensor]
) -> None:
    """Refuses options for which a learner would be built that is much larger than the saved tensors.

    A learner of shapes alone is built, which takes no memory.
    """
    saved = Amount.of(*tensors.values())
    for name, value in dataclasses.asdict(options).items():
        if isinstance(value, int) and value > max(_ANY_COUNT, saved.count) and not name.endswith("_steps"):
            raise ValueError(f"its option {name} is {value}, but only {saved.count} numbers were saved")
    try:
        with torch.device("meta"):
            outline = kind(shapes_of(backbone), options, seed)
    except (RuntimeError, TypeError, NotImplementedError):  # a method of another package that needs values, not shapes
        return
    needed = 0
    for entry in outline.stored.entries():
        # An empty table counts as one row, which a method may draw to see its shape.
        if entry.table is None:
            needed += Amount.of(*entry.read().values()).bytes
        else:
            buffer = entry.table.buffer
            needed += max(1, len(buffer)) * buffer.shape[1:].numel() * buffer.element_size()
    if needed > MOST_TIMES * saved.bytes + SPARE_BYTES:
        raise ValueError(f"its options ask for {needed / 1e6:,.0f} MB, but only {saved.bytes / 1e6:,.1f} MB were saved")


def shapes_of(backbone: Backbone) -> Backbone:
    """A copy of the network with shapes instead of weights."""
    if not isinstance(backbone, nn.Module):
        return backbone
    twins: dict[int, Any] = {}
    for tensor in (*backbone.parameters(), *backbone.buffers()):
        shape = torch.empty_like(tensor, device="meta")
        is_parameter = isinstance(tensor, nn.Parameter)
        twins[id(tensor)] = nn.Parameter(shape, tensor.requires_grad) if is_parameter else shape
    return copy.deepcopy(backbone, twins)  # deepcopy takes what it finds there for copies already made


def load_checked(learner: Learner, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """`learner.load_state` for a state from a file; raises ValueError for one that no learner has written."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} holds NaN or infinity")
    classes, saved = len(meta["classes"]), meta["method"]
    for name, value in learner.stored.registry.values.items():
        if not value.later or holds(saved, name):
            _require_value(name, value, get_value(saved, name), classes)
    _require_rows(learner, tensors, classes)
    _require_same_shapes(learner, tensors)
    learner.load_state(tensors, meta)
    counts = learner.class_counts()
    if counts is not None and not bool(((counts >= 0) & counts.isfinite()).all()):
        raise ValueError("a count of images is below 0")


def _require_rows(learner: Learner, tensors: Mapping[str, Tensor], classes: int) -> None:
    """Rows of classes must be known; those of other tables must be in some table of the file."""
    longest = max((len(tensor) for tensor in tensors.values() if tensor.ndim), default=0)
    for entry in learner.stored.entries():
        for inner, tensor in within(entry.name, tensors).items():
            name = join(entry.name, inner)
            if name.rpartition("/")[2] != "rows" or not tensor.numel():
                continue
            most = max(classes, longest) if entry.kind == "moment" else classes
            if tensor.is_floating_point() or int(tensor.min()) < -1 or int(tensor.max()) >= most:
                raise ValueError(f"{name} holds something else than rows from 0 to {most - 1}")


def _require_same_shapes(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    """Tables that grow together must be of one length, and the two moments or scales of a tensor of one shape."""
    lengths: dict[str, tuple[str, int]] = {}
    for entry in learner.stored.entries():
        found, scope = within(entry.name, tensors), entry.name.rpartition("/")[0]
        if entry.table is not None and entry.grows is None and not entry.combine and "" in found:
            first, length = lengths.setdefault(scope, (entry.name, len(found[""])))
            if len(found[""]) != length:
                raise ValueError(f"{entry.name} has {len(found[''])} rows, but {first} has {length}")
        for inner, tensor in found.items() if entry.table is None else ():
            group, _, last = inner.rpartition("/")
            twin = found.get(f"{group}/mean" if group else "mean")
            if last in ("square", "inverse") and (twin is None or twin.shape != tensor.shape):
                raise ValueError(f"{join(entry.name, inner)} has not the shape of the mean beside it")


def _require_value(name: str, declared: Value, saved: Any, classes: int) -> None:
    """A value must be of the type that the learner's own has now; numbers must be finite, and rows those of classes."""
    own = declared.read()
    kinds: tuple[type, ...] = (bool,) if isinstance(own, bool) else (int,)
    if isinstance(own, float):
        kinds = (int, float)
    elif isinstance(own, str | list | dict):
        kinds = (type(own),)
    elif own is None:
        kinds = (int, float, type(None))
    if not isinstance(saved, kinds) or (isinstance(saved, bool) and bool not in kinds):
        raise ValueError(f"{name} is {saved!r:.40}")
    inside = saved if isinstance(saved, list) else saved.values() if isinstance(saved, dict) else [saved]
    for one in inside:
        if isinstance(one, int | float) and not (math.isfinite(one) and abs(one) <= _LARGEST):
            raise ValueError(f"{name} is {saved!r:.40}")
        least, most = (0, classes) if declared.is_row else (-1, _LARGEST)
        if (declared.is_row or isinstance(own, int)) and not (isinstance(one, int) and least <= one <= most):
            raise ValueError(f"{name} is {saved!r:.40}")

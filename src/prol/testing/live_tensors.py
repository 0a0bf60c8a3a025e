"""Which tensors stay alive, seen through the garbage collector and the gradient graphs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor


@contextmanager
def watching_tensors() -> Iterator[Callable[[], list[Tensor]]]:
    """Returns a function that lists the tensors made since, and still held by Python."""
    gc.freeze()  # what is there already, garbage too, is set aside, which also makes every later look quick
    try:
        yield _tensors_alive
    finally:
        gc.unfreeze()


def _tensors_alive() -> list[Tensor]:
    gc.collect()
    # type() and not isinstance(): some objects report another class, or run code, when theirs is read.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]


def bytes_held(start: object, besides: object) -> int:
    """Bytes of the arrays, texts and byte strings that can be reached from `start`, but not through `besides`."""
    total, seen, waiting = 0, {id(besides)}, [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            total += thing.nbytes
        elif isinstance(thing, str | bytes | bytearray):
            total += len(thing)
        elif not issubclass(type(thing), Tensor):  # those are counted elsewhere
            waiting.extend(gc.get_referents(thing))
    return total


def held_by_graph(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Tensors that the gradient graphs behind `tensors` would need for a backward pass not made yet."""
    found: list[Tensor] = []
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting.extend(parent for parent, _ in node.next_functions)
        found.extend(value for value in _saved_values(node) if issubclass(type(value), Tensor))
    return found


def _saved_values(node: Any) -> list[Any]:
    values = []
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                values.append(getattr(node, name))
            except RuntimeError:  # freed by the backward pass, as it should be
                continue
    return values

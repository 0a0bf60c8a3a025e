"""What a commit has changed: a small update of the state of the commit before it, and the state after such updates.

Large symmetric matrices grow by logged products (`prol.tables.ProductLog`); of all other tensors the rows that differ
are found by comparing bits. Replaying does what the learner did, in the same order: the result is the same to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor

from prol.learner import Learner, SavedState
from prol.tables import Amount, Product, ProductLog
from prol.typed_json import problem_of

SHARE = 4
"""An update has at most this part of the bytes of the whole state, unless that is small."""
SMALL = 1 << 20
"""Bytes that any update may have."""
PAUSE = 16
"""Restarts that are left out after an update was too large: comparing has a cost, and the next ones will be, too."""
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Content(TypedDict):
    new_classes: list[Any]
    values: dict[str, Any]
    gone: list[str]
    products: list[str]


@dataclass(frozen=True)
class Update:
    """The difference of two states of a learner.

    `tensors` are `whole/NAME`, `rows/NAME` with the `places/NAME` that they replace or follow, and `left/K` and
    `right/K` of products, by number. `content` is JSON.
    """

    tensors: dict[str, Tensor]
    content: dict[str, Any]

    @property
    def bytes(self) -> int:
        return Amount.of(*self.tensors.values()).bytes


class Changes:
    """Follows a learner from one committed state to the next."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._known: dict[str, Tensor] = {}
        self._classes: list[Any] = []
        self._loads = -1
        self._limit = self._pause = 0

    def restart(self, state: SavedState) -> None:
        """The learner is in this state, and it is committed: changes count from here."""
        if self._pause:
            self._pause -= 1
            self.stop()
            return
        registry = self._learner.stored.registry
        matrices = registry.matrices()
        inside = _block_names(matrices)
        # Clones, because updates change them, and others hold the state.
        self._known = {name: tensor.clone() for name, tensor in state[0].items() if name not in inside}
        self._classes, self._loads = list(state[1]["classes"]), registry.loads
        self._limit = max(SMALL, Amount.of(*state[0].values()).bytes // SHARE)
        registry.log = ProductLog(matrices)

    def stop(self) -> None:
        """Nothing is followed until the next restart."""
        self._learner.stored.registry.log, self._known, self._loads = None, {}, -1

    def update(self) -> Update | None:
        """The update from the last call; None, which needs a restart, where it is not small or not all is known."""
        found = self._update()
        if found is None:
            self.stop()
        return found

    def _update(self) -> Update | None:
        learner, registry = self._learner, self._learner.stored.registry
        learner.flush()
        log, matrices, count = registry.log, registry.matrices(), len(self._classes)
        if log is None or registry.loads != self._loads or not log.is_complete(matrices):
            return None
        if learner.classes[:count] != self._classes:
            return None
        content: dict[str, Any] = {
            "new_classes": learner.classes[count:],
            "values": learner.stored.saved_values(),
            "products": [name for name, _ in log.products],
        }
        tensors: dict[str, Tensor] = {}
        for number, (_, product) in enumerate(log.products):
            tensors[f"left/{number}"] = product.left.detach().cpu()
            if product.right is not product.left:
                tensors[f"right/{number}"] = product.right.detach().cpu()
        present = learner.stored.saved_tensors() | {"random": learner.random.get_state()}
        inside = _block_names(matrices)
        others = {name: tensor.detach() for name, tensor in present.items() if name not in inside}
        for name, tensor in sorted(others.items(), key=lambda item: -item[1].numel()):  # it soon is too much, if it is
            tensors |= self._difference(name, tensor.cpu())
            if Amount.of(*tensors.values()).bytes > self._limit:
                self._pause = PAUSE
                return None
        content["gone"] = [name for name in self._known if name not in others]
        for name in content["gone"]:
            del self._known[name]
        self._classes, registry.log = list(learner.classes), ProductLog(matrices)
        return Update(tensors, content)

    def _difference(self, name: str, tensor: Tensor) -> dict[str, Tensor]:
        """What turns the known tensor of a name into this one, which is known from now on."""
        before = self._known.get(name)
        if before is not None and before.dtype == tensor.dtype and before.ndim and tensor.ndim:
            common = len(before)
            if before.shape[1:] == tensor.shape[1:] and common <= len(tensor):
                new = torch.arange(common, len(tensor))
                places = torch.cat([_differing(before, tensor[:common]), new])
                if not len(places):
                    return {}
                rows = tensor[places]
                if Amount.of(places, rows).bytes < Amount.of(tensor).bytes:
                    self._known[name] = _with_rows(before, places, rows)
                    return {f"places/{name}": places, f"rows/{name}": rows}
        elif before is not None and before.dtype == tensor.dtype and before.shape == tensor.shape:  # one number
            return {} if torch.equal(before, tensor) else self._whole(name, tensor)
        return self._whole(name, tensor)

    def _whole(self, name: str, tensor: Tensor) -> dict[str, Tensor]:
        self._known[name] = tensor.clone()
        return {f"whole/{name}": tensor.clone()}  # the known one changes later


def replayed(state: SavedState, updates: Sequence[Update], device: torch.device | str = "cpu") -> SavedState:
    """The state after updates; the given one is not changed. Products are added on the device that had added them.

    ValueError where an update does not fit the state before it.
    """
    tensors, meta = {name: tensor.clone() for name, tensor in state[0].items()}, state[1]
    used = dict.fromkeys(name for update in updates for name in _products(update))
    matrices = {name: [block.to(device) for block in _blocks(tensors, name)] for name in used}
    for update in updates:
        try:
            meta = _apply(tensors, meta, matrices, update)
        except (KeyError, IndexError, RuntimeError, TypeError) as error:
            raise ValueError(f"an update does not fit the state before it: {' '.join(str(error).split())}") from error
    for name, blocks in matrices.items():
        tensors |= {f"{name}.{number}": block.cpu() for number, block in enumerate(blocks)}
    return tensors, meta


def _apply(
    tensors: dict[str, Tensor], meta: dict[str, Any], matrices: dict[str, list[Tensor]], update: Update
) -> dict[str, Any]:
    """Changes tensors and matrices; returns the JSON part."""
    for name in update.content["gone"]:
        del tensors[name]
    for name, tensor in _named(update, "whole"):
        tensors[name] = tensor.clone()
    for name, rows in _named(update, "rows"):
        places, before = update.tensors[f"places/{name}"], tensors[name]
        if rows.dtype != before.dtype or rows.shape != (len(places), *before.shape[1:]):
            raise ValueError(f"rows of {name} do not fit")
        new = places[places >= len(before)]
        ahead = torch.arange(len(before), len(before) + len(new))
        if places.dtype != torch.int64 or bool((places < 0).any()) or not torch.equal(new, ahead):
            raise ValueError(f"places of {name} do not fit")
        tensors[name] = _with_rows(before, places, rows)
    for number, name in enumerate(_products(update)):
        left = update.tensors[f"left/{number}"]
        right = update.tensors.get(f"right/{number}", left)
        blocks = matrices[name]
        width = blocks[-1].shape[1]
        if left.shape != right.shape or left.ndim != 2 or left.shape[1] != width:
            raise ValueError(f"a product of {name} does not fit")
        Product(left.to(blocks[0].device), right.to(blocks[0].device)).add_to(blocks)
    return {"classes": [*meta["classes"], *update.content["new_classes"]], "method": update.content["values"]}


def require_update(content: Any) -> None:
    """Refuses JSON that is no update's."""
    if (problem := problem_of(content, _Content)) is not None:
        raise ValueError(problem)


def _named(update: Update, part: str) -> Iterator[tuple[str, Tensor]]:
    prefix = f"{part}/"
    return ((name.removeprefix(prefix), t) for name, t in update.tensors.items() if name.startswith(prefix))


def _products(update: Update) -> list[str]:
    found: list[str] = update.content["products"]
    return found


def _blocks(tensors: dict[str, Tensor], name: str) -> list[Tensor]:
    found: list[Tensor] = []
    while (block := tensors.get(f"{name}.{len(found)}")) is not None:
        found.append(block)
    if not found:
        raise ValueError(f"there is no matrix {name}")
    return found


def _block_names(matrices: dict[str, list[Tensor]]) -> set[str]:
    return {f"{name}.{number}" for name, blocks in matrices.items() for number in range(len(blocks))}


def _differing(before: Tensor, after: Tensor) -> Tensor:
    """Rows of two tensors of one shape that differ in any bit."""
    kind = _BITS[before.element_size()]
    different = before.view(kind) != after.view(kind)
    return different.reshape(len(different), math.prod(different.shape[1:])).any(1).nonzero().flatten()


def _with_rows(before: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    """Replaces rows at places within the tensor, which it changes, and appends those behind it."""
    inside = places < len(before)
    before[places[inside]] = rows[inside]
    return before if bool(inside.all()) else torch.cat([before, rows[~inside]])

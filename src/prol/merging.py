"""Merging of learners that learnt apart: the result is the learner that learnt everything, up to rounding."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prol.classes import Label
from prol.prequential.statistics import Record, put_records
from prol.state import State
from prol.tables import put_value

if TYPE_CHECKING:
    from prol.learner import Learner, SavedState

_CURE = "continue all of them from copies of one learner, and pass that one as base"


@dataclass(frozen=True)
class Sums:
    """The state of a learner, grouped by how it is added to that of another.

    Tensors are the learner's own and for reading only.
    """

    tables: Mapping[str, Tensor]
    """Those with a row for each class, `[C, ...]`: rows of one class add up."""
    totals: Mapping[str, Tensor] = field(default_factory=dict)
    """Those that add up as they are."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Counts that add up."""
    agreed: Mapping[str, Any] = field(default_factory=dict)
    """What must be equal, by its description: sums under other values could not be added."""
    rest: tuple[Mapping[str, Tensor], Mapping[str, Any]] = field(default_factory=lambda: ({}, {}))
    """The rest of the state, tensors and JSON, which is copied from one of the learners."""

    def together(self) -> dict[str, Tensor]:
        """All tensors of the state under their names."""
        return {**self.tables, **self.totals, **self.rest[0]}

    def values(self) -> dict[str, Any]:
        """All values of the state, with counts added up."""
        found = deepcopy(dict(self.rest[1]))
        for name, number in self.numbers.items():
            put_value(found, name, number)
        return found


@dataclass(frozen=True)
class Terms:
    """What must be known about a learner before its sums are added to others'; it can be sent to another process."""

    settings: Mapping[str, Any]
    """What must always be equal, by its description."""
    classes: list[Label]
    counts: list[int]
    agreed: Mapping[str, Any]
    numbers: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    """Shapes of everything that is added up; tables without their first axis."""
    records: tuple[Record, ...] = ()
    """Images recorded with improbable labels."""

    @property
    def empty(self) -> bool:
        return not any(self.counts)


@dataclass(frozen=True)
class Agreement:
    """How sums are merged: all classes, and which learner supplies what is not a sum."""

    classes: list[Label]
    leader: int
    numbers: dict[str, int]
    records: tuple[Record, ...] = ()


def merge(learners: Sequence[Learner], base: Learner | None = None) -> Learner:
    """A new learner that knows what each of them has learnt. None of them is changed.

    Classes are those of the first, then the others' own in the order of the learners. Only methods that add up what
    they see can be merged: ValueError says why where the result would not be that of one learner.

    Args:
        learners: of one method with the same options, on the same backbone.
        base: what all of them continued from, so that it is counted once; a copy of that moment, or a saved learner.

    >>> import numpy as np, prol
    >>> images = np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8)
    >>> here, there = prol.create("slda", "tiny", device="cpu"), prol.create("slda", "tiny", device="cpu")
    >>> here.learn(images[:2], ["cat", "dog"])
    >>> there.learn(images[2:], ["owl", "cat"])
    >>> prol.merge([here, there]).classes
    ['cat', 'dog', 'owl']
    """
    if not learners:
        raise ValueError("there is nothing to merge: give at least one learner")
    shares = [share_of(learner) for learner in learners]
    ours = None if base is None else share_of(base)
    terms = [terms_of(learner, sums) for learner, sums in zip(learners, shares, strict=True)]
    plan = agree(terms, None if base is None or ours is None else terms_of(base, ours))
    leader, given = learners[plan.leader], shares[plan.leader]
    assert given is not None
    total: dict[str, Tensor] = {}
    for number, sums in enumerate(shares):
        if sums is not None:
            since = ours if number else None  # the first one brings what all of them began with
            for name in [*given.tables, *given.totals]:
                part = contribution(name, sums, terms[number].classes, plan)
                if since is not None and base is not None:
                    part -= contribution(name, since, base.classes, plan).to(part.device)
                total[name] = part if name not in total else total[name] + part.to(total[name].device)
    merged = leader.clone()
    merged.load_state(*assembled(merged, given, total, plan))
    return merged


def share_of(learner: Learner) -> Sums | None:
    """A learner's sums; None if it has seen no image, and has only class names to add."""
    counts = learner.class_counts()
    return None if counts is not None and not bool(counts.any()) else sums_of(learner)


def terms_of(learner: Learner, sums: Sums | None) -> Terms:
    counts = learner.class_counts()
    settings = {
        "method": learner.name,
        "options": dataclasses.asdict(learner.options),
        "backbone": learner.backbone.sha256,
        "precision": learner.backbone.precision,
        "preprocessing": dataclasses.asdict(learner.preprocessing),
        "prequential statistics": learner.prequential is not None,
    }
    numbers = [] if counts is None else [round(count) for count in counts.tolist()]
    if sums is None:
        return Terms(settings, list(learner.classes), numbers, {}, {}, {})
    shapes = {name: tuple(t.shape[1:]) for name, t in sums.tables.items()}
    shapes |= {name: tuple(t.shape) for name, t in sums.totals.items()}
    return Terms(settings, list(learner.classes), numbers, sums.agreed, sums.numbers, shapes, recorded(learner))


def agree(terms: Sequence[Terms], base: Terms | None = None) -> Agreement:
    """Returns how learners are merged, or raises a ValueError that says why not; the same in every process."""
    if base is not None and base.empty:
        base = None
    for one in [*terms, *([] if base is None else [base])]:
        _require_same("", terms[0].settings, one.settings, "create all of them alike")
    nonempty = [number for number, one in enumerate(terms) if not one.empty]
    if not nonempty:
        raise ValueError("none of the learners has learnt anything: there is nothing to merge")
    first = terms[nonempty[0]]
    for one in [*(terms[number] for number in nonempty[1:]), *([] if base is None else [base])]:
        _require_same("", first.agreed, one.agreed, _CURE)
        _require_same("the shape of ", first.shapes, one.shapes, "create all of them alike")
    for number, one in enumerate(terms if base is not None else []):
        assert base is not None
        _require_from_base(number, one, base)
    numbers = {
        name: sum(terms[number].numbers[name] for number in nonempty)
        - (0 if base is None else (len(nonempty) - 1) * base.numbers[name])
        for name in first.numbers
    }
    records = tuple(dict.fromkeys(record for number in nonempty for record in terms[number].records))
    return Agreement(list(dict.fromkeys(name for one in terms for name in one.classes)), nonempty[0], numbers, records)


def recorded(learner: Learner) -> tuple[Record, ...]:
    """Images recorded with improbable labels; their labels by name."""
    return () if learner.prequential is None else learner.prequential.named(learner.classes)


def contribution(name: str, sums: Sums, classes: Sequence[Label], plan: Agreement) -> Tensor:
    """One tensor of a learner with these classes, in float64 and with rows for the classes of all; a new one."""
    if name in sums.totals:
        return sums.totals[name].to(torch.float64, copy=True)
    table = sums.tables[name]
    row_of = {label: row for row, label in enumerate(plan.classes)}
    return placed(table, torch.tensor([row_of[label] for label in classes], dtype=torch.int64), len(plan.classes))


def assembled(learner: Learner, given: Sums, total: Mapping[str, Tensor], plan: Agreement) -> SavedState:
    """The merged state for `load_state`; what is not a sum is `given` by the leader."""
    tables = {name: total[name].to(tensor.dtype) for name, tensor in given.tables.items()}
    totals = {name: total[name].to(tensor.dtype) for name, tensor in given.totals.items()}
    whole = dataclasses.replace(given, tables=tables, totals=totals, numbers=plan.numbers)
    take = learner.stored.registry.merging.take
    tensors, values = whole.together(), whole.values()
    put_records(values, plan.records, plan.classes)
    tensors = tensors if take is None else take(tensors, values, len(plan.classes))
    return {**tensors, "random": learner.random.get_state()}, {"classes": plan.classes, "method": values}


def _require_same(what: str, one: Mapping[str, Any], other: Mapping[str, Any], cure: str) -> None:
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name), other.get(name)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            _require_same(f"{name} ", mine, theirs, cure)
        elif mine != theirs:
            shown = f" ({_short(mine)} and {_short(theirs)})"
            raise ValueError(f"learners cannot be merged, since they differ in {what}{name}{shown}: {cure}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:20]}..."


def _require_from_base(number: int, one: Terms, base: Terms) -> None:
    """Whether a learner continued from the base cannot be seen, but it must have all its classes and counts."""
    counts = dict(zip(one.classes, one.counts, strict=True))
    for label, count in zip(base.classes, base.counts, strict=True):
        if counts.get(label, 0) < count:
            raise ValueError(
                f"learner {number + 1} did not continue from the base: of {label!r} it has learnt "
                f"{counts.get(label, 0)} images, the base {count}; pass what all of them began with"
            )


def sums_of(learner: Learner) -> Sums:
    """A learner's state, grouped by how it is added to that of another; ValueError where it cannot be."""
    how = learner.stored.registry.merging
    for require in how.requirements:
        require()
    if not learner.additive:
        raise ValueError(
            f"{learner.name} cannot be merged: what it learns from an image depends on what it learnt before, so that "
            "two learners do not add up to one"
        )
    augment = getattr(learner.options, "augment", "none")
    if augment != "none":
        raise ValueError(f"with augment={augment} learners cannot be merged: one alone would have drawn other crops")
    sums = declared_sums(learner.stored)
    return sums if how.give is None else how.give(sums)


def declared_sums(state: State) -> Sums:
    """A state, grouped by how its entries and values merge."""
    tables, totals, alike = dict[str, Tensor](), dict[str, Tensor](), dict[str, dict[str, Tensor]]()
    for entry in state.entries():
        over = entry.grows is not None and not entry.grows()  # a table of what was needed at the beginning only
        if entry.merge == "sum" and entry.saved and not over:
            (tables if entry.combine else totals).update(entry.tensors())
        if entry.agree:
            alike.setdefault(entry.agree, {}).update(entry.tensors())
    values = state.registry.values
    numbers = {name: value.read() for name, value in values.items() if value.merge == "sum"}
    agreed = {value.agree: value.read() for value in values.values() if value.agree}
    agreed |= {words: fingerprint(found) for words, found in alike.items()}
    rest = {name: t for name, t in state.saved_tensors().items() if name not in tables and name not in totals}
    return Sums(tables, totals, numbers, agreed, (rest, state.saved_values()))


def placed(table: Tensor, rows: Tensor, classes: int) -> Tensor:
    """A table `[C, ...]` in float64 with each row where `rows` `[C]` says, zeros elsewhere: `[classes, ...]`."""
    wide = torch.zeros(classes, *table.shape[1:], device=table.device, dtype=torch.float64)
    wide[rows.to(table.device)] = table.double()
    return wide


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A hash of tensors, to find out whether two learners have the same ones."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()

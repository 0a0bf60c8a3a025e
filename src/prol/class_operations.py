"""What can be done to the classes of any learner: other names, fewer classes, fewer images."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prol.backbones.upload import upload
from prol.class_rows import ELSEWHERE, Contents, Removal, Tensors, UnknownClass, copied, with_rows_together, without_row
from prol.labels import Label, read_labels

if TYPE_CHECKING:
    from prol.learner import Learner


def rename_class(learner: Learner, old: Label, new: Label) -> None:
    """Gives a class another name."""
    row, [name] = row_of(learner, old), read_labels([new])
    if name in learner.row_of and learner.row_of[name] != row:
        raise ValueError(f"there is a class {name!r} already: merge {old!r} into it, or choose another name")
    del learner.row_of[learner.classes[row]]
    learner.classes[row] = name
    learner.row_of[name] = row


def remove_class(learner: Learner, name: Label) -> Removal:
    """Takes a class out of the learner's state."""
    row = row_of(learner, name)
    contents = _changeable(learner, row)
    tensors, meta = copied(learner.state())
    said = [contents.take_out(tensors, meta["method"], row)] if contents.take_out is not None else []
    erased = _drop(learner, tensors, meta, contents, row)
    return Removal((*erased, *said), (*contents.traces, ELSEWHERE), not contents.traces)


def merge_classes(learner: Learner, source: Label, into: Label) -> Removal:
    """Puts what was learnt of one class into another."""
    row, kept = row_of(learner, source), row_of(learner, into)
    if row == kept:
        raise ValueError(f"class {source!r} cannot be merged into itself: name another one")
    contents = _changeable(learner, row)
    if contents.merge_refusal:
        raise ValueError(contents.merge_refusal)
    tensors, meta = copied(learner.state())
    if contents.put_together is not None:
        contents.put_together(tensors, meta["method"], row, kept)
    erased = _drop(learner, with_rows_together(tensors, contents, row, kept), meta, contents, row)
    part = f"what was learnt of it is part of {into!r} now"
    return Removal(erased, (part, *contents.merged, ELSEWHERE), not contents.merged)


def unlearn(learner: Learner, images: Any, labels: Any) -> Removal:
    """Takes images out of sums that they were added to."""
    pixels, names = learner.backbone.read(images), read_labels(labels)
    if not len(pixels) or len(pixels) != len(names):
        raise ValueError(f"{len(pixels)} images and {len(names)} labels: each image needs its label, and at least one")
    rows = torch.tensor([row_of(learner, name) for name in names])
    gone = _emptied(learner, rows)
    augment = getattr(learner.options, "augment", "none")
    if learner.additive and augment != "none":
        raise ValueError(
            f"with augment={augment} images cannot be unlearnt: which crop of each was learnt is not stored"
        )
    with torch.no_grad():
        encoded = learner.encoded(pixels) if learner.additive else torch.empty(0)
        traces = learner.subtract(encoded, upload(rows, learner.backbone.device))
    learner._latest.clear()
    for name in gone:
        row = row_of(learner, name)
        tensors, meta = copied(learner.state())
        _drop(learner, tensors, meta, learner.contents(row), row)
    erased = [f"the features of {len(names)} images, from every sum and count they were in"]
    erased += [f"{len(gone)} classes of which no image is left"] if gone else []
    return Removal(tuple(erased), (*traces, ELSEWHERE), not traces)


def _emptied(learner: Learner, rows: Tensor) -> list[Label]:
    """Classes of which nothing is left without images of these class rows `[B]`, as many of which must be there."""
    counted = learner.class_counts()
    if counted is None:
        return []
    gone, less = [], torch.bincount(rows, minlength=len(learner.classes)).tolist()
    for name, count, fewer in zip(learner.classes, counted.tolist(), less, strict=True):
        if fewer > count:
            raise ValueError(
                f"{count:.0f} images of {name!r} were learnt, but {fewer} are to be unlearnt: give only what was learnt"
            )
        if 0 < fewer == count:
            gone.append(name)
    return gone


def row_of(learner: Learner, name: Label) -> int:
    """The row of a class that must be known."""
    [name] = read_labels([name])
    if name in learner.row_of:
        return learner.row_of[name]
    other = str(name) if isinstance(name, int) else int(name) if re.fullmatch(r"-?[0-9]{1,18}", name) else None
    if other is not None and other in learner.row_of:
        raise UnknownClass(f"no class {name!r}, but there is {other!r}: 1 and '1' are two classes")
    raise UnknownClass(f"no class {name!r}: {len(learner.classes)} classes are known, see learner.classes")


def _changeable(learner: Learner, row: int) -> Contents:
    contents = learner.contents(row)
    if contents.refusal:
        raise ValueError(contents.refusal)
    return contents


def _drop(learner: Learner, tensors: Tensors, meta: dict[str, Any], contents: Contents, row: int) -> tuple[str, ...]:
    """Loads the state without a row; says which tensors had one."""
    kept, touched = without_row(tensors, meta["method"], contents, row)
    learner.load_state(
        kept, {"classes": [*meta["classes"][:row], *meta["classes"][row + 1 :]], "method": meta["method"]}
    )
    return ("its name", f"its rows of {', '.join(touched)}") if touched else ("its name",)

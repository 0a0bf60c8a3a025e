"""The rehearsal audit: what a learner stores, what that depends on, and whether an image can be found in it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from prol.classes import Label
from prol.learner import Amount, Learner
from prol.testing.audit_probe import Growth, Probe, measure_growth, probe
from prol.undo import MOST_BYTES, UndoRecord


@dataclass(frozen=True)
class Stored:
    """A tensor of the state: what it is, how large, and with what its size grows."""

    name: str
    kind: str
    shape: tuple[int, ...]
    bytes: int
    grows_with: Growth


@dataclass(frozen=True)
class FewImages:
    """A class of so few images that its sum nearly is one of them."""

    label: Label
    count: int


@dataclass(frozen=True)
class Audit:
    """What was found; `findings` are the same in sentences."""

    method: str
    backbone: str
    classes: int
    samples_stored: Amount
    tensors: tuple[Stored, ...]
    grow_with_samples: tuple[str, ...]
    few: tuple[FewImages, ...]
    counted: bool
    probe: Probe
    findings: tuple[str, ...]

    def keeps_no_samples(self) -> bool:
        """Whether no sample is stored, nothing grows with samples, and no single image of several was found again."""
        return not (self.samples_stored.count or self.grow_with_samples or self.probe.finds_one_of_several())


def audit_learner(learner: Learner, few: int = 5, images: int = 32) -> Audit:
    """Inspects a learner, and teaches fresh ones like it synthetic images; the learner itself is not changed.

    Args:
        learner: the one to audit.
        few: classes of fewer images are named.
        images: how many a fresh one is taught, then as many again, then as many as both together.
    """
    if few < 0 or images < 1:
        raise ValueError(f"few must be at least 0 and images at least 1, got {few} and {images}")
    contents, measured = learner.contents(), measure_growth(learner, images)
    state = learner.state()[0]
    tensors = tuple(
        Stored(name, contents.kind(name), tuple(tensor.shape), Amount.of(tensor).bytes, measured.growth(name))
        for name, tensor in state.items()
    )
    record = learner.undo_record
    tensors += tuple(
        Stored(f"undo/{name}", "undo record", tuple(tensor.shape), Amount.of(tensor).bytes, measured.growth(name))
        for name, tensor in record.tensors().items()
    )
    growing = [stored.name for stored in tensors if stored.grows_with == "samples"]
    growing += [
        name for name in measured.fourfold.tensors if measured.growth(name) == "samples" and name not in growing
    ]
    growing += ["the JSON part"] if measured.values_grow() else []
    counts = _counts(learner, state)
    small = (
        ()
        if counts is None
        else tuple(
            FewImages(name, count) for name, count in zip(learner.classes, counts, strict=True) if 0 < count < few
        )
    )
    found, stored = probe(learner), learner.footprint().samples_stored
    findings = (
        _on_samples(stored, [one for one in tensors if one.kind == "sample" and one.bytes], state),
        f"Twice and four times {images} images of the same classes were learnt: "
        + (f"{', '.join(growing)} grew with them." if growing else "nothing that is stored grew with them."),
        _on_few(small, few, counts is not None),
        *_on_probe(found),
        *_on_prequential(learner),
        _on_undo(record),
    )
    where = learner.backbone.name
    return Audit(
        learner.name,
        where,
        len(learner.classes),
        stored,
        tensors,
        tuple(growing),
        small,
        counts is not None,
        found,
        findings,
    )


def _counts(learner: Learner, state: dict[str, torch.Tensor]) -> list[int] | None:
    """Images of each class, as the learner counts them or as its state has them."""
    counted = learner.class_counts()
    found = [counted.cpu()] if counted is not None else []
    found += [
        t for name, t in state.items() if name.rpartition("/")[2] == "counts" and t.shape == (len(learner.classes),)
    ]
    return torch.stack([one.double() for one in found]).amax(0).long().tolist() if found else None


def _on_samples(stored: Amount, tensors: list[Stored], state: dict[str, torch.Tensor]) -> str:
    if stored.count:
        form = "images" if any(_holds_images(state[one.name]) for one in tensors) else "features"
        return f"It stores {stored.count:,} single samples, as {form} ({stored.bytes:,} bytes)."
    if tensors:
        return f"It has room for single samples ({', '.join(one.name for one in tensors)}), all of it empty."
    return "It stores no image, and no feature of a single image, by its own account."


def _holds_images(tensor: torch.Tensor) -> bool:
    """Whether these are bytes of three colours, `[N, 3, H, W]`."""
    return tensor.dtype == torch.uint8 and tensor.ndim == 4 and tensor.shape[1] == 3


def _on_few(small: tuple[FewImages, ...], few: int, counted: bool) -> str:
    if not counted:
        return "It does not count the images of a class, so that classes of few images cannot be named."
    if not small:
        return f"No class has fewer than {few} images."
    return (
        f"{len(small)} classes have fewer than {few} images: their sums nearly are those images. "
        f"Omit them with least_count={few} or --least-count {few}."
    )


def _on_undo(record: UndoRecord) -> str:
    if record.enabled:
        return (
            f"Undo is on: what the last chunk overwrote is in memory, {record.bytes:,} bytes with those of undo/* "
            "above. It is in no file."
        )
    size = record.size()
    holds = f"one of {size:,} bytes or more" if size <= MOST_BYTES else "none, since it would exceed 200 MB"
    return f"Undo is off: no record of the last chunk is stored. A service has {holds}, in memory and in no file."


def _on_prequential(learner: Learner) -> list[str]:
    found = learner.prequential
    if found is None:
        return []
    said = "It counts right predictions made before learning, and sums their confidence, by class and images known"
    if not found.capacity:
        return [f"{said}; no id of an image is recorded."]
    return [
        f"{said}. It records the ids of {len(found.ids):,} images of at most {found.capacity:,}, each with its label, "
        "the most probable other class, and both probabilities: enable_prequential(False) erases them."
    ]


def _on_probe(found: Probe) -> list[str]:
    if found.finds_one_of_several():
        said = ["A single image of a class of several was found again: single images are stored."]
    else:
        said = [
            "No single image of a class of several was found again. The search finds copies; it is no proof that "
            "nothing can be inferred."
        ]
    if found.finds_a_class_of_one():
        said.append(
            "The image of a class of one was found again, as it must be where classes are added up: the sum of one "
            "image is that image's feature."
        )
    return said

"""Classes of few images, whose statistics nearly are those images, left out of what is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prol.learner import Learner


def without_small_classes(learner: Learner, least_count: int) -> tuple[Learner, dict[str, Any] | None]:
    """A learner without classes of fewer than so many images, the given one where none is; and what to say of it."""
    if least_count < 0:
        raise ValueError(f"least_count must be at least 0, got {least_count}")
    if not least_count:
        return learner, None
    counts = learner.class_counts()
    if counts is None:
        raise ValueError(f"{learner.name} does not count the images of a class: save it without a least count")
    small = [name for name, count in zip(learner.classes, counts.tolist(), strict=True) if count < least_count]
    remains: dict[str, None] = {}
    if small:
        learner = learner.clone()
        for name in small:
            removal = learner.remove_class(name)
            remains |= {} if removal.exact else dict.fromkeys(removal.remains)
    return learner, {"least_count": least_count, "classes": len(small), "remains": list(remains)}

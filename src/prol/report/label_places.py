"""Names beside points, so that none covers another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import cos, pi, sin

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""

_RINGS = (8.0, 13.0, 20.0, 30.0, 42.0, 56.0, 72.0, 90.0, 110.0, 132.0, 156.0)
_ANGLES = sorted((step * pi / 8 for step in range(16)), key=lambda angle: round(abs(sin(angle)), 6))
"""Right and left before above and below: lines of text are wide and flat."""


def place_labels(points: Sequence[Point], sizes: Sequence[Point], room: Box, radius: float = 5.0) -> list[Point]:
    """The centre of each label, as near to its point as others leave room.

    Parameters
    ----------
    points
        Where the points are; a label covers none of them where that can be helped.
    sizes
        Width and height of each label, in the same unit.
    room
        Within which all labels must lie.
    radius
        Of a point.

    >>> place_labels([(50, 50)], [(20, 10)], (0, 0, 100, 100))
    [(68.0, 50.0)]
    """
    taken: list[Box] = [(x - radius, y - radius, x + radius, y + radius) for x, y in points]
    centres = []
    for point, size in zip(points, sizes, strict=True):
        candidates = [centre for centre in _around(point, size) if _within(_box(centre, size), room)]
        free = (centre for centre in candidates if not any(_overlap(_box(centre, size), box) for box in taken))
        # Where nothing is free, the nearest place that is in the picture must do.
        centre = next(free, None) or next(iter(candidates), point)
        taken.append(_box(centre, size))
        centres.append(centre)
    return centres


def _around(point: Point, size: Point) -> Iterator[Point]:
    """Centres of a label around a point, nearest first, beginning at its right."""
    for distance in _RINGS:
        for angle in _ANGLES:
            across, up = cos(angle), sin(angle)
            yield point[0] + across * (distance + size[0] / 2), point[1] + up * (distance + size[1] / 2)


def _box(centre: Point, size: Point) -> Box:
    return (
        centre[0] - size[0] / 2,
        centre[1] - size[1] / 2,
        centre[0] + size[0] / 2,
        centre[1] + size[1] / 2,
    )


def _within(box: Box, room: Box) -> bool:
    return box[0] >= room[0] and box[1] >= room[1] and box[2] <= room[2] and box[3] <= room[3]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]

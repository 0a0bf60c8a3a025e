"""Views of small images: random ones, rotations, mirrored halves and mixtures of two.

Everything random of a view is one row of numbers, drawn on the host before the step: so a step has fixed shapes, and
its draws are the same on every device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.resampling import filter_weights, random_boxes, resample

_GREY = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class ViewKind:
    """How a view is drawn.

    Args:
        least_area: of a resized crop, as a share of the image; None for no such crop.
        padding: by how many black pixels the image is shifted at most, along each side.
        flip: how often it is mirrored.
        jitter: how far brightness, contrast, saturation and hue may change, in this order.
        jitter_chance: how often they do.
        grey: how often all colour is removed.
    """

    least_area: float | None = None
    padding: int = 0
    flip: float = 0.5
    jitter: tuple[float, float, float, float] | None = None
    jitter_chance: float = 0.8
    grey: float = 0.0


FULL = ViewKind(least_area=0.2, jitter=(0.4, 0.4, 0.4, 0.1), grey=0.2)
PARTIAL = ViewKind(padding=4)
CROP_GREY = ViewKind(least_area=0.3, grey=0.25)
"""The pair of an image in OCM's and OnPro's contrast."""
LARGE_CROP_GREY = ViewKind(least_area=0.6, flip=0.0, grey=0.2)
"""GSA's."""

_ROWS, _COLUMNS, _MIRRORED, _JITTER, _JITTERED, _GREYED = slice(0, 2), slice(2, 4), 4, slice(5, 9), 9, 10
NUMBERS = 11
"""Numbers of one view: start and length along rows and columns, mirrored, four factors, jittered, greyed."""


def draw_views(kind: ViewKind, count: int, size: int, random: torch.Generator) -> Tensor:
    """What is random of `count` views of images with sides of `size`: `[count, NUMBERS]`, on the host."""
    drawn = torch.zeros(count, NUMBERS, dtype=torch.float64)
    drawn[:, 1] = drawn[:, 3] = size
    if kind.least_area is not None:
        sides = torch.full((count, 2), float(size), dtype=torch.float64)
        drawn[:, :4] = random_boxes(sides, random, kind.least_area).flatten(1)
    if kind.padding:
        shifts = torch.randint(-kind.padding, kind.padding + 1, (count, 2), generator=random)
        drawn[:, [0, 2]] += shifts
    chances = torch.rand(count, 3, generator=random, dtype=torch.float64)
    drawn[:, _MIRRORED] = (chances[:, 0] < kind.flip).double()
    if kind.jitter is not None:
        spans = torch.tensor(kind.jitter, dtype=torch.float64)
        factors = (2 * torch.rand(count, 4, generator=random, dtype=torch.float64) - 1) * spans
        drawn[:, _JITTER] = factors + torch.tensor([1.0, 1.0, 1.0, 0.0])
        drawn[:, _JITTERED] = (chances[:, 1] < kind.jitter_chance).double()
    drawn[:, _GREYED] = (chances[:, 2] < kind.grey).double()
    return drawn


def apply_views(kind: ViewKind, images: Tensor, drawn: Tensor) -> Tensor:
    """Views of `[N, 3, S, S]` with values from 0 to 1; the same shape."""
    size = images.shape[-1]
    flip = drawn[:, _MIRRORED] > 0
    if kind.least_area is not None:
        rows = filter_weights(drawn[:, _ROWS], size, size, "bilinear", crop_first=True)
        columns = filter_weights(drawn[:, _COLUMNS], size, size, "bilinear", crop_first=True, mirrored=flip)
    else:
        rows, columns = _shifted(drawn[:, 0], size, None), _shifted(drawn[:, 2], size, flip)
    views = resample(images, rows.to(images), columns.to(images))
    if kind.jitter is not None:
        changed = jittered(views, drawn[:, _JITTER].to(images))
        views = torch.where(_each(drawn[:, _JITTERED] > 0), changed, views)
    if kind.grey:
        views = torch.where(_each(drawn[:, _GREYED] > 0), greyed(views), views)
    return views


def jittered(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast, saturation and hue of `[N, 3, S, S]` changed by factors `[N, 4]`, in this order."""
    brightness, contrast, saturation, hue = (_each(factors[:, i]) for i in range(4))
    images = (images * brightness).clamp(0, 1)
    middle = greyed(images).mean((1, 2, 3), keepdim=True)
    images = (contrast * images + (1 - contrast) * middle).clamp(0, 1)
    images = (saturation * images + (1 - saturation) * greyed(images)).clamp(0, 1)
    return turned_hue(images, hue)


def greyed(images: Tensor) -> Tensor:
    """The same without colour, in three equal channels."""
    red, green, blue = images.unbind(1)
    grey = _GREY[0] * red + _GREY[1] * green + _GREY[2] * blue
    return grey.unsqueeze(1).expand_as(images)


def turned_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Hue moved on by `turn` of a full circle, `[N, 1, 1, 1]`; value and saturation stay."""
    red, green, blue = images.unbind(1)
    most, least = images.amax(1), images.amin(1)
    spread = most - least
    safe = torch.where(spread > 0, spread, 1)
    sixths = torch.where(
        most == red,
        (green - blue) / safe,
        torch.where(most == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = (sixths / 6 + turn.squeeze(1)) % 1.0
    # Each channel falls from `most` to `least` with its distance on the circle of colours.
    channels = []
    for offset in (5.0, 3.0, 1.0):
        place = (offset + 6 * hue) % 6
        fall = torch.minimum(place, 4 - place).clamp(0, 1)
        channels.append(most - spread * fall)
    return torch.stack(channels, 1)


def _shifted(start: Tensor, size: int, mirrored: Tensor | None) -> Tensor:
    """Weights `[N, S, S]` that move a line by whole pixels; what comes in from outside is black."""
    source = start.unsqueeze(1) + torch.arange(size, dtype=start.dtype, device=start.device)
    if mirrored is not None:
        source = torch.where(mirrored.unsqueeze(1), source.flip(1), source)
    return (source.unsqueeze(2) == torch.arange(size, dtype=start.dtype, device=start.device)).to(start.dtype)


def _each(values: Tensor) -> Tensor:
    """One value per image, `[N, 1, 1, 1]`."""
    return values.view(-1, 1, 1, 1)


MOST_VERSIONS = 16
"""Four rotations of the whole image, for each of four ways to rotate its halves or not."""


def versions(images: Tensor, count: int = MOST_VERSIONS) -> Tensor:
    """The first `count` rotated versions of `[N, 3, S, S]`, one after the other: `[count * N, 3, S, S]`.

    Version r turns the upper half upside down where r // 4 is 1 or 3, the lower half where it is 2 or 3, and then the
    whole image by r % 4 quarters. Version 0 is the image as it is. Each is a separate class.
    """
    middle = images.shape[2] // 2
    upper, lower = images[:, :, :middle], images[:, :, middle:]
    made = []
    for version in range(count):
        turned, quarters = divmod(version, 4)
        halves = [upper.flip((2, 3)) if turned & 1 else upper, lower.flip((2, 3)) if turned & 2 else lower]
        made.append(torch.rot90(torch.cat(halves, 2), quarters, (2, 3)))
    return torch.cat(made)


def pseudo_classes(rows: Tensor, count: int = MOST_VERSIONS) -> Tensor:
    """One number for a class row and version, `[count * N]` in the order of `versions`; rows may be negative."""
    return (rows * count + torch.arange(count, device=rows.device).unsqueeze(1)).flatten()


def halves_mirrored(images: Tensor) -> Tensor:
    """`[N, 3, S, S]` with the left and the right half mirrored left to right, each in its own place."""
    middle = images.shape[-1] // 2
    return torch.cat([images[..., :middle].flip(-1), images[..., middle:].flip(-1)], -1)


def with_halves_mirrored(images: Tensor) -> Tensor:
    """`[2 N, 3, S, S]`: the images, then each of them with its halves mirrored."""
    return torch.cat([images, halves_mirrored(images)])


@dataclass(frozen=True)
class Mixture:
    """`(1 - weight)` of one sample and `weight` of another, `[N]` each, which belongs to both of their classes."""

    slots: Tensor
    rows: Tensor
    other_slots: Tensor
    other_rows: Tensor
    weights: Tensor

    def parts(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ("slots", "rows", "other_slots", "other_rows", "weights")}

    @classmethod
    def together(cls, one: Mixture, other: Mixture) -> Mixture:
        """Both, one after the other."""
        return cls(**{name: torch.cat([part, other.parts()[name]]) for name, part in one.parts().items()})


def mixed_images(images: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """Mixtures of images with others, both `[N, 3, S, S]`, by `weights` of the first."""
    share = weights.to(images).view(-1, 1, 1, 1)
    return images + share * (others - images)


def mixed_cross_entropy(logits: Tensor, rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """The mean over samples of both classes' cross entropy, each with its share; of `[N, C]`."""
    one = F.cross_entropy(logits, rows, reduction="none")
    other = F.cross_entropy(logits, others, reduction="none")
    return one.lerp(other, weights.to(logits)).mean()


def mixed_rows(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """Class rows `[N]`; a mixture of two classes is a separate one, with a number below 0."""
    alone = -1 - torch.arange(len(rows), device=rows.device)
    return torch.where((weights > 0) & (rows != others), alone, rows)


def draw_beta(alpha: float, count: int, random: torch.Generator) -> Tensor:
    """`[count]` numbers from Beta(alpha, alpha), float64 (Jöhnk 1964)."""
    drawn = torch.empty(0, dtype=torch.float64)
    while len(drawn) < count:
        x, y = torch.rand(2, 4 * count, generator=random, dtype=torch.float64) ** (1 / alpha)
        fits = (x + y > 0) & (x + y <= 1)
        drawn = torch.cat([drawn, (x / (x + y))[fits]])
    return drawn[:count]

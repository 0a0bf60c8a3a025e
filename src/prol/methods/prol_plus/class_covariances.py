"""A covariance for each class, in few directions, and what it adds to a Gaussian that all classes share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from prol.engine.similarity import classmates
from prol.methods.closed_form.solvers import factor
from prol.state import State

SAMPLES_AT_ONCE = 64
NUMBERS_AT_ONCE = 2**24
"""Samples, or numbers of covariances, processed together, so that memory does not grow with the classes."""
DOUBT = 150
"""Samples at which a class covariance has half the weight it has with unlimited samples."""
FLOOR = 1e-4
"""Least share of the mean variance that is added to variances."""
LARGEST_LIFT = 1e6
"""Maximum that is added to a diagonal before it counts as not finite."""
ROUNDING = 1e-5
"""How far float32 moments may be off, as a share of the mean square: all that is left of near copies."""


class ClassCovariances:
    """For each class the summed products of (1, u): count, sum and second moments in one packed row.

    Of the symmetric products the lower half is stored, row by row. So its first numbers are the products of u's first
    coordinates: where classes become too many for `room` bytes, the last coordinates are dropped for all of them.
    """

    def __init__(self, state: State, width: int, room: int, dtype: torch.dtype) -> None:
        self.width, self.room, self._state = width, room, state
        self.table = state.table("products", packed_length(width), dtype=dtype, kind="statistic", initial=self._fresh)
        state.on_load(self._measure)

    def _measure(self) -> None:
        self.width = widest(self.table.buffer.shape[1])

    def _fresh(self, count: int) -> Tensor:
        fits = self._width_for(self.table.count + count)
        if fits < self.width:
            self._state.overwrites("products")
            self.width = fits
            self.table.replace(self.table.rows[:, : packed_length(fits)].clone())
        return torch.zeros(count, packed_length(self.width))

    def _width_for(self, classes: int) -> int:
        numbers = self.room // max(1, classes) // self.table.buffer.element_size()
        return min(self.width, max(1, widest(numbers)))

    def length_for(self, classes: int) -> int:
        """How many of the numbers stored now a class has, where there are so many classes."""
        return packed_length(self._width_for(classes))

    def add(self, coordinates: Tensor, rows: Tensor) -> None:
        """Adds coordinates `[B, K]`, or more than are stored, of the class rows `[B]`."""
        x = torch.cat([torch.ones_like(coordinates[:, :1]), coordinates[:, : self.width]], dim=1)
        low, high = torch.tril_indices(self.width + 1, self.width + 1, device=x.device)
        few = partial(torch.split, split_size_or_sections=SAMPLES_AT_ONCE)
        for u, of in zip(few(x.to(self.table.buffer.dtype)), few(rows), strict=True):
            mates, first = classmates(of)
            self.table.add_where(of, mates.to(u) @ (u[:, low] * u[:, high]), first)

    def terms(self, prior_weight: float, floor: float) -> ClassTerms:
        """What these covariances add to scores; see `ClassTerms`.

        To the variances of the shared covariance `floor` times their mean is added.
        """
        counts = self.table.rows[:, 0].double()
        own, every = (counts > 1).nonzero().squeeze(1), torch.arange(len(counts), device=counts.device)
        at_once = classes_at_once(self.width)
        pooled = counts.new_zeros(self.width, self.width)
        for part in torch.split(every, at_once):
            pooled += self._gaussians(part)[1].sum(0)
        pooled /= counts.sum().clamp(min=1)
        # Where samples of a class are nearly copies, what is left of the products is rounding.
        rounding = ROUNDING * self._mean_square(counts)
        pooled.diagonal().add_(max(floor, FLOOR) * pooled.diagonal().mean().clamp(min=0) + rounding)
        identity = torch.eye(self.width).to(pooled)
        whiten = torch.linalg.solve_triangular(factor(pooled, float(rounding) / ROUNDING), identity, upper=False)
        means, inverses, volumes, traces = [], [], [], []
        for part in torch.split(own, at_once):
            mean, scatter = self._gaussians(part)
            count = counts[part].view(-1, 1, 1)
            share = class_weight(count, prior_weight, self.width)
            ratio = whiten @ (scatter * (share / count)) @ whiten.T  # where the shared covariance is the identity
            factors = raised_factors((ratio + ratio.mT) / 2 + (1 - share) * identity)
            means.append((mean @ whiten.T).float())
            inverses.append(torch.linalg.solve_triangular(factors, identity, upper=False).float())
            volumes.append(factors.diagonal(dim1=1, dim2=2).log().sum(1))
            traces.append(factors.square().sum((1, 2)))
        n, volume = counts[own], torch.cat(volumes)
        divergence = (torch.cat(traces) - self.width) / 2 - volume  # of N(m, A) from N(m, P)
        offset = volume + expected_gain(divergence, class_weight(n, prior_weight, self.width), n, self.width)
        return ClassTerms(own, torch.cat(means), whiten.float(), torch.cat(inverses), offset.float())

    def _mean_square(self, counts: Tensor) -> Tensor:
        """The mean of all squared coordinates of all samples."""
        place = torch.arange(1, self.width + 1, device=counts.device)
        squares = place * (place + 3) // 2  # the packed diagonal, but for the count
        total = self.table.rows[:, squares].double().sum() / self.width
        return (total / counts.sum().clamp(min=1)).clamp(min=torch.finfo(torch.float32).tiny)

    def _gaussians(self, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Means `[R, K]` and scatter about them `[R, K, K]` of classes `[R]`."""
        square = unpacked_products(self.table.rows[classes].double(), self.width)
        counts = square[:, 0, 0].clamp(min=1)
        means = square[:, 1:, 0] / counts.unsqueeze(1)
        return means, square[:, 1:, 1:] - counts.view(-1, 1, 1) * means.unsqueeze(2) * means.unsqueeze(1)


@dataclass(frozen=True)
class ClassTerms:
    """log N(u; m, A) - log N(u; m, P) for each class with its own covariance A, P being that which all share,
    less what a class of as many samples may expect of this difference, so that it does not win by being known well.

    By the chain rule this turns a score log N(x; μ, Σ), whose Σ is shared, into that of a Gaussian whose part u has the
    covariance A, while the rest given u is as before. `classes` `[R]`, `means` `[R, K]` and `inverses` `[R, K, K]`
    (of A's Cholesky factor) are in coordinates in which P is the identity: `whiten` `[K, K]` leads there. `offsets`
    `[R]` are half of A's logarithmic determinant and what is expected.
    """

    classes: Tensor
    means: Tensor
    whiten: Tensor
    inverses: Tensor
    offsets: Tensor

    def add_to(self, scores: Tensor, coordinates: Tensor) -> None:
        """Adds the terms for coordinates `[B, K]`, or more than are stored, to scores `[B, C]` in place."""
        z = coordinates[:, : len(self.whiten)].float() @ self.whiten.T
        # A graph that is being exported holds for any number of samples: none may decide what it looks like.
        samples = 0 if torch.compiler.is_compiling() else len(z)
        at_once = classes_at_once(max(len(self.whiten), samples))
        for start in range(0, len(self.classes), at_once):
            part = slice(start, start + at_once)
            apart = (z.unsqueeze(0) - self.means[part].unsqueeze(1)).transpose(1, 2)  # [R, K, B]
            own, shared = (self.inverses[part] @ apart).square().sum(1), apart.square().sum(1)
            terms = (shared - own) / 2 - self.offsets[part].unsqueeze(1)
            scores[:, self.classes[part]] += terms.T.to(scores)


def class_weight(counts: Tensor, prior_weight: float, width: int) -> Tensor:
    """Weight of the covariance of a class of n samples: n / (n + prior_weight K) n / (n + DOUBT).

    The first factor makes it likely; the second is there since in small classes the likelier covariance decides worse.
    """
    return counts / (counts + prior_weight * width) * counts / (counts + DOUBT)


def expected_gain(divergence: Tensor, shares: Tensor, counts: Tensor, width: int) -> Tensor:
    """By how much class covariances should raise the score of a class's own samples, from their number alone, `[R]`.

    With the sample covariance S in coordinates where all classes together have the identity, A = aS + (1 - a)I. For S
    near I, the divergence of A from I is a²|S - I|²/4, of which noise makes up K²/n, the rest q being how classes
    differ: one number for all of them. The gain is a q/2 - a² (q + K²/n)/4 then.
    """
    noise = width**2 / counts
    weight = counts * shares.square()
    differ = ((4 * divergence - shares.square() * noise) * counts).sum() / weight.sum().clamp(min=1e-300)
    differ = differ.clamp(min=0)
    return (shares / 2 * differ - shares.square() / 4 * (differ + noise)).clamp(min=0)


def classes_at_once(width: int) -> int:
    """For how many classes square matrices of this width are processed together."""
    return max(1, NUMBERS_AT_ONCE // max(1, width * width))


def raised_factors(matrices: Tensor) -> Tensor:
    """Lower Cholesky factors of symmetric matrices `[R, K, K]` of the size of the identity.

    Where rounding has taken one below zero, as with thousands of copies, its diagonal is raised until there is one.
    """
    factors: Tensor
    factors, failed = torch.linalg.cholesky_ex(matrices)
    lift = 1e-6
    while bool(failed.any()):
        if lift > LARGEST_LIFT:
            raise ValueError("the statistics of a class are not finite: look for images with NaN or infinite features")
        matrices = matrices + (failed > 0).view(-1, 1, 1) * lift * torch.eye(matrices.shape[1]).to(matrices)
        factors, failed = torch.linalg.cholesky_ex(matrices)
        lift *= 10
    return factors


def packed_length(width: int) -> int:
    """Numbers in the lower half of the products of (1, u), u having this width."""
    return (width + 1) * (width + 2) // 2


def unpacked_products(rows: Tensor, width: int) -> Tensor:
    """Packed lower halves `[C, ...]` as symmetric matrices `[C, 1 + width, 1 + width]`."""
    side = width + 1
    low, high = torch.tril_indices(side, side, device=rows.device)
    square = rows.new_zeros(len(rows), side, side)
    square[:, low, high] = rows
    square[:, high, low] = rows
    return square


def widest(numbers: int) -> int:
    """The largest width whose packed products are no more than so many numbers; at least 0."""
    width = max(0, int((2 * max(0, numbers)) ** 0.5))
    while width > 0 and packed_length(width) > numbers:
        width -= 1
    return width

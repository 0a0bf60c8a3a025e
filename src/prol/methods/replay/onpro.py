"""OnPro: a contrast between means of classes besides that between images, and mixtures of classes easily confused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.replay.contrast import Contrast, ContrastOptions, Seen
from prol.methods.replay.learner import Drawn, Losses, Payload, ReplayLearner, summed
from prol.methods.replay.views import (
    CROP_GREY,
    Mixture,
    apply_views,
    draw_beta,
    mixed_cross_entropy,
    mixed_images,
    mixed_rows,
)
from prol.options import Positive, Range, Share, Whole
from prol.state import State

LEAST_DISTANCE = 1e-3
"""Means that coincide would make 1 / distance infinite."""
UNKNOWN_DISTANCE = 2.0
"""The largest distance of unit vectors: a class that is not known is not close."""


@dataclass(frozen=True)
class OnProOptions(ContrastOptions):
    """Options of OnPro."""

    scale: Positive = 1.0
    """What the similarity of two images is multiplied with; 0.5 where there are ten classes in all."""
    prototype_temperature: Positive = 0.5
    """What similarities of class means are divided by."""
    close_pairs: Whole = 7
    """How many of the memory's images in a step are mixtures of classes whose means are close; 0 for none."""
    close_beta: Annotated[float, Range(least=0.01, most=5)] = 0.4
    """Both parameters of the Beta distribution from which the weights of these mixtures are drawn."""
    mix_chance: Share = 0.2
    """How often another image of the memory is mixed with a newly drawn one."""
    mix_most: Share = 0.6
    """Largest weight of the other image in such a mixture; it is drawn uniformly from 0 to this."""


class OnPro(ReplayLearner):
    """Chunk and memory are contrasted by image and by class; labels are learnt from the memory after the first task."""

    name: ClassVar[str] = "onpro"
    citation: ClassVar[str] = "Wei et al., Online Prototype Learning for Online Continual Learning, ICCV 2023"
    uses_tasks: ClassVar[bool] = True
    Options: ClassVar[type] = OnProOptions
    options: OnProOptions

    def build(self, state: State) -> None:
        self.contrast = Contrast(self, self.options)
        self.train_network(state, {"projector": self.contrast.projector})
        self.means = state.table(
            "means", self.contrast.width, dtype=self.backbone.dtype, kind="statistic", combine="mean"
        )

    # What a step draws.

    def draw(self, rows: Tensor) -> Drawn:
        drawn = self.contrast.draw(rows)
        if not len(self.memory):
            return drawn | {"views": self.contrast.draw_views(len(rows))}
        share = self.contrast.memory_share(rows)
        memory = self._draw_mixed(share) if self._mixes(share) else self.draw_memory(share)
        count = len(memory["slots"]) + len(memory.get("close_weights", ()))
        mixed = self.draw_memory(share)
        drawn |= memory | {"memory_turned": self.contrast.draw_turned(count)}
        drawn |= {"mean_slots": mixed["slots"], "mean_rows": mixed["memory_rows"]}
        drawn["mean_views"] = self.contrast.draw_views(len(mixed["slots"]))
        return drawn | {"views": self.contrast.draw_views(count if self.clock.first_row else len(rows))}

    def _mixes(self, share: int) -> bool:
        """Whether the memory's images are mixed: from the second chunk of a later task on, where there are enough."""
        pairs, known = self.options.close_pairs, self.memory.rows_in(torch.arange(len(self.memory)))
        later = self.clock.first_row > 0 and self.clock.steps > 0
        return later and 0 < pairs < min(share, len(self.memory)) and bool((known != known[0]).any())

    def _draw_mixed(self, share: int) -> Drawn:
        """So many images less those to come from close classes; for those, a sample of every class for each."""
        o, pairs = self.options, self.options.close_pairs
        drawn = self.draw_memory(min(share, len(self.memory)) - pairs)
        count = len(drawn["slots"])
        partner = torch.randperm(count, generator=self.random)
        chance, weight = torch.rand(2, count, generator=self.random, dtype=torch.float64)
        drawn |= {"other_slots": drawn["slots"][partner], "other_rows": drawn["memory_rows"][partner]}
        drawn["weights"] = torch.where(chance < o.mix_chance, o.mix_most * weight, 0)
        samples, there = self._draw_of_each(2 * pairs)
        drawn |= {"close_slots": samples, "close_rows": self.memory.rows_in(samples), "there": there}
        drawn["close_choices"] = torch.rand(pairs, 2, generator=self.random, dtype=torch.float64)
        return drawn | {"close_weights": draw_beta(o.close_beta, pairs, self.random)}

    def _draw_of_each(self, count: int) -> tuple[Tensor, Tensor]:
        """Slots `[C, count]` of samples of each class, and which classes are in the memory, bool `[C]`.

        Those of a class that is not are of any other.
        """
        rows = self.memory.rows_in(torch.arange(len(self.memory)))
        order = rows.argsort(stable=True)
        counts = torch.bincount(rows, minlength=len(self.classes))
        there = counts > 0
        first = torch.where(there, counts.cumsum(0) - counts, 0).unsqueeze(1)
        room = torch.where(there, counts, len(rows)).unsqueeze(1)
        numbers = torch.rand(len(counts), count, generator=self.random, dtype=torch.float64)
        return order[first + (numbers * room).long()], there

    # Its losses.

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        seen = self.contrast.see(images, rows, drawn["turned"], drawn["columns"])
        values = {"new": self.contrast.of_chunk(seen, self.options.scale), "means": self._chunk_means(seen, rows)}
        means = None
        if "slots" in drawn:
            mixture = self._mixture(drawn)
            recalled = mixed_images(self.recalled(mixture.slots), self.recalled(mixture.other_slots), mixture.weights)
            own = mixed_rows(mixture.rows, mixture.other_rows, mixture.weights)
            again = self.contrast.see(recalled, own, drawn["memory_turned"], drawn["columns"])
            values["all"] = self.contrast.of_memory(again, self.options.scale)
            values["memory_means"], means = self._memory_means(drawn)
        if "slots" in drawn and self.clock.first_row:
            logits = self.contrast.viewed_logits(recalled, drawn)
            values["labels"] = mixed_cross_entropy(logits, mixture.rows, mixture.other_rows, mixture.weights)
        else:
            values["labels"] = F.cross_entropy(self.contrast.viewed_logits(images, drawn), rows)
        values = summed(values)
        if means is not None:
            self._store_means(*means, values["total"].detach().isfinite())
        return values, {}

    def _mixture(self, drawn: Drawn) -> Mixture:
        """The memory's images in this step, mixed where that was drawn."""
        slots, rows = drawn["slots"], drawn["memory_rows"]
        if "weights" not in drawn:
            return Mixture(slots, rows, slots, rows, torch.zeros_like(slots, dtype=self.backbone.dtype))
        plain = Mixture(slots, rows, drawn["other_slots"], drawn["other_rows"], drawn["weights"])
        one, other = chosen_pairs(pair_chances(self.means.rows, drawn["there"]), drawn["close_choices"])
        which = torch.arange(len(one), device=one.device)
        at, other_at = (one, 2 * which), (other, 2 * which + 1)
        slots, rows = drawn["close_slots"], drawn["close_rows"]
        close = Mixture(slots[at], rows[at], slots[other_at], rows[other_at], drawn["close_weights"])
        return Mixture.together(plain, close)

    def _chunk_means(self, seen: Seen, rows: Tensor) -> Tensor:
        """The contrast of class means in the chunk as it is and in its views."""
        half = len(seen.plain)
        plain, viewed = seen.projections[: len(rows)], seen.projections[half : half + len(rows)]
        return self._means_of(plain, viewed, rows)[0]

    def _memory_means(self, drawn: Drawn) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The same for a separate draw from the memory, which is not mixed; and the means to be stored."""
        images, rows = self.recalled(drawn["mean_slots"]), drawn["mean_rows"]
        both = torch.cat([images, apply_views(CROP_GREY, images, drawn["mean_views"])])
        projections = self.contrast.projected(self.features(both))
        return self._means_of(projections[: len(rows)], projections[len(rows) :], rows)

    def _means_of(self, plain: Tensor, viewed: Tensor, rows: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        classes = self.means.count
        one, there = class_means(plain, rows, classes)
        other, _ = class_means(viewed, rows, classes)
        loss = prototype_contrast(one, other, there, self.options.prototype_temperature)
        return loss, ((one + other).detach() / 2, there)

    def _store_means(self, means: Tensor, there: Tensor, valid: Tensor) -> None:
        """Stores the means of classes that were in the draw; a step that is not valid stores none."""
        self.means.rows.copy_(torch.where((there & valid).unsqueeze(1), means, self.means.rows))


def class_means(projections: Tensor, rows: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Unit means `[C, d]` of the unit projections `[N, d]` of each class, and which classes are there, bool `[C]`."""
    member = rows == torch.arange(classes, device=rows.device).unsqueeze(1)
    counts = member.sum(1, keepdim=True)
    means = member.to(projections) @ projections / counts.clamp(min=1)
    return F.normalize(means), counts.squeeze(1) > 0


def prototype_contrast(plain: Tensor, viewed: Tensor, there: Tensor, temperature: float) -> Tensor:
    """InfoNCE over the means of K classes in two views, each `[C, d]`; only those `there`, bool `[C]`, take part.

    A mean is to be closest to that of its class in the other view; it is not compared with itself. The mean over 2 K.
    """
    means, taking_part = torch.cat([plain, viewed]), torch.cat([there, there])
    itself = torch.eye(len(means), dtype=torch.bool, device=means.device)
    similarity = (means @ means.T / temperature).masked_fill(itself | ~taking_part, -torch.inf)
    # Rows without any other mean would be NaN: they are of classes that take no part.
    similarity = torch.where(taking_part.unsqueeze(1), similarity, 0)
    chances = F.log_softmax(similarity, 1)
    positive = torch.cat([chances.diagonal(len(plain)), chances.diagonal(-len(plain))])
    return -torch.where(taking_part, positive, 0).sum() / taking_part.sum().clamp(min=1)


def pair_chances(means: Tensor, there: Tensor) -> Tensor:
    """How often two different classes are taken as a pair, `[C, C]`: softmax over pairs of 1 / distance.

    Args:
        means: of each class, `[C, d]`; zero where none is known.
        there: the classes to choose from, bool `[C]`, two at least.
    """
    means = means.double()
    known = (means != 0).any(1)
    # From differences and not from products: of means that are nearly the same little would be left.
    distances = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    distances = torch.where(known.unsqueeze(1) & known, distances, UNKNOWN_DISTANCE).clamp(min=LEAST_DISTANCE)
    itself = torch.eye(len(means), dtype=torch.bool, device=means.device)
    allowed = there.unsqueeze(1) & there & ~itself
    closeness = torch.where(allowed, 1 / distances, -torch.inf)
    return closeness.flatten().softmax(0).view_as(closeness)


def chosen_pairs(chances: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Classes `[n]` and `[n]` of pairs with chances `[C, C]`, from uniform numbers `[n, 2]` from 0 to 1."""
    first = _chosen(chances.sum(1).expand(len(numbers), -1), numbers[:, 0])
    return first, _chosen(chances[first], numbers[:, 1])


def _chosen(chances: Tensor, numbers: Tensor) -> Tensor:
    """A place `[n]` in each row of `[n, C]`, whose sums need not be 1, from uniform numbers `[n]`."""
    # As a product: sums taken step by step have no fixed order on a GPU.
    ahead = chances @ torch.ones(chances.shape[1], chances.shape[1], dtype=chances.dtype, device=chances.device).triu()
    passed = ahead <= (numbers * ahead[:, -1]).unsqueeze(1)
    return passed.sum(1).clamp(max=chances.shape[1] - 1)

"""ESRM: a memory that stores what the network is least sure of, and groups of samples contrasted by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.engine.similarity import unit
from prol.methods.replay.contrast import drawn_projector
from prol.methods.replay.learner import Drawn, Losses, Payload, ReplayLearner, ReplayOptions, summed
from prol.methods.replay.sample_memory import EMPTY, Insertion
from prol.methods.replay.views import FULL, apply_views, draw_views
from prol.options import Count, NotNegative
from prol.state import State

SOFTENING = 4.0
"""Temperature of both predictions that are to agree."""
TEMPERATURE = 0.07
"""Temperature of the contrast."""


@dataclass(frozen=True)
class ESRMOptions(ReplayOptions):
    """Options of ESRM."""

    contrast: NotNegative = 0.5
    """Weight of the contrast between groups."""
    projection: Count = 128
    """How many numbers a feature is projected to."""
    detach_clean: bool = False
    """Whether the prediction of the plain image is only a target for that of its view, and gets no gradient."""


class ESRM(ReplayLearner):
    """Chunk and memory, plain and as views, are to agree; unsure and sure, new and stored are contrasted.

    Of each sample the entropy of its prediction is stored, as the network in evaluation saw it before the step that it
    came with, and again whenever a task begins. The sample replaced is the surest of the class that would lose one.
    """

    name: ClassVar[str] = "esrm"
    citation: ClassVar[str] = (
        "Wang et al., Dealing with Synthetic Data Contamination in Online Continual Learning, NeurIPS 2024"
    )
    uses_tasks: ClassVar[bool] = True
    Options: ClassVar[type] = ESRMOptions
    options: ESRMOptions

    def build(self, state: State) -> None:
        b, o = self.backbone, self.options
        projector = drawn_projector(b.width, o.projection, self.seed, b.device, b.dtype)
        self.train_network(state, {"projector": projector})
        self.memory.add_payload("entropy", b.dtype)

    def draw(self, rows: Tensor) -> Drawn:
        drawn = self.draw_memory()
        count = len(rows) + len(drawn["slots"])
        return drawn | {"views": draw_views(FULL, count, self.size, self.random)}

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        o = self.options
        entropy = self._entropy(images)
        together = torch.cat([images, self.recalled(drawn["slots"])])
        classes = torch.cat([rows, drawn["memory_rows"]])
        viewed = self.logits(self.features(apply_views(FULL, together, drawn["views"])))
        features = self.features(together)
        clean = self.logits(features)
        teacher = clean.detach() if o.detach_clean else clean
        values = {
            "views": F.cross_entropy(viewed, classes),
            "clean": F.cross_entropy(clean, classes),
            "agreement": softened_divergence(viewed, teacher, SOFTENING),
        }
        projected = unit(self.extras["projector"](features))
        values["contrast"] = o.contrast * group_contrast(projected, classes, above_median(entropy))
        return summed(values), {"entropy": entropy}

    @torch.no_grad()
    def _entropy(self, images: Tensor) -> Tensor:
        """The entropy `[B]` of predictions for `[B, 3, S, S]` in evaluation mode; running statistics stay."""
        return prediction_entropy(self.logits(self.features(images, "eval")))

    def planned(self, insertion: Insertion) -> Drawn:
        return {"new_slots": insertion.named}

    def store(self, chunk: Tensor, rows: Tensor, drawn: Drawn, payload: Payload, valid: Tensor) -> None:
        entropy = payload["entropy"]
        there = self.memory.rows[: self.memory.capacity]
        written, source = surest_replaced(self.memory.payload["entropy"], there, drawn["new_slots"], rows, entropy)
        self.memory.move(written, source, rows, chunk, payload, valid)

    @torch.no_grad()
    def end_task(self) -> None:
        """The entropy of all that is stored, as the network sees it now."""
        self.stored.overwrites("memory/entropy")
        for start in range(0, len(self.memory), self.predict_batch):
            slots = torch.arange(start, min(start + self.predict_batch, len(self.memory)), device=self.backbone.device)
            self.memory.payload["entropy"][slots] = self._entropy(self.recalled(slots))


def group_contrast(projected: Tensor, rows: Tensor, unsure: Tensor) -> Tensor:
    """Contrast between unsure and sure samples of the chunk, and between chunk and memory, each in both directions.

    Args:
        projected: unit vectors `[B + n, D]`, the chunk's first.
        rows: their class rows `[B + n]`.
        unsure: which of the chunk are, bool `[B]`.
    """
    count = len(unsure)
    new, stored = projected[:count], projected[count:]
    same = rows.unsqueeze(1) == rows
    among = same[:count, :count]
    total = cross_contrast(new, new, among, unsure, ~unsure) + cross_contrast(new, new, among, ~unsure, unsure)
    if len(stored):
        all_new, all_stored = torch.ones_like(unsure), torch.ones_like(rows[count:], dtype=torch.bool)
        across = same[:count, count:]
        total = total + cross_contrast(new, stored, across, all_new, all_stored)
        total = total + cross_contrast(stored, new, across.T, all_stored, all_new)
    return total


def cross_contrast(a: Tensor, b: Tensor, same: Tensor, in_a: Tensor, in_b: Tensor) -> Tensor:
    """How little each sample of one group picks those of its class out of the other; 0 where a group is empty.

    The mean over all pairs of -log softmax_j(a_i·b_j / temperature), pairs of different classes adding nothing. Groups
    are masks, so that their sizes may vary in a step of fixed shape.

    Args:
        a: unit vectors `[N, D]`, of which `in_a`, bool `[N]`, says which belong to the group.
        b: unit vectors `[M, D]`, with `in_b` `[M]`.
        same: whether two are of one class, bool `[N, M]`.
    """
    scores = a @ b.T / TEMPERATURE
    # The least number and not -inf: where `b` is empty, the row stays finite, and so does its gradient.
    log_p = scores.masked_fill(~in_b, torch.finfo(scores.dtype).min).log_softmax(1)
    counts = same & in_a.unsqueeze(1) & in_b
    pairs = (in_a.sum() * in_b.sum()).clamp(min=1)
    return -torch.where(counts, log_p, 0).sum() / pairs


def softened_divergence(logits: Tensor, others: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(logits / T) || softmax(others / T)) of `[B, C]`, the mean over samples."""
    log_p, log_q = (logits / temperature).log_softmax(1), (others / temperature).log_softmax(1)
    return temperature**2 * (log_p.exp() * (log_p - log_q)).sum(1).mean()


def prediction_entropy(logits: Tensor) -> Tensor:
    """`[B]`, of the softmax of `[B, C]`, in nats."""
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def above_median(values: Tensor) -> Tensor:
    """Which of `[B]` are above their median, bool; of an even number the lower middle one counts as the median."""
    return values > values.sort().values[(len(values) - 1) // 2]


def surest_replaced(
    entropy: Tensor, stored_rows: Tensor, slots: Tensor, rows: Tensor, new_entropy: Tensor
) -> tuple[Tensor, Tensor]:
    """Where samples go when each new one replaces the surest of a class.

    A new sample is given a slot, but what has to go is the sample of least entropy of the class that lies there: what
    lay in the slot moves to that one's place. So each slot holds the class that it would hold anyway. Samples come one
    after the other, each finding what the ones before have left.

    Args:
        entropy: of the samples in slots, `[capacity + 1]`; the last slot takes what is not stored.
        stored_rows: their class rows `[capacity]`, EMPTY where there is none.
        slots: given to new samples, `[B]`; `capacity` for those not stored.
        rows: class rows of new samples `[B]`.
        new_entropy: theirs, `[B]`.

    Returns:
        Slots `[2 B]` that are to be written, and what goes there `[2 B]`: a slot as it was before, or
        `capacity + 1 + i` for new sample i. A slot that comes twice gets the same both times.
    """
    capacity = len(stored_rows)
    there, unsure = torch.cat([stored_rows, rows.new_full((1,), EMPTY)]), entropy.clone()
    holds = torch.arange(capacity + 1, device=entropy.device)
    left: list[Tensor] = []
    for i in range(len(slots)):
        slot = slots[i : i + 1]
        row = there[slot]
        member = there[:capacity] == row
        surest = torch.where(member, unsure[:capacity], torch.inf).argmin(keepdim=True)
        left.append(torch.where((row == EMPTY) | (slot == capacity), slot, surest))
        for table in (holds, unsure):
            table.index_copy_(0, left[-1], table[slot])
        holds.index_copy_(0, slot, torch.full_like(slot, capacity + 1 + i))
        unsure.index_copy_(0, slot, new_entropy[i : i + 1].to(unsure))
        there.index_copy_(0, slot, rows[i : i + 1])
    written = torch.cat([*left, slots])
    return written, holds[written]

"""OnPro: a contrast between means of classes besides that between images, and mixtures of classes easily confused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import Backbone
from prol.class_rows import Contents
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.replay.contrastive import ContrastLearner, ContrastOptions, Seen
from prol.methods.replay.learner import Drawn
from prol.methods.replay.mixup import Mixture, draw_beta, mixed_cross_entropy, mixed_images, mixed_rows
from prol.methods.replay.prototype_contrast import chosen_pairs, class_means, pair_chances, prototype_contrast
from prol.methods.replay.views import CROP_GREY, apply_views
from prol.parts.rows import RowTable


@dataclass(frozen=True)
class OnProOptions(ContrastOptions):
    """Dials of OnPro."""

    scale: float = 1.0
    """What the likeness of two images is multiplied with; 0.5 where there are ten classes in all."""
    prototype_temperature: float = 0.5
    close_pairs: int = 7
    """Of the memory's images in a step, how many are mixtures of classes whose means are close; 0 for no mixtures."""
    close_beta: float = 0.4
    """Their weights are drawn from Beta with this number twice."""
    mix_chance: float = 0.2
    """How often another image of the memory is mixed with one drawn anew."""
    mix_most: float = 0.6
    """Its weight is drawn evenly from 0 to this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scale", "prototype_temperature", "close_beta"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number above 0, got {getattr(self, name)}")
        for name in ("mix_chance", "mix_most"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {getattr(self, name)}")
        if self.close_pairs < 0:
            raise ValueError(f"close_pairs must be at least 0, got {self.close_pairs}")


class OnPro(ContrastLearner):
    """Chunk and memory are contrasted by image and by class; labels are learnt from the memory after the first task."""

    name: ClassVar[str] = "onpro"
    citation: ClassVar[str] = "Wei et al., Online Prototype Learning for Online Continual Learning, ICCV 2023"
    Options: ClassVar[type] = OnProOptions
    options: OnProOptions

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.means = RowTable((self._projection_width(),), self.backbone.device, self.backbone.dtype)

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.means.append(torch.zeros(len(names), self._projection_width()))

    # What a step draws.

    def _draw(self, rows: Tensor) -> Drawn:
        turned = self.options.rotations
        drawn = {"columns": self._draw_columns(), "turned": self._draw_views(turned * len(rows))}
        if not len(self.memory):
            return drawn | {"views": self._draw_views(len(rows))}
        share = self._memory_share(rows)
        memory = self._draw_mixed(share) if self._mixes(share) else self._draw_memory(share)
        count = len(memory["slots"]) + len(memory.get("close_weights", ()))
        met = self._draw_memory(share)
        drawn |= memory | {"memory_turned": self._draw_views(turned * count)}
        drawn |= {"mean_slots": met["slots"], "mean_rows": met["memory_rows"]}
        drawn["mean_views"] = self._draw_views(len(met["slots"]))
        return drawn | {"views": self._draw_views(count if self.clock.first_row else len(rows))}

    def _mixes(self, share: int) -> bool:
        """Whether the memory's images are mixed: from the second chunk of a later task on, where there are enough."""
        pairs, known = self.options.close_pairs, self.memory.rows_in(torch.arange(len(self.memory)))
        later = self.clock.first_row > 0 and self.clock.steps > 0
        return later and 0 < pairs < min(share, len(self.memory)) and bool((known != known[0]).any())

    def _draw_mixed(self, share: int) -> Drawn:
        """So many images less those to come from close classes; for those, a sample of every class for each."""
        o, pairs = self.options, self.options.close_pairs
        drawn = self._draw_memory(min(share, len(self.memory)) - pairs)
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

    # What it goes down on.

    def _losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        seen = self._seen_turned(images, rows, drawn["turned"], drawn["columns"])
        values = {"new": self._new_contrast(seen, self.options.scale), "means": self._chunk_means(seen, rows)}
        means = None
        if "slots" in drawn:
            mixture = self._mixture(drawn)
            recalled = mixed_images(self._recalled(mixture.slots), self._recalled(mixture.other_slots), mixture.weights)
            own = mixed_rows(mixture.rows, mixture.other_rows, mixture.weights)
            again = self._seen_turned(recalled, own, drawn["memory_turned"], drawn["columns"])
            values["all"] = self._all_contrast(again, self.options.scale)
            values["memory_means"], means = self._memory_means(drawn)
        if "slots" in drawn and self.clock.first_row:
            logits = self._viewed_logits(recalled, drawn)
            values["labels"] = mixed_cross_entropy(logits, mixture.rows, mixture.other_rows, mixture.weights)
        else:
            values["labels"] = F.cross_entropy(self._viewed_logits(images, drawn), rows)
        total = torch.stack(list(values.values())).sum()
        if means is not None:
            self._keep_means(*means, total.detach().isfinite())
        return values | {"total": total}, {}

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
        """The same for a draw of the memory of its own, which is not mixed; and the means to be kept."""
        images, rows = self._recalled(drawn["mean_slots"]), drawn["mean_rows"]
        both = torch.cat([images, apply_views(CROP_GREY, images, drawn["mean_views"])])
        projections = self._projected(self._features(both))
        return self._means_of(projections[: len(rows)], projections[len(rows) :], rows)

    def _means_of(self, plain: Tensor, viewed: Tensor, rows: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        classes = self.means.count
        one, there = class_means(plain, rows, classes)
        other, _ = class_means(viewed, rows, classes)
        loss = prototype_contrast(one, other, there, self.options.prototype_temperature)
        return loss, ((one + other).detach() / 2, there)

    def _keep_means(self, means: Tensor, there: Tensor, valid: Tensor) -> None:
        """Of classes that were in the draw; a step that is not valid moves none."""
        self.means.rows.copy_(torch.where((there & valid).unsqueeze(1), means, self.means.rows))

    # What it keeps.

    def footprint(self) -> Footprint:
        plain = super().footprint()
        own, others = Amount.of(self.means.rows), plain.statistics_stored
        return replace(plain, statistics_stored=Amount(own.count + others.count, own.bytes + others.bytes))

    def contents(self, row: int | None = None) -> Contents:
        plain = super().contents(row)
        return replace(plain, tables={**plain.tables, "means": "mean"}, statistics=(*plain.statistics, "means"))

    def _state(self) -> State:
        tensors, meta = super()._state()
        return tensors | {"means": self.means.rows}, meta

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        super()._load_state(tensors, meta)
        self.means.replace(tensors["means"])

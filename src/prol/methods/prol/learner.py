"""PROL: prompt online learning."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones.acceleration import Captured
from prol.backbones.base import Pixels
from prol.backbones.blocks import Transformer
from prol.classes import Combine, Label
from prol.engine.adam import Adam
from prol.engine.similarity import cosine_to_all
from prol.engine.step import MakeStaged
from prol.methods.gradient import GradientLearner, clipped_gradients
from prol.methods.prol.network import PromptedNetwork
from prol.methods.prol.options import PROLOptions, read_prol_options
from prol.state import State
from prol.tables import Amount

_BY_CLASS: Mapping[str, Combine] = dict.fromkeys(("keys", "scaler", "shifter", "head.weight", "head.bias"), "keep")
"""Trained parts with one row per class."""


class HardSoft:
    """Each task starts hard. Once the cross entropy of a chunk falls below `threshold` it turns soft until `restart`.

    With m steps taken in soft mode a rate is eta_min + (base - eta_min) (1 + cos(pi m / t_max)) / 2, which is periodic.
    Mode and count are on the device: a decision does not wait for it. Reading `soft` or `soft_steps` does.
    """

    def __init__(self, state: State, threshold: float, t_max: int, enabled: bool = True) -> None:
        self.threshold, self.t_max, self.enabled = threshold, t_max, enabled
        self._soft = torch.zeros((), dtype=torch.bool, device=state.device)
        self._soft_steps = torch.zeros((), dtype=torch.float64, device=state.device)
        pace = state.scope("pace")
        pace.value("soft", read=lambda: self.soft, load=lambda soft: self._soft.fill_(soft))
        pace.value("soft_steps", read=lambda: self.soft_steps, load=lambda steps: self._soft_steps.fill_(steps))

    @property
    def soft(self) -> bool:
        return bool(self._soft)

    @property
    def soft_steps(self) -> int:
        return int(self._soft_steps)

    def restart(self) -> None:
        self._soft.zero_()
        self._soft_steps.zero_()

    def observe(self, cross_entropy: float | Tensor, counts: bool | Tensor = True) -> None:
        """To be called after each forward pass; `counts` says whether it shows how well the task is learnt."""
        if self.enabled:
            low = torch.as_tensor(cross_entropy < self.threshold, device=self._soft.device)
            self._soft |= low & torch.as_tensor(counts, device=self._soft.device)

    def rate(self, base: float, eta_min: float) -> Tensor:
        """The rate in force for the present step, a float64 scalar."""
        cosine = eta_min + (base - eta_min) * (1 + torch.cos(math.pi * self._soft_steps / self.t_max)) / 2
        return torch.where(self._soft, cosine, base)

    def advance(self, valid: bool | Tensor = True) -> None:
        """To be called after each optimiser step; `valid` says whether it was taken."""
        self._soft_steps += self._soft & valid


class PROL(GradientLearner):
    """A frozen ViT steered by prefixes that one small generator makes from each image.

    The generator is general knowledge, trained in the first task only. Class-wise knowledge is a key, scalers and
    shifters per class, and one head per task. No sample is stored. Options: `prol.methods.prol.options`.
    """

    name: ClassVar[str] = "prol"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = "Ma'sum et al., PROL: Rehearsal Free Continual Learning in Streaming Data, ICCV 2025"
    encoding: ClassVar[Literal["none", "query", "all"]] = "query"
    needs_blocks: ClassVar[bool] = True
    Options: ClassVar[type] = PROLOptions
    options: PROLOptions
    backbone: Transformer

    @classmethod
    def read_options(cls, values: Mapping[str, Any]) -> PROLOptions:
        return read_prol_options(values)

    def build(self, state: State) -> None:
        b, o = self.backbone, self.options
        if not isinstance(b, Transformer):
            raise ValueError(f"method prol needs a ViT as backbone, got {type(b).__name__}")
        if o.blocks > b.depth:
            raise ValueError(f"blocks={o.blocks}, but the backbone has {b.depth}: pass blocks={b.depth}")
        if o.similarity_factor == "released":
            self.predict_batch = o.chunk  # a sample's prompt depends on its batch there
        self.network = PromptedNetwork(state, b, o, self.random)
        self.source, self.heads, self.working = self.network.source, self.network.heads, self.network.working
        self.adam = Adam(state, per_class=_BY_CLASS, same_rows={"shifter": "scaler"})
        self.pace = HardSoft(state, o.threshold, o.t_max, o.hsu)
        state.on_growth(lambda count: self.pace.restart() if count else None)
        state.on_load(self._place_task)
        shared = ["the generator was trained in the first task, on it if it was there"] * o.generator
        shared += ["the LayerNorms were trained with it"] * o.tune_norms
        for text in shared:
            state.trace(removed=text, merged=text)
        if o.train_rows == "local":
            state.refuse(
                "train_rows=local, as in preset released, has scalers that several classes share: no class can be "
                "removed from them"
            )
        self.train_with(state)
        pace = self.pace
        self.clock.soft = lambda: pace.soft
        captured = b.acceleration.captured
        self._predict, self._predict_query = Captured(self._logits, captured), Captured(self._query_logits, captured)

    # Classes and tasks

    def arrive(self, names: list[Label], boundary: bool = False) -> None:
        if self.options.preset == "released":
            if not boundary:
                raise ValueError(
                    f"preset released needs announced classes: call boundary(next_classes) before learning {names[0]!r}"
                )
            numbers = [name for name in [*self.classes, *names] if isinstance(name, int)]
            if not names or numbers != sorted(numbers):
                raise ValueError(
                    "preset released needs each task's classes announced, in label order and above the last task's"
                )
        super().arrive(names, boundary)

    def start_task(self) -> None:
        self._place_task()
        self.adam.reset()
        self.pace.restart()
        if self.options.head == "per_task" or not self.heads.first_rows:
            self.heads.begin_head()

    def _place_task(self) -> None:
        self.network.begin_task(self.clock.number, self.clock.first_row)

    # One step

    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        if self.options.train_rows == "local" and bool((rows < self.clock.first_row).any()):
            raise ValueError("train_rows=local, as in preset released, cannot learn classes of earlier tasks again")
        super().learn_pixels(pixels, rows)

    def step(self, staged: MakeStaged, rows: Tensor) -> None:
        self._reserve(len(rows))
        super().step(staged, rows)

    def layout(self) -> tuple[Hashable, ...]:
        """As long as there is capacity for more classes, their arrival changes no operation and no buffer."""
        task = min(self.clock.number, 1), self.clock.first_row > 0
        return (*task, self.adam.moves, self.source.layout(), self.heads.layout())

    def _reserve(self, samples: int) -> None:
        """Allocates buffers for the rows that a step may use, since a captured step cannot allocate."""
        o, source = self.options, self.source
        tables = {"keys": source.keys} if o.keys else {}
        if o.keys and o.scalers:
            tables |= {"scaler": source.scaler, "shifter": source.shifter}
        for name, table in tables.items():
            times = 1 if name != "keys" else 3 if self.clock.first_row and o.ort else 2
            self.adam.make_room(name, table.buffer, times * samples)

    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        tokens, plain, query = self.network.query(self.rendered(*staged))
        seen = {"tokens": tokens, "plain": plain}
        return seen if query is plain else seen | {"query": query}

    def one_step(self, tokens: Tensor, plain: Tensor, *rest: Tensor) -> dict[str, Tensor]:
        """Losses and rates of one step."""
        query, rows = rest if len(rest) == 2 else (plain, *rest)
        total, values, parts = self.network.losses(tokens, plain, query, rows)
        valid = total.detach().isfinite()
        gradients = clipped_gradients(total, parts, self.options.clip)
        # Samples of old classes alone do not show how well the task is learnt.
        self.pace.observe(values["ce"], counts=(rows >= self.network.first).any() & valid)
        lr, norm_lr = self._rates()
        self.adam.begin_step(valid)
        norms = [name for name in parts if name.startswith("norm.")]
        self.adam.update_together("norm", [parts[name] for name in norms], [gradients[name] for name in norms], norm_lr)
        self.adam.update_all({name: part for name, part in parts.items() if name not in norms}, gradients, lr)
        self._clamp()
        self.pace.advance(valid)
        return values | {"total": total.detach(), "lr": lr, "lr_norm": norm_lr}

    def _rates(self) -> tuple[Tensor, Tensor]:
        """Learning rates in force: of the method's own parameters, and of the backbone's LayerNorms."""
        o = self.options
        factor = 1.0 if self.clock.number == 0 else o.norm_lr_factor
        norm_floor = o.eta_min * factor if o.norm_eta_min == "proportional" else o.eta_min
        return self.pace.rate(o.rate, o.eta_min), self.pace.rate(o.rate * factor, norm_floor)

    def _clamp(self) -> None:
        """Projects what was moved: scalers and shifters stay near 1 and 0, and the keys' lengths are updated."""
        tables = (
            (self.source.scaler, "scaler", 1.0, self.options.eps_a),
            (self.source.shifter, "shifter", 0.0, self.options.eps_b),
        )
        for table, name, centre, reach in tables:
            rows = self.adam.rows_in_play(name)
            if rows is not None:
                table.buffer[rows] = table.buffer[rows].clamp(centre - reach, centre + reach)
        keys = self.adam.rows_in_play("keys")
        if keys is not None:
            self.source.renew_lengths(keys)

    # Predicting and counting

    def encode(self, inputs: Tensor) -> Tensor:
        return self.network.query(inputs)[2]

    def evaluation_input(self, pixels: Pixels) -> Tensor:
        return self.rendered(*self.backbone.stage(pixels, self.preprocessing))

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        staged = self.backbone.stage(pixels, self.preprocessing)
        if encoded is None:
            logits = self._predict(self.layout(), *staged)["logits"]
        else:
            logits = self._predict_query(self.layout(), encoded, *staged)["logits"]
        return self.heads.in_class_order(logits)

    def _logits(self, *staged: Tensor) -> dict[str, Tensor]:
        tokens, _, query = self.network.query(self.rendered(*staged))
        return {"logits": self.network.logits(self.network.features(tokens, query))}

    def _query_logits(self, query: Tensor, *staged: Tensor) -> dict[str, Tensor]:
        tokens = self.backbone.embed(self.rendered(*staged))
        return {"logits": self.network.logits(self.network.features(tokens, query))}

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:
        """The cosine to the nearest key."""
        return cosine_to_all(encoded, self.source.keys.rows).amax(1) if self.options.keys else None

    def exemptions(self) -> dict[str, str]:
        o, reasons = self.options, {}
        if o.similarity_factor == "released" and o.generator and o.keys:
            reasons["batch_independence"] = "similarity_factor=released assigns one factor to all samples of a batch"
        if o.preset == "released" or o.train_rows == "local":
            reasons["classes_need_no_announcement"] = "scaler rows counted within the task need its classes announced"
        return reasons

    def needs_tasks(self) -> bool:
        return self.options.preset == "released" or self.options.train_rows == "local"

    def trained_tensors(self) -> list[Tensor]:
        o, first, source = self.options, self.clock.first_row, self.source
        trained = [*self.heads.live_tensors(), *(part.leaf for part in self.network.shared_parts().values())]
        trained.append(source.keys.rows if o.ort and not o.ort_detach_old else source.keys.rows[first:])
        return [*trained, source.scaler.rows[first:], source.shifter.rows[first:]]

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:
        """Parameters as the paper counted: class rows of all classes, but the first task's head only."""
        width, o = self.backbone.width, self.options
        generator, norms = self.source.generator, self.working.trained().values()
        shared = Amount.of(generator.weight, generator.bias, *norms).count
        shared += classes * (width * o.keys + 4 * o.length * o.scalers)
        first_head = 2 * width + -(-classes // tasks) * (width + 1)
        all_heads = 2 * width * (tasks if o.head == "per_task" else 1) + classes * (width + 1)
        return {
            "trainable during task 1, rows of all classes, first head only": shared + first_head,
            "ever trained, rows of all classes, all heads": shared + all_heads,
        }

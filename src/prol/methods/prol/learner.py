"""PROL: prompt online learning, with all its parts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.backbones import Backbone, Pixels, Staged, ViT, stage_evaluation
from prol.class_rows import AGAINST_IT, KEPT_ROW, TASK_HEADS, Contents, Together
from prol.engine import losses
from prol.engine.adam import Adam, gathered_rows, part_gradients
from prol.engine.captured import Captured
from prol.engine.similarity import cosine_to_all
from prol.engine.step import FastStep, MakeStaged
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.gradient import SteppedLearner
from prol.methods.prol.hard_soft import HardSoft
from prol.methods.prol.network import PromptedNetwork
from prol.methods.prol.options import PROLOptions, read_prol_options
from prol.parts.packing import packed, unpacked


class PROL(SteppedLearner):
    """A frozen ViT steered by prefixes that one small generator makes from each image.

    The generator is general knowledge, trained in the first task only. Class-wise knowledge is a key, scalers and
    shifters a class, and one head a task. Nothing of any sample is kept. Options: `prol.methods.prol.options`.
    """

    name: ClassVar[str] = "prol"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = "Ma'sum et al., PROL: Rehearsal Free Continual Learning in Streaming Data, ICCV 2025"
    Options: ClassVar[type] = PROLOptions
    only_grow: ClassVar[tuple[str, ...]] = (
        "source/keys",
        "source/scaler",
        "source/shifter",
        "head/weight",
        "head/bias",
    )
    fixed = "part"
    options: PROLOptions
    backbone: ViT

    @classmethod
    def read_options(cls, values: Mapping[str, Any]) -> PROLOptions:
        return read_prol_options(values)

    def __init__(self, backbone: Backbone, options: PROLOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        o = options
        if not isinstance(backbone, ViT):
            raise ValueError(f"method prol needs a ViT as backbone, got {type(backbone).__name__}")
        if o.blocks > backbone.depth:
            raise ValueError(f"blocks={o.blocks}, but the backbone has {backbone.depth}: pass blocks={backbone.depth}")
        self.preprocessing = backbone.preprocessing.overridden(o.input_range, o.crop_pct)
        if o.similarity_factor == "released":
            self.predict_batch = o.chunk  # a sample's prompt depends on its batch there
        self.network = PromptedNetwork(backbone, o, self.random)
        self.source, self.heads, self.working = self.network.source, self.network.heads, self.network.working
        device = backbone.device
        self.adam = Adam(device, same_rows={"shifter": "scaler"})
        self.pace = HardSoft(o.threshold, o.t_max, o.hsu, device)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self._take_step = FastStep(self._one_step, self._see, backbone.acceleration.captured, o.lr)
        self._answer = Captured(self._one_answer, backbone.acceleration.captured)
        self._answer_known = Captured(self._one_known_answer, backbone.acceleration.captured)

    # Classes and tasks

    def _meet(self, names: list[Label]) -> None:
        if self.options.preset == "released":
            raise ValueError(
                f"preset released needs announced classes: call boundary(next_classes) before learning {names[0]!r}"
            )
        if self.clock.begins_with_unseen_class(len(self.classes), self.pace.soft):
            self._start_task()
        self._add_rows(names)

    def _begin_task(self, names: list[Label]) -> None:
        numbers = [name for name in [*self.classes, *names] if isinstance(name, int)]
        if self.options.preset == "released" and (not names or numbers != sorted(numbers)):
            raise ValueError(
                "preset released needs each task's classes announced, in label order and above the last task's"
            )
        if self.clock.begins_at_boundary(len(self.classes)):
            self._start_task()
        if names:
            self._add_rows(names)

    def _start_task(self) -> None:
        self.clock.begin(len(self.classes))
        self.network.begin_task(self.clock.number, self.clock.first_row)
        self.adam.reset()
        self.pace.restart()
        if self.options.head == "per_task" or not self.heads.first_rows:
            self.heads.begin_head()

    def _add_rows(self, names: list[Label]) -> None:
        self._register(names)
        self.source.add_classes(len(names), self.random)
        self.heads.append(len(names), self.random)
        self.pace.restart()

    # One step

    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        if self.options.train_rows == "local" and bool((rows < self.clock.first_row).any()):
            raise ValueError("train_rows=local, as in preset released, cannot learn classes of earlier tasks again")
        super()._learn(pixels, rows)

    def _step(self, staged: MakeStaged, rows: Tensor) -> None:
        self._make_room(len(rows))
        super()._step(staged, rows)

    def _layout(self) -> tuple[Hashable, ...]:
        """Where buffers are and which parts take part: what is captured holds for as long as this stays the same."""
        task = min(self.clock.number, 1), self.clock.first_row > 0
        return (*task, self.adam.moves, self.source.layout(), self.heads.layout())

    def _make_room(self, samples: int) -> None:
        """Buffers for the rows that a step may bring into play: inside a captured step none can be made."""
        o, source = self.options, self.source
        tables = {"keys": source.keys} if o.keys else {}
        if o.keys and o.scalers:
            tables |= {"scaler": source.scaler, "shifter": source.shifter}
        for name, table in tables.items():
            times = 1 if name != "keys" else 3 if self.clock.first_row and o.ort else 2
            self.adam.make_room(name, table.buffer, times * samples)

    def _see(self, *staged: Tensor) -> dict[str, Tensor]:
        tokens, plain, query = self.network.query(self._rendered(*staged))
        seen = {"tokens": tokens, "plain": plain}
        return seen if query is plain else seen | {"query": query}

    def _one_step(self, tokens: Tensor, plain: Tensor, *rest: Tensor) -> dict[str, Tensor]:
        """Losses and rates of one step, which has nothing but operations of fixed shape on the device.

        Where the loss is not finite nothing moves.
        """
        query, rows = rest if len(rest) == 2 else (plain, *rest)
        total, values, parts = self.network.losses(tokens, plain, query, rows)
        valid = total.detach().isfinite()
        gradients = part_gradients(total, parts)
        if self.options.clip is not None:
            gradients = losses.clip_together(gradients, self.options.clip, gathered_rows(parts))
        # Samples of old classes alone do not tell how well the task is learnt.
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
        base = o.lr * o.chunk / 256 if o.lr_scaling else o.lr
        factor = 1.0 if self.clock.number == 0 else o.norm_lr_factor
        norm_floor = o.eta_min * factor if o.norm_eta_min == "proportional" else o.eta_min
        return self.pace.rate(base, o.eta_min), self.pace.rate(base * factor, norm_floor)

    def _clamp(self) -> None:
        """Keeps what was moved where it belongs: scalers and shifters near 1 and 0, the keys' lengths known."""
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

    # Answering, saving, counting

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self.network.query(self._rendered(*self._staged_for_answers(pixels)))[2]

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        staged = self._staged_for_answers(pixels)
        if fixed is None:
            logits = self._answer(self._layout(), *staged)["logits"]
        else:
            logits = self._answer_known(self._layout(), fixed, *staged)["logits"]
        return self.heads.in_class_order(logits)

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor | None:
        """The cosine to the nearest key."""
        if not self.options.keys:
            return None
        return cosine_to_all(self._fixed(pixels) if fixed is None else fixed, self.source.keys.rows).amax(1)

    def _one_answer(self, *staged: Tensor) -> dict[str, Tensor]:
        tokens, _, query = self.network.query(self._rendered(*staged))
        return {"logits": self.network.logits(self.network.features(tokens, query))}

    def _one_known_answer(self, query: Tensor, *staged: Tensor) -> dict[str, Tensor]:
        tokens = self.backbone.embed(self._rendered(*staged))
        return {"logits": self.network.logits(self.network.features(tokens, query))}

    def _staged_for_answers(self, pixels: Pixels) -> Staged:
        return stage_evaluation(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)

    def exemptions(self) -> dict[str, str]:
        o, reasons = self.options, {}
        if o.similarity_factor == "released" and o.generator and o.keys:
            reasons["batch_independence"] = "similarity_factor=released gives all samples of a batch one shared factor"
        if o.preset == "released" or o.train_rows == "local":
            reasons["classes_need_no_announcement"] = "scaler rows counted within the task need its classes announced"
        return reasons

    def needs_tasks(self) -> bool:
        return self.options.preset == "released" or self.options.train_rows == "local"

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        own: dict[str, Together] = {f"source/{name}": "keep" for name in ("keys", "scaler", "shifter")}
        own |= {f"adam/{name}/*": "keep" for name in ("keys", "scaler", "shifter")}
        mixed = ["the generator was trained in the first task, on it if it was there"] * self.options.generator
        mixed += ["the LayerNorms were trained with it"] * self.options.tune_norms
        firsts, local = self.heads.first_rows, self.options.train_rows == "local"
        return Contents(
            TASK_HEADS | own,
            traces=(AGAINST_IT, *mixed),
            merged=(KEPT_ROW, *mixed),
            first_moment=0 if self.options.thaw_heads or not firsts else firsts[-1],
            refusal="train_rows=local, as in preset released, has scalers that several classes share: no class can be "
            "taken out of them"
            if local
            else "",
        )

    def footprint(self) -> Footprint:
        o, first, source = self.options, self.clock.first_row, self.source
        trained = [*self.heads.live_tensors(), *(part.leaf for part in self.network.shared_parts().values())]
        trained.append(source.keys.rows if o.ort and not o.ort_detach_old else source.keys.rows[first:])
        trained += [source.scaler.rows[first:], source.shifter.rows[first:]]
        heads = [table.rows for table in self.heads.tables().values()]
        stored = Amount.of(*source.tensors().values(), *heads, *self.working.trained().values())
        return Footprint(Amount.of(*trained), stored, Amount(0, 0), Amount(0, 0))

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

    def _state(self) -> State:
        moments, adam = self.adam.state()
        tensors = packed(
            source=self.source.tensors(),
            head={name: table.rows for name, table in self.heads.tables().items()},
            norm=self.working.trained(),
            adam=moments,
        )
        meta = {
            "adam": adam,
            "pace": self.pace.state(),
            "clock": asdict(self.clock),
            "first_rows": list(self.heads.first_rows),
        }
        return tensors, meta | {"last": dict(self.report())}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.source.load(unpacked("source", tensors))
        self.heads.load(unpacked("head", tensors), meta["first_rows"])
        with torch.no_grad():
            for name, tensor in unpacked("norm", tensors).items():
                self.working.trained()[name].copy_(tensor)
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.pace.load_state(meta["pace"])
        self.clock = TaskClock(**meta["clock"])
        self.network.begin_task(self.clock.number, self.clock.first_row)
        self._take_step.restore(meta["last"])

"""PROL: prompt online learning, with all its parts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.backbones import Backbone, ViT, evaluation_input
from prol.labels import Label
from prol.learner import Amount, Footprint, Learner, State
from prol.methods.prol_options import PROLOptions, read_prol_options
from prol.parts import losses
from prol.parts.adam import Adam, Part, part_gradients
from prol.parts.captured import Captured
from prol.parts.hard_soft import HardSoft
from prol.parts.heads import TaskHeads
from prol.parts.inputs import training_input
from prol.parts.loss_watch import LossWatch
from prol.parts.packing import packed, unpacked
from prol.parts.prompt_source import Chosen, Generator, PromptShape, PromptSource, nearest
from prol.parts.similarity import cosine_pairs
from prol.parts.tasks import TaskClock


class PROL(Learner):
    """A frozen ViT steered by prefixes that one small generator makes from each image.

    The generator is general knowledge, trained in the first task only. Class-wise knowledge is a key, scalers and
    shifters a class, and one head a task. Nothing of any sample is kept. Options: `prol.methods.prol_options`.
    """

    name: ClassVar[str] = "prol"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = "Ma'sum et al., PROL: Rehearsal Free Continual Learning in Streaming Data, ICCV 2025"
    Options: ClassVar[type] = PROLOptions
    can_diverge: ClassVar[bool] = True
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
        self.working = backbone.fork("norms" if o.tune_norms else "none")
        device, dtype = backbone.device, backbone.dtype
        shape = PromptShape(
            width=backbone.width,
            heads=backbone.heads,
            blocks=o.blocks,
            length=o.length,
            generator=o.generator,
            keys=o.keys,
            scalers=o.scalers,
            bias=o.generator_bias,
            layer_sum=o.layer_sum,
            factor=o.similarity_factor,
            detach_factor=o.detach_factor,
        )
        self.source = PromptSource(shape, self.random, device, dtype)
        self.heads = TaskHeads(backbone.width, device, dtype, o.thaw_heads)
        self.adam = Adam(device)
        self.pace = HardSoft(o.threshold, o.t_max, o.hsu, device)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self._first = torch.zeros((), dtype=torch.long, device=device)  # the clock's first row, for the device
        self._take_step = Captured(self._one_step, backbone.acceleration.captured)
        self._answer = Captured(self._one_answer, backbone.acceleration.captured)
        self._watch = LossWatch(o.lr)
        self._last: dict[str, float] | dict[str, Tensor] = {}

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
        self._first.fill_(self.clock.first_row)
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

    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        if self.options.train_rows == "local" and bool((rows < self.clock.first_row).any()):
            raise ValueError("train_rows=local, as in preset released, cannot learn classes of earlier tasks again")
        self._step(training_input(pixels, self.preprocessing, self.backbone, self.options.augment, self.random), rows)

    def _step(self, inputs: Tensor, rows: Tensor) -> None:
        self._watch.poll()
        self._make_room(len(rows))
        values = self._take_step(self._layout(), inputs, rows)
        self._watch.note(values["total"], self.clock.steps)
        self.clock.steps += 1
        self._last = values

    def _layout(self) -> tuple[Hashable, ...]:
        """Where buffers are and which parts take part: what is captured holds for as long as this stays the same."""
        task = min(self.clock.number, 1), self.clock.first_row > 0
        return (*task, self.adam.moves, self.source.layout(), self.heads.layout())

    def _make_room(self, samples: int) -> None:
        """Buffers for the rows that a step may bring into play: inside a captured step none can be made."""
        touched = torch.zeros(samples, dtype=torch.long, device=self.backbone.device)
        keys = touched.repeat(3 if self.clock.first_row and self.options.ort else 2)
        tables = {"keys": (self.source.keys, keys)} if self.options.keys else {}
        if self.options.keys and self.options.scalers:
            tables |= {"scaler": (self.source.scaler, touched), "shifter": (self.source.shifter, touched)}
        for name, (table, rows) in tables.items():
            self.adam.make_room(name, Part.of_rows(table.buffer, rows))

    def _one_step(self, inputs: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """Losses and rates of one step, which has nothing but operations of fixed shape on the device.

        Where the loss is not finite nothing moves.
        """
        values, parts = self._losses(inputs, rows)
        valid = values["total"].detach().isfinite()
        gradients = part_gradients(values["total"], parts)
        if self.options.clip is not None:
            gathered = {name: part.rows for name, part in parts.items() if part.rows is not None and not part.settled}
            gradients = losses.clip_together(gradients, self.options.clip, gathered)
        # Samples of old classes alone do not tell how well the task is learnt.
        self.pace.observe(values["ce"].detach(), counts=(rows >= self._first).any())
        lr, norm_lr = self._rates()
        self.adam.begin_step(valid)
        norms = [name for name in parts if name.startswith("norm.")]
        self.adam.update_together("norm", [parts[name] for name in norms], [gradients[name] for name in norms], norm_lr)
        for name, part in parts.items():
            if name not in norms:
                self.adam.update(name, part, gradients[name], lr)
        self._clamp()
        self.pace.advance(valid)
        return {name: value.detach() for name, value in values.items()} | {"lr": lr, "lr_norm": norm_lr}

    def _losses(self, inputs: Tensor, rows: Tensor) -> tuple[dict[str, Tensor], dict[str, Part]]:
        """Loss terms by name, and the trained parts they depend on."""
        o, heads = self.options, self.heads
        current = rows >= self._first  # samples of older classes enter L_inter only
        tokens, plain, query = self._query(inputs)
        parts = self._whole_parts()
        taken, label_keys, old_keys = self._choose(query, rows, current, parts) if o.keys else (None, None, None)
        prompted = self._prompted(tokens, query, taken, parts, self._first)
        columns, own = heads.columns(), heads.column_of(rows)
        logits = heads.wide_logits(prompted, _head(parts), columns)

        values = {name: logits.new_zeros(()) for name in ("sim", "ort", "gen")}
        values["inter"] = losses.inter_task(logits, own)
        values["intra"] = losses.intra_task(logits, own, columns >= self._first, current)
        if o.gen:
            values["gen"] = losses.generalisation(plain, prompted, o.gen_raw, o.gen_off_diagonal, current)
        if label_keys is not None:
            values["sim"] = losses.mean_over(cosine_pairs(query, label_keys), current)
        if label_keys is not None and old_keys is not None:
            old_keys = old_keys.detach() if o.ort_detach_old else old_keys
            values["ort"] = losses.orthogonality(label_keys, old_keys, o.ort_raw, current)
        values["ce"] = o.intra * values["intra"] + o.inter * values["inter"]
        values["total"] = values["ce"] - o.sim * values["sim"] + o.ort * values["ort"] + o.gen * values["gen"]
        return values, parts

    def _query(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, the untouched network's class feature, and what is compared with the keys."""
        o = self.options
        with torch.no_grad():
            tokens = self.backbone.embed(inputs)
            if not (o.generator or o.keys or o.gen):
                return tokens, tokens[:, 0], tokens[:, 0]
            plain = self.backbone.encode(tokens)
            if o.query == "patch_embedding":
                return tokens, plain.feature, tokens[:, 1:].mean(1)
            return tokens, plain.feature, plain.class_token if o.query == "class_token" else plain.feature

    def _choose(
        self, query: Tensor, rows: Tensor, current: Tensor, parts: dict[str, Part]
    ) -> tuple[Chosen, Tensor, Tensor | None]:
        """What each sample's prompt is made from, the key of its label, and its nearest old key after the first task.

        Adds the rows of keys, scalers and shifters that are touched to `parts`.
        """
        o, first, source = self.options, self._first, self.source
        # Candidates in training are the task's own classes; a sample of an older class may take any, as at test.
        cosines = source.cosines(query)
        every = torch.arange(cosines.shape[1], device=rows.device)
        near = nearest(cosines, (every >= first) | ~current.unsqueeze(1))
        taken = rows if o.prompt_selection == "label" else near
        old = nearest(cosines, (every < first).unsqueeze(0)) if self.clock.first_row and o.ort else rows[:0]
        parts["keys"] = Part.of_rows(source.keys.buffer, torch.cat([taken, rows, old]))
        taken_keys, label_keys, old_keys = torch.split(parts["keys"].leaf, [len(rows), len(rows), len(old)])
        chosen = Chosen(taken, taken_keys)
        if o.scalers:
            touched = taken - first if o.train_rows == "local" else taken
            parts["scaler"] = Part.of_rows(source.scaler.buffer, touched)
            parts["shifter"] = Part.of_rows(source.shifter.buffer, touched)
            chosen = Chosen(taken, taken_keys, parts["scaler"].leaf, parts["shifter"].leaf)
        return chosen, label_keys, old_keys if len(old) else None

    def _prompted(
        self,
        tokens: Tensor,
        query: Tensor,
        chosen: Chosen | None,
        parts: dict[str, Part],
        first_candidate: int | Tensor,
    ) -> Tensor:
        """The working network's class feature `[B, D]`."""
        if not self.options.generator:
            return self.working.encode(tokens).feature
        generator = self.source.generator
        if "generator.weight" in parts:
            generator = Generator(parts["generator.weight"].leaf, parts["generator.bias"].leaf)
        prefixes = self.source.prefixes(query, chosen, generator, first_candidate)
        return self.working.encode(tokens, prefixes).feature

    def _whole_parts(self) -> dict[str, Part]:
        """Trained parts that every chunk uses: the live head, LayerNorms, and in the first task the generator."""
        return {f"head.{name}": part for name, part in self.heads.trained().items()} | self._shared_parts()

    def _shared_parts(self) -> dict[str, Part]:
        parts = {f"norm.{name}": Part(p.data, p) for name, p in self.working.trained().items()}
        if self.options.generator and self.clock.number == 0:
            parts["generator.weight"] = Part.whole(self.source.generator.weight)
            parts["generator.bias"] = Part.whole(self.source.generator.bias)
        return parts

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

    def _fixed(self, pixels: list[Tensor]) -> Tensor:
        return self._query(self._evaluation_input(pixels))[2]

    def _scores(self, pixels: list[Tensor], fixed: Tensor | None) -> Tensor:
        self._watch.settle()
        inputs = (self._evaluation_input(pixels),) if fixed is None else (self._evaluation_input(pixels), fixed)
        logits = self._answer(self._layout(), *inputs)["logits"]
        return self.heads.in_class_order(logits)

    def _one_answer(self, inputs: Tensor, query: Tensor | None = None) -> dict[str, Tensor]:
        heads = self.heads
        return {"logits": heads.wide_logits(self._features(inputs, query), heads.trained(), heads.columns())}

    def _evaluation_input(self, pixels: list[Tensor]) -> Tensor:
        return evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)

    def _features(self, inputs: Tensor, query: Tensor | None = None) -> Tensor:
        """The prompted class feature `[B, D]` that the heads judge, all classes being candidates."""
        if query is None:
            tokens, _, query = self._query(inputs)
        else:
            tokens = self.backbone.embed(inputs)
        chosen = None
        if self.options.keys:
            rows, source = nearest(self.source.cosines(query)), self.source
            tables = (source.scaler.buffer[rows], source.shifter.buffer[rows]) if self.options.scalers else (None, None)
            chosen = Chosen(rows, source.keys.buffer[rows], *tables)
        return self._prompted(tokens, query, chosen, {}, 0)

    def exemptions(self) -> dict[str, str]:
        o, reasons = self.options, {}
        if o.similarity_factor == "released" and o.generator and o.keys:
            reasons["batch_independence"] = "similarity_factor=released gives all samples of a batch one shared factor"
        if o.preset == "released" or o.train_rows == "local":
            reasons["classes_need_no_announcement"] = "scaler rows counted within the task need its classes announced"
        return reasons

    def needs_tasks(self) -> bool:
        return self.options.preset == "released" or self.options.train_rows == "local"

    def report(self) -> dict[str, float]:
        if any(isinstance(value, Tensor) for value in self._last.values()):
            values = torch.stack([torch.as_tensor(value).double() for value in self._last.values()]).tolist()
            self._last = dict(zip(self._last, values, strict=True))  # one wait for the device, and only when asked
        return {name: float(value) for name, value in self._last.items()}

    def footprint(self) -> Footprint:
        o, first, source = self.options, self.clock.first_row, self.source
        trained = [*self.heads.live_tensors(), *(part.leaf for part in self._shared_parts().values())]
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
        self._watch.settle()
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
        return tensors, meta | {"last": self.report()}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.source.load(unpacked("source", tensors))
        self.heads.load(unpacked("head", tensors), meta["first_rows"])
        with torch.no_grad():
            for name, tensor in unpacked("norm", tensors).items():
                self.working.trained()[name].copy_(tensor)
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.pace.load_state(meta["pace"])
        self.clock = TaskClock(**meta["clock"])
        self._first.fill_(self.clock.first_row)
        self._last = dict(meta["last"])


def _head(parts: dict[str, Part]) -> dict[str, Part]:
    return {name.removeprefix("head."): part for name, part in parts.items() if name.startswith("head.")}

"""PROL's network: a frozen ViT beside a prompted one, and everything of the method that a sample goes through."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from prol.backbones.acceleration import fast
from prol.backbones.blocks import Transformer
from prol.engine.adam import Part
from prol.engine.heads import TaskHeads, head_logits
from prol.methods.gradient import head_parts
from prol.methods.prol.losses import TERMS, Judged, loss_terms
from prol.methods.prol.options import PROLOptions
from prol.methods.prol.prompt_source import (
    Chosen,
    Generator,
    PromptShape,
    PromptSource,
    make_prefixes,
    nearest_key,
    nearest_keys_by_task,
)
from prol.state import State


class PromptedNetwork:
    """Query pass, choice of prompts, prompted pass, heads and losses; operations of fixed shape on the device alone.

    `first`, the current task's first class row, is on the device; whether there are older classes and whether the
    generator is trained decide which operations there are: `begin_task` sets both.
    """

    def __init__(self, state: State, backbone: Transformer, options: PROLOptions, random: torch.Generator) -> None:
        self.backbone, self.options, self.fast = backbone, options, partial(fast, backbone.acceleration)
        o, dtype = options, backbone.dtype
        self.working = backbone.fork("norms" if o.tune_norms else "none")
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
        self.source = PromptSource(state, shape, random, dtype)
        self.heads = TaskHeads(state, backbone.width, dtype, random, o.thaw_heads)
        state.tensors("norm", self.working.trained, kind="parameter")
        self.first = torch.zeros((), dtype=torch.long, device=backbone.device)
        self.has_old_classes, self.trains_generator = False, False

    def begin_task(self, number: int, first_row: int) -> None:
        """The current task, counted from 0, and the row at which its classes begin."""
        self.first.fill_(first_row)
        self.has_old_classes, self.trains_generator = first_row > 0, number == 0

    def losses(
        self, tokens: Tensor, plain: Tensor, query: Tensor, rows: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Part]]:
        """The loss, its terms by name, and the trained parts it depends on, from `query`'s result and class rows."""
        heads, current = self.heads, rows >= self.first
        parts = self.parts()
        taken, label_keys, old_keys = self.choose(query, rows, current, parts) if self.options.keys else (None,) * 3
        prompted = self.prompted(tokens, query, taken, parts, self.first)
        judged = Judged(prompted, plain, query, heads.column_of(rows), current, self.first, label_keys, old_keys)
        total, terms = self.fast(loss_terms)(self.options, heads.tensors(head_parts(parts)), judged)
        return total, dict(zip(TERMS, terms.unbind(), strict=True)), parts

    def query(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, the untouched network's class feature, and what is compared with the keys."""
        o = self.options
        with torch.no_grad():
            tokens = self.backbone.embed(inputs)
            if not (o.generator or o.keys or o.gen):
                nothing = tokens[:, 0]
                return tokens, nothing, nothing
            plain = self.backbone.encode(tokens)
            if o.query == "patch_embedding":
                return tokens, plain.feature, tokens[:, 1:].mean(1)
            return tokens, plain.feature, plain.class_token if o.query == "class_token" else plain.feature

    def choose(
        self, query: Tensor, rows: Tensor, current: Tensor, parts: dict[str, Part]
    ) -> tuple[Chosen, Tensor, Tensor | None]:
        """What each sample's prompt is made from, the key of its label, and its nearest old key after the first task.

        Adds the rows of keys, scalers and shifters that are touched to `parts`.
        """
        o, first, source = self.options, self.first, self.source
        # Candidates in training are the task's own classes; a sample of an older class may take any, as at test.
        near, old = self.fast(nearest_keys_by_task)(query, source.key_table(), first, current)
        taken = rows if o.prompt_selection == "label" else near
        old = old if self.has_old_classes and o.ort else rows[:0]
        parts["keys"] = Part.of_rows(source.keys.buffer, torch.cat([taken, rows, old]))
        taken_keys, label_keys, old_keys = torch.split(parts["keys"].leaf, [len(rows), len(rows), len(old)])
        chosen = Chosen(taken, taken_keys)
        if o.scalers:
            touched = taken - first if o.train_rows == "local" else taken
            parts["scaler"] = Part.of_rows(source.scaler.buffer, touched)
            parts["shifter"] = Part.of_rows(source.shifter.buffer, touched)
            chosen = Chosen(taken, taken_keys, parts["scaler"].leaf, parts["shifter"].leaf)
        return chosen, label_keys, old_keys if len(old) else None

    def prompted(
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
        prefixes = self.fast(make_prefixes)(self.source.shape, query, chosen, generator, first_candidate)
        return self.working.encode(tokens, dict(enumerate(prefixes))).feature

    def logits(self, feature: Tensor) -> Tensor:
        """Logits `[B, K]` of features `[B, D]`, see `TaskHeads.in_class_order`."""
        return self.fast(head_logits)(feature, self.heads.tensors())

    def parts(self) -> dict[str, Part]:
        """Trained parts that every chunk uses: the live head, LayerNorms, and in the first task the generator."""
        return {f"head.{name}": part for name, part in self.heads.trained().items()} | self.shared_parts()

    def shared_parts(self) -> dict[str, Part]:
        parts = {f"norm.{name}": Part(p.data, p) for name, p in self.working.trained().items()}
        if self.options.generator and self.trains_generator:
            parts["generator.weight"] = Part.whole(self.source.generator.weight)
            parts["generator.bias"] = Part.whole(self.source.generator.bias)
        return parts

    def features(self, tokens: Tensor, query: Tensor) -> Tensor:
        """The prompted class feature `[B, D]` for predictions, where all classes are candidates."""
        chosen = None
        if self.options.keys:
            rows, source = self.fast(nearest_key)(query, self.source.key_table()), self.source
            tables = (source.scaler.buffer[rows], source.shifter.buffer[rows]) if self.options.scalers else (None, None)
            chosen = Chosen(rows, source.keys.buffer[rows], *tables)
        return self.prompted(tokens, query, chosen, {}, 0)

"""CODA-Prompt: each image's prefix is a mixture of components, and each task adds components of its own."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.backbones import Backbone, Pixels, ViT, evaluation_input, require_vit
from prol.class_rows import AGAINST_IT, AVERAGED, LINEAR_HEAD, Contents
from prol.engine.adam import Adam, Part
from prol.engine.heads import LinearHead
from prol.engine.losses import allowed_classes, masked_cross_entropy
from prol.engine.step import FastStep
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.prompts.prefixes import by_block, component_weights, mixed, orthogonality_gap, orthonormal_rows
from prol.methods.prompts.training import PromptOptions, QueryLearner, descend, head_parts
from prol.parts.packing import packed, unpacked
from prol.parts.rows import RowTable


@dataclass(frozen=True)
class CODAPromptOptions(PromptOptions):
    """Dials of CODA-Prompt."""

    components: int = 10
    """New ones for each task; those of earlier tasks are frozen."""
    length: int = 8
    """Positions of a component: the first half goes before the keys, the second before the values."""
    blocks: int = 5
    """Prompted blocks, counted from the first."""
    orthogonality: float = 0.0
    """Weight of the penalty on components, keys and attention vectors that are not at right angles."""
    clip: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "components")
        self.require_at_least(0, "length", "blocks")
        self.require_weights("orthogonality")
        if self.length % 2:
            raise ValueError(f"length must be even, half for keys and half for values, got {self.length}")


class CODAPrompt(QueryLearner):
    """Decomposed attention: prefix = sum over components j of cos(q * A_j, K_j) P_j, in each prompted block.

    q is the class feature of the untouched network. Nothing is chosen, so that everything learns from one cross
    entropy: attention vectors A, keys K and components P of the current task, and one head over all classes.
    """

    name: ClassVar[str] = "coda_prompt"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = (
        "Smith et al., CODA-Prompt: COntinual Decomposed Attention-based Prompting for Rehearsal-Free Continual "
        "Learning, CVPR 2023"
    )
    Options: ClassVar[type] = CODAPromptOptions
    only_grow: ClassVar[tuple[str, ...]] = ("head/weight", "head/bias")
    fixed = "part"
    options: CODAPromptOptions
    backbone: ViT

    def __init__(self, backbone: Backbone, options: CODAPromptOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        o, device, dtype = options, backbone.device, backbone.dtype
        heads = require_vit(self.name, backbone, o.blocks).heads
        self.preprocessing = backbone.preprocessing.overridden(o.input_range, o.crop_pct)
        prefix = (o.blocks, 2, heads, o.length // 2, backbone.width // heads)
        self.tables = {
            "prompts": RowTable(prefix, device, dtype),
            "keys": RowTable((o.blocks, backbone.width), device, dtype),
            "attention": RowTable((o.blocks, backbone.width), device, dtype),
        }
        self.head = LinearHead(backbone.width, device, dtype)
        self.adam = Adam(backbone.device)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self._take_step = FastStep(self._one_step, self._see, self.backbone.acceleration.captured, options.lr)

    def _start_task(self) -> None:
        self.clock.begin(len(self.classes))
        self.adam.reset()
        for table in self.tables.values():
            old, count = table.rows, self.options.components
            fresh = [orthonormal_rows(count, old[:, i].flatten(1), self.random) for i in range(self.options.blocks)]
            flat = torch.stack(fresh, dim=1) if fresh else old.new_zeros(count, 0)
            table.append(flat.view(count, *old.shape[1:]))

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.head.append(len(names), self.random)

    def _layout(self) -> tuple[Hashable, ...]:
        return (*super()._layout(), self.adam.moves)

    def _one_step(self, tokens: Tensor, query: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        parts = self._parts()
        components = {name: self._with_frozen(name, parts[name]) for name in self.tables}
        logits = self.head.logits(self._prompted(tokens, query, components), head_parts(parts))
        allowed = allowed_classes(o.mask, rows, self.clock.first_row, len(self.classes))
        values = {"ce": masked_cross_entropy(logits, rows, allowed), "orthogonality": logits.new_zeros(())}
        if o.orthogonality:
            gaps = [orthogonality_gap(part.flatten(2).transpose(0, 1)) for part in components.values()]
            values["orthogonality"] = torch.stack(gaps).sum()
        values["total"] = values["ce"] + o.orthogonality * values["orthogonality"]
        return descend(values, parts, self.adam, o)

    def _parts(self) -> dict[str, Part]:
        """What the current task trains: its own components, and the head."""
        count = self.tables["keys"].count
        own = torch.arange(max(0, count - self.options.components), count, device=self.backbone.device)
        parts = {f"head.{name}": part for name, part in self.head.trained().items()}
        return parts | {name: Part.of_rows(table.rows, own, settled=True) for name, table in self.tables.items()}

    def _with_frozen(self, name: str, part: Part) -> Tensor:
        """All rows of a table, those of the current task through their leaf."""
        return torch.cat([self.tables[name].rows[: -len(part.leaf)], part.leaf])

    def _prompted(self, tokens: Tensor, query: Tensor, components: dict[str, Tensor]) -> Tensor:
        """Class feature `[B, D]` with every sample's own mixture as prefix."""
        weights = component_weights(query, components["attention"], components["keys"])
        return self.backbone.encode(tokens, by_block(mixed(weights, components["prompts"]))).feature

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self.backbone.features(self._evaluation_input(pixels))

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        tokens = self.backbone.embed(self._evaluation_input(pixels))
        query = self.backbone.encode(tokens).feature if fixed is None else fixed
        components = {name: table.rows for name, table in self.tables.items()}
        return self.head.logits(self._prompted(tokens, query, components))

    def _evaluation_input(self, pixels: Pixels) -> Tensor:
        return evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        mixed = "the components, keys and attention vectors of its task were trained with it"
        return Contents(LINEAR_HEAD, traces=(AGAINST_IT, mixed), merged=(AVERAGED, mixed))

    def footprint(self) -> Footprint:
        head = [table.rows for table in self.head.tables().values()]
        stored = Amount.of(*(table.rows for table in self.tables.values()), *head)
        trained = Amount.of(*(part.leaf for part in self._parts().values()))
        return Footprint(trained, stored, Amount(0, 0), Amount(0, 0))

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:
        component = sum(table.rows.shape[1:].numel() for table in self.tables.values())
        total = tasks * self.options.components * component + classes * (self.backbone.width + 1)
        return {"components of all tasks and the head of all classes": total}

    def _state(self) -> State:
        moments, adam = self.adam.state()
        tensors = packed(
            components={name: table.rows for name, table in self.tables.items()},
            head={name: table.rows for name, table in self.head.tables().items()},
            adam=moments,
        )
        return tensors, {"adam": adam, "clock": asdict(self.clock), "last": dict(self.report())}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        for name, table in self.tables.items():
            table.replace(unpacked("components", tensors)[name])
        self.head.load(unpacked("head", tensors))
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.clock = TaskClock(**meta["clock"])
        self._take_step.restore(meta["last"])

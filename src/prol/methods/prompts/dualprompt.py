"""DualPrompt: prefixes for all tasks in the first blocks, and prefixes of each task's own behind them."""

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
from prol.engine.similarity import cosine_to_all
from prol.engine.step import FastStep
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.prompts.prefixes import batch_vote, by_block, nearest_keys, pull
from prol.methods.prompts.training import Init, PromptOptions, QueryLearner, Selection, descend, head_parts, initial
from prol.parts.packing import packed, unpacked
from prol.parts.rows import RowTable


@dataclass(frozen=True)
class DualPromptOptions(PromptOptions):
    """Dials of DualPrompt."""

    g_blocks: int = 2
    """Blocks with the general prefix, counted from the first."""
    g_length: int = 5
    e_blocks: int = 3
    """Blocks with the task's prefix, counted from there on."""
    e_length: int = 5
    """Published with 5 for CIFAR-100 and 20 for ImageNet-R."""
    pull: float = 1.0
    """Weight of the task key's cosine to the query."""
    init: Init = "wide"
    """Fresh prefixes and keys: uniform in (-1, 1), or in (0, 0.01) (small)."""
    test_selection: Selection = "per_sample"
    """batch_vote: a whole batch takes the task that most of it chose, as published settings do: it gives it away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(0, "g_blocks", "g_length", "e_blocks", "e_length")
        self.require_weights("pull")


class DualPrompt(QueryLearner):
    """General and expert prefixes: a G-prefix that every task trains, an E-prefix and a key for each task.

    In training the E-prefix is the current task's; at test it is that of the key nearest to the image's class feature
    in the untouched network.
    """

    name: ClassVar[str] = "dualprompt"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = (
        "Wang et al., DualPrompt: Complementary Prompting for Rehearsal-Free Continual Learning, ECCV 2022"
    )
    Options: ClassVar[type] = DualPromptOptions
    only_grow: ClassVar[tuple[str, ...]] = ("head/weight", "head/bias")
    fixed = "part"
    options: DualPromptOptions
    backbone: ViT

    def __init__(self, backbone: Backbone, options: DualPromptOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        o, device, dtype = options, backbone.device, backbone.dtype
        heads = require_vit(self.name, backbone, o.g_blocks + o.e_blocks).heads
        self.preprocessing = backbone.preprocessing.overridden(o.input_range, o.crop_pct)
        if o.test_selection == "batch_vote":
            self.predict_batch = o.chunk  # a sample's prefix depends on its batch there
        depth = backbone.width // heads
        self.general = initial((o.g_blocks, 2, heads, o.g_length, depth), o.init, self.random).to(device, dtype)
        self.expert = RowTable((o.e_blocks, 2, heads, o.e_length, depth), device, dtype)
        self.keys = RowTable((backbone.width,), device, dtype)
        self.head = LinearHead(backbone.width, device, dtype)
        self.adam = Adam(backbone.device)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self._take_step = FastStep(self._one_step, self._see, self.backbone.acceleration.captured, options.lr)

    def _start_task(self) -> None:
        self.clock.begin(len(self.classes))
        self.adam.reset()
        old, init = self.expert.rows, self.options.init
        # A task goes on from the last one's prefix, but with a key of its own.
        self.expert.append(old[-1:] if len(old) else initial((1, *old.shape[1:]), init, self.random))
        self.keys.append(initial((1, self.backbone.width), init, self.random))

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.head.append(len(names), self.random)

    def _layout(self) -> tuple[Hashable, ...]:
        return (*super()._layout(), self.adam.moves)

    def _one_step(self, tokens: Tensor, query: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        parts = self._parts()
        expert = parts["expert"].leaf.expand(len(rows), -1, -1, -1, -1, -1)
        feature = self._prompted(tokens, parts["general"].leaf, expert)
        allowed = allowed_classes(o.mask, rows, self.clock.first_row, len(self.classes))
        values = {
            "ce": masked_cross_entropy(self.head.logits(feature, head_parts(parts)), rows, allowed),
            "pull": pull(query, parts["keys"].leaf.expand(len(rows), -1, -1)),
        }
        values["total"] = values["ce"] - o.pull * values["pull"]
        return descend(values, parts, self.adam, o)

    def _parts(self) -> dict[str, Part]:
        """What the current task trains: general prefix, its own prefix and key, and the head."""
        task = torch.full((1,), self.expert.count - 1, device=self.backbone.device)
        parts = {f"head.{name}": part for name, part in self.head.trained().items()}
        return parts | {
            "general": Part.whole(self.general),
            "expert": Part.of_rows(self.expert.rows, task, settled=True),
            "keys": Part.of_rows(self.keys.rows, task, settled=True),
        }

    def _prompted(self, tokens: Tensor, general: Tensor, expert: Tensor) -> Tensor:
        """Class feature `[B, D]` with prefixes `[L, 2, H, l, d]` for all and `[B, L, 2, H, l, d]` for each sample."""
        everyone = by_block(general.expand(tokens.shape[0], -1, -1, -1, -1, -1))
        return self.backbone.encode(tokens, everyone | by_block(expert, self.options.g_blocks)).feature

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self.backbone.features(self._evaluation_input(pixels))

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        tokens = self.backbone.embed(self._evaluation_input(pixels))
        query = self.backbone.encode(tokens).feature if fixed is None else fixed
        task = nearest_keys(query, self.keys.rows)
        if self.options.test_selection == "batch_vote":
            task = batch_vote(task, self.keys.count)
        return self.head.logits(self._prompted(tokens, self.general, self.expert.rows[task[:, 0]]))

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        return cosine_to_all(self._fixed(pixels) if fixed is None else fixed, self.keys.rows).amax(1)

    def _evaluation_input(self, pixels: Pixels) -> Tensor:
        return evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)

    def exemptions(self) -> dict[str, str]:
        if self.options.test_selection == "batch_vote":
            return {"batch_independence": "test_selection=batch_vote gives all samples of a batch the same prefix"}
        return {}

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        mixed = "the general prefix, and the prefix and key of its task, were trained with it"
        return Contents(LINEAR_HEAD, traces=(AGAINST_IT, mixed), merged=(AVERAGED, mixed))

    def footprint(self) -> Footprint:
        trained = [part.leaf for part in self._parts().values()] if self.expert.count else [self.general]
        head = [table.rows for table in self.head.tables().values()]
        stored = Amount.of(self.general, self.expert.rows, self.keys.rows, *head)
        return Footprint(Amount.of(*trained), stored, Amount(0, 0), Amount(0, 0))

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:
        width = self.backbone.width
        task = self.expert.rows.shape[1:].numel() + width
        total = self.general.numel() + tasks * task + classes * (width + 1)
        return {"prefixes and keys of all tasks and the head of all classes": total}

    def _state(self) -> State:
        moments, adam = self.adam.state()
        tensors = {"general": self.general, "expert": self.expert.rows, "keys": self.keys.rows}
        tensors |= packed(head={name: table.rows for name, table in self.head.tables().items()}, adam=moments)
        return tensors, {"adam": adam, "clock": asdict(self.clock), "last": dict(self.report())}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.general = tensors["general"].to(self.general)
        self.expert.replace(tensors["expert"])
        self.keys.replace(tensors["keys"])
        self.head.load(unpacked("head", tensors))
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.clock = TaskClock(**meta["clock"])
        self._take_step.restore(meta["last"])

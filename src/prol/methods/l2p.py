"""L2P: a pool of prompts, of which each image takes those whose keys are nearest to it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones import Backbone, Pixels, ViT, evaluation_input
from prol.class_rows import AGAINST_IT, AVERAGED, LINEAR_HEAD, Contents
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.prompt_training import Init, PromptOptions, QueryLearner, Selection, descend, head_parts, initial
from prol.parts.adam import Adam, Part
from prol.parts.backbone_kinds import require_vit
from prol.parts.fast_step import FastStep
from prol.parts.key_matcher import batch_vote, nearest_keys, pull
from prol.parts.linear_head import LinearHead
from prol.parts.logit_masks import allowed_classes, masked_cross_entropy
from prol.parts.packing import packed, unpacked
from prol.parts.similarity import cosine_to_all
from prol.parts.tasks import TaskClock


@dataclass(frozen=True)
class L2POptions(PromptOptions):
    """Dials of L2P."""

    pool: int = 10
    """Prompts in the pool, each with a key."""
    length: int = 5
    """Tokens of a prompt."""
    picks: int = 5
    """Prompts that an image takes."""
    pull: float = 0.1
    """Weight of the chosen keys' cosine to the query."""
    init: Init = "wide"
    """Fresh prompts and keys: uniform in (-1, 1), or in (0, 0.01) (small)."""
    prompt_position: Literal["class", "none"] = "class"
    """Whether prompt tokens get a copy of the class token's position."""
    train_selection: Selection = "per_sample"
    test_selection: Selection = "per_sample"
    """batch_vote: a whole batch takes what most of it chose, as published settings do. It gives the task away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "pool", "length", "picks")
        self.require_weights("pull")
        if self.picks > self.pool:
            raise ValueError(f"picks={self.picks} prompts from a pool of {self.pool}: pick at most pool={self.pool}")


class L2P(QueryLearner):
    """Learning to Prompt: tokens chosen by key join the image's own; their outputs are averaged and classified.

    Keys are compared with the class feature of the untouched network and learn from that alone; prompts and the head
    learn from the cross entropy over the current task's classes.
    """

    name: ClassVar[str] = "l2p"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = "Wang et al., Learning to Prompt for Continual Learning, CVPR 2022"
    Options: ClassVar[type] = L2POptions
    only_grow: ClassVar[tuple[str, ...]] = ("head/weight", "head/bias")
    fixed = "part"
    options: L2POptions
    backbone: ViT

    def __init__(self, backbone: Backbone, options: L2POptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        o, device, dtype = options, backbone.device, backbone.dtype
        require_vit(self.name, backbone)
        self.preprocessing = backbone.preprocessing.overridden(o.input_range, o.crop_pct)
        if o.test_selection == "batch_vote":
            self.predict_batch = o.chunk  # a sample's prompts depend on its batch there
        self.prompts = initial((o.pool, o.length, backbone.width), o.init, self.random).to(device, dtype)
        self.keys = initial((o.pool, backbone.width), o.init, self.random).to(device, dtype)
        self.head = LinearHead(backbone.width, device, dtype)
        self.adam = Adam(backbone.device)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self._take_step = FastStep(self._one_step, self._see, self.backbone.acceleration.captured, options.lr)

    def _start_task(self) -> None:
        self.clock.begin(len(self.classes))
        self.adam.reset()

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.head.append(len(names), self.random)

    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        for name, table in (("prompts", self.prompts), ("keys", self.keys)):
            self.adam.make_room(name, table, len(rows) * self.options.picks)
        super()._learn(pixels, rows)

    def _layout(self) -> tuple[Hashable, ...]:
        return (*super()._layout(), self.adam.moves)

    def _one_step(self, tokens: Tensor, query: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        with torch.no_grad():
            chosen = self._choose(query, o.train_selection)
        taken = chosen.flatten()
        parts = {"prompts": Part.of_rows(self.prompts, taken), "keys": Part.of_rows(self.keys, taken)}
        parts |= {f"head.{name}": part for name, part in self.head.trained().items()}
        feature = self._prompted(tokens, parts["prompts"].leaf.view(*chosen.shape, *self.prompts.shape[1:]))
        allowed = allowed_classes(o.mask, rows, self.clock.first_row, len(self.classes))
        values = {
            "ce": masked_cross_entropy(self.head.logits(feature, head_parts(parts)), rows, allowed),
            "pull": pull(query, parts["keys"].leaf.view(*chosen.shape, -1)),
        }
        values["total"] = values["ce"] - o.pull * values["pull"]
        return descend(values, parts, self.adam, o)

    def _choose(self, query: Tensor, selection: Selection) -> Tensor:
        """Rows of the prompts that each sample takes, `[B, picks]`."""
        chosen = nearest_keys(query, self.keys, self.options.picks)
        return batch_vote(chosen, self.options.pool) if selection == "batch_vote" else chosen

    def _prompted(self, tokens: Tensor, prompts: Tensor) -> Tensor:
        """Mean output `[B, D]` at the positions of prompts `[B, picks, length, D]`."""
        added = prompts.flatten(1, 2)
        if self.options.prompt_position == "class" and not self.backbone.model.no_embed_class:
            added = added + self.backbone.model.pos_embed[:, :1]
        tokens = torch.cat([tokens[:, :1], added, tokens[:, 1:]], dim=1)
        outputs = self.backbone.encode(tokens, rows=1 + added.shape[1]).rows
        assert outputs is not None
        return outputs[:, 1:].mean(1)

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self.backbone.features(self._evaluation_input(pixels))

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        tokens = self.backbone.embed(self._evaluation_input(pixels))
        query = self.backbone.encode(tokens).feature if fixed is None else fixed
        chosen = self._choose(query, self.options.test_selection)
        return self.head.logits(self._prompted(tokens, self.prompts[chosen]))

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        return cosine_to_all(self._fixed(pixels) if fixed is None else fixed, self.keys).amax(1)

    def _evaluation_input(self, pixels: Pixels) -> Tensor:
        return evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)

    def exemptions(self) -> dict[str, str]:
        if self.options.test_selection == "batch_vote":
            return {"batch_independence": "test_selection=batch_vote gives all samples of a batch the same prompts"}
        return {}

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        mixed = "the prompts and their keys, which all classes share, were trained with it"
        return Contents(LINEAR_HEAD, traces=(AGAINST_IT, mixed), merged=(AVERAGED, mixed))

    def footprint(self) -> Footprint:
        head = [table.rows for table in self.head.tables().values()]
        everything, nothing = Amount.of(self.prompts, self.keys, *head), Amount(0, 0)
        return Footprint(everything, everything, nothing, nothing)

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:  # noqa: ARG002
        pool = Amount.of(self.prompts, self.keys).count
        return {"pool, keys and the head of all classes": pool + classes * (self.backbone.width + 1)}

    def _state(self) -> State:
        moments, adam = self.adam.state()
        tensors = {"prompts": self.prompts, "keys": self.keys}
        tensors |= packed(head={name: table.rows for name, table in self.head.tables().items()}, adam=moments)
        return tensors, {"adam": adam, "clock": asdict(self.clock), "last": dict(self.report())}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.prompts, self.keys = (tensors[name].to(self.prompts) for name in ("prompts", "keys"))
        self.head.load(unpacked("head", tensors))
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.clock = TaskClock(**meta["clock"])
        self._take_step.restore(meta["last"])

"""A small learner of every method, and of variants that store something else: one table for tests of all methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch

import prol
from golden_files import tiny_vit
from methods.small_streams import pictures
from prol import registry
from prol.backbones import Backbone, ResNet
from prol.learner import Learner

PROL = {"blocks": 3, "lr": 0.01, "lr_scaling": False, "chunk": 4}
REPLAY = {"memory": 20, "replay": 8}
PLUS = {"budget_mb": 1, "blocks": 1, "features": 20}
FLY = {"blocks": 1, "length": 2, "steps": 2, "features": 20, "expert_samples": 8, "experts": 2}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "ncm": ("ncm", {}),
    "slda": ("slda", {}),
    "ranpac": ("ranpac", {"features": 40}),
    "randumb": ("randumb", {"features": 40}),
    "foal": ("foal", {"features": 40}),
    "layup": ("layup", {}),
    "klda": ("klda", {"features": 40, "gamma": 0.05}),
    "lr_rgda": ("lr_rgda", {}),
    "knn": ("knn", {"k": 3}),
    "logreg": ("logreg", {}),
    "prol_plus": ("prol_plus", PLUS),
    "prol": ("prol", PROL),
    "head_only": ("head_only", {}),
    "l2p": ("l2p", {}),
    "dualprompt": ("dualprompt", {"e_blocks": 2}),
    "coda_prompt": ("coda_prompt", {"blocks": 3}),
    "convprompt": ("convprompt", {"blocks": 3}),
    "flyprompt": ("flyprompt", FLY),
    "finetune": ("finetune", {}),
    "mos": ("mos", {}),
    "ease": ("ease", {"bottleneck": 4}),
    "lae": ("lae", {"blocks": 3}),
    "er": ("er", REPLAY),
    "derpp": ("derpp", REPLAY),
    "er_ace": ("er_ace", REPLAY),
    "gdumb": ("gdumb", {"memory": 20, "epochs": 2, "batch": 8}),
    "mose": ("mose", REPLAY),
    "gsa": ("gsa", REPLAY),
    "esrm": ("esrm", REPLAY),
    "ocm": ("ocm", {**REPLAY, "rotations": 2}),
    "onpro": ("onpro", {**REPLAY, "rotations": 2, "close_pairs": 2}),
}
"""By its own name, each method with its usual options, but small."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = METHODS | {
    "ncm, augmented": ("ncm", {"augment": "crop_flip"}),
    "ranpac, ridge": ("ranpac", {"features": 40, "ridge": 0.5}),
    "ranpac, lda": ("ranpac", {"features": 40, "classifier": "lda"}),
    "ranpac, tuned": ("ranpac", {"features": 40, "adapt": "norms"}),
    "ranpac, tuned in float32": ("ranpac", {"features": 40, "adapt": "norms", "accumulate": "float32"}),
    "ranpac, none": ("ranpac", {"features": 40, "memory": "none"}),
    "ranpac, reservoir": ("ranpac", {"features": 40, "memory": 2}),
    "ranpac, all": ("ranpac", {"features": 40, "memory": "all", "ridge": 0.5}),
    "randumb, gamma": ("randumb", {"features": 40, "gamma": 0.05}),
    "layup, ridge": ("layup", {"blocks": 2, "ridge": 0.5, "accumulate": "float32"}),
    "klda, ensemble": ("klda", {"features": 30, "gamma": 0.05, "ensemble": 3}),
    "lr_rgda, narrow": ("lr_rgda", {"rank": 1}),
    "logreg, blocks": ("logreg", {"features": "prol_plus", "blocks": 2, "penalty": 0.1}),
    "prol_plus, untuned": ("prol_plus", {**PLUS, "adapt_steps": 0}),
    "prol_plus, two blocks": ("prol_plus", {**PLUS, "blocks": 2}),
    "prol_plus, blocks alone": ("prol_plus", {**PLUS, "pooled": False, "features": 0, "adapt_steps": 2}),
    "prol_plus, least budget": ("prol_plus", {"budget_mb": 0.4, "adapt_steps": 0}),
    "head_only, both losses": ("head_only", {"intra": 1.0}),
    "prol, soft at once": ("prol", {**PROL, "threshold": 1e9}),
    "prol, literal": ("prol", {**PROL, "preset": "literal"}),
    "prol, released": ("prol", {**PROL, "preset": "released"}),
    "prol, clipped": ("prol", {**PROL, "clip": 0.1}),
    "prol, frozen norms": ("prol", {**PROL, "tune_norms": False}),
    "prol, released factor": ("prol", {**PROL, "similarity_factor": "released"}),
    "prol, thawed heads": ("prol", {**PROL, "thaw_heads": True}),
    "prol, one head": ("prol", {**PROL, "head": "growing"}),
    "prol, without keys": ("prol", {**PROL, "ablation": "generator"}),
    "prol, without prompts": ("prol", {**PROL, "ablation": "ft_inter_intra"}),
    "convprompt, auto": ("convprompt", {"blocks": 3, "generators": "auto", "auto_chunks": 1}),
    "mos, full": ("mos", {"covariance": "full"}),
    "mos, aligned at task ends": ("mos", {"align_epochs": 2, "covariance": "full", "align_when": "task_end"}),
    "mos, unaligned": ("mos", {"alignment": False}),
    "lae, frozen at first": ("lae", {"blocks": 3, "freeze_steps": 1}),
    "lae, lora": ("lae", {"blocks": 3, "module": "lora"}),
    "lae, prefix": ("lae", {"blocks": 3, "module": "prefix"}),
}
STORES_ALL = {"nothing_outlives_its_step", "memory_is_bounded"}
EXEMPT: dict[str, set[str]] = {
    **dict.fromkeys(("knn", "logreg", "logreg, blocks", "ranpac, all"), STORES_ALL),
    "ranpac, reservoir": {"nothing_outlives_its_step"},
    "prol, released": {"batch_independence", "classes_need_no_announcement"},
    "prol, released factor": {"batch_independence"},
}
"""Checks of `prol.check_learner` that a variant cannot pass by definition."""
WITH_MEMORY = [name for name in METHODS if registry.method(name).from_scratch]
"""Replay methods, whose own tests run `prol.check_learner`."""
TASKS = (list(range(7)), list(range(7, 11)))
"""Eleven classes in all: no tensor of these small learners has eleven rows for another reason."""


def cases(names: Iterable[str], fast: Iterable[str] = tuple(METHODS)) -> list[Any]:
    """Names as test parameters; all but the `fast` ones are marked as slow."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def make(variant: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> Learner:
    method, options = VARIANTS[variant]
    return prol.create(method, backbone_for(method, dtype), seed=seed, **options)


def backbone_for(method: str, dtype: torch.dtype = torch.float64) -> Backbone:
    """The golden files' tiny ViT, or a ResNet no larger for methods that train one."""
    if not registry.method(method).from_scratch:
        return tiny_vit(dtype)
    return ResNet(4, size=16, precision="float64" if dtype == torch.float64 else "float32")


def teach(
    learner: Learner,
    tasks: Sequence[Sequence[int]] = TASKS,
    steps: int = 2,
    first: int = 0,
    without: Sequence[int] = (),
) -> Learner:
    """Tasks with given boundaries and classes that are not announced, one image of each per step, but for `without`."""
    for classes in tasks:
        learner.boundary()
        for step in range(first, first + steps):
            kept = [place for place, name in enumerate(classes) if name not in without]
            learner.learn(pictures(classes, seed=step)[kept], [classes[place] for place in kept])
    return learner


def taught(variant: str, **how: Any) -> Learner:
    return teach(make(variant), **how)

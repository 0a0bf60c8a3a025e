"""PROL's dials, its presets, the paper's coefficients by data set, and the rows of the paper's ablation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prol.backbones import Augment, InputRange
from prol.options import coerce_options

Preset = Literal["paper", "released", "literal"]
Ablation = Literal[
    "ft_inter",
    "ft_inter_intra",
    "generator",
    "keys",
    "orthogonality",
    "hard_soft",
    "full",
    "norms_only",
    "null_prefix",
    "generator_without_norms",
]


@dataclass(frozen=True)
class PROLOptions:
    """Every dial of PROL; names follow the paper where it has them."""

    preset: Preset = "paper"
    """paper: the method as described; released: the published code with its faults; literal: the text to the letter."""
    coefficients: str = "imagenet_r"
    """Data set whose coefficients to take; ImageNet-R's for any that the paper does not have."""
    ablation: Ablation | None = None
    """A row of the paper's ablation table, or one of the rows it lacks."""
    chunk: int = 10
    """Configured chunk size: the B of lr x B / 256; with preset released also the evaluation batch."""
    augment: Augment = "crop_flip"
    input_range: InputRange = "backbone"
    """Values fed to the network: as the backbone was trained, plain [0, 1] (unit), or [-1, 1] (symmetric)."""
    crop_pct: float | None = None
    """Share of the shorter side that evaluation keeps; the backbone's own by default."""

    lr: float = 0.05
    """Nominal learning rate; the effective one is lr x chunk / 256 with lr_scaling."""
    lr_scaling: bool = True
    norm_lr_factor: float = 0.0005
    """Rate of the backbone's LayerNorms from the second task on, as a share of lr."""
    clip: float | None = None
    """Limit on the joint length of all gradients."""

    intra: float = 1.0
    inter: float = 0.03
    sim: float = 1.0
    ort: float = 1.0
    gen: float = 0.1

    hsu: bool = True
    threshold: float = 0.8
    t_max: int = 20
    eta_min: float = 0.0005
    norm_eta_min: Literal["absolute", "proportional"] = "absolute"
    """Whether the soft schedule's floor is the same for the LayerNorms or scaled like their rate."""

    generator: bool = True
    scalers: bool = True
    """Class-wise scalers and shifters; they need keys."""
    keys: bool = True
    tune_norms: bool = True

    length: int = 5
    blocks: int = 5
    """Prompted blocks, counted from the first."""
    eps_a: float = 0.001
    eps_b: float = 0.0001
    generator_bias: bool = True
    layer_sum: bool = True
    """Each prompted block gets its own prompt plus that of the block before."""
    query: Literal["class_feature", "class_token", "patch_embedding"] = "class_feature"
    prompt_selection: Literal["nearest", "label"] = "nearest"
    """Which key's scalers a training sample takes; at test always the nearest."""
    similarity_factor: Literal["per_sample", "released", "one", "zero"] = "per_sample"
    detach_factor: bool = False
    """Keeps cross entropy from moving keys through the similarity factor."""
    train_rows: Literal["global", "local"] = "global"
    """local: scaler rows in training are counted within the task, as the released code does."""

    ort_raw: bool = False
    ort_detach_old: bool = False
    gen_raw: bool = False
    gen_off_diagonal: bool = True

    head: Literal["per_task", "growing"] = "per_task"
    """A LayerNorm + Linear a task with old ones frozen, or a single one that grows and is always trained."""
    thaw_heads: bool = False
    """Trains the heads of earlier tasks on, instead of freezing them."""
    task_min_classes: int = 2
    task_min_steps: int = 50
    """Without boundaries: classes a task gathers, and steps after which it counts as settled."""

    def __post_init__(self) -> None:
        if self.scalers and not self.keys:
            raise ValueError("scalers=true needs keys=true: scalers are chosen by key; set scalers=false too")
        for name in ("chunk", "length", "blocks", "t_max", "task_min_classes", "task_min_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "eta_min", "eps_a", "eps_b", "norm_lr_factor"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number of at least 0, got {getattr(self, name)}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip must be above 0, got {self.clip}; use clip=none to switch it off")


_CIFAR = {"inter": 0.001, "threshold": 0.3, "lr": 0.01, "clip": 1.0, "blocks": 7}
_IMAGENET_R = {"inter": 0.03, "threshold": 0.8, "lr": 0.05, "clip": None, "blocks": 5}
COEFFICIENTS: Mapping[str, Mapping[str, Any]] = {
    "cifar100": _CIFAR,
    "imagenet_r": _IMAGENET_R,
    "imagenet_a": _IMAGENET_R,
    "cub200": {"inter": 0.01, "threshold": 0.3, "lr": 0.05, "clip": 1.0, "blocks": 7},
}
"""The released code's coefficients for the paper's four data sets."""

PRESETS: Mapping[Preset, Mapping[str, Any]] = {
    "paper": {},
    "released": {
        "similarity_factor": "released",
        "train_rows": "local",
        "gen_off_diagonal": False,
        "norm_eta_min": "absolute",
        "input_range": "unit",
        "crop_pct": 0.875,
    },
    "literal": {
        "tune_norms": False,
        "ort_raw": True,
        "gen_raw": True,
        "generator_bias": False,
        "layer_sum": False,
        "eta_min": 0.005,
        "head": "growing",
    },
}

_NO_PROMPT = {"generator": False, "scalers": False, "keys": False, "sim": 0.0, "ort": 0.0}
_PLAIN = {"hsu": False, "gen": 0.0}
ABLATIONS: Mapping[Ablation, Mapping[str, Any]] = {
    "ft_inter": {**_NO_PROMPT, **_PLAIN, "intra": 0.0, "inter": 1.0, "head": "growing"},
    "ft_inter_intra": {**_NO_PROMPT, **_PLAIN, "head": "growing"},
    "generator": {**_PLAIN, "scalers": False, "keys": False, "sim": 0.0, "ort": 0.0},
    "keys": {**_PLAIN, "ort": 0.0},
    "orthogonality": {**_PLAIN},
    "hard_soft": {"gen": 0.0},
    "full": {},
    "norms_only": {**_NO_PROMPT},
    "null_prefix": {"scalers": False, "keys": False, "sim": 0.0, "ort": 0.0, "similarity_factor": "zero"},
    "generator_without_norms": {"tune_norms": False},
}
"""The paper's seven rows in its order, then three it lacks. The first two train head and LayerNorms without prompts."""


def read_prol_options(values: Mapping[str, Any]) -> PROLOptions:
    """Resolved options: the data set's coefficients, then the preset, then the ablation row, then what was given."""
    given = coerce_options(PROLOptions, values)
    ablation = given.get("ablation")
    return PROLOptions(
        **{
            **COEFFICIENTS.get(given.get("coefficients", PROLOptions.coefficients), _IMAGENET_R),
            **PRESETS[given.get("preset", PROLOptions.preset)],
            **(ABLATIONS[ablation] if ablation else {}),
            **given,
        }
    )

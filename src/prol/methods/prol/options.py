"""PROL's options, its presets, the paper's coefficients by data set, and the rows of the paper's ablation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prol.learner import TaskOptions
from prol.methods.gradient import StepOptions
from prol.options import ChunkSize, Count, NotNegative, coerce_options

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
class PROLOptions(StepOptions, TaskOptions):
    """Every option of PROL; names follow the paper where it has them."""

    preset: Preset = "paper"
    """Which configuration is the default: the method as described (paper), the published code with its faults
    (released), or the text to the letter (literal)."""
    coefficients: str = "imagenet_r"
    """Data set whose coefficients to take; ImageNet-R's for any that the paper does not have."""
    ablation: Ablation | None = None
    """A row of the paper's ablation table, or one of the rows it lacks."""
    chunk: ChunkSize = 10
    """Configured chunk size: the B of lr x B / 256; with preset released also the evaluation batch."""

    lr: NotNegative = 0.05
    """Nominal learning rate; the effective one is lr x chunk / 256 with lr_scaling."""
    norm_lr_factor: NotNegative = 0.0005
    """Rate of the backbone's LayerNorms from the second task on, as a share of lr."""

    intra: NotNegative = 1.0
    """Weight of the cross entropy over the current task's classes."""
    inter: NotNegative = 0.03
    """Weight of the cross entropy over all classes."""
    sim: NotNegative = 1.0
    """Weight of the cosine of queries to their classes' keys."""
    ort: NotNegative = 1.0
    """Weight of the orthogonality of new keys to old ones."""
    gen: NotNegative = 0.1
    """Weight of the generalisation term, the distance of prompted features from the pre-trained ones."""

    hsu: bool = True
    """The hard-soft update: a constant rate until a task is roughly learnt, then a cosine schedule."""
    threshold: NotNegative = 0.8
    """Cross entropy of a chunk below which the update turns soft."""
    t_max: Count = 20
    """Soft steps in half a period of the cosine schedule."""
    eta_min: NotNegative = 0.0005
    """Lowest rate of the cosine schedule."""
    norm_eta_min: Literal["absolute", "proportional"] = "absolute"
    """Whether the soft schedule's floor is the same for the LayerNorms or scaled like their rate."""

    generator: bool = True
    """Whether prompts are generated from the query; without, no block is prompted."""
    scalers: bool = True
    """Class-wise scalers and shifters; they need keys."""
    keys: bool = True
    """Class-wise keys, by which scalers are chosen."""
    tune_norms: bool = True
    """Whether the backbone's LayerNorms are trained."""

    length: Count = 5
    """Positions of a prompt."""
    blocks: Count = 5
    """Prompted blocks, counted from the first."""
    eps_a: NotNegative = 0.001
    """How far scalers may be from 1."""
    eps_b: NotNegative = 0.0001
    """How far shifters may be from 0."""
    generator_bias: bool = True
    """Whether the generator's convolutions have a bias."""
    layer_sum: bool = True
    """Whether each prompted block gets its own prompt plus that of the block before."""
    query: Literal["class_feature", "class_token", "patch_embedding"] = "class_feature"
    """What of the untouched network is compared with keys and generates prompts."""
    prompt_selection: Literal["nearest", "label"] = "nearest"
    """Which key's scalers a training sample takes; a prediction always takes the nearest."""
    similarity_factor: Literal["per_sample", "released", "one", "zero"] = "per_sample"
    """What prompts are multiplied with: each query's cosine to its key, or as named."""
    detach_factor: bool = False
    """Whether the gradient of the cross entropy to keys through the similarity factor is stopped."""
    train_rows: Literal["global", "local"] = "global"
    """How scaler rows are counted in training: among all classes, or within the task, as released (local)."""

    ort_raw: bool = False
    """Whether the orthogonality term takes keys as they are, instead of at length one."""
    ort_detach_old: bool = False
    """Whether the gradient of the orthogonality term to old keys is stopped."""
    gen_raw: bool = False
    """Whether the generalisation term takes features as they are, instead of at length one."""
    gen_off_diagonal: bool = True
    """Whether the generalisation term also has products of different coordinates."""

    head: Literal["per_task", "growing"] = "per_task"
    """One LayerNorm + Linear per task with old ones frozen, or a single one that grows and is always trained."""
    thaw_heads: bool = False
    """Whether the heads of earlier tasks are trained, too, instead of frozen."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scalers and not self.keys:
            raise ValueError("scalers=true needs keys=true: scalers are chosen by key; set scalers=false too")


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

"""The scale of a reproduction: the paper's, the built-in backbone's, or a few minutes on a processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prol.evaluation import Measures
from prol.runs.plan import Plan

MethodOptions = Mapping[str, Any]

PAPER_BACKBONE = "vit_base_patch16_224.augreg_in21k"
PAPER_TINY_BACKBONE = "vit_tiny_patch16_224.augreg_in21k"
BUILT_IN_BACKBONE = "vit_tiny_patch8_64.tiny_imagenet"  # of the committed tables
CHUNK, TASKS = 10, 10

# Chosen on the development split of each data set with the built-in backbone: docs/results.md.
_CHOSEN_RATES: Mapping[str, Mapping[str, float]] = {
    "cifar100": {"l2p": 0.1, "dualprompt": 0.1, "convprompt": 0.05, "mos": 0.1, "prol": 0.05},
    "cub200": {"l2p": 0.1, "dualprompt": 0.05, "convprompt": 0.1, "mos": 0.1, "prol": 0.1},
}
# A network of another input size than the published code's: its own range and the whole image.
_OWN_INPUT = {"input_range": "backbone", "crop_pct": 1.0}
# Ten thousand random features need minutes of a processor at each test.
_FEW_FEATURES = {"ranpac": {"features": 100}, "randumb": {"features": 100}}
_FEW_VERSIONS = {"ocm": {"rotations": 2}, "onpro": {"rotations": 2}, "gdumb": {"epochs": 1}}


@dataclass(frozen=True)
class PaperScale:
    """The settings that all runs of a reproduction share.

    Args:
        backbone: of all methods except those that train from scratch.
        tiny_backbone: PROL's next to those.
        own_network: the network that those train.
        datasets: of the main table, the history and the appendix.
        home: of ablation and robustness, where the paper takes ImageNet-R.
        timed: of throughput and complexity, where it takes ImageNet-R.
        without_ptm: of the table of methods without a pre-trained model, where it takes CIFAR-100.
        most_per_class: images of a class in the longest stream of complexity; 120 is ImageNet-R's mean.
        data: paths of data sets, by name.
        dataset_options: options of data sets, by name.
        rates: learning rates by data set and method; the methods' defaults otherwise.
        options: options of methods, for every row.
        released: options of the published code's row.
        picked: rows or methods to run, with options; all when None.
    """

    name: str
    backbone: str
    tiny_backbone: str
    own_network: str
    datasets: tuple[str, ...]
    home: str
    timed: str
    without_ptm: str
    seeds: tuple[int, ...] = (0, 1, 2)
    limit_per_class: int | None = None
    most_per_class: int = 120
    chunk: int = CHUNK
    tasks: int | None = None
    device: str = "auto"
    precision: str = "auto"
    threads: int | None = None
    workers: int | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    dataset_options: Mapping[str, MethodOptions] = field(default_factory=dict)
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    options: Mapping[str, MethodOptions] = field(default_factory=dict)
    released: MethodOptions = field(default_factory=dict)
    picked: Mapping[str, MethodOptions] | None = None

    def plan(
        self,
        row: str,
        method: str,
        dataset: str,
        options: MethodOptions,
        backbone: str | None = None,
        timed: bool = False,
    ) -> Plan:
        """A planned run, with the first seed."""
        rate, picked = self.rates.get(dataset, {}).get(method), self.picked or {}
        own: dict[str, Any] = {} if rate is None else {"lr": rate}
        own |= {**self.options.get(method, {}), **options, **picked.get(method, {}), **picked.get(row, {})}
        plan = Plan(
            method=method,
            dataset=dataset,
            options=own,
            backbone=backbone or self.backbone,
            device=self.device,
            precision=self.precision,
            seed=self.seeds[0],
            tasks=self.tasks,
            chunk=self.chunk,
            data=self.data.get(dataset),
            dataset_options=self.dataset_options.get(dataset, {}),
            limit_per_class=self.limit_per_class,
            measures=Measures(reuse_features=not timed),
            threads=self.threads,
            workers=self.workers,
        )
        return replace(plan, checkpoint_every=None) if timed else plan

    def takes(self, row: str, method: str) -> bool:
        """Whether a row is run."""
        return self.picked is None or method in self.picked or row in self.picked

    def on(self, *datasets: str) -> PaperScale:
        """The same with other data sets in every item."""
        first = datasets[0]
        return replace(self, datasets=datasets, home=first, timed=first, without_ptm=first)


_FULL = PaperScale(
    name="full",
    backbone=PAPER_BACKBONE,
    tiny_backbone=PAPER_TINY_BACKBONE,
    own_network="resnet18_cifar",
    datasets=("cifar100", "imagenet_r", "imagenet_a", "cub200"),
    home="imagenet_r",
    timed="imagenet_r",
    without_ptm="cifar100",
)
_BUILTIN = replace(
    _FULL,
    name="builtin",
    backbone=BUILT_IN_BACKBONE,
    tiny_backbone=BUILT_IN_BACKBONE,
    datasets=("cifar100", "cub200"),
    home="cifar100",
    timed="generated",
    rates=_CHOSEN_RATES,
    released=_OWN_INPUT,
)
_SMOKE = replace(
    _BUILTIN,
    name="smoke",
    datasets=("digits", "glyphs"),
    home="digits",
    without_ptm="digits",
    seeds=(0,),
    limit_per_class=2,
    most_per_class=4,
    dataset_options={"generated": {"classes": 20, "side": 64}},
    own_network="resnet18_cifar@4",
    options=_FEW_FEATURES | _FEW_VERSIONS,
)
SCALES: Mapping[str, PaperScale] = {scale.name: scale for scale in (_FULL, _BUILTIN, _SMOKE)}


def read_scale(name: str) -> PaperScale:
    """A scale by its name."""
    if name not in SCALES:
        raise ValueError(f"unknown scale {name!r}: choose {', '.join(SCALES)}")
    return SCALES[name]

"""What can be reproduced: the rows of each item as methods with options, and the runs it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prol.paper.scale import PaperScale
from prol.runs.plan import Plan


@dataclass(frozen=True)
class MethodRow:
    """One row: its name here, how it is run, and the paper's row with which it is compared."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    beside: str | None = None


def _printed(name: str, method: str, **options: Any) -> MethodRow:
    return MethodRow(name, method, options, name)


# The paper fitted both by LDA on stored features: all, five per class, or the current task's alone.
PAPER_ROWS = (
    _printed("RanPAC-J", "ranpac", classifier="lda", memory="all"),
    _printed("RanDumb-J", "randumb", memory="all"),
    _printed("RanPAC-R", "ranpac", classifier="lda", memory=5),
    _printed("RanDumb-R", "randumb", memory=5),
    _printed("RanPAC", "ranpac", classifier="lda", memory="none"),
    _printed("RanDumb", "randumb", memory="none"),
    _printed("L2P", "l2p"),
    _printed("DualPrompt", "dualprompt"),
    _printed("ConvPrompt", "convprompt"),
    _printed("MOS", "mos"),
    _printed("PROL", "prol"),
)


def main_rows(released: Mapping[str, Any]) -> tuple[MethodRow, ...]:
    """The paper's eleven rows, and those it lacks: other readings of them, and learners that store statistics only.

    Args:
        released: options of the published code's row, besides its preset.
    """
    return (
        *PAPER_ROWS,
        MethodRow("MOS without alignment", "mos", {"alignment": False}, "MOS"),
        MethodRow("PROL as released", "prol", {"preset": "released", **released}, "PROL"),
        MethodRow("PROL+", "prol_plus"),
        MethodRow("RanPAC (statistics)", "ranpac"),
        MethodRow("RanDumb (statistics)", "randumb"),
        MethodRow("F-OAL", "foal"),
        MethodRow("SLDA", "slda"),
        MethodRow("NCM", "ncm"),
    )


REPLAY_ROWS = (
    MethodRow("ER", "er", beside="ER"),
    MethodRow("DER++", "derpp", beside="DER++"),
    MethodRow("ER-ACE", "er_ace", beside="ERACE"),
    MethodRow("OCM", "ocm", beside="OCM"),
    MethodRow("GSA", "gsa", beside="GSA"),
    MethodRow("OnPro", "onpro", beside="OnPro"),
    MethodRow("ESRM", "esrm", beside="ERSM"),
    MethodRow("MOSE", "mose"),
    MethodRow("GDumb", "gdumb"),
)
"""Methods that train a ResNet-18 from scratch and store 5,000 images; the paper copied numbers of the first seven."""


def _part(name: str, row: str, printed: bool = True) -> MethodRow:
    return MethodRow(name, "prol", {"ablation": row}, row if printed else None)


ABLATION_ROWS = (
    _part("FT (inter)", "ft_inter"),
    _part("FT (inter + intra)", "ft_inter_intra"),
    _part("+ G", "generator"),
    _part("+ SS + K (sim)", "keys"),
    _part("+ ort", "orthogonality"),
    _part("+ HSU", "hard_soft"),
    MethodRow("+ M (gen) = PROL", "prol", beside="full"),
    _part("norms only", "norms_only", printed=False),
    _part("null prefix", "null_prefix", printed=False),
    _part("generator without norms", "generator_without_norms", printed=False),
    MethodRow("whole network (inter)", "finetune", {}, "ft_inter"),
    MethodRow("whole network (inter + intra)", "finetune", {"intra": 1.0}, "ft_inter_intra"),
)
"""The paper's seven rows, three it lacks, and the other reading of its first two, which it does not define."""

ROBUST = ("ConvPrompt", "PROL")
LENGTHS = (3, 5, 7, 10, 15)
LAYERS = (3, 5, 7, 9)


@dataclass(frozen=True)
class Want:
    """One row of a table on one data set, with every seed.

    Args:
        row: its name here.
        beside: the paper's row with which it is compared.
        setting: the value of the parameter that the table varies, if any.
        timed: whether its time counts, so that nothing else may run meanwhile.
    """

    row: str
    beside: str | None
    plan: Plan
    setting: int | None = None
    timed: bool = False


@dataclass(frozen=True)
class Item:
    """A table or a figure of the paper.

    Args:
        made_of: other items whose runs together are all of its runs.
    """

    name: str
    about: str
    wants: Callable[[PaperScale], list[Want]]
    made_of: tuple[str, ...] = ()


def _lines(scale: PaperScale, lines: Iterable[MethodRow], datasets: Sequence[str], timed: bool = False) -> list[Want]:
    return [
        Want(
            line.name, line.beside, scale.plan(line.name, line.method, dataset, line.options, timed=timed), timed=timed
        )
        for dataset in datasets
        for line in lines
        if scale.takes(line.name, line.method)
    ]


def _main(scale: PaperScale) -> list[Want]:
    return _lines(scale, main_rows(scale.released), scale.datasets)


def _throughput(scale: PaperScale) -> list[Want]:
    return _lines(scale, PAPER_ROWS, [scale.timed], timed=True)


def _appendix(scale: PaperScale) -> list[Want]:
    return _main(scale) + _throughput(scale)


def _ablation(scale: PaperScale) -> list[Want]:
    return _lines(scale, ABLATION_ROWS, [scale.home])


def _without_ptm(scale: PaperScale) -> list[Want]:
    """The rows that the paper copied were measured on shuffled classes, its own in the order of labels."""
    dataset, wants = scale.without_ptm, []
    for line in REPLAY_ROWS:
        if scale.takes(line.name, line.method):
            plan = scale.plan(line.name, line.method, dataset, line.options, scale.own_network)
            wants.append(Want(line.name, line.beside, replace(plan, class_order="shuffled")))
    if scale.takes("PROL", "prol"):
        wants.append(Want("PROL", "PROL", scale.plan("PROL", "prol", dataset, {}, scale.tiny_backbone)))
    return wants


def _robustness(option: str, values: Sequence[int]) -> Callable[[PaperScale], list[Want]]:
    def wants(scale: PaperScale) -> list[Want]:
        return [
            Want(line.name, line.beside, scale.plan(line.name, line.method, scale.home, {option: value}), value)
            for line in PAPER_ROWS
            if line.name in ROBUST and scale.takes(line.name, line.method)
            for value in values
        ]

    return wants


_SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)


def _complexity(scale: PaperScale) -> list[Want]:
    """The same stream with fewer and with more images of each class."""
    wants = []
    for line in PAPER_ROWS:
        if line.name not in ROBUST or not scale.takes(line.name, line.method):
            continue
        whole = scale.plan(line.name, line.method, scale.timed, line.options, timed=True)
        if scale.timed == "generated":  # what is measured is learning
            whole = replace(whole, dataset_options={**whole.dataset_options, "test_per_class": 1})
        for limit in sorted({max(1, round(scale.most_per_class * share)) for share in _SHARES}):
            wants.append(Want(line.name, line.beside, replace(whole, limit_per_class=limit), limit, timed=True))
    return wants


ITEMS = {
    item.name: item
    for item in (
        Item("main", "final and cumulative accuracy and forgetting of every method", _main),
        Item("history", "accuracy and forgetting after each task, as figures", _main),
        Item("non-ptm", "methods that train a ResNet-18 from scratch and store images, and PROL", _without_ptm),
        Item("throughput", "parameters, images a second, training and inference time", _throughput),
        Item("robustness-length", "prompt length 3 to 15, PROL and ConvPrompt", _robustness("length", LENGTHS)),
        Item("robustness-layers", "3 to 9 prompted blocks, PROL and ConvPrompt", _robustness("blocks", LAYERS)),
        Item("ablation", "PROL's parts, with the rows that the paper lacks", _ablation),
        Item("appendix", "all per-task tables", _appendix, made_of=("main", "throughput")),
        Item("complexity", "time against the number of images, and time of a chunk against the task", _complexity),
    )
}


def pick(words: Sequence[str]) -> list[Item]:
    """Items by their names; `all` selects all of them."""
    if "all" in words:
        return list(ITEMS.values())
    for word in words:
        if word not in ITEMS:
            raise ValueError(f"unknown item {word!r}: choose {', '.join(ITEMS)} or all")
    return [ITEMS[word] for word in dict.fromkeys(words)]

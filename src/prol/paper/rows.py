"""Rows of the paper's tables as methods with options, and rows that the paper lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Line:
    """One row: its name here, how it is run, and the paper's row with which it is compared."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    beside: str | None = None


def _printed(name: str, method: str, **options: Any) -> Line:
    return Line(name, method, options, name)


# The paper fitted both by LDA on stored features: all, five per class, or the current task's alone.
_PAPER = (
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
PAPER_ROWS = _PAPER


def main_rows(released: Mapping[str, Any]) -> tuple[Line, ...]:
    """The paper's eleven rows, and those it lacks: other readings of them, and learners that store statistics only.

    Args:
        released: options of the published code's row, besides its preset.
    """
    return (
        *_PAPER,
        Line("MOS without alignment", "mos", {"alignment": False}, "MOS"),
        Line("PROL as released", "prol", {"preset": "released", **released}, "PROL"),
        Line("PROL+", "prol_plus"),
        Line("RanPAC (statistics)", "ranpac"),
        Line("RanDumb (statistics)", "randumb"),
        Line("F-OAL", "foal"),
        Line("SLDA", "slda"),
        Line("NCM", "ncm"),
    )


REPLAY_ROWS = (
    Line("ER", "er", beside="ER"),
    Line("DER++", "derpp", beside="DER++"),
    Line("ER-ACE", "er_ace", beside="ERACE"),
    Line("OCM", "ocm", beside="OCM"),
    Line("GSA", "gsa", beside="GSA"),
    Line("OnPro", "onpro", beside="OnPro"),
    Line("ESRM", "esrm", beside="ERSM"),
    Line("MOSE", "mose"),
    Line("GDumb", "gdumb"),
)
"""Methods that train a ResNet-18 from scratch and store 5,000 images; the paper copied numbers of the first seven."""


def _ablation(name: str, row: str, printed: bool = True) -> Line:
    return Line(name, "prol", {"ablation": row}, row if printed else None)


ABLATION_ROWS = (
    _ablation("FT (inter)", "ft_inter"),
    _ablation("FT (inter + intra)", "ft_inter_intra"),
    _ablation("+ G", "generator"),
    _ablation("+ SS + K (sim)", "keys"),
    _ablation("+ ort", "orthogonality"),
    _ablation("+ HSU", "hard_soft"),
    Line("+ M (gen) = PROL", "prol", beside="full"),
    _ablation("norms only", "norms_only", printed=False),
    _ablation("null prefix", "null_prefix", printed=False),
    _ablation("generator without norms", "generator_without_norms", printed=False),
    Line("whole network (inter)", "finetune", {}, "ft_inter"),
    Line("whole network (inter + intra)", "finetune", {"intra": 1.0}, "ft_inter_intra"),
)
"""The paper's seven rows, three it lacks, and the other reading of its first two, which it does not define."""

ROBUST = ("ConvPrompt", "PROL")
LENGTHS = (3, 5, 7, 10, 15)
LAYERS = (3, 5, 7, 9)

"""PROL's loss terms as one function of tensors: what torch's compiler can join into a few operations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from prol.engine import losses
from prol.engine.heads import HeadTensors, head_logits
from prol.engine.similarity import cosine_pairs
from prol.methods.prol.options import PROLOptions

TERMS = ("sim", "ort", "gen", "inter", "intra", "ce")


class Judged(NamedTuple):
    """What the losses of one chunk depend on."""

    prompted: Tensor
    """The working network's class feature `[B, D]`."""
    plain: Tensor
    """The untouched network's, `[B, D]`."""
    query: Tensor
    """What was compared with the keys, `[B, D]`."""
    columns: Tensor
    """Each sample's own column among the logits, `[B]`."""
    current: Tensor
    """Which samples are of the current task, bool `[B]`: the others enter L_inter only."""
    first: Tensor
    """The current task's first class row."""
    label_keys: Tensor | None
    """The key of each sample's class, `[B, D]`."""
    old_keys: Tensor | None
    """Its nearest old key, `[B, D]`, after the first task."""


def loss_terms(o: PROLOptions, head: HeadTensors, of: Judged) -> tuple[Tensor, Tensor]:
    """The loss, and the terms it is made of in the order of `TERMS`, `[6]`, which carry no gradient.

    One tensor for all terms: where the loss is "ce" and nothing else, torch's compiler would give a single tensor for
    both, and the loss would carry no gradient either.
    """
    logits = head_logits(of.prompted, head)
    zero = logits.new_zeros(())
    values = {"sim": zero, "ort": zero, "gen": zero}
    values["inter"] = losses.inter_task(logits, of.columns)
    values["intra"] = losses.intra_task(logits, of.columns, head.columns >= of.first, of.current)
    if o.gen:
        values["gen"] = losses.generalisation(of.plain, of.prompted, o.gen_raw, o.gen_off_diagonal, of.current)
    if of.label_keys is not None:
        values["sim"] = losses.mean_over(cosine_pairs(of.query, of.label_keys), of.current)
    if of.label_keys is not None and of.old_keys is not None:
        old_keys = of.old_keys.detach() if o.ort_detach_old else of.old_keys
        values["ort"] = losses.orthogonality(of.label_keys, old_keys, o.ort_raw, of.current)
    values["ce"] = o.intra * values["intra"] + o.inter * values["inter"]
    total = values["ce"] - o.sim * values["sim"] + o.ort * values["ort"] + o.gen * values["gen"]
    return total, torch.stack([values[name].detach() for name in TERMS])

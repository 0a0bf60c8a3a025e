"""PROL's loss terms, and all of them as one function of tensors, which torch's compiler joins into few operations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from prol.engine.heads import HeadTensors, head_logits
from prol.engine.losses import inter_task, intra_task, mean_over
from prol.engine.similarity import cosine_pairs, unit
from prol.methods.prol.options import PROLOptions

TERMS = ("sim", "ort", "gen", "inter", "intra", "ce")


def orthogonality(keys: Tensor, old_keys: Tensor, raw: bool = False, counts: Tensor | None = None) -> Tensor:
    """Mean product of each sample's class key with its matched old key, both `[B, D]`; signed, so it may go below zero.

    Keys are taken at length one unless `raw` (the paper's formula to the letter).
    """
    return mean_over((keys * old_keys).sum(-1) if raw else cosine_pairs(keys, old_keys), counts)


def generalisation(
    plain: Tensor, prompted: Tensor, raw: bool = False, off_diagonal: bool = True, counts: Tensor | None = None
) -> Tensor:
    """Distance of the prompted feature from the pre-trained one, coordinate by coordinate; both `[B, D]`.

    With M = UᵀV / B: the mean of (1 - M_jj)² plus the mean of M_jk² over j ≠ k. M itself (D x D) is never formed: its
    squared norm is the sum of (UUᵀ)(VVᵀ) entries / B², two B x B matrices. Features are at length one unless `raw`.
    """
    u, v = (plain, prompted) if raw else (unit(plain), unit(prompted))
    width = u.shape[1]
    batch: int | Tensor = len(u)
    if counts is not None:
        batch = counts.sum().clamp(min=1)
        u, v = u * counts.unsqueeze(1), v * counts.unsqueeze(1)
    diagonal = (u * v).sum(0) / batch
    loss = (1 - diagonal).square().mean()
    if off_diagonal:
        whole = ((u @ u.T) * (v @ v.T)).sum() / batch**2
        loss = loss + (whole - diagonal.square().sum()) / (width * (width - 1))
    return loss if counts is None else loss * counts.any()


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

    One tensor for all terms: where the loss is "ce" and nothing else, torch's compiler would return a single tensor for
    both, and the loss would carry no gradient either.
    """
    logits = head_logits(of.prompted, head)
    zero = logits.new_zeros(())
    values = {"sim": zero, "ort": zero, "gen": zero}
    values["inter"] = inter_task(logits, of.columns)
    values["intra"] = intra_task(logits, of.columns, head.columns >= of.first, of.current)
    if o.gen:
        values["gen"] = generalisation(of.plain, of.prompted, o.gen_raw, o.gen_off_diagonal, of.current)
    if of.label_keys is not None:
        values["sim"] = mean_over(cosine_pairs(of.query, of.label_keys), of.current)
    if of.label_keys is not None and of.old_keys is not None:
        old_keys = of.old_keys.detach() if o.ort_detach_old else of.old_keys
        values["ort"] = orthogonality(of.label_keys, old_keys, o.ort_raw, of.current)
    values["ce"] = o.intra * values["intra"] + o.inter * values["inter"]
    total = values["ce"] - o.sim * values["sim"] + o.ort * values["ort"] + o.gen * values["gen"]
    return total, torch.stack([values[name].detach() for name in TERMS])

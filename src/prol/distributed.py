"""One learner out of many processes: each learns its share of the images, then all reduce what they have added up.

Run under torchrun, or wherever `torch.distributed.init_process_group` was called.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from prol.merging import Agreement, Sums, Terms, agree, assembled, contribution, share_of, terms_of

if TYPE_CHECKING:
    from prol.learner import Learner


def reduce(learner: Learner, base: Learner | None = None, group: Any = None) -> None:
    """Every process calls it with the learner that has learnt its share; afterwards each has learnt all shares.

    What cannot be merged raises the same ValueError in every process and changes none of them. A share may be empty.

    Args:
        learner: of one method with the same options and seed in all processes.
        base: a clone of what all learners were before they learnt their shares, where that was not nothing: after an
            earlier `reduce`, for one, which would be counted in every process otherwise.
        group: the processes, all of them by default.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("there are no processes to reduce over: call torch.distributed.init_process_group first")
    sums, ours, terms = _prepared(learner, base, group)
    plan = _agreed(terms)
    shared: list[Any] = [None]
    if dist.get_rank(group) == plan.leader:
        assert sums is not None
        shared = [_outline(sums, learner.random.get_state())]
    dist.broadcast_object_list(shared, src=_global(plan.leader, group), group=group)
    outline, random = shared[0]
    total, shapes = {}, terms[plan.leader][0].shapes
    for name in [*outline.tables, *outline.totals]:
        if sums is None:
            part = _nothing(name, name in outline.totals, shapes, plan, learner.backbone.device)
        else:
            part = contribution(name, sums, learner.classes, plan)
            if ours is not None and base is not None and dist.get_rank(group):
                part -= contribution(name, ours, base.classes, plan)
        dist.all_reduce(part, group=group)
        total[name] = part
    tensors, meta = assembled(learner, outline, total, plan)
    learner.load_state({**tensors, "random": random}, meta)


def _prepared(
    learner: Learner, base: Learner | None, group: Any
) -> tuple[Sums | None, Sums | None, list[tuple[Terms, Terms | None]]]:
    """This process's sums, those of its base, and the terms of all processes; what failed in one fails in all."""
    sums = ours = failed = None
    try:
        sums, ours = share_of(learner), None if base is None else share_of(base)
        mine: Any = terms_of(learner, sums), None if base is None else terms_of(base, ours)
    except Exception as error:  # the others wait for a reply, whatever it is
        failed, mine = error, f"{error}"
    heard: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(heard, mine, group=group)
    if failed is not None:
        raise failed
    for rank, one in enumerate(heard):
        if isinstance(one, str):
            raise ValueError(f"process {rank} cannot be merged: {one}")
    return sums, ours, heard


def _agreed(terms: list[tuple[Terms, Terms | None]]) -> Agreement:
    bases = [base for _, base in terms]
    if any(base != bases[0] for base in bases):
        raise ValueError("the base is not the same in every process: pass a clone of what all of them began with")
    return agree([own for own, _ in terms], bases[0])


def _outline(sums: Sums, random: torch.Tensor) -> tuple[Sums, torch.Tensor]:
    """What all processes must know of the leader's sums: everything but their values."""
    tables, totals = (
        {name: torch.empty(0, dtype=tensor.dtype) for name, tensor in tensors.items()}
        for tensors in (sums.tables, sums.totals)
    )
    rest = {name: tensor.detach().cpu().clone() for name, tensor in sums.rest[0].items()}
    return Sums(tables, totals, rest=(rest, deepcopy(dict(sums.rest[1])))), random


def _nothing(
    name: str, total: bool, shapes: Mapping[str, tuple[int, ...]], plan: Agreement, device: torch.device
) -> torch.Tensor:
    """The zeros that a process without any image adds."""
    shape = shapes[name]
    return torch.zeros(shape if total else (len(plan.classes), *shape), dtype=torch.float64, device=device)


def _global(rank: int, group: Any) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)

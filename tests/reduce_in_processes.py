"""One of several processes that learn shares and reduce them: `python ... RANK PROCESSES FOLDER`.

They meet in a file of the folder. Each writes what its learners have become, and says whether they are what one process
makes of everything.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import prol
from prol.distributed import reduce
from prol.learner import Learner
from prol.merging import fingerprint
from test_merging import DEEPER, MERGEABLE, PLUS, VIT, assert_same, make, settled, teach


def shares_of(processes: int, start: int = 0) -> list[list[int]]:
    """Uneven, and each with classes of its own; the last one has nothing but in the case of two."""
    numbers = list(range(start, 30))
    if processes == 2:
        return [numbers[::3], [number for number in numbers if number not in numbers[::3]]]
    return [numbers[:7], numbers[7:], *([] for _ in range(processes - 2))]


def attempt(learner: Learner, base: Learner | None = None) -> str:
    before = fingerprint(learner.state()[0])
    try:
        reduce(learner, base)
    except ValueError as error:
        assert fingerprint(learner.state()[0]) == before
        return str(error)
    return "reduced"


def main(rank: int, processes: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes, timeout=timedelta(seconds=60)
    )
    found: dict[str, Any] = {"states": {}, "refusals": {}}

    def check(name: str, learner: Learner, whole: Learner, tolerance: float) -> None:
        assert_same(learner, whole, tolerance)
        found["states"][name] = [learner.classes, fingerprint(learner.state()[0]), learner.state()[1]["method"]]

    shares = shares_of(processes)
    in_turn = [number for share in shares for number in share]
    for variant in MERGEABLE:
        learner = teach(make(variant), shares[rank])
        reduce(learner)
        check(variant, learner, teach(make(variant), in_turn), 1e-5 if "float32" in variant else 1e-9)
    again = learner.clone()
    teach(again, shares[rank][:3])
    reduce(again, base=learner)
    more: Sequence[int] = [number for share in shares for number in share[:3]]
    check("again", again, teach(teach(make(variant), in_turn), more), 1e-9)
    base = settled("prol_plus", **PLUS)
    plus = teach(base.clone(), shares_of(processes, 3)[rank])
    reduce(plus, base)
    check(
        "prol_plus", plus, teach(base.clone(), [number for share in shares_of(processes, 3) for number in share]), 1e-5
    )

    odd = rank == 1
    one_trained = prol.create("ncm" if not odd else "head_only", VIT)
    found["refusals"]["one trained"] = attempt(teach(one_trained, range(4)))
    gamma = prol.create("randumb", DEEPER, features=20)
    found["refusals"]["gamma"] = attempt(teach(gamma, range(4 * rank, 4 * rank + 4)))
    found["refusals"]["base here only"] = attempt(teach(base.clone(), range(4)), base if odd else None)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))

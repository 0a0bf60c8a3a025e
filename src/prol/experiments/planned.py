"""Names of folders for plans, and whether a run that lies in one is the run that is planned."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from prol.experiments.grid import CONDITIONS
from prol.experiments.method_words import spell_options
from prol.runs import Plan, RunFolder
from prol.runs.setup import absolute, look_up

_LONGEST, _KEPT = 120, 80
_DEFAULTS = {field.name: field.default for field in fields(Plan)}


def folder_name(plan: Plan) -> str:
    """All that makes a run what it is, in words; where they are many, the first of them and a hash of all.

    >>> folder_name(Plan("prol", "digits", options={"lr": 0.01, "length": 3}, chunk=50, development=True, seed=2))
    'prol-length=3,lr=0.01-digits-chunk=50,development=true-seed2'
    """
    settings = named_settings(plan)
    parts = (plan.method, spell_options(plan.options), plan.dataset, spell_options(settings))
    plain = "-".join(filter(None, parts))
    safe = re.sub(r"[^\w.,=+-]", "_", plain)
    if safe != plain or len(safe) > _LONGEST:
        content = json.dumps([plan.method, dict(plan.options), plan.dataset, settings], sort_keys=True)
        safe = f"{safe[:_KEPT]}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    return f"{safe}-seed{plan.seed}"


def named_settings(plan: Plan) -> dict[str, Any]:
    """Settings of data and stream that are not as they are by default, by their flags' names."""
    wanted = (*CONDITIONS, "development")
    settings = {name: getattr(plan, name) for name in wanted if getattr(plan, name) != _DEFAULTS[name]}
    settings |= {f"protocol.{name}": value for name, value in plan.protocol_options.items()}
    settings |= {f"data.{name}": value for name, value in plan.dataset_options.items()}
    return settings | ({"points": plan.measures.points} if plan.measures.points else {})


def require_planned(plan: Plan, run: RunFolder) -> None:
    """A run found in a folder must be the one that is planned, as far as names and options tell."""
    config = run.read(run.config)
    for name, wanted in _asked(plan).items():
        there: Any = config
        for part in name.split("/"):
            there = there.get(part) if isinstance(there, dict) else None
        if name == "device" and ":" not in wanted:
            there = there.partition(":")[0]
        if there != wanted:
            raise ValueError(
                f"{run.path} holds a run with {name.replace('/', '.')} {there!r}, asked for is {wanted!r}: "
                "choose another --out"
            )


def _asked(plan: Plan) -> Mapping[str, Any]:
    """What a run's config must hold, by its path in there; what the plan leaves open is left out."""
    named = look_up(plan)
    asked = {
        "method": plan.method,
        "options": asdict(named.options),
        "seed": plan.seed,
        "dataset/name": plan.dataset,
        "dataset/options": named.dataset_options,
        "dataset/development": plan.development,
        "dataset/limit_per_class": plan.limit_per_class,
        "protocol/name": plan.protocol,
        "protocol/chunk": plan.chunk,
        "protocol/class_order": plan.class_order,
        "protocol/options": named.protocol_options,
        "measures": asdict(plan.measures),
        "checkpoint_every": plan.checkpoint_every,
        "checkpoint_share": plan.checkpoint_share,
    }
    given = {
        "dataset/data": None if plan.data is None else absolute(plan.data),
        "protocol/tasks": plan.tasks,
        "protocol/boundaries": plan.boundaries,
        "protocol/announce": plan.announce,
        "threads": plan.threads,
        "workers": plan.workers,
        "device": None if plan.device == "auto" else plan.device,
        "precision": None if plan.precision == "auto" else plan.precision,
    }
    content: dict[str, Any] = json.loads(json.dumps(asked | {name: v for name, v in given.items() if v is not None}))
    return content

"""What a run is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Plan:
    """A run as asked for; None and "auto" are resolved when it is set up.

    Args:
        method: a name that `prol methods` lists.
        dataset: a name that `prol datasets` lists.
        options: the method's own; texts as on a command line will do.
        tasks: how many; the data set's usual number when None.
        chunk: how many samples arrive together.
        class_order: how the protocol orders classes, "label" or "shuffled".
        boundaries: whether the learner is told that a task begins.
        announce: whether it is then told the task's classes too.
        data: where the data set's files are, for those that are not built in.
        limit_per_class: the most images of each class, in training and in test.
        threads: of the processor; as torch chooses when None.
        checkpoint_every: chunks from one checkpoint to the next; one more is made at each end of a task.
    """

    method: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)
    backbone: str = "builtin"
    device: str = "auto"
    precision: str = "auto"
    seed: int = 0
    protocol: str = "disjoint"
    tasks: int | None = None
    chunk: int = 10
    class_order: str = "label"
    boundaries: bool = True
    announce: bool = True
    data: str | None = None
    limit_per_class: int | None = None
    threads: int | None = None
    checkpoint_every: int = 50

    def __post_init__(self) -> None:
        for name in ("chunk", "tasks", "limit_per_class", "threads", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name.replace('_', '-')} must be at least 1, got {value}")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Plan:
        """The plan behind a run's `config.json`, with nothing left to resolve."""
        protocol, dataset = config["protocol"], config["dataset"]
        return cls(
            method=config["method"],
            dataset=dataset["name"],
            options=config["options"],
            backbone=config["backbone"]["name"],
            device=config["device"],
            precision=config["precision"],
            seed=config["seed"],
            protocol=protocol["name"],
            tasks=protocol["tasks"],
            chunk=protocol["chunk"],
            class_order=protocol["class_order"],
            boundaries=protocol["boundaries"],
            announce=protocol["announce"],
            data=dataset["data"],
            limit_per_class=dataset["limit_per_class"],
            threads=config["threads"],
            checkpoint_every=config["checkpoint_every"],
        )

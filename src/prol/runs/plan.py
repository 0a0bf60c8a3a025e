"""What a run is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prol.evaluation import Clock, Measures
from prol.runs.folder import CHECKPOINT_SHARE


@dataclass(frozen=True)
class Plan:
    """A run as asked for; None and "auto" are resolved when it is set up.

    Args:
        method: a name that `prol methods` lists.
        dataset: a name that `prol datasets` lists.
        options: the method's own; texts as on a command line will do, here and in the two below.
        protocol_options: the protocol's own, besides those named here.
        dataset_options: the data set's own, such as the share of test images.
        tasks: how many; the data set's usual number when None.
        chunk: how many samples arrive together.
        class_order: how the protocol orders classes, "label" or "shuffled".
        boundaries: whether the learner is told that a task begins; as the protocol and the method have it when None.
        announce: whether it is then told the task's classes too; as `boundaries` when None.
        data: where the data set's files are, for those that are not built in.
        development: whether a small split of the training images stands in for both halves, to choose settings on.
        limit_per_class: the most images of each class, in training and in test.
        measures: what is measured besides the accuracy after each task.
        clock: how fast data come, where they do not wait.
        threads: of the processor; as torch chooses when None.
        workers: threads that read images ahead; half of the processors when None.
        checkpoint_every: chunks from one checkpoint to the next; one more is made at each end of a task. With None
            there are none, and a run that was stopped begins anew: where times count, half a run is worth nothing.
        checkpoint_share: the most of the time that checkpoints within tasks may take; until then they wait.
    """

    method: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)
    backbone: str = "auto"
    device: str = "auto"
    precision: str = "auto"
    seed: int = 0
    protocol: str = "disjoint"
    protocol_options: Mapping[str, Any] = field(default_factory=dict)
    tasks: int | None = None
    chunk: int = 10
    class_order: str = "label"
    boundaries: bool | None = None
    announce: bool | None = None
    data: str | None = None
    dataset_options: Mapping[str, Any] = field(default_factory=dict)
    development: bool = False
    limit_per_class: int | None = None
    measures: Measures = field(default_factory=Measures)
    clock: Clock | None = None
    threads: int | None = None
    workers: int | None = None
    checkpoint_every: int | None = 50
    checkpoint_share: float = CHECKPOINT_SHARE

    def __post_init__(self) -> None:
        for name in ("chunk", "tasks", "limit_per_class", "threads", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name.replace('_', '-')} must be at least 1, got {value}")
        if not 0 < self.checkpoint_share <= 1:
            raise ValueError(f"checkpoint-share must be above 0 and at most 1, got {self.checkpoint_share}")
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"workers must be 0 or more, got {self.workers}")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Plan:
        """The plan behind a run's `config.json`, with nothing left to resolve."""
        protocol, dataset, clock = config["protocol"], config["dataset"], config["clock"]
        return cls(
            method=config["method"],
            dataset=dataset["name"],
            options=config["options"],
            backbone=config["backbone"]["name"],
            device=config["device"],
            precision=config["precision"],
            seed=config["seed"],
            protocol=protocol["name"],
            protocol_options=protocol["options"],
            tasks=protocol["tasks"],
            chunk=protocol["chunk"],
            class_order=protocol["class_order"],
            boundaries=protocol["boundaries"],
            announce=protocol["announce"],
            data=dataset["data"],
            dataset_options=dataset["options"],
            development=dataset["development"],
            limit_per_class=dataset["limit_per_class"],
            measures=Measures(**config["measures"]),
            clock=None if clock is None else clock_from(clock),
            threads=config["threads"],
            workers=config["workers"],
            checkpoint_every=config["checkpoint_every"],
            checkpoint_share=config["checkpoint_share"],
        )


def clock_from(content: Mapping[str, Any]) -> Clock:
    """A clock as `config.json` holds it."""
    times = content["step_seconds"]
    return Clock(content["rate"], content["keep"], tuple(times) if isinstance(times, list) else times)

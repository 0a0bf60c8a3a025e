"""The plan of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prol.evaluation import Clock, Measures
from prol.method_files import MethodFile, is_file_word
from prol.options import parse_pairs
from prol.runs.folder import CHECKPOINT_SHARE

_FILE = re.compile(r"[^=]+?\.py:\w+(?=:|$)")


@dataclass(frozen=True)
class Plan:
    """A planned run; None and "auto" are resolved when it is set up.

    Args:
        method: a name that `prol methods` lists, or `FILE.py:Class`.
        dataset: a name that `prol datasets` lists.
        options: options of the method; strings as on a command line are accepted, here and in the two below.
        protocol_options: further options of the protocol.
        dataset_options: options of the data set, such as the share of test images.
        tasks: the number of tasks; the data set's usual number when None.
        chunk: how many samples arrive together.
        class_order: how the protocol orders classes, "label" or "shuffled".
        boundaries: whether task boundaries are given to the learner; as the protocol and the method have it when None.
        announce: whether the classes of the task are given with the boundary; as `boundaries` when None.
        data: path of the data set's files, for those that are not built in.
        development: whether to train and test on a small split of the training images, to choose settings.
        limit_per_class: the maximum number of images per class, in training and in test.
        measures: what is measured besides the accuracy after each task.
        clock: the arrival rate of the data, if they do not wait.
        threads: processor threads; when None, torch's number, less what other processes use at the start.
        workers: threads that read images ahead; half of the processors when None.
        checkpoint_every: chunks between checkpoints; there is one more at the end of each task. With None there are
            none, and an interrupted run starts again: half a run is useless where times count.
        checkpoint_share: the maximum share of the time for checkpoints within tasks; they wait until then.
        side_by_side: whether other runs are running at the same time; recorded, since speeds then say little.
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
    side_by_side: bool = False

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
        """The plan of a run from its `config.json`, with nothing left to resolve."""
        protocol, dataset, clock = config["protocol"], config["dataset"], config["clock"]
        times = None if clock is None else clock["step_seconds"]
        own = ("options", "device", "precision", "seed", "threads", "workers")
        return cls(
            **{name: config[name] for name in (*own, "checkpoint_every", "checkpoint_share")},
            **{name: protocol[name] for name in ("tasks", "chunk", "class_order", "boundaries", "announce")},
            **{name: dataset[name] for name in ("data", "development", "limit_per_class")},
            method=_recorded_method(config),
            dataset=dataset["name"],
            dataset_options=dataset["options"],
            protocol=protocol["name"],
            protocol_options=protocol["options"],
            backbone=config["backbone"]["name"],
            measures=Measures(**config["measures"]),
            clock=clock and Clock(clock["rate"], clock["keep"], tuple(times) if isinstance(times, list) else times),
        )


def _recorded_method(config: Mapping[str, Any]) -> str:
    """The method of a run. The file that it may be in must have the content with which the run began."""
    if "method_sha256" not in config:
        if is_file_word(config["method"]):
            raise ValueError(f"the run names the file {config['method']} without its hash: start a new run")
        return str(config["method"])
    word: str = config["method_file"]
    file = MethodFile.named(word)
    if file is None or file.sha256 != config["method_sha256"]:
        raise ValueError(
            f"the run began with {word} with SHA-256 {config['method_sha256'][:12]}, but the file has changed: "
            "restore it, or start a new run"
        )
    return word


def read_method(word: str) -> tuple[str, dict[str, str]]:
    """A method and its options from one word; a comma belongs to a value unless the next option follows it.

    >>> read_method("prol:lr=0.05,length=3")
    ('prol', {'lr': '0.05', 'length': '3'})
    >>> read_method("prol:widths=5,2,1,lr=0.1")
    ('prol', {'widths': '5,2,1', 'lr': '0.1'})
    >>> read_method("ideas/naive_bayes.py:NaiveBayes:prior_weight=5")
    ('ideas/naive_bayes.py:NaiveBayes', {'prior_weight': '5'})
    """
    found = _FILE.match(word)
    method = word.partition(":")[0] if found is None else found[0]
    colon, options = word[len(method) : len(method) + 1], word[len(method) + 1 :]
    if not method or "=" in method:
        raise ValueError(f"{word!r} is not a method: write its options after a colon, for example prol:lr=0.05")
    return method, parse_pairs(re.split(r",(?=\w+=)", options)) if colon else {}

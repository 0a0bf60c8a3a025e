"""Trackers by name, as a command line has them."""

from __future__ import annotations

from collections.abc import Sequence

from prol.integrations.trackers.base import EVERY, Tracker
from prol.integrations.trackers.mlflow import MLflow
from prol.integrations.trackers.tensorboard import TensorBoard
from prol.integrations.trackers.weights_and_biases import WeightsAndBiases
from prol.options import bind_arguments, parse_pairs

KINDS: dict[str, type[Tracker]] = {kind.name: kind for kind in (TensorBoard, WeightsAndBiases, MLflow)}


def make_trackers(texts: Sequence[str], every: int = EVERY) -> list[Tracker]:
    """Trackers from texts such as `tensorboard`, `wandb:project=birds,mode=offline` or `mlflow:uri=http://host:5000`.

    They can be handed to `prol.runs.start` and `prol.runs.resume` as listeners, also in another process.
    """
    trackers = [_made(text, every) for text in texts]
    names = [tracker.name for tracker in trackers]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"tracker {name} is there twice: it would write every number twice; give it once")
    return trackers


def _made(text: str, every: int) -> Tracker:
    name, _, rest = text.partition(":")
    if name not in KINDS:
        raise ValueError(f"unknown tracker {name!r}: use one of {', '.join(KINDS)}")
    given = parse_pairs(filter(None, rest.split(",")))
    return KINDS[name](**bind_arguments(KINDS[name].__init__, given, reserved=("self", "every")), every=every)

"""A prol learner as a batch classifier of CapyMOA, for its loop of online continual learning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

try:
    from capymoa.base import BatchClassifier
    from capymoa.ocl.evaluation.events import TrainTaskBegin
    from capymoa.ocl.events import Dispatcher, Handler
except ImportError as error:
    raise ImportError("this needs CapyMOA, and that Java: install CapyMOA with pip install 'prol[capymoa]'") from error

import torch
from torch import Tensor

from prol.backbones import Backbone
from prol.creation import create
from prol.integrations.tensor_batches import by_label, to_uint8

__all__ = ["PROLClassifier"]


class PROLClassifier(BatchClassifier, Handler):  # type: ignore[misc]
    """A prol learner with the interface of CapyMOA, for `ocl_train_eval_loop` and `prequential_evaluation`.

    Each batch is one step of the learner, so the batch size of the training loader is the chunk size. Images are those
    of torchvision's `ToTensor`, values from 0 to 1; `schema.shape` is their shape `(channels, height, width)`. Classes
    are label indices. Before the first step all classes are equally probable; later, unseen ones have probability 0.

    Parameters
    ----------
    schema
        The schema of the stream.
    method
        A name that `prol methods` lists.
    backbone
        A name for `prol.backbones.open_backbone`, or an open backbone.
    options
        Options of the method, by name.
    boundaries
        Whether the learner is given the start of each task; `ocl_train_eval_loop` announces it.
    random_seed
        Seed of initial values and augmentation.
    device, precision
        As for `prol.create`.
    """

    def __init__(
        self,
        schema: Any,
        method: str = "prol_plus",
        backbone: str | Backbone = "builtin",
        options: Mapping[str, Any] | None = None,
        boundaries: bool = False,
        random_seed: int = 1,
        device: str = "auto",
        precision: str = "auto",
    ) -> None:
        super().__init__(schema, random_seed)
        if len(schema.shape) != 3:
            raise ValueError(
                f"schema.shape must be (channels, height, width), got {tuple(schema.shape)}: set it to that of images"
            )
        settings: dict[str, Any] = {"device": device, "precision": precision, "seed": random_seed}
        self.learner = create(method, backbone, **settings, **dict(options or {}))
        self.boundaries = boundaries

    def __str__(self) -> str:
        return f"prol {self.learner.name}"

    def batch_train(self, x: Tensor, y: Tensor) -> None:
        """One step on flat images `[B, C * H * W]` and label indices `[B]`."""
        self.learner.learn(self._images(x), y.tolist())

    def batch_predict_proba(self, x: Tensor) -> Tensor:
        """Calibrated probabilities `[B, classes of the schema]` of flat images `[B, C * H * W]`."""
        if not self.learner.classes:
            classes = self.schema.get_num_classes()
            return torch.full((len(x), classes), 1 / classes)
        probabilities = self.learner.probable(self.learner.predict(self._images(x)))
        return self._columns(probabilities, absent=0.0).to(self.x_dtype)

    def batch_predict(self, x: Tensor) -> Tensor:
        """The label index with the highest score, `[B]`."""
        # Rounding may make two probabilities equal where the scores are not.
        return self._columns(self.learner.predict(self._images(x)), absent=-math.inf).argmax(1)

    def attach_with(self, dispatcher: Dispatcher) -> Handler:
        if self.boundaries:
            dispatcher.subscribe(TrainTaskBegin, lambda _: self.learner.boundary())
        return self

    def _images(self, x: Tensor) -> Tensor:
        return to_uint8(x.cpu().reshape(len(x), *self.schema.shape))

    def _columns(self, values: Tensor, absent: float) -> Tensor:
        return by_label(values, self.learner.classes, self.schema.get_num_classes(), absent)

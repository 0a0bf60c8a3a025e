"""A prol learner as a strategy of Avalanche."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

try:
    from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
    from avalanche.training.plugins.evaluation import default_evaluator
    from avalanche.training.templates import SupervisedTemplate
except ImportError as error:
    raise ImportError("this needs Avalanche: install it with pip install 'prol[avalanche]'") from error

import torch
from torch import Tensor, nn

from prol.integrations.tensor_batches import by_label, to_uint8
from prol.learner import Learner

__all__ = ["LearnerModule", "PROLStrategy"]


class LearnerModule(nn.Module):
    """A learner as a module without parameters: images to log-probabilities of `num_classes` class numbers."""

    def __init__(self, learner: Learner, num_classes: int) -> None:
        super().__init__()
        self.learner, self.num_classes = learner, num_classes

    def forward(self, images: Tensor) -> Tensor:
        """Logarithms of calibrated probabilities `[N, num_classes]`, float64, of images `[N, C, H, W]`.

        An unseen class has the lowest finite value of float32, so that a loss stays finite. Before the first step all
        classes have it.
        """
        scores = self.learner.predict(to_uint8(images.cpu()))
        lowest = torch.finfo(torch.float32).tiny
        logarithms = self.learner.probable(scores).clamp(min=lowest).log()
        absent = float(torch.tensor(lowest).log())
        return by_label(logarithms, self.learner.classes, self.num_classes, absent).to(images.device)


class PROLStrategy(SupervisedTemplate):  # type: ignore[misc]
    """Trains and evaluates a prol learner in Avalanche's loops, in one pass and without an optimiser.

    Each minibatch is predicted and then learnt in one step, so `train_mb_size` is the chunk size. All hooks of plugins
    are called; those for the backward pass surround nothing. The training loader does not shuffle unless `train` is
    called with `shuffle=True`. Images are those of torchvision's `ToTensor`, values from 0 to 1, or uint8; targets are
    class numbers. The loss is the negative log-likelihood of calibrated probabilities.

    Parameters
    ----------
    learner
        What `prol.create` returns; `strategy.learner` is the same object.
    num_classes
        Number of columns of the output: the number of classes in the benchmark.
    boundaries
        Whether the learner is given the start of each experience.
    train_mb_size, eval_mb_size
        Images per step, and per prediction.
    plugins, evaluator, eval_every, peval_mode
        As for any strategy of Avalanche.
    """

    def __init__(
        self,
        *,
        learner: Learner,
        num_classes: int,
        boundaries: bool = False,
        train_mb_size: int = 10,
        eval_mb_size: int = 64,
        plugins: Sequence[SupervisedPlugin] | None = None,
        evaluator: EvaluationPlugin | Callable[[], EvaluationPlugin] | None = default_evaluator,
        eval_every: int = -1,
        peval_mode: str = "epoch",
    ) -> None:
        self.learner, self.boundaries = learner, boundaries
        super().__init__(
            model=LearnerModule(learner, num_classes),
            optimizer=None,
            criterion=nn.NLLLoss(),
            train_mb_size=train_mb_size,
            eval_mb_size=eval_mb_size,
            device=learner.backbone.device,
            plugins=plugins,
            evaluator=evaluator,
            eval_every=eval_every,
            peval_mode=peval_mode,
        )

    def make_train_dataloader(self, shuffle: bool = False, **kwargs: Any) -> None:
        """The loader of one experience, in the order of its data set by default."""
        super().make_train_dataloader(shuffle=shuffle, **kwargs)

    def make_optimizer(self, **kwargs: Any) -> None:
        """Nothing: the learner updates itself."""

    def _before_training_exp(self, **kwargs: Any) -> None:
        # Parts of an online stream are experiences of their own; only the first of a task begins it.
        if self.boundaries and getattr(self.experience, "is_first_subexp", True):
            self.learner.boundary()
        super()._before_training_exp(**kwargs)

    def training_epoch(self, **kwargs: Any) -> None:
        """One pass over the loader."""
        for minibatch in self.dataloader:
            if self._stop_training:
                break
            self.mbatch = minibatch
            self._unpack_minibatch()
            self._before_training_iteration(**kwargs)
            self._before_forward(**kwargs)
            self.mb_output = self.forward()
            self._after_forward(**kwargs)
            self.loss = self._make_empty_loss() + self.criterion()
            self._before_backward(**kwargs)
            self._after_backward(**kwargs)
            self._before_update(**kwargs)
            self.learner.learn(to_uint8(self.mb_x.cpu()), self.mb_y.tolist())
            self._after_update(**kwargs)
            self._after_training_iteration(**kwargs)

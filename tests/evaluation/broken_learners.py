"""One learner for each promise, that breaks it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from evaluation.colour_means import ColourMeans
from prol.class_rows import Contents
from prol.labels import Label
from prol.learner import Learner, Removal, State


class AnswersTooEarly(ColourMeans):
    def predict(self, images: Any) -> Tensor:
        return super().predict(images) if self.classes else torch.zeros(len(images), 1)


class AnswersInDouble(ColourMeans):
    def predict(self, images: Any) -> Tensor:
        return super().predict(images).double()


class ForgetsAnnouncedOrder(ColourMeans):
    def _begin_task(self, names: list[Label]) -> None:
        super()._begin_task(names[::-1])


class LearnsWhileAnswering(ColourMeans):
    def _scores(self, pixels: list[Tensor], fixed: Tensor | None = None) -> Tensor:
        self.counts += 1
        return super()._scores(pixels, fixed)


class DrawsWhileAnswering(ColourMeans):
    def _scores(self, pixels: list[Tensor], fixed: Tensor | None = None) -> Tensor:
        return super()._scores(pixels, fixed) + torch.rand(1, generator=self.random)


class CentresTheBatch(ColourMeans):
    def _scores(self, pixels: list[Tensor], fixed: Tensor | None = None) -> Tensor:
        scores = super()._scores(pixels, fixed)
        return scores - scores.mean(0)


class SavesTooLittle(ColourMeans):
    def _state(self) -> State:
        tensors, meta = super()._state()
        return tensors, meta | {"steps": 0}

    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        super()._learn(pixels, rows)
        self.sums += 0.001 * self.steps


class SharesWithItsClones(ColourMeans):
    def clone(self) -> ColourMeans:
        twin = super().clone()
        twin.sums = self.sums
        return twin


class DrawsFromTheProcess(ColourMeans):
    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        super()._learn(pixels, rows)
        self.sums += 0.01 * torch.rand(3, dtype=torch.float64)


class WritesToItsInput(ColourMeans):
    def learn(self, images: Any, labels: Any) -> None:
        super().learn(images, labels)
        images[0][:] = 0


class LooksBackAtItsInput(ColourMeans):
    """Learns from the images of the step before."""

    before: Any = None

    def learn(self, images: Any, labels: Any) -> None:
        super().learn(images, labels)
        if self.before is not None:
            self.sums += float(self.before[0].mean())
        self.before = images


class KeepsItsImages(ColourMeans):
    """Holds on to the images of the last step alone, so that memory does not grow."""

    last: Any = None

    def learn(self, images: Any, labels: Any) -> None:
        super().learn(images, labels)
        self.last = list(images)


class KeepsItsFeatures(ColourMeans):
    last: Tensor | None = None

    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        super()._learn(pixels, rows)
        self.last = self.colours(pixels)


class KeepsItsGraph(ColourMeans):
    loss: Tensor | None = None

    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        super()._learn(pixels, rows)
        self.loss = (self.colours(pixels) @ torch.ones(3, dtype=torch.float64, requires_grad=True)).exp().sum()


class HoardsInItsState(ColourMeans):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.history = torch.zeros(0)

    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        super()._learn(pixels, rows)
        self.history = torch.cat([self.history, torch.ones(1)])

    def _state(self) -> State:
        tensors, meta = super()._state()
        return tensors | {"history": self.history}, meta

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        super()._load_state(tensors, meta)
        self.history = tensors["history"]


class HoardsInJson(ColourMeans):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.history: list[int] = []

    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        super()._learn(pixels, rows)
        self.history.append(len(rows))

    def _state(self) -> State:
        tensors, meta = super()._state()
        return tensors, meta | {"history": list(self.history)}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        super()._load_state(tensors, meta)
        self.history = list(meta["history"])


class HoardsInSecret(ColourMeans):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.hidden: list[Tensor] = []

    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        super()._learn(pixels, rows)
        self.hidden.append(self.colours(pixels).mean(0))


class HoardsArrays(ColourMeans):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.hidden: list[Any] = []

    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        super()._learn(pixels, rows)
        self.hidden.append({"first": pixels[0].numpy().copy()})


class HoardsBytes(HoardsArrays):
    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        ColourMeans._learn(self, pixels, rows)
        self.hidden.append(pixels[0].numpy().tobytes())


class HoardsNowAndThen(HoardsInSecret):
    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        ColourMeans._learn(self, pixels, rows)
        if self.steps % 5 == 0:
            self.hidden.append(self.colours(pixels).mean(0))


class TakesLabelsAsText(ColourMeans):
    def learn(self, images: Any, labels: Any) -> None:
        super().learn(images, [str(label) for label in labels])


class WaitsForAnnouncements(ColourMeans):
    def _meet(self, names: list[Label]) -> None:
        raise ValueError(f"announce {names[0]!r} first")


class SwallowsMistakes(ColourMeans):
    def learn(self, images: Any, labels: Any) -> None:
        count = min(len(images), len(labels))
        super().learn(images[:count], list(labels)[:count])


class NotesLabelsFirst(ColourMeans):
    def learn(self, images: Any, labels: Any) -> None:
        self.steps += 1
        super().learn(images, labels)


class CallsFixedWhatChanges(ColourMeans):
    fixed = "part"

    def _fixed(self, pixels: list[Tensor]) -> Tensor:
        return self.colours(pixels) * self.steps


class IsConfusedByWhatIsKnown(ColourMeans):
    fixed = "part"

    def _fixed(self, pixels: list[Tensor]) -> Tensor:
        return self.colours(pixels)

    def _scores(self, pixels: list[Tensor], fixed: Tensor | None = None) -> Tensor:
        return super()._scores(pixels) + (0.0 if fixed is None else 1.0)


class ForgetsARow(ColourMeans):
    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        return Contents({"sums": "sum"})


class TurnsClassesRound(ColourMeans):
    def remove_class(self, name: Label) -> Removal:
        removal = super().remove_class(name)
        self.classes.reverse()
        return removal


BROKEN: dict[type[Learner], str] = {
    AnswersTooEarly: "predict_before_learning",
    AnswersInDouble: "scores_have_a_column_for_each_class",
    ForgetsAnnouncedOrder: "scores_have_a_column_for_each_class",
    LearnsWhileAnswering: "predict_is_pure",
    DrawsWhileAnswering: "predict_is_pure",
    CentresTheBatch: "batch_independence",
    CallsFixedWhatChanges: "fixed_features_stay",
    IsConfusedByWhatIsKnown: "fixed_features_stay",
    SavesTooLittle: "save_and_load",
    SharesWithItsClones: "clones_are_independent",
    DrawsFromTheProcess: "seeded_runs_are_identical",
    WritesToItsInput: "inputs_are_left_alone",
    LooksBackAtItsInput: "inputs_are_left_alone",
    KeepsItsImages: "nothing_outlives_its_step",
    KeepsItsFeatures: "nothing_outlives_its_step",
    KeepsItsGraph: "nothing_outlives_its_step",
    HoardsInItsState: "memory_is_bounded",
    HoardsInJson: "memory_is_bounded",
    HoardsInSecret: "memory_is_bounded",
    HoardsArrays: "memory_is_bounded",
    HoardsBytes: "memory_is_bounded",
    HoardsNowAndThen: "memory_is_bounded",
    TakesLabelsAsText: "labels_may_be_text_or_numbers",
    WaitsForAnnouncements: "classes_need_no_announcement",
    SwallowsMistakes: "bad_input_changes_nothing",
    NotesLabelsFirst: "bad_input_changes_nothing",
    ForgetsARow: "classes_may_go_and_come_anew",
    TurnsClassesRound: "classes_may_go_and_come_anew",
}

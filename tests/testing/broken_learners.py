"""One learner for each promise, that breaks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from prol.classes import Contents, Label
from prol.learner import Learner, Removal, SavedState
from prol.state import State
from testing.colour_means import ColourMeans


class AnswersTooEarly(ColourMeans):
    def predict(self, images: Any) -> Tensor:
        return super().predict(images) if self.classes else torch.zeros(len(images), 1)


class AnswersInDouble(ColourMeans):
    def predict(self, images: Any) -> Tensor:
        return super().predict(images).double()


class ForgetsAnnouncedOrder(ColourMeans):
    def arrive(self, names: list[Label], boundary: bool = False) -> None:
        super().arrive(names[::-1] if boundary else names, boundary)


class LearnsWhileAnswering(ColourMeans):
    def scores(self, pixels: list[Tensor], encoded: Tensor | None) -> Tensor:
        self.counts.rows.add_(1)
        return super().scores(pixels, encoded)


class DrawsWhileAnswering(ColourMeans):
    def scores(self, pixels: list[Tensor], encoded: Tensor | None) -> Tensor:
        return super().scores(pixels, encoded) + torch.rand(1, generator=self.random)


class CentresTheBatch(ColourMeans):
    def scores(self, pixels: list[Tensor], encoded: Tensor | None) -> Tensor:
        scores = super().scores(pixels, encoded)
        return scores - scores.mean(0)


class SavesTooLittle(ColourMeans):
    def state(self) -> SavedState:
        tensors, meta = super().state()
        return tensors, meta | {"method": meta["method"] | {"steps": 0}}

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.sums.rows.add_(0.001 * self.steps)


class SharesWithItsClones(ColourMeans):
    def clone(self) -> ColourMeans:
        twin = super().clone()
        twin.sums.buffer = self.sums.buffer
        return twin


class DrawsFromTheProcess(ColourMeans):
    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.sums.rows.add_(0.01 * torch.rand(3, dtype=torch.float64))


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
            self.sums.rows.add_(float(self.before[0].mean()))
        self.before = images


class KeepsItsImages(ColourMeans):
    """Holds on to the images of the last step alone, so that memory does not grow."""

    last: Any = None

    def learn(self, images: Any, labels: Any) -> None:
        super().learn(images, labels)
        self.last = list(images)


class KeepsOneImage(ColourMeans):
    """As float values, colours last."""

    last: Tensor | None = None

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.last = pixels[0].movedim(0, 2).double()


class KeepsItsFeatures(ColourMeans):
    last: Tensor | None = None

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.last = self.colours(pixels)


class KeepsItsGraph(ColourMeans):
    loss: Tensor | None = None

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.loss = (self.colours(pixels) @ torch.ones(3, dtype=torch.float64, requires_grad=True)).exp().sum()


class HoardsInItsState(ColourMeans):
    def build(self, state: State) -> None:
        super().build(state)
        self.history = state.table("history", dtype=torch.float32, kind="statistic", combine=None, grows=False)

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.history.append(torch.ones(1))


class HoardsInJson(ColourMeans):
    def build(self, state: State) -> None:
        super().build(state)
        self.history: list[int] = []
        state.value("history", self)

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.history.append(len(rows))


class HoardsInSecret(ColourMeans):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.hidden: list[Tensor] = []

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.hidden.append(self.colours(pixels).mean(0))


class HoardsArrays(ColourMeans):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.hidden: list[Any] = []

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.hidden.append({"first": pixels[0].numpy().copy()})


class HoardsBytes(HoardsArrays):
    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        ColourMeans.learn_pixels(self, pixels, rows)
        self.hidden.append(pixels[0].numpy().tobytes())


class HoardsNowAndThen(HoardsInSecret):
    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        ColourMeans.learn_pixels(self, pixels, rows)
        if self.steps % 5 == 0:
            self.hidden.append(self.colours(pixels).mean(0))


class TakesLabelsAsText(ColourMeans):
    def learn(self, images: Any, labels: Any) -> None:
        super().learn(images, [str(label) for label in labels])


class WaitsForAnnouncements(ColourMeans):
    def arrive(self, names: list[Label], boundary: bool = False) -> None:
        if not boundary:
            raise ValueError(f"announce {names[0]!r} first")
        super().arrive(names, boundary)


class SwallowsMistakes(ColourMeans):
    def learn(self, images: Any, labels: Any) -> None:
        count = min(len(images), len(labels))
        super().learn(images[:count], list(labels)[:count])


class NotesLabelsFirst(ColourMeans):
    def learn(self, images: Any, labels: Any) -> None:
        self.steps += 1
        super().learn(images, labels)


class CallsFrozenWhatChanges(ColourMeans):
    encoding = "query"

    def encoded(self, pixels: list[Tensor]) -> Tensor:
        return self.colours(pixels) * self.steps


class IsConfusedByWhatIsKnown(ColourMeans):
    encoding = "query"

    def encoded(self, pixels: list[Tensor]) -> Tensor:
        return self.colours(pixels)

    def scores(self, pixels: list[Tensor], encoded: Tensor | None) -> Tensor:
        return super().scores(pixels, None) + (0.0 if encoded is None else 1.0)


class CountsFailedUpdates(ColourMeans):
    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        self.counts.rows.add_(1)
        super().learn_pixels(pixels, rows)


class LearnsOtherwiseAfterAFailure(ColourMeans):
    failed = False

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        try:
            super().learn_pixels(pixels, rows)
        except ValueError:
            self.failed = True
            raise
        self.steps += self.failed


class WritesToRowsItDoesNotName(ColourMeans):
    """Says that an update changes no row but those of its classes; it changes all."""

    def build(self, state: State) -> None:
        super().build(state)
        self.drift = state.table("drift", kind="statistic", writes="chunk")

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.drift.rows.add_(1)


class RemembersWhatIsUndone(ColourMeans):
    undone = 0

    def undo(self) -> None:
        super().undo()
        self.undone += 1

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        super().learn_pixels(pixels, rows)
        self.steps += self.undone


class UndoesTwice(ColourMeans):
    def undo(self) -> None:
        if self.undo_record.tensors():
            super().undo()


class MergesToTwice(ColourMeans):
    """Says that it adds up, but its rows do not begin at zero."""

    additive = True

    def build(self, state: State) -> None:
        super().build(state)
        state.count_by(lambda: self.counts.rows)


class ForgetsARow(ColourMeans):
    def contents(self, row: int | None = None) -> Contents:
        return replace(super().contents(row), tables={"sums": "sum"})


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
    CallsFrozenWhatChanges: "encodings_stay",
    IsConfusedByWhatIsKnown: "encodings_stay",
    SavesTooLittle: "save_and_load",
    SharesWithItsClones: "clones_are_independent",
    DrawsFromTheProcess: "seeded_runs_are_identical",
    WritesToItsInput: "inputs_are_left_alone",
    LooksBackAtItsInput: "inputs_are_left_alone",
    KeepsItsImages: "nothing_outlives_its_step",
    KeepsOneImage: "nothing_outlives_its_step",
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
    CountsFailedUpdates: "failed_updates_leave_no_trace",
    LearnsOtherwiseAfterAFailure: "failed_updates_leave_no_trace",
    WritesToRowsItDoesNotName: "undo_restores_the_state",
    RemembersWhatIsUndone: "undo_restores_the_state",
    UndoesTwice: "undo_restores_the_state",
    MergesToTwice: "merged_learners_equal_one",
    ForgetsARow: "classes_may_go_and_come_anew",
    TurnsClassesRound: "classes_may_go_and_come_anew",
}

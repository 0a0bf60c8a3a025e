"""The writer by itself: groups, failures that nobody foresaw, and what readers see."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import prol
from prol.backbones import Pixels, ViT
from prol.evaluation.lesson import difference
from prol.methods.ncm import NCM
from prol.runs.saving import saved_sha256
from prol.serve.budget import Budget, Share
from prol.serve.class_jobs import Remove
from prol.serve.jobs import Answer, Desk, Job
from prol.serve.journal import Journal, Kind
from prol.serve.learning_jobs import LateLabels, Learn
from prol.serve.opening import Opened
from prol.serve.pending import Pending, Waiting
from prol.serve.records import Key, Records
from prol.serve.refusals import Refusal
from prol.serve.settings import Limits
from prol.serve.snapshots import Publisher, Snapshot, Turns
from prol.serve.store import Store, about
from prol.serve.waiting_line import WaitingLine
from prol.serve.writer import Writer
from serve.running import picture


class Brittle(NCM):
    """Fails in the middle of a step that has three images, and has changed itself by then."""

    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        super()._learn(pixels, rows)
        if len(rows) == 3:
            raise RuntimeError("half way")


@pytest.fixture
def writer(tiny: ViT, tmp_path: Path) -> Writer:
    learner = Brittle(tiny, NCM.read_options({}))
    store = Store(tmp_path / "model", keep=2)
    store.commit(0, about(learner), learner.state(), Records())
    return Writer(store, Opened(learner, Records(), 0), WaitingLine(8), Journal(), most_keys=3)


def lesson(label: str, images: int = 1, key: str | None = None, content: str = "") -> Learn:
    pictures = [np.full((8, 8, 3), 10 * number + len(label), dtype=np.uint8) for number in range(images)]
    return Learn(pictures, [label] * images, None if key is None else Key.of(key, content or label))


def outcomes(writer: Writer, *jobs: Job) -> list[Any]:
    """Of jobs that all wait when the writer begins: one group."""
    for job in jobs:
        writer.line.add(job)
    writer.start()
    writer.finish()
    return [_outcome(job) for job in jobs]


def _outcome(job: Job) -> Answer | tuple[int, str]:
    refusal = job.done.exception()
    return (refusal.status, refusal.code) if isinstance(refusal, Refusal) else job.done.result()


def test_a_group_is_one_commit(writer: Writer) -> None:
    first, second = outcomes(writer, lesson("cat"), lesson("mouse", 2))
    assert (first["version"], second["version"]) == (1, 1)
    assert (first["classes"], second["classes"]) == (2, 2)
    assert writer.view.counts == (1, 2)


def test_a_step_that_fails_half_way_leaves_no_trace_and_spares_the_others(
    writer: Writer, tiny: ViT, caplog: pytest.LogCaptureFixture
) -> None:
    good = [lesson("cat"), lesson("mouse", 2)]
    told = outcomes(writer, good[0], lesson("owl", 3), good[1])
    assert told[1] == (500, "internal")
    assert "half way" in caplog.text
    assert [one["learnt"] for one in (told[0], told[2])] == [1, 2]
    expected = prol.create("ncm", tiny)
    for one in good:
        expected.learn(one.pictures, one.labels)
    assert difference(writer._learner.state(), expected.state()) == ""


class Stumbling(Job):
    """Fails with an error that is no refusal, though it reads like one."""

    def apply(self, desk: Desk) -> Answer:
        desk.learner.learn([np.zeros((8, 8, 3), dtype=np.uint8)], ["ghost"])
        raise KeyError("ghost")

    def event(self) -> tuple[Kind, str]:
        raise AssertionError("it never happened")


def test_errors_that_are_no_refusals_are_taken_back_too(writer: Writer) -> None:
    stumbled, fine = outcomes(writer, Stumbling(), lesson("cat"))
    assert stumbled == (500, "internal")
    assert (fine["version"], writer.view.classes) == (1, ("cat",))


def test_the_same_key_twice_in_a_group_counts_once(writer: Writer) -> None:
    jobs = [lesson("cat", key="k"), lesson("cat", key="k"), lesson("dog", key="k")]
    first, second, third = outcomes(writer, *jobs)
    assert second == first | {"repeated": True}
    assert third == (409, "key_reused")
    assert writer.view.counts == (1,)


def test_a_refused_request_does_not_use_up_its_key(writer: Writer) -> None:
    bad = Learn([np.zeros((8, 8, 3), dtype=np.uint8)], ["a", "b"], Key.of("k", "x"))
    told = outcomes(writer, bad, lesson("cat", key="k"))
    assert told[0] == (422, "not_learnt")
    assert told[1]["repeated"] is False


def test_only_the_last_keys_are_remembered(writer: Writer) -> None:
    outcomes(writer, *[lesson("cat", key=str(number)) for number in range(5)])
    kept = [Key.of(str(number), "").name for number in (2, 3, 4)]
    assert list(writer.view.records.answers) == kept


def late(ids: list[str], labels: list[Any], pending: Pending, budget: int = 10**9, **limits: Any) -> LateLabels:
    return LateLabels(ids, labels, pending, None, Limits(**limits), Share(Budget(budget)))


@pytest.mark.parametrize(
    ("budget", "limits", "refusal"),
    [(10**9, {"request_pixels": 2000}, (422, "too_many_pixels")), (5000, {}, (413, "too_large"))],
)
def test_late_labels_are_held_to_the_limits_of_other_lessons(
    writer: Writer, budget: int, limits: dict[str, Any], refusal: tuple[int, str]
) -> None:
    """Two images of 1,024 pixels each: what came in several requests must not be decoded all at once."""
    pending = Pending(5, 10**6, 60)
    names = pending.add([Waiting(picture(number), None, None, frozenset()) for number in range(2)])
    assert outcomes(writer, late(names, ["cat", "dog"], pending, budget, **limits)) == [refusal]
    assert (pending.amounts()[0], writer.view.version) == (2, 0)


def test_a_removed_class_that_could_not_be_written_out_is_so_after_the_next_commit(writer: Writer) -> None:
    store = writer._store
    store.save(writer._learner, lambda _: None)
    for job in (lesson("cat"), lesson("cow"), lesson("dog")):
        writer._serve([job])
    writer.save()
    (store.folder / "operations.jsonl").write_text("no JSON")
    assert writer._serve([Remove("cow")])
    assert writer.view.records.to_write_out
    assert "cow" in (store.folder / "meta.json").read_text()
    (store.folder / "operations.jsonl").unlink()
    writer._serve([lesson("cat")])
    assert not writer.view.records.to_write_out
    assert "cow" not in (store.folder / "meta.json").read_text()
    kept = list(store.place.glob("*.safetensors"))
    assert len(kept) == 2
    assert not any(b"cow" in file.read_bytes() for file in kept)


def test_saves_that_fail_leave_a_folder_that_is_known_again(writer: Writer) -> None:
    """However often one fails after it was announced: what lies there stays known as the service's own."""
    folder = writer._store.folder
    writer.save()
    there = saved_sha256(folder)
    (folder / ".meta.json.new").mkdir()
    for label in ("cat", "dog", "cow"):
        writer._serve([lesson(label)])
        before = writer.view.version
        with pytest.raises(OSError, match=r"meta\.json"):
            writer.save()
        assert writer.view.version == before + 1
    assert saved_sha256(folder) == there
    assert there in writer.view.records.artifact


def test_late_labels_of_a_commit_that_failed_can_come_again(writer: Writer) -> None:
    pending = Pending(5, 10**6, 60)
    [name] = pending.add([Waiting(picture(1), None, None, frozenset())])
    (writer._store.place).rename(writer._store.place.with_name("away"))
    writer._store.place.write_text("in the way")
    assert outcomes(writer, late([name], ["cat"], pending)) == [(503, "not_written")]
    assert pending.amounts()[0] == 1
    assert writer.view.version == 0


def test_what_is_recovered_is_what_was_committed(writer: Writer) -> None:
    outcomes(writer, lesson("cat", key="k"), lesson("mouse", 2))
    recovered = writer._store.recover(pytest.fail)
    assert recovered is not None
    assert (recovered.version, recovered.records) == (1, writer.view.records)
    assert difference(recovered.state, writer._learner.state()) == ""


def test_a_snapshot_is_made_of_the_newest_commit_and_readers_never_wait(tiny: ViT) -> None:
    learner = prol.create("ncm", tiny)
    learner.learn(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), ["cat"])
    states = [(number, learner.state()) for number in range(4)]
    publisher = Publisher(Snapshot(0, learner, states[0][1], None), Turns("cpu"), lambda error: pytest.fail(str(error)))
    begun, go_on, made = threading.Event(), threading.Event(), []

    def make(number: int) -> Callable[[], Snapshot]:
        def slowly() -> Snapshot:
            begun.set()
            assert go_on.wait(60)
            made.append(number)
            return Snapshot(number, learner, states[number][1], None)

        return slowly

    publisher.start()
    publisher.offer(make(1))
    assert begun.wait(60)
    publisher.offer(make(2))
    publisher.offer(make(3))
    assert publisher.current.ask([np.zeros((8, 8, 3), dtype=np.uint8)], top=1)[0].answers[0].label == "cat"
    assert publisher.current.version == 0
    go_on.set()
    while publisher.current.version != 3:
        assert publisher._thread.is_alive()
    publisher.stop()
    assert made == [1, 3]

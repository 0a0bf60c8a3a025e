"""The writer by itself: batches, unexpected failures, and snapshots."""

from __future__ import annotations

import shutil
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import prol
from prol.backbones import ViT
from prol.methods.closed_form.ncm import NCM
from prol.runs.saving import saved_sha256
from prol.serve import snapshots
from prol.serve.batches import JobQueue
from prol.serve.errors import RequestError
from prol.serve.jobs import Job, LateLabels, Learn, Remove, Result, WriteContext
from prol.serve.monitoring import Activity, Kind
from prol.serve.pending import Pending, PendingImage
from prol.serve.records import Key, Records
from prol.serve.settings import Limits
from prol.serve.snapshots import Publisher, Snapshot
from prol.serve.store import Opened, Store, describe
from prol.serve.uploads import MemoryBudget, Reservation
from prol.serve.writer import Writer
from prol.testing.stream import difference
from serve.running import picture


class Brittle(NCM):
    """Fails in the middle of a step that has three images, and has changed itself by then."""

    def update(self, encoded: Tensor, rows: Tensor, times: int = 1) -> None:
        super().update(encoded, rows, times)
        if len(rows) == 3:
            raise RuntimeError("half way")


@pytest.fixture
def writer(tiny: ViT, tmp_path: Path) -> Writer:
    learner = Brittle(tiny, NCM.read_options({}))
    store = Store(tmp_path / "model", checkpoints=2)
    store.commit(0, describe(learner), learner.state(), Records())
    return Writer(store, Opened(learner, Records(), 0), JobQueue(8), Activity(), max_keys=3)


def chunk(label: str, images: int = 1, key: str | None = None, content: str = "") -> Learn:
    pictures = [np.full((8, 8, 3), 10 * number + len(label), dtype=np.uint8) for number in range(images)]
    return Learn(pictures, [label] * images, None if key is None else Key.of(key, content or label))


def outcomes(writer: Writer, *jobs: Job) -> list[Any]:
    """Of jobs that all wait when the writer begins: one group."""
    for job in jobs:
        writer.queue.add(job)
    writer.start()
    writer.finish()
    return [_outcome(job) for job in jobs]


def _outcome(job: Job) -> Result | tuple[int, str]:
    error = job.done.exception()
    return (error.status, error.code) if isinstance(error, RequestError) else job.done.result()


def test_a_group_is_one_commit(writer: Writer) -> None:
    first, second = outcomes(writer, chunk("cat"), chunk("mouse", 2))
    assert (first["version"], second["version"]) == (1, 1)
    assert (first["classes"], second["classes"]) == (2, 2)
    assert writer.committed.counts == (1, 2)


def test_a_step_that_fails_half_way_leaves_no_trace_and_spares_the_others(
    writer: Writer, tiny: ViT, caplog: pytest.LogCaptureFixture
) -> None:
    good = [chunk("cat"), chunk("mouse", 2)]
    found = outcomes(writer, good[0], chunk("owl", 3), good[1])
    assert found[1] == (500, "internal")
    assert "half way" in caplog.text
    assert [one["learnt"] for one in (found[0], found[2])] == [1, 2]
    expected = prol.create("ncm", tiny)
    for one in good:
        expected.learn(one.pictures, one.labels)
    assert difference(writer._learner.state(), expected.state()) == ""


class Stumbling(Job):
    """Fails with an error that is no refusal, though it reads like one."""

    def apply(self, context: WriteContext) -> Result:
        context.learner.learn([np.zeros((8, 8, 3), dtype=np.uint8)], ["ghost"])
        raise KeyError("ghost")

    def event(self) -> tuple[Kind, str]:
        raise AssertionError("it never happened")


def test_errors_that_are_no_refusals_are_taken_back_too(writer: Writer) -> None:
    stumbled, fine = outcomes(writer, Stumbling(), chunk("cat"))
    assert stumbled == (500, "internal")
    assert (fine["version"], writer.committed.classes) == (1, ("cat",))


def test_the_same_key_twice_in_a_group_counts_once(writer: Writer) -> None:
    jobs = [chunk("cat", key="k"), chunk("cat", key="k"), chunk("dog", key="k")]
    first, second, third = outcomes(writer, *jobs)
    assert second == first | {"repeated": True}
    assert third == (409, "key_reused")
    assert writer.committed.counts == (1,)


def test_a_refused_request_does_not_use_up_its_key(writer: Writer) -> None:
    bad = Learn([np.zeros((8, 8, 3), dtype=np.uint8)], ["a", "b"], Key.of("k", "x"))
    found = outcomes(writer, bad, chunk("cat", key="k"))
    assert found[0] == (422, "not_learnt")
    assert found[1]["repeated"] is False


def test_only_the_last_keys_are_remembered(writer: Writer) -> None:
    outcomes(writer, *[chunk("cat", key=str(number)) for number in range(5)])
    newest = [Key.of(str(number), "").name for number in (2, 3, 4)]
    assert list(writer.committed.records.answers) == newest


def late(ids: list[str], labels: list[Any], pending: Pending, budget: int = 10**9, **limits: Any) -> LateLabels:
    return LateLabels(ids, labels, pending, None, Limits(**limits), Reservation(MemoryBudget(budget)))


@pytest.mark.parametrize(
    ("budget", "limits", "refusal"),
    [(10**9, {"request_pixels": 2000}, (422, "too_many_pixels")), (5000, {}, (413, "too_large"))],
)
def test_late_labels_obey_the_limits_of_other_chunks(
    writer: Writer, budget: int, limits: dict[str, Any], refusal: tuple[int, str]
) -> None:
    """Two images of 1,024 pixels each: what came in several requests must not be decoded all at once."""
    pending = Pending(5, 10**6, 60)
    names = pending.add([PendingImage(picture(number), None) for number in range(2)])
    assert outcomes(writer, late(names, ["cat", "dog"], pending, budget, **limits)) == [refusal]
    assert (pending.amounts()[0], writer.committed.version) == (2, 0)


def test_a_removed_class_that_could_not_be_written_out_is_so_after_the_next_commit(writer: Writer) -> None:
    store = writer._store
    writer.save()
    for job in (chunk("cat"), chunk("cow"), chunk("dog")):
        writer._process([job])
    writer.save()
    (store.folder / "operations.jsonl").write_text("no JSON")
    assert writer._process([Remove("cow")])
    assert writer.committed.records.to_write_out
    assert "cow" in (store.folder / "meta.json").read_text()
    (store.folder / "operations.jsonl").unlink()
    writer._process([chunk("cat")])
    assert not writer.committed.records.to_write_out
    assert "cow" not in (store.folder / "meta.json").read_text()
    remaining = list(store.place.glob("*.safetensors"))
    assert len(remaining) == 2
    assert not any(b"cow" in file.read_bytes() for file in remaining)


def test_saves_that_fail_leave_a_folder_that_is_known_again(writer: Writer) -> None:
    """However often one fails after it was announced: what lies there stays known as the service's own."""
    folder = writer._store.folder
    writer.save()
    there = saved_sha256(folder)
    (folder / ".meta.json.new").mkdir()
    for label in ("cat", "dog", "cow"):
        writer._process([chunk(label)])
        before = writer.committed.version
        with pytest.raises(OSError, match=r"meta\.json"):
            writer.save()
        assert writer.committed.version == before + 1
    assert saved_sha256(folder) == there
    assert there in writer.committed.records.artifact


def test_late_labels_of_a_commit_that_failed_can_come_again(writer: Writer) -> None:
    pending = Pending(5, 10**6, 60)
    [name] = pending.add([PendingImage(picture(1), None)])
    (writer._store.place).rename(writer._store.place.with_name("away"))
    writer._store.place.write_text("in the way")
    assert outcomes(writer, late([name], ["cat"], pending)) == [(503, "not_written")]
    assert pending.amounts()[0] == 1
    assert writer.committed.version == 0


def test_what_is_recovered_is_what_was_committed(writer: Writer) -> None:
    outcomes(writer, chunk("cat", key="k"), chunk("mouse", 2))
    recovered = writer._store.recover(pytest.fail)
    assert recovered is not None
    assert (recovered.version, recovered.records) == (1, writer.committed.records)
    assert difference(recovered.state, writer._learner.state()) == ""


def test_a_snapshot_is_made_of_the_newest_commit_and_readers_never_wait(tiny: ViT) -> None:
    learner = prol.create("ncm", tiny)
    learner.learn(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), ["cat"])
    versions, begun, proceed, made = [0], threading.Event(), threading.Event(), list[int]()

    def make(earlier: Snapshot | None) -> Snapshot:
        number = versions[-1]
        if number:
            begun.set()
            assert proceed.wait(60)
        made.append(number)
        return Snapshot(number, learner.state(), learner, earlier)

    publisher = Publisher(make, nullcontext(), lambda error: pytest.fail(str(error)))
    publisher.start()
    for version in (1, 2, 3):
        versions.append(version)
        publisher.offer()
        assert begun.wait(60)
    assert publisher.current.predict([np.zeros((8, 8, 3), dtype=np.uint8)], top=1)[0].labels[0].label == "cat"
    assert publisher.current.version == 0
    proceed.set()
    while publisher.current.version != 3:
        assert publisher._thread.is_alive()
    publisher.stop()
    assert made == [0, 1, 3]


def test_a_snapshot_that_takes_over_a_solution_is_followed_by_an_exact_one(
    tiny: ViT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EXACT_AFTER", 0.1)
    learner = prol.create("prol_plus", tiny, budget_mb=1, adapt_steps=0)
    images = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    learner.learn(images[:30], [0, 1, 2] * 10)
    made: list[Snapshot] = []

    def make(earlier: Snapshot | None) -> Snapshot:
        made.append(Snapshot(len(learner.classes), learner.state(), learner, earlier))
        return made[-1]

    publisher = Publisher(make, nullcontext(), lambda error: pytest.fail(str(error)))
    learner.learn(images[30:], [3] * 10)
    publisher.start()
    publisher.offer()
    while len(made) < 3:
        assert publisher._thread.is_alive()
    publisher.stop()
    assert [snapshot.exact for snapshot in made] == [True, False, True]
    assert [snapshot.version for snapshot in made] == [3, 4, 4]
    asked = [np.full((8, 8, 3), 99, dtype=np.uint8)]
    expected = learner.classify(asked).probabilities.amax(1).item()
    assert made[2].predict(asked, top=1)[0].labels[0].probability == pytest.approx(expected, abs=1e-6)


def test_while_nobody_predicts_snapshots_wait_until_learning_pauses(tiny: ViT) -> None:
    learner = prol.create("ncm", tiny)
    learner.learn(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), ["cat"])
    first = Snapshot(0, learner.state(), learner)
    publisher = Publisher(lambda _: first, nullcontext(), lambda error: pytest.fail(str(error)))
    publisher._ended, publisher._took = 100.0, 2.0  # the last snapshot took two seconds

    def due(offered: float) -> float:
        publisher._is_offered, publisher._offered = True, offered
        return publisher._due()

    assert [due(100.5), due(101.5), due(110.0)] == [102.0, 102.5, 111.0]
    assert due(150.0) == 118.0  # learning does not pause: a tenth of the time
    assert publisher.ask() is first
    assert due(150.0) == 102.0  # somebody predicts: half of the time


def test_a_learner_copied_over_the_folder_is_noticed_and_not_overwritten(
    writer: Writer, tiny: ViT, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes(writer, chunk("cat"))
    writer.save()
    writer.notice_replacement()
    assert caplog.text == ""
    other = prol.create("ncm", tiny)
    other.learn([np.zeros((8, 8, 3), dtype=np.uint8)], ["dog"])
    other.save(tmp_path / "other")
    shutil.copytree(tmp_path / "other", tmp_path / "model", dirs_exist_ok=True)
    for _ in range(2):
        writer.notice_replacement()
    assert caplog.text.count("was replaced while it is being served") == 1
    with pytest.raises(ValueError, match="was replaced while it is being served: it stays as it is"):
        writer.save()
    assert prol.load(tmp_path / "model", tiny).classes == ["dog"]
    assert Store(tmp_path / "model", 2).recover(pytest.fail).state[1]["classes"] == ["cat"]


def test_a_checkpoint_of_somebody_else_stops_learning_and_stays(writer: Writer, tmp_path: Path) -> None:
    other = Store(tmp_path / "other", checkpoints=2)
    other.commit(40, describe(writer._learner), writer._learner.state(), Records(images_learnt=7))
    [foreign] = other.place.iterdir()
    shutil.copy(foreign, tmp_path / "model" / "service")
    assert outcomes(writer, chunk("cat")) == [(503, "not_written")]
    assert (tmp_path / "model" / "service" / foreign.name).exists()
    assert writer.committed.classes == ()

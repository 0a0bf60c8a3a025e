"""Undoing the last chunk: over the wire, after a kill, and in the writer by itself."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import prol
from prol.backbones import ViT
from prol.serve.batches import JobQueue
from prol.serve.jobs import Undo
from prol.serve.monitoring import Activity
from prol.serve.records import Key, Records
from prol.serve.store import Opened, Store, describe
from prol.serve.writer import Writer
from prol.testing.stream import difference
from serve.running import Nursery, client_of, counts, error, eventually, learn, picture, predict, running
from serve.test_writer import Brittle, Stumbling, chunk


def undo(client: httpx.Client, key: str | None = None) -> httpx.Response:
    return client.post("/undo", headers={} if key is None else {"Idempotency-Key": key})


def learnt(client: httpx.Client) -> int:
    found: int = client.get("/status").json()["images_learnt"]
    return found


def test_the_last_chunk_is_undone_once(client: httpx.Client) -> None:
    assert learn(client, [picture(1)], ["cat"]).status_code == 200
    before = learnt(client)
    assert learn(client, [picture(2), picture(3)], ["cat", "dog"], key="chunk").status_code == 200
    assert client.get("/status").json()["undo_images"] == 2
    answer = undo(client, "first")
    assert answer.status_code == 200, answer.text
    version = client.get("/classes").json()["version"]
    assert answer.json() == {"undone": 2, "version": version, "classes": 1, "repeated": False}
    assert (counts(client), learnt(client)) == ({"cat": 1}, before)
    assert undo(client, "first").json() == answer.json() | {"repeated": True}
    assert error(undo(client)) == (409, "nothing_to_undo")
    assert error(undo(client, "chunk")) == (409, "key_reused")
    assert learn(client, [picture(2), picture(3)], ["cat", "dog"], key="chunk").json()["repeated"] is True
    assert counts(client) == {"cat": 1}
    assert client.get("/status").json()["undo_images"] == 0
    assert learn(client, [picture(2)], ["owl"]).json()["classes"] == 2
    events = client.get("/status").json()["events"]
    assert [one["text"] for one in events if one["kind"] == "undone"] == ["2 images"]


def test_late_labels_are_undone_with_their_counts(client: httpx.Client) -> None:
    assert learn(client, [picture(1)], ["cat"]).status_code == 200
    [waiting] = predict(client, picture(4))["predictions"]
    before = client.get("/status").json()["prequential"]
    assert client.post("/labels", json={"labels": [{"id": waiting["id"], "label": "gnu"}]}).status_code == 200
    assert client.get("/status").json()["prequential"] != before
    assert undo(client).json()["undone"] == 1
    assert client.get("/status").json()["prequential"] == before
    assert "gnu" not in counts(client)


def test_images_that_came_before_anything_was_known_are_not_counted_as_wrong(
    nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    flags = ("--method", "ncm", "--backbone", small_vit)
    with running(nursery, tmp_path / "model", *flags) as server, server.client() as client:
        [early] = predict(client, picture(1))["predictions"]
        assert early["labels"] == []
        answer = client.post("/labels", json={"labels": [{"id": early["id"], "label": "cat"}]}).json()
        assert (answer["learnt"], answer["correct"]) == (1, 0)
        assert client.get("/status").json()["prequential"] == {"answered": 0, "correct": 0, "recent": []}
        eventually(lambda: client.get("/status").json()["snapshot_version"] == answer["version"])


def test_a_change_of_classes_leaves_nothing_to_undo(client: httpx.Client) -> None:
    assert learn(client, [picture(1)], ["stoat"]).status_code == 200
    assert client.patch("/classes/stoat", json={"label": "ermine"}).status_code == 200
    answer = undo(client)
    assert error(answer) == (409, "nothing_to_undo")
    assert "only the last chunk" in answer.json()["error"]["message"]


def test_what_was_undone_stays_so_after_a_kill_and_then_there_is_nothing_to_undo(
    nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    with running(nursery, tmp_path / "model", "--method", "slda", "--backbone", small_vit) as server:
        with server.client() as client:
            assert learn(client, [picture(1), picture(2)], ["cat", "dog"]).status_code == 200
            assert learn(client, [picture(3)], ["cow"]).status_code == 200
            answer = undo(client, "key").json()
            eventually(lambda: len(predict(client, picture(1))["predictions"][0]["labels"]) == 2)
        server.end(signal.SIGKILL)
    with running(nursery, server.folder) as again, again.client() as another:
        assert counts(another) == {"cat": 1, "dog": 1}
        assert undo(another, "key").json() == answer | {"repeated": True}
        assert error(undo(another)) == (409, "nothing_to_undo")
        assert learn(another, [picture(3)], ["owl"]).status_code == 200
        assert undo(another).status_code == 200
        assert again.end() == 0
    assert prol.load(server.folder).classes == ["cat", "dog"]


KILLS = 20


def undo_or_fail(url: str, key: str) -> None:
    with suppress(httpx.TransportError), client_of(url) as client:
        undo(client, key)


@pytest.mark.slow
def test_an_undo_cut_short_by_a_kill_is_applied_once_or_refused(
    nursery: Nursery, tmp_path: Path, small_vit: str
) -> None:
    """Sent again with its key, it is either known as done or refused, since the record is gone; never done twice."""
    draw, expected, pause = random.Random(KILLS), Counter[Any](), threading.Event()
    flags: tuple[str, ...] = ("--method", "ncm", "--backbone", small_vit)
    for number in range(KILLS):
        label, key = f"class {number}", f"undo-{number}"
        with running(nursery, tmp_path / "model", *flags) as server, server.client() as client:
            assert learn(client, [picture(number, 16)], ["always"]).status_code == 200
            assert learn(client, [picture(number, 16)], [label]).status_code == 200
            sender = threading.Thread(target=undo_or_fail, args=(server.url, key))
            sender.start()
            pause.wait(draw.uniform(0, 0.03))
            server.end(signal.SIGKILL)
            sender.join(60)
        flags = ()
        with running(nursery, tmp_path / "model") as server, server.client() as client:
            gone = label not in counts(client)
            answer = undo(client, key)
            assert answer.status_code == (200 if gone else 409)
            assert not gone or answer.json()["repeated"] is True
            expected.update(["always"] if gone else ["always", label])
            assert counts(client) == expected


def writer_of(learner: prol.Learner, folder: Path) -> Writer:
    store = Store(folder / "model", checkpoints=2)
    store.commit(0, describe(learner), learner.state(), Records())
    return Writer(store, Opened(learner, Records(), 0), JobQueue(8), Activity(), max_keys=3)


@pytest.fixture
def writer(tiny: ViT, tmp_path: Path) -> Writer:
    return writer_of(Brittle(tiny, Brittle.read_options({})), tmp_path)


def outcomes(writer: Writer, *jobs: Any) -> list[Any]:
    """Of jobs of one batch, without threads."""
    found = writer._process(list(jobs))
    return [outcome if isinstance(outcome := found[job], dict) else (outcome.status, outcome.code) for job in jobs]


def test_in_a_batch_it_undoes_the_chunk_before_it(writer: Writer, tiny: ViT) -> None:
    first, twin = chunk("cat"), prol.create("ncm", tiny)
    done = outcomes(writer, first, chunk("mouse", 2), Undo(Key.of("k", "undo")), Undo(Key.of("k", "undo")), Undo())
    assert done[2] == {"undone": 2, "repeated": False, "version": 1, "classes": 1}
    assert done[3] == done[2] | {"repeated": True}
    assert done[4] == (409, "nothing_to_undo")
    twin.learn(first.pictures, first.labels)
    assert difference(writer._learner.state(), twin.state()) == ""
    assert (writer.committed.counts, writer.committed.records.images_learnt) == ((1,), 1)
    recovered = writer._store.recover(pytest.fail)
    assert recovered is not None
    assert difference(recovered.state, twin.state()) == ""


def test_the_calibration_of_unknown_classes_is_undone_too(writer: Writer) -> None:
    outcomes(writer, chunk("cat"), chunk("mouse"))
    calibration = writer._learner.calibration
    assert calibration.count == 0
    outcomes(writer, chunk("cat", 2))
    assert calibration.count == 2
    outcomes(writer, Undo())
    assert (calibration.count, calibration.images, writer.committed.records.images_learnt) == (0, 2, 2)
    recovered = writer._store.recover(pytest.fail)
    assert recovered is not None
    assert recovered.state[1]["method"]["calibration"]["count"] == 0


def test_a_commit_that_fails_undoes_nothing(writer: Writer) -> None:
    place = writer._store.place
    outcomes(writer, chunk("cat"), chunk("mouse"))
    place.rename(place.with_name("away"))
    place.write_text("in the way")
    assert outcomes(writer, Undo()) == [(503, "not_written")]
    place.unlink()
    place.with_name("away").rename(place)
    assert writer.committed.classes == ("cat", "mouse")
    assert writer._learner.classes == ["cat", "mouse"]
    assert outcomes(writer, Undo()) == [(409, "nothing_to_undo")]


def test_beside_a_job_that_crashes_it_is_refused_and_changes_nothing(writer: Writer) -> None:
    """The learner returned to what is on disk, of which there is no record."""
    outcomes(writer, chunk("cat"), chunk("mouse"))
    done = outcomes(writer, Undo(), Stumbling(), chunk("dog"))
    assert done[:2] == [(409, "nothing_to_undo"), (500, "internal")]
    assert writer.committed.classes == ("cat", "mouse", "dog")


def test_a_record_that_is_too_large_is_left_out_with_a_line_in_the_log(
    tiny: ViT, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prol.undo.MOST_BYTES", 1000)
    writer = writer_of(prol.create("slda", tiny), tmp_path)
    assert "POST /undo is off: undo is refused: its record would take" in caplog.text
    assert outcomes(writer, chunk("cat"), Undo())[1] == (409, "nothing_to_undo")
    assert writer.committed.classes == ("cat",)

"""The journal: what it replays to, entries that are cut off or damaged, and what remains of it on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

import prol
from prol.backbones import ViT
from prol.classes import Label
from prol.learner import Learner
from prol.serve import changes
from prol.serve.batches import JobQueue
from prol.serve.errors import RequestError
from prol.serve.jobs import Job, Learn, Merge, Remove, Rename, Undo
from prol.serve.journal import MOST_ENTRIES, Journal
from prol.serve.monitoring import Activity
from prol.serve.pending import Pending
from prol.serve.records import Key, Records
from prol.serve.store import Opened, Recovered, Store, describe
from prol.serve.writer import Writer
from prol.testing.stream import difference
from serve.running import eventually


def writer_of(learner: Learner, folder: Path, journal: bool = True) -> Writer:
    store = Store(folder, 2, journal)
    store.commit(0, describe(learner), learner.state(), Records())
    return Writer(store, Opened(learner, Records(), 0), JobQueue(8), Activity(), max_keys=3)


def image(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)


def chunk(first: int, labels: list[Label]) -> Learn:
    return Learn([image(first + k) for k in range(len(labels))], labels, Key.of(str(first), "content"))


def done(writer: Writer, job: Job) -> None:
    [outcome] = writer._process([job]).values()
    assert not isinstance(outcome, RequestError), outcome


def recovered(writer: Writer, warnings: list[str] | None = None) -> Recovered:
    """What another process would find on the disk."""
    found = Store(writer._store.folder, 2).recover(pytest.fail if warnings is None else warnings.append)
    assert found is not None
    return found


def journals(writer: Writer) -> list[Path]:
    return sorted(writer._store.place.glob("*.journal"))


METHODS: dict[str, tuple[dict[str, Any], bool]] = {
    "ncm": ({}, True),
    "slda": ({}, True),
    "prol_plus": ({"adapt_steps": 3, "features": 64}, True),
    "ranpac": ({"features": 64}, True),
    "klda": ({"features": 64}, True),
    "knn": ({}, True),
    "prol": ({"blocks": 4}, True),
    "head_only": ({}, True),
}


@pytest.mark.parametrize("method", METHODS)
def test_after_each_commit_the_disk_holds_the_learner_to_the_bit(method: str, tiny: ViT, tmp_path: Path) -> None:
    options, small = METHODS[method]
    writer, journaled = writer_of(prol.create(method, tiny, **options), tmp_path / "model"), 0
    for step in range(7):
        labels: list[Label] = [f"class {k % 3 + step // 3}" for k in range(5)]
        done(writer, chunk(10 * step, labels))
        journaled += bool(journals(writer))
        found = recovered(writer)
        assert difference(found.state, writer._learner.state()) == ""
        assert (found.records, found.version) == (writer.committed.records, writer.committed.version)
    assert journaled >= 5 * small
    held = writer._learner.state()
    writer._dirty = True  # the next batch begins with a rollback, which replays in memory
    done(writer, chunk(900, ["last"]))
    assert not journals(writer)
    fresh = type(writer._learner)(tiny, writer._learner.options)
    fresh.load_state(*held)
    fresh.learn([image(900)], ["last"])
    ours, theirs = writer._learner.state(), fresh.state()
    assert ours[1]["classes"] == theirs[1]["classes"]
    for name, tensor in theirs[0].items():
        # The journal adds up features after a rotation, others add them as they are.
        torch.testing.assert_close(ours[0][name], tensor, rtol=1e-4, atol=1e-4)


def test_without_a_journal_each_commit_is_a_checkpoint(tiny: ViT, tmp_path: Path) -> None:
    writer = writer_of(prol.create("slda", tiny), tmp_path / "model", journal=False)
    for step in range(3):
        done(writer, chunk(10 * step, ["cat", "dog"]))
        assert writer._store.checkpoints.newest_number() == writer.committed.version
        assert not journals(writer)
    assert not writer._learner.stored.logs_products


def test_what_would_not_be_small_is_committed_as_a_whole(
    tiny: ViT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "SMALL", 10)
    monkeypatch.setattr(changes, "SHARE", 1000)
    writer = writer_of(prol.create("ncm", tiny), tmp_path / "model")
    for step in range(changes.PAUSE + 5):
        done(writer, chunk(10 * step, ["cat", "dog"]))
        assert writer._store.checkpoints.newest_number() == writer.committed.version
        assert difference(recovered(writer).state, writer._learner.state()) == ""


def test_a_checkpoint_replaces_the_journal_in_time_and_after_so_many_entries(tiny: ViT, tmp_path: Path) -> None:
    writer = writer_of(prol.create("ncm", tiny), tmp_path / "model")
    for step in range(MOST_ENTRIES):
        done(writer, chunk(step, ["cat"]))
    assert [path.name for path in journals(writer)] == ["000000000.journal"]
    assert writer._store.journal.entries == MOST_ENTRIES
    done(writer, chunk(1000, ["cat"]))
    assert not journals(writer)
    writer._store.journal.seconds = 0.1
    done(writer, chunk(1001, ["cat"]))
    assert journals(writer)
    writer.start()
    eventually(lambda: not journals(writer))
    assert writer._store.checkpoints.newest_number() == writer.committed.version
    writer.finish()
    assert difference(recovered(writer).state, writer._learner.state()) == ""


def test_stopping_leaves_no_journal(tiny: ViT, tmp_path: Path) -> None:
    writer = writer_of(prol.create("ncm", tiny), tmp_path / "model")
    for step in range(3):
        done(writer, chunk(step, ["cat"]))
    assert journals(writer)
    writer.start()
    writer.finish()
    assert not journals(writer)


@pytest.mark.parametrize(
    "job", [Undo(), Rename("cat", "lynx", Pending(1, 1, 1)), Remove("cat"), Merge("cat", "dog", Pending(1, 1, 1))]
)
def test_no_entry_outlives_a_change_of_classes_or_an_undo(job: Job, tiny: ViT, tmp_path: Path) -> None:
    writer = writer_of(prol.create("slda", tiny), tmp_path / "model")
    for step in range(3):
        done(writer, chunk(10 * step, ["cat", "dog"]))
    assert any(b"cat" in path.read_bytes() or path.stat().st_size for path in journals(writer))
    done(writer, job)
    assert not journals(writer)
    assert difference(recovered(writer).state, writer._learner.state()) == ""
    done(writer, chunk(50, ["dog", "owl"]))
    assert difference(recovered(writer).state, writer._learner.state()) == ""


@pytest.fixture
def two_entries(tiny: ViT, tmp_path: Path) -> tuple[Writer, list[Any], int]:
    """A writer that has appended two entries, its states from the checkpoint on, and where the second entry begins."""
    writer, states, sizes = writer_of(prol.create("slda", tiny), tmp_path / "model"), [], []
    states.append(writer._learner.state())
    for step in range(2):
        done(writer, chunk(10 * step, ["cat", "dog"]))
        states.append(writer._learner.state())
        sizes += [path.stat().st_size for path in journals(writer)]
    assert len(sizes) == 2
    return writer, states, sizes[0]


def test_an_entry_that_is_cut_off_anywhere_was_never_there(two_entries: tuple[Writer, list[Any], int]) -> None:
    writer, states, begin = two_entries
    [path] = journals(writer)
    whole = path.read_bytes()
    for end in [begin, begin + 1, begin + 8, begin + 39, begin + 40, (begin + len(whole)) // 2, len(whole) - 1]:
        path.write_bytes(whole[:end])
        assert difference(recovered(writer).state, states[1]) == ""
    path.write_bytes(whole)
    assert difference(recovered(writer).state, states[2]) == ""


def test_a_damaged_entry_ends_the_journal_and_is_reported(two_entries: tuple[Writer, list[Any], int]) -> None:
    writer, states, begin = two_entries
    [path] = journals(writer)
    content = bytearray(path.read_bytes())
    content[begin // 2] ^= 1
    path.write_bytes(bytes(content))
    warnings: list[str] = []
    found = recovered(writer, warnings)
    assert difference(found.state, states[0]) == ""
    assert "damaged after 0 entries" in warnings[0]
    assert found.version > writer.committed.version  # which was acknowledged, and is not used again


def test_entries_count_only_after_their_own_checkpoint(two_entries: tuple[Writer, list[Any], int]) -> None:
    writer, states, _ = two_entries
    store = writer._store
    [path] = journals(writer)
    whole = path.read_bytes()
    newest = store.checkpoints.find_newest(pytest.fail)
    assert newest is not None
    journal = Journal(store.place)
    assert len(journal.read(newest.number, newest.checksum, pytest.fail)[0]) == 2
    assert journal.read(newest.number, "of another one", lambda _: None) == ([], False)
    writer._checkpoint()
    path.write_bytes(whole)  # as if the process had been killed before it was erased
    assert difference(recovered(writer).state, states[2]) == ""


def test_a_link_in_the_place_of_the_journal_is_not_followed(tiny: ViT, tmp_path: Path) -> None:
    writer, outside = writer_of(prol.create("ncm", tiny), tmp_path / "model"), tmp_path / "outside"
    outside.write_bytes(b"of somebody else")
    (writer._store.place / "000000000.journal").symlink_to(outside)
    done(writer, chunk(1, ["cat"]))
    [path] = journals(writer)
    assert not path.is_symlink()
    writer._checkpoint()
    (writer._store.place / "000000000.journal").symlink_to(outside)
    writer._store.journal.erase()
    assert outside.read_bytes() == b"of somebody else"
    assert not journals(writer)


def rows_on_disk(folder: Path, width: int) -> torch.Tensor:
    """All rows of that width or wider in any file, from the first column on, and what is in entries of journals."""
    rows = [torch.zeros(1, width, dtype=torch.float64)]
    for path in (part for part in folder.rglob("*") if part.is_file()):
        content = path.read_bytes()
        if path.suffix == ".safetensors":
            parts = [content]
        elif path.suffix == ".journal":
            parts = []
            while content:
                end = 40 + int.from_bytes(content[:8], "little")
                parts, content = [*parts, content[40:end]], content[end:]
        else:
            continue
        for part in parts:
            wide = [t for t in load(part).values() if t.ndim == 2 and t.shape[1] >= width]
            rows += [t[:, :width].double() for t in wide]
    return torch.cat(rows)


def nearest(rows: torch.Tensor, features: torch.Tensor) -> float:
    """How near the nearest row is to a feature, relative to its length and up to sign."""
    features = features.double()
    apart = torch.cdist(torch.cat([rows, -rows]), features).amin(0) / features.norm(dim=1)
    return float(apart.min())


def test_no_feature_can_be_found_after_a_checkpoint(tiny: ViT, tmp_path: Path) -> None:
    learner = prol.create("slda", tiny)
    writer = writer_of(learner, tmp_path / "model")
    done(writer, chunk(0, ["cat", "dog", "cat", "dog"]))
    done(writer, chunk(100, ["cat", "cat", "dog", "dog"]))
    alone = chunk(200, ["owl", "cat", "cat"])
    done(writer, alone)
    features = learner.encode_images([image(100 + k) for k in range(4)])
    lonely = learner.encode_images(alone.pictures[:1])
    width = features.shape[1]
    with_journal = rows_on_disk(tmp_path, width)
    assert nearest(with_journal, lonely) < 1e-4  # the only image of its class: its sum is its feature
    assert nearest(with_journal, features) > 0.01
    [path] = journals(writer)
    handle, size = os.open(path, os.O_RDONLY), path.stat().st_size
    done(writer, chunk(300, ["owl", "owl"]))
    writer._checkpoint()
    try:
        assert not journals(writer)
        assert os.read(handle, size + 1)[:size] == bytes(size)  # overwritten before it was removed
    finally:
        os.close(handle)
    after = rows_on_disk(tmp_path, width)
    assert len(after) > 10
    assert nearest(after, torch.cat([features, lonely])) > 0.01
    assert not any(
        row.numpy().tobytes()[:32] in part.read_bytes()
        for row in (*features.float(), *features.double())
        for part in tmp_path.rglob("*")
        if part.is_file()
    )

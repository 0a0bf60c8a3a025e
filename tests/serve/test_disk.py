"""Disks that are full or cannot be written to: nothing is lost, and the service comes back by itself."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import prol
from prol.serve.errors import not_written
from serve.running import Nursery, Server, counts, error, eventually, learn, picture, predict, running


@contextmanager
def no_room(server: Server) -> Iterator[None]:
    """The server's process cannot write a single byte into any file."""
    limits = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limits)


@contextmanager
def nowhere_to_write(server: Server) -> Iterator[None]:
    """A file lies where the checkpoints' folder should be: that stops even the system's administrator."""
    place, away = server.folder / "service", server.folder / "away"
    place.rename(away)
    place.write_text("in the way")
    try:
        yield
    finally:
        place.unlink()
        away.rename(place)


TROUBLES = {"full": (no_room, (507, "no_room")), "unwritable": (nowhere_to_write, (503, "not_written"))}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_nothing_is_acknowledged_that_is_not_written_and_it_recovers(
    client: httpx.Client, server: Server, trouble: str
) -> None:
    begin, expected = TROUBLES[trouble]
    learnt = learn(client, [picture(1), picture(2)], ["cat", "dog"]).json()
    eventually(lambda: predict(client, picture(1))["version"] >= learnt["version"])
    before = counts(client)
    [waiting] = predict(client, picture(1))["predictions"]
    late = {"labels": [{"id": waiting["id"], "label": f"late {trouble}"}]}
    with begin(server):
        answer = learn(client, [picture(3)], ["cat"], key=trouble)
        assert error(answer) == expected
        assert int(answer.headers["retry-after"]) > 0
        assert error(learn(client, [picture(3)], ["new"])) == expected
        assert error(client.post("/labels", json=late)) == expected
        assert error(learn(client, [b"no image"], ["cat"])) == (422, "unreadable_image")
        assert counts(client) == before
        assert predict(client, picture(2))["predictions"][0]["labels"]
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        assert predict(client, picture(1))["version"] == learnt["version"]
    again = learn(client, [picture(3)], ["cat"], key=trouble).json()
    assert (again["repeated"], counts(client)["cat"]) == (False, before["cat"] + 1)
    assert again["version"] > learnt["version"]
    assert client.post("/labels", json=late).json()["learnt"] == 1
    assert counts(client)[f"late {trouble}"] == 1
    assert counts(client).keys() == before.keys() | {f"late {trouble}"}


def test_a_full_disk_at_the_end_costs_nothing_but_the_saved_learner(
    nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    with running(nursery, folder, "--method", "ncm", "--backbone", small_vit) as server, server.client() as client:
        assert learn(client, [picture(1)], ["cat"]).status_code == 200
        (folder / ".model.safetensors.new").mkdir()
        assert server.end() == 2
        assert "nothing is lost" in server.said()
    (folder / ".model.safetensors.new").rmdir()
    assert prol.load(folder).classes == []
    with running(nursery, folder) as server, server.client() as client:
        assert counts(client) == {"cat": 1}
        assert server.end() == 0
    assert prol.load(folder).classes == ["cat"]


@pytest.mark.parametrize(
    ("number", "status"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EFBIG, 507), (errno.EROFS, 503)]
)
def test_what_a_client_is_told_of_an_error_of_the_disk(number: int, status: int) -> None:
    assert not_written(OSError(number, "said the disk")).status == status


def test_images_are_never_written_to_disk(nursery: Nursery, small_vit: str, tmp_path: Path) -> None:
    """Neither to a temporary file, which no limit on room would let pass, nor to the service's folder."""
    folder, temporary = tmp_path / "model", tmp_path / "temporary"
    temporary.mkdir()
    large = [picture(seed, 1000, "BMP") for seed in range(2)]
    flags = ("--method", "ncm", "--backbone", small_vit)
    with running(nursery, folder, *flags, TMPDIR=str(temporary)) as server, server.client() as client:
        with no_room(server):
            ids = [one["id"] for one in predict(client, *large)["predictions"]]
            assert error(learn(client, large, ["cat"])) == (507, "no_room")
        assert learn(client, large, ["cat"]).status_code == 200
        assert client.post("/labels", json={"labels": [{"id": ids[0], "label": "cat"}]}).status_code == 200
        assert list(temporary.iterdir()) == []
        assert server.end() == 0
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    for image in large:
        inside = image[len(image) // 2 :][:64]
        assert not any(inside in content for content in written)

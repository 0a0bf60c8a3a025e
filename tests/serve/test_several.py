"""Several learners in one service: managing them, their isolation, and writing them out and loading them again."""

from __future__ import annotations

import asyncio
import io
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zipfile import ZipFile

import httpx
import pytest

import prol
from prol.learner import SavedState
from prol.serve.learners import Learners
from prol.serve.schemas import NewLearnerBody
from prol.serve.security import Tokens
from prol.serve.settings import Limits, ServeOptions
from prol.testing.stream import difference
from serve.running import Nursery, Server, counts, error, eventually, learn, picture, predict, running

TIGHT = ("--loaded-bytes", "45000000")
"""Memory for two learners of nearest class means."""


@pytest.fixture(scope="module")
def several(nursery: Nursery, small_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Without tokens, and with memory for two small learners."""
    folder = tmp_path_factory.mktemp("several") / "learners"
    with running(nursery, folder, "--several", "--backbone", small_vit, "--images", "8", *TIGHT) as server:
        with server.client() as client:
            for name in ("filler-1", "filler-2"):
                create(client, name)
        yield server


@pytest.fixture
def manager(several: Server) -> Iterator[httpx.Client]:
    with several.client() as client:
        yield client


def create(client: httpx.Client, name: str, method: str = "ncm", **more: Any) -> dict[str, Any]:
    answer = client.post("/v1", json={"name": name, "method": method, **more})
    assert answer.status_code == 201, answer.text
    content: dict[str, Any] = answer.json()
    return content


def listed(client: httpx.Client) -> dict[str, dict[str, Any]]:
    return {one.pop("name"): one for one in client.get("/v1").json()["learners"]}


def of(server: Server, name: str, token: str | None = None) -> httpx.Client:
    """A client of one learner, to which all that is sent to a single one can be sent."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    client = server.client(headers=headers)
    client.base_url = httpx.URL(f"{server.url}/v1/{name}")
    return client


def test_each_learner_has_all_routes_of_a_single_one(several: Server, manager: httpx.Client) -> None:
    assert create(manager, "birds") == {"name": "birds", "read_token": None, "write_token": None}
    create(manager, "cars", options={"distance": "euclidean"})
    with of(several, "birds") as birds, of(several, "cars") as cars:
        learnt = learn(birds, [picture(1), picture(2)], ["wren", "rook"], key="k").json()
        assert learn(birds, [picture(1), picture(2)], ["wren", "rook"], key="k").json()["repeated"]
        assert learn(cars, [picture(1)], ["van"], key="k").json()["repeated"] is False
        eventually(lambda: predict(birds, picture(2))["version"] >= learnt["version"])
        [one] = predict(birds, picture(2))["predictions"]
        assert one["labels"][0]["label"] == "rook"
        late = {"labels": [{"id": one["id"], "label": "rook"}]}
        assert error(cars.post("/labels", json=late)) == (404, "unknown_ids"), "ids belong to one learner"
        assert birds.post("/labels", json=late).json()["correct"] == 1
        assert birds.patch("/classes/rook", json={"label": "a/b"}).status_code == 200
        assert birds.post("/undo").status_code == 409
        assert birds.delete("/classes/wren").json()["exact"]
        assert counts(birds) == {"a/b": 2}
        assert counts(cars) == {"van": 1}
        assert birds.get("/export").headers["content-disposition"].startswith('attachment; filename="birds-')
        assert "prol_images_learnt_total 3" in birds.get("/metrics").text
        assert birds.get("/").text == manager.get("/page/index.html").text
        assert birds.get("/openapi.json").json()["servers"] == [{"url": "/v1/birds"}]
        assert [event["kind"] for event in cars.get("/status").json()["events"]] == ["refused", "learnt"]
    assert listed(manager)["birds"].items() >= {"method": "ncm", "loaded": True}.items()


def test_the_first_page_lists_learners_and_the_schema_the_routes_that_manage_them(manager: httpx.Client) -> None:
    assert "page/several.js" in manager.get("/").text
    paths = manager.get("/openapi.json").json()["paths"]
    assert {(method, path) for path, methods in paths.items() for method in methods} == {
        ("get", "/v1"),
        ("post", "/v1"),
        ("patch", "/v1/{name}"),
        ("delete", "/v1/{name}"),
        ("get", "/metrics"),
        ("get", "/healthz"),
        ("get", "/readyz"),
    }


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "Birds", "-x", "_x", "a b", "a.b", "ä", "x" * 65, "a\x00", "a\n", "\\x"]
)
def test_names_that_could_be_paths_are_refused(several: Server, manager: httpx.Client, name: str) -> None:
    before = sorted(part.name for part in several.folder.iterdir())
    assert error(manager.post("/v1", json={"name": name, "method": "ncm"})) == (422, "bad_name")
    assert sorted(part.name for part in several.folder.iterdir()) == before
    with of(several, quote(name, safe="")) as client:
        assert error(client.post("/undo"))[0] in (404, 405)
    assert error(manager.delete(f"/v1/{quote(name, safe='')}"))[0] in (404, 405)


def test_a_surrogate_is_no_name(manager: httpx.Client) -> None:
    answer = manager.post("/v1", content=b'{"name": "\\ud800"}', headers={"Content-Type": "application/json"})
    assert error(answer) == (400, "broken_json")


@pytest.mark.parametrize(
    ("wanted", "refusal"),
    [
        ({"method": "none_such"}, (422, "not_created")),
        ({"method": "/tmp/mine.py:Mine"}, (422, "not_created")),
        ({"options": {"distance": "far"}}, (422, "not_created")),
        ({"options": {"depth": 3}}, (422, "not_created")),
        ({"method": "ranpac", "options": {"features": 100_000}}, (422, "not_created")),
        ({"method": "gdumb"}, (422, "not_created")),
        ({"seed": -1}, (422, "invalid")),
        ({"limits": {"images": 9}}, (422, "bad_limit")),
        ({"limits": {"images": 0}}, (422, "invalid")),
        ({"limits": {"memory_bytes": 1}}, (422, "invalid")),
        ({"backbone": "tiny"}, (422, "invalid")),
    ],
)
def test_what_cannot_be_created_leaves_nothing(
    several: Server, manager: httpx.Client, wanted: dict[str, Any], refusal: tuple[int, str]
) -> None:
    assert error(manager.post("/v1", json={"name": "new", "method": "ncm", **wanted})) == refusal
    assert not [part.name for part in several.folder.iterdir() if "new" in part.name]
    assert "new" not in listed(manager)


def test_a_learner_has_limits_of_its_own(several: Server, manager: httpx.Client) -> None:
    create(manager, "limited", limits={"images": 2, "rate": 0.5})
    with of(several, "limited") as client:
        answer = learn(client, [picture(1)] * 3, ["a"])
        assert error(answer) == (422, "too_many_images")
        assert error(client.get("/classes")) == (429, "too_often")
    assert manager.get("/v1").status_code == 200


def exported(client: httpx.Client, folder: Path) -> SavedState:
    """The state of a learner as it is downloaded."""
    with ZipFile(io.BytesIO(client.get("/export").content)) as archive:
        archive.extractall(folder)
    [saved] = folder.iterdir()
    return prol.load(saved, device="cpu").state()


@pytest.mark.parametrize(
    "methods", [("slda", "ncm"), pytest.param(("prol-plus", "prol", "knn"), marks=pytest.mark.slow)]
)
def test_a_learner_that_was_written_out_is_the_same_to_the_bit_when_it_is_loaded(
    nursery: Nursery, small_vit: str, tmp_path: Path, methods: tuple[str, ...]
) -> None:
    folder = tmp_path / "learners"
    with running(nursery, folder, "--several", "--backbone", small_vit) as server, server.client() as manager:
        for method in methods:
            create(manager, method, method.replace("-", "_"))
        assert server.end() == 0
    with running(nursery, folder, "--several", "--loaded-bytes", "1") as server, server.client() as manager:
        before, ids = {}, {}
        for method in methods:
            with of(server, method) as client:
                assert learn(client, [picture(1), picture(9)], ["a", "b"], key="k").status_code == 200
                assert learn(client, [picture(2)], ["a"]).status_code == 200
                [one] = predict(client, picture(3))["predictions"]
                before[method], ids[method] = exported(client, tmp_path / method), one["id"]
            assert [name for name, one in listed(manager).items() if one["loaded"]] == [method]
        for method in methods:
            with of(server, method) as client:
                assert difference(exported(client, tmp_path / f"{method} again"), before[method]) == ""
                assert learn(client, [picture(1), picture(9)], ["a", "b"], key="k").json()["repeated"]
                late = {"labels": [{"id": ids[method], "label": "b"}]}
                assert client.post("/labels", json=late).json()["learnt"] == 1, "images wait while it is not loaded"
                assert client.get("/status").json()["images_learnt"] == 4
        assert f"prol_written_out_total {2 * len(methods) - 1}\n" in manager.get("/metrics").text
        assert server.end() == 0
    assert [prol.load(folder / name, device="cpu").classes for name in methods] == [["a", "b"]] * len(methods)


def test_a_learner_in_use_is_not_dropped_and_more_than_fit_still_work(several: Server, manager: httpx.Client) -> None:
    names = [f"busy-{number}" for number in range(5)]
    for name in names:
        create(manager, name)
    found: dict[str, list[int]] = {}

    def teach(name: str) -> None:
        with of(several, name) as client:
            found[name] = [learn(client, [picture(n)], [f"{name} {n % 2}"]).status_code for n in range(4)]

    threads = [threading.Thread(target=teach, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == {name: [200] * 4 for name in names}
    for name in names:
        with of(several, name) as client:
            assert counts(client) == {f"{name} 0": 2, f"{name} 1": 2}
    assert sum(one["loaded"] for one in listed(manager).values()) <= 2


def test_a_learner_that_is_always_in_use_gives_way_to_another(small_vit: str, tmp_path: Path) -> None:
    options = ServeOptions(backbone=small_vit, device="cpu")
    learners = Learners(tmp_path / "learners", options, Limits(), Tokens(), pytest.fail)
    learners.open()
    order: list[str] = []

    async def use(name: str, until: asyncio.Event) -> None:
        async with learners.use(name):
            order.append(name)
            await until.wait()

    async def story() -> None:
        for name in ("busy", "patient"):
            await learners.create(NewLearnerBody(name=name, method="ncm"))
        learners.limits = Limits(loaded_bytes=1)  # one at a time
        first, others = asyncio.Event(), asyncio.Event()
        others.set()
        tasks = [asyncio.create_task(use("busy", first))]
        while order != ["busy"]:
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(use("patient", others)))
        while not learners.entries["busy"].is_leaving:
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(use("busy", others)))
        await asyncio.sleep(0)
        first.set()
        await asyncio.gather(*tasks)

    asyncio.run(story())
    assert order == ["busy", "patient", "busy"]
    learners.finish()
    learners.release()


def test_a_learner_is_deleted_after_the_requests_in_progress(several: Server, manager: httpx.Client) -> None:
    create(manager, "gone")
    acknowledged: list[int] = []

    def teach() -> None:
        with of(several, "gone") as client:
            while True:
                status = learn(client, [picture(1)], ["a"]).status_code
                acknowledged.append(status)
                if status != 200:
                    return

    teachers = [threading.Thread(target=teach) for _ in range(3)]
    for teacher in teachers:
        teacher.start()
    eventually(lambda: len(acknowledged) > 5)
    assert manager.delete("/v1/gone").json() == {"deleted": "gone"}
    for teacher in teachers:
        teacher.join(60)
    assert set(acknowledged) == {200, 404}
    assert not [part.name for part in several.folder.iterdir() if "gone" in part.name]
    assert error(manager.delete("/v1/gone")) == (404, "unknown_learner")
    create(manager, "gone")
    with of(several, "gone") as client:
        assert counts(client) == {}


def test_what_is_wrong_with_one_learner_does_not_concern_the_others(several: Server, manager: httpx.Client) -> None:
    for name in ("whole", "broken"):
        create(manager, name)
    for name in ("broken", "filler-1", "filler-2"):
        with of(several, name) as client:
            assert learn(client, [picture(1)], ["a"]).status_code == 200
    assert not listed(manager)["broken"]["loaded"]
    for checkpoint in (several.folder / "broken" / "service").glob("*.safetensors"):
        checkpoint.write_bytes(checkpoint.read_bytes()[:-10])
    with of(several, "broken") as broken, of(several, "whole") as whole:
        assert error(broken.get("/classes")) == (503, "not_loaded")
        assert error(broken.get("/classes")) == (503, "not_loaded")
        assert learn(whole, [picture(1)], ["a"]).status_code == 200
    assert "no checkpoint in" in several.said()
    assert manager.get("/readyz").status_code == 200
    assert manager.delete("/v1/broken").status_code == 200


def test_after_a_kill_journals_are_replaced_and_remains_are_removed_without_a_request(
    nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    folder = tmp_path / "learners"
    with running(nursery, folder, "--several", "--backbone", small_vit) as server, server.client() as manager:
        for name in ("a", "b"):
            create(manager, name)
        with of(server, "a") as client:
            assert [learn(client, [picture(n)], ["x"]).status_code for n in range(3)] == [200] * 3
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    assert list(folder.rglob("*.journal"))
    for left in (".half.new", ".gone.deleted"):  # of a learner that was being created, and of one that was deleted
        shutil.copytree(folder / "b", folder / left)
    with running(nursery, folder, "--several", "--pending-seconds", "0.1") as server, server.client() as manager:
        eventually(lambda: not list(folder.rglob("*.journal")))
        assert [name for name, one in listed(manager).items() if one["loaded"]] == ["a"]
        with of(server, "a") as client:
            assert counts(client) == {"x": 3}
        assert server.end() == 0
    assert not list(folder.rglob(".in_use"))
    assert {part.name for part in folder.iterdir()} == {"a", "b", "learners.json", ".lock"}

"""A server that is killed at any instant under load: what it acknowledged is learnt, exactly once."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

import prol
from serve.running import Nursery, Server, client_of, counts, learn, picture
from serve.service_kills import kill_and_compare

CLIENTS = 4
FLAGS_OF_EVERY_START = ("--no-journal", "--device=cuda")
IMAGES = [picture(seed, 16) for seed in range(4)]


class Teacher(threading.Thread):
    """Sends one chunk after another, each with a key, and repeats it until it is acknowledged."""

    def __init__(self, number: int, where: list[str], acknowledgements: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self.number, self.where, self.acknowledgements = number, where, acknowledgements
        self.enough = threading.Event()
        self.acknowledged: Counter[str] = Counter()
        self.repeated = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        draw, chunk = random.Random(self.number), 0
        while not self.enough.is_set():
            labels = [f"class {draw.randrange(5)}" for _ in range(draw.randint(1, 4))]
            self._send(labels, key=f"{self.number}-{chunk}")
            self.acknowledged.update(labels)
            self.acknowledgements.release()
            chunk += 1

    def _send(self, labels: list[str], key: str) -> None:
        while True:
            try:
                with client_of(self.where[0]) as client:
                    answer = learn(client, IMAGES[: len(labels)], labels, key=key)
            except httpx.TransportError:
                self.enough.wait(0.05)  # as clients do: a server that is gone is not asked at once again
                continue
            if answer.status_code == 200:
                self.repeated += answer.json()["repeated"]
                return
            if answer.status_code not in (429, 503):
                self.wrong.append(answer.text)


def kill_and_count(nursery: Nursery, folder: Path, small_vit: str, kills: int, *flags: str) -> None:
    draw = random.Random(kills)
    server = Server(nursery, folder, "--backbone", small_vit, *flags)
    where, acknowledgements, pause = [server.url], threading.Semaphore(0), threading.Event()
    teachers = [Teacher(number, where, acknowledgements) for number in range(CLIENTS)]
    for teacher in teachers:
        teacher.start()
    for _ in range(kills):
        for _ in range(draw.randint(1, 12)):
            assert acknowledgements.acquire(timeout=60)
        pause.wait(draw.uniform(0, 0.1))  # any instant between two acknowledgements
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        server = Server(nursery, folder, *(flag for flag in flags if flag in FLAGS_OF_EVERY_START))
        where[0] = server.url
    for teacher in teachers:
        teacher.enough.set()
    for teacher in teachers:
        teacher.join(60)
        assert not teacher.is_alive()
    assert [teacher.wrong for teacher in teachers] == [[]] * CLIENTS
    expected = sum((teacher.acknowledged for teacher in teachers), Counter())
    with server.client() as client:
        assert counts(client) == expected
        assert client.get("/status").json()["images_learnt"] == expected.total()
    assert server.end() == 0
    learner = prol.load(folder)
    assert dict(zip(learner.classes, learner.class_counts().tolist(), strict=True)) == expected


NCM = ("--method", "ncm")
PROL_PLUS = ("--method", "prol_plus", "--option", "features=64", "--option", "adapt_steps=20")


@pytest.mark.parametrize(
    ("kills", "flags"),
    [
        (2, NCM),
        pytest.param(20, NCM, marks=pytest.mark.slow),
        pytest.param(10, (*NCM, "--no-journal"), marks=pytest.mark.slow),
        pytest.param(20, PROL_PLUS, marks=pytest.mark.slow),
        pytest.param(10, ("--method", "slda"), marks=pytest.mark.slow),
    ],
)
def test_every_acknowledged_chunk_is_applied_exactly_once(
    nursery: Nursery, tmp_path: Path, small_vit: str, kills: int, flags: tuple[str, ...]
) -> None:
    kill_and_count(nursery, tmp_path / "model", small_vit, kills, *flags)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "kills"), [("ncm", 5), ("prol_plus", 5), ("prol", 5), ("several", 15)])
def test_killed_services_hold_what_was_acknowledged_and_no_name_that_was_removed(
    nursery: Nursery, tmp_path: Path, small_vit: str, layout: str, kills: int
) -> None:
    """`tools/kill_services.py` does the same 400 times."""
    story = kill_and_compare(nursery, tmp_path / "served", small_vit, seed=0, layout=layout, kills=kills)
    assert story.wrong == []
    assert len(story.kills) == kills

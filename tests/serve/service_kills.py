"""Services that are killed again and again while clients learn, undo, remove and rename, with one learner or several.

Each learner has one client, which sends a request until it has a response: then it knows what the learner must hold.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from serve.running import Nursery, Server, client_of, learn, picture

METHODS = {"ncm": {}, "prol_plus": {"features": 64, "adapt_steps": 20}, "prol": {"blocks": 2}}
LAYOUTS = (*METHODS, "several")
"""A service with one learner of a method, or one with a learner of each."""
TIGHT = ("--loaded-bytes", "22000000")
"""Memory for one learner, so that most requests write one out and load another."""
IMAGES = [picture(seed, 16) for seed in range(3)]
LONGEST = 120.0


@dataclass
class Kill:
    """What a SIGKILL met: requests acknowledged since the one before, and what was being written."""

    acknowledged: int
    in_checkpoint: bool
    in_journal: bool
    creating: bool
    deleting: bool


@dataclass
class Story:
    """What was done to one service, and whatever was wrong afterwards."""

    seed: int
    layout: str
    kills: list[Kill] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def line(self) -> dict[str, Any]:
        return asdict(self) | {"operations": dict(sorted(self.operations.items()))}


class Client(threading.Thread):
    """Sends one request after the other, each until there is a response."""

    def __init__(self, story: Story, where: list[str], path: str, acknowledgements: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self.story, self.where, self.path, self.acknowledgements = story, where, path, acknowledgements
        self.draw, self.enough = random.Random(f"{story.seed} {path}"), threading.Event()
        self.number = 0

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                self.number += 1
                self.step()
                self.acknowledgements.release()
        except Exception as error:
            self.story.wrong.append(f"{self.path}: {type(error).__name__}: {error}")

    def step(self) -> None:
        raise NotImplementedError

    def send(self, method: str, path: str, **more: Any) -> tuple[httpx.Response, bool]:
        """The response, and whether the request may have been applied before, by a server that is gone."""
        cut, until = False, time.monotonic() + LONGEST
        while time.monotonic() < until:
            try:
                with client_of(self.where[0] + self.path) as client:
                    answer = learn(client, **more) if method == "LEARN" else client.request(method, path, **more)
            except httpx.TransportError:
                cut = True
                self.enough.wait(0.05)
                continue
            if answer.status_code not in (429, 503):
                return answer, cut
            self.enough.wait(0.05)
        raise AssertionError(f"{method} {path} had no response in time")

    def count(self, operation: str, answer: httpx.Response, *allowed: int) -> bool:
        """Whether it was done. A status that is not allowed is wrong."""
        done = answer.status_code < 300
        self.story.operations[operation if done else f"{operation} refused"] += 1
        if not done and answer.status_code not in allowed:
            self.story.wrong.append(f"{self.path}: {operation}: {answer.text}")
        if done and answer.content and answer.json().get("repeated"):
            self.story.operations["repeated"] += 1
        return done


class Teacher(Client):
    """Uses one learner, and knows what it must hold."""

    def __init__(self, folder: Path, *given: Any) -> None:
        super().__init__(*given)
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.learnt, self.before = 0, (Counter[str](), 0)
        self.removed: list[str] = []

    def step(self) -> None:
        known = sorted(self.counts)
        kind = self.draw.choices(["learn", "undo", "remove", "rename"], [6, 2, 1, 1])[0]
        if kind == "undo":
            answer, _ = self.send("POST", "/undo", headers={"Idempotency-Key": f"u{self.number}"})
            if self.count("undo", answer, 409):
                self.counts, self.learnt = self.before
        elif kind == "remove" and len(known) > 2:
            name = self.draw.choice(known)
            answer, cut = self.send("DELETE", f"/classes/{name}")
            if self.count("remove", answer, *([404] if cut else [])) or cut:
                del self.counts[name]
                self.removed.append(name)
                self.search()
        elif kind == "rename" and known:
            name, new = self.draw.choice(known), self.new_name()
            answer, cut = self.send("PATCH", f"/classes/{name}", json={"label": new})
            if self.count("rename", answer, *([404] if cut else [])) or cut:
                self.counts[new] = self.counts.pop(name)
        else:
            names = [*known, self.new_name()] if len(known) < 4 else known
            labels = [self.draw.choice(names) for _ in range(self.draw.randint(1, 3))]
            answer, _ = self.send("LEARN", "/learn", images=IMAGES[: len(labels)], labels=labels, key=f"l{self.number}")
            if self.count("learn", answer):
                self.before = self.counts.copy(), self.learnt
                self.counts.update(labels)
                self.learnt += len(labels)

    def new_name(self) -> str:
        return f"class{self.draw.randrange(10**12):012d}"

    def compare(self) -> None:
        """With what the service says, while it runs."""
        classes = self.send("GET", "/classes")[0].json()["classes"]
        found = {one["label"]: one["count"] for one in classes}
        if any(count is None for count in found.values()):
            found = {name: self.counts[name] for name in found}
        if found != dict(self.counts):
            self.story.wrong.append(f"{self.path}: {found} instead of {dict(self.counts)}")
        if (learnt := self.send("GET", "/status")[0].json()["images_learnt"]) != self.learnt:
            self.story.wrong.append(f"{self.path}: {learnt} images instead of {self.learnt}")

    def search(self) -> None:
        """For names that were removed, in all files of the learner."""
        for file in self.folder.rglob("*"):
            content = b""
            with suppress(OSError):  # a folder, or one of the files that come and go
                content = file.read_bytes()
            if left := [name for name in self.removed if name.encode() in content]:
                self.story.wrong.append(f"{file.relative_to(self.folder)} holds {left}")


class Manager(Client):
    """Creates and deletes learners."""

    def __init__(self, folder: Path, *given: Any) -> None:
        super().__init__(*given)
        self.folder = folder
        self.there: set[str] = set()

    def step(self) -> None:
        if len(self.there) > 1 and self.draw.random() < 0.5:
            name = self.draw.choice(sorted(self.there))
            answer, cut = self.send("DELETE", f"/v1/{name}")
            if self.count("delete", answer, *([404] if cut else [])) or cut:
                self.there.remove(name)
        else:
            name = f"extra-{self.number}"
            answer, cut = self.send("POST", "/v1", json={"name": name, "method": "ncm"})
            if self.count("create", answer, *([409] if cut else [])) or cut:
                self.there.add(name)

    def compare(self) -> None:
        listed = {one["name"] for one in self.send("GET", "/v1")[0].json()["learners"]}
        expected = self.there | {name_of(method) for method in METHODS}
        on_disk = {part.name for part in self.folder.iterdir() if part.is_dir()}
        if not listed == on_disk == expected:
            self.story.wrong.append(f"there are {sorted(listed)} and {sorted(on_disk)}, not {sorted(expected)}")


def name_of(method: str) -> str:
    return method.replace("_", "-")


def kill_and_compare(nursery: Nursery, folder: Path, backbone: str, seed: int, layout: str, kills: int) -> Story:
    story = Story(seed, layout)
    try:
        _kill_and_compare(nursery, folder, backbone, story, kills)
    except (AssertionError, httpx.HTTPError) as error:
        story.wrong.append(f"{type(error).__name__}: {error}")
    return story


def _kill_and_compare(nursery: Nursery, folder: Path, backbone: str, story: Story, kills: int) -> None:
    draw, several = random.Random(story.seed), story.layout == "several"
    server = begin(nursery, folder, backbone, story.layout)
    where, acknowledgements = [server.url], threading.Semaphore(0)
    clients: list[Teacher | Manager] = [Teacher(folder, story, where, "", acknowledgements)]
    if several:
        names = [name_of(method) for method in METHODS]
        clients = [Teacher(folder / name, story, where, f"/v1/{name}", acknowledgements) for name in names]
        clients.append(Manager(folder, story, where, "", acknowledgements))
    for client in clients:
        client.start()
    for _ in range(kills):
        acknowledged = draw.randint(1, 8)
        for _ in range(acknowledged):
            assert acknowledgements.acquire(timeout=LONGEST), "no request was acknowledged in time"
        threading.Event().wait(draw.uniform(0, 0.15))  # any instant between two acknowledgements
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        story.kills.append(met(folder, acknowledged))
        server = Server(nursery, folder, *(("--several", *TIGHT) if several else ()))
        where[0] = server.url
    for client in clients:
        client.enough.set()
    for client in clients:
        client.join(2 * LONGEST)
        assert not client.is_alive(), "a client has no response"
        client.compare()
    assert server.end() == 0, f"it did not end well: {server.said()}"
    for client in clients:
        if isinstance(client, Teacher):
            client.search()


def begin(nursery: Nursery, folder: Path, backbone: str, layout: str) -> Server:
    if layout != "several":
        options = [word for name, value in METHODS[layout].items() for word in ("--option", f"{name}={value}")]
        return Server(nursery, folder, "--backbone", backbone, "--method", layout, *options)
    server = Server(nursery, folder, "--several", "--backbone", backbone)
    with server.client() as client:
        for method, options in METHODS.items():
            wanted = {"name": name_of(method), "method": method, "options": options}
            client.post("/v1", json=wanted).raise_for_status()
    assert server.end() == 0
    return Server(nursery, folder, "--several", *TIGHT)


def met(folder: Path, acknowledged: int) -> Kill:
    """What was under way in the folder of a server that was killed."""
    there = [part.name for part in folder.rglob("*")]
    return Kill(
        acknowledged,
        in_checkpoint=any(name in (".unfinished", ".model.safetensors.new") for name in there),
        in_journal=any(name.endswith(".journal") for name in there),
        creating=any(name.startswith(".extra") and name.endswith(".new") for name in there),
        deleting=any(name.endswith(".deleted") for name in there),
    )

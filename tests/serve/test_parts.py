"""Parts of the service that need no server."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prol.serve.errors import RequestError
from prol.serve.monitoring import Throughput
from prol.serve.pending import Pending, PendingImage
from prol.serve.records import Records
from prol.serve.security import Tokens, read_token
from prol.serve.server import listen
from prol.serve.settings import Limits
from prol.serve.uploads import MemoryBudget, Reservation, decode_images
from prol.serve.workers import Turns


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def image(size: int = 10, predicted: str | int = "cat") -> PendingImage:
    return PendingImage(b"x" * size, predicted)


def test_pending_images_expire() -> None:
    clock = Clock()
    pending = Pending(10, 1000, 60, clock)
    [first] = pending.add([image()])
    clock.now += 30
    [second] = pending.add([image()])
    clock.now += 30
    assert pending.amounts() == (1, 10)
    assert list(pending.claim([first, second])) == [second]
    assert pending.amounts() == (0, 0)


def test_the_oldest_are_dropped_by_number_and_by_bytes() -> None:
    pending = Pending(3, 100, 60, Clock())
    ids = pending.add([image() for _ in range(5)])
    assert list(pending.claim(ids)) == ids[2:]
    ids = pending.add([image(60), image(60)])
    assert list(pending.claim(ids)) == ids[1:]
    assert pending.claim(pending.add([image(101)])) == {}


def test_what_is_given_back_keeps_its_deadline() -> None:
    clock = Clock()
    pending = Pending(10, 1000, 60, clock)
    [early] = pending.add([image()])
    claimed = pending.claim([early])
    clock.now += 59
    pending.add([image()])
    pending.give_back(claimed)
    assert pending.amounts() == (2, 20)
    clock.now += 1
    assert pending.amounts() == (1, 10)
    assert pending.claim([early]) == {}


def test_a_renamed_class_is_still_the_predicted_one() -> None:
    pending = Pending(10, 1000, 60, Clock())
    ids = pending.add([image(predicted="1"), image(predicted=1)])
    pending.rename(1, "one")
    assert [entry.predicted for _, entry in pending.claim(ids).values()] == ["1", "one"]


def test_ids_cannot_be_guessed_from_others() -> None:
    ids = Pending(1000, 10**6, 60).add([image()] * 100)
    assert len(set(ids)) == 100
    assert all(len(name) == 22 for name in ids)


def test_throughput_covers_the_last_minute() -> None:
    clock = Clock()
    flow = Throughput(clock)
    clock.now += 100
    flow.add(60)
    flow.add(60)
    assert (flow.per_second(), flow.total) == (2.0, 120)
    clock.now += 61
    assert (flow.per_second(), flow.total) == (0.0, 120)


def test_memory_is_given_back_as_a_whole() -> None:
    budget = MemoryBudget(10)
    with Reservation(budget) as second:
        with Reservation(budget) as first:
            first.take(4)
            first.take(5)
            with pytest.raises(RequestError, match="no memory left"):
                second.take(2)
        second.take(10)
    assert budget.taken == 0


def test_images_take_as_much_memory_as_their_pixels() -> None:
    file, budget = io.BytesIO(), MemoryBudget(1000)
    Image.new("RGB", (7, 5)).save(file, "PNG")
    with Reservation(budget) as memory:
        images = decode_images([file.getvalue()] * 2, Limits(), memory)
        assert budget.taken == sum(image.nbytes for image in images) == 2 * 7 * 5 * 3


def test_an_image_of_an_extreme_shape_is_refused_by_its_header() -> None:
    file, budget = io.BytesIO(), MemoryBudget(10**9)
    Image.new("1", (2_000_000, 1)).save(file, "PNG")
    assert len(file.getvalue()) < 2000
    with Reservation(budget) as memory, pytest.raises(RequestError, match=r"Image 1 .* 2000000 x 1 pixels") as refused:
        decode_images([file.getvalue()], Limits(), memory)
    assert (refused.value.status, refused.value.code, budget.taken) == (422, "bad_shape", 0)


@pytest.mark.parametrize(
    ("header", "right"),
    [
        (None, "none"),
        ("", "none"),
        ("Bearer", "none"),
        ("Bearer ", "none"),
        ("Bearer r", "read"),
        ("bearer  w ", "write"),
        ("w", "none"),
        ("Bearer \udcff", "none"),
    ],
)
def test_the_right_that_a_header_gives(header: str | None, right: str) -> None:
    assert Tokens.of("r", "w").right_of(header) == right


def test_without_tokens_there_is_nothing_to_check() -> None:
    assert Tokens.of(None, None).right_of(None) == "write"


def test_with_a_read_token_alone_nobody_writes() -> None:
    assert [Tokens.of("r", None).right_of(header) for header in ("Bearer r", "Bearer w", "Bearer ")] == [
        "read",
        "none",
        "none",
    ]


def test_a_file_wins_over_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-file\nnotes\n")
    assert read_token(tmp_path / "token", "X", {"X": "other"}) == "of-the-file"
    assert read_token(None, "X", {"X": "other"}) == "other"
    assert read_token(None, "X", {}) is None
    with pytest.raises(ValueError, match="holds no token"):
        read_token(None, "X", {"X": "two words"})


def test_accepted_connections_have_nodelay() -> None:
    """asyncio sets it only for sockets that say they are TCP; without it each kept-alive request waits 40 ms."""

    async def nodelay() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            found.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = listen("127.0.0.1", 0)
        async with await asyncio.start_server(accept, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await found

    assert asyncio.run(nodelay())


def test_records_of_the_first_version_are_read_and_written_alike_but_for_their_calibration() -> None:
    """The keys of a checkpoint's records, as services that run today have written them."""
    stored: dict[str, Any] = {
        "images_learnt": 7,
        "answered": 3,
        "correct": 2,
        "recent": [[2, 1], [1, 1]],
        "answers": [["key hash", "content hash", {"learnt": 2, "repeated": False, "version": 4, "classes": 1}]],
        "artifact": ["sha256"],
        "operations": [{"what": "renamed", "classes": 1}],
        "to_write_out": True,
    }
    records = Records.from_json(stored | {"novelty": {"observed": 1, "values": [0.5], "weights": [1.0]}})
    assert (records.answers["key hash"][0], records.recent[0]) == ("content hash", (2, 1))
    assert json.loads(json.dumps(records.to_json())) == stored


def test_turns_are_given_in_the_order_of_arrival() -> None:
    """A learner that always has something to learn does not keep the others waiting."""
    turns, order = Turns(2), list[int]()

    def learn(number: int) -> None:
        with turns:
            order.append(number)

    def waiting(number: int) -> threading.Thread:
        thread = threading.Thread(target=learn, args=(number,))
        thread.start()
        while turns._tickets < number + 3:  # it has come
            assert thread.is_alive()
        return thread

    with turns:
        with turns:
            threads = [waiting(number) for number in range(5)]
            assert order == []
        for thread in threads:
            thread.join(60)
    assert order == [0, 1, 2, 3, 4]

"""Parts of the service that need no server: waiting images, tokens, flows."""

from __future__ import annotations

from pathlib import Path

import pytest

from prol.serve.errors import RequestError
from prol.serve.monitoring import Throughput
from prol.serve.pending import Pending, PendingImage
from prol.serve.security import Tokens, read_token
from prol.serve.uploads import MemoryBudget, Reservation


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def waiting(size: int = 10, predicted: str | int = "cat") -> PendingImage:
    return PendingImage(b"x" * size, predicted, None, frozenset())


def test_waiting_images_expire() -> None:
    clock = Clock()
    pending = Pending(10, 1000, 60, clock)
    [first] = pending.add([waiting()])
    clock.now += 30
    [second] = pending.add([waiting()])
    clock.now += 30
    assert pending.amounts() == (1, 10)
    assert list(pending.claim([first, second])) == [second]
    assert pending.amounts() == (0, 0)


def test_the_oldest_make_way_for_number_and_for_bytes() -> None:
    pending = Pending(3, 100, 60, Clock())
    ids = pending.add([waiting() for _ in range(5)])
    assert list(pending.claim(ids)) == ids[2:]
    ids = pending.add([waiting(60), waiting(60)])
    assert list(pending.claim(ids)) == ids[1:]
    assert pending.claim(pending.add([waiting(101)])) == {}


def test_what_is_given_back_keeps_its_deadline() -> None:
    clock = Clock()
    pending = Pending(10, 1000, 60, clock)
    [early] = pending.add([waiting()])
    claimed = pending.claim([early])
    clock.now += 59
    pending.add([waiting()])
    pending.give_back(claimed)
    assert pending.amounts() == (2, 20)
    clock.now += 1
    assert pending.amounts() == (1, 10)
    assert pending.claim([early]) == {}


def test_a_class_with_another_name_is_still_what_was_predicted() -> None:
    pending = Pending(10, 1000, 60, Clock())
    ids = pending.add([waiting(predicted="1"), waiting(predicted=1)])
    pending.rename(1, "one")
    assert [entry.predicted for _, entry in pending.claim(ids).values()] == ["1", "one"]


def test_ids_cannot_be_guessed_from_others() -> None:
    ids = Pending(1000, 10**6, 60).add([waiting()] * 100)
    assert len(set(ids)) == 100
    assert all(len(name) == 22 for name in ids)


def test_a_minute_is_looked_back() -> None:
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

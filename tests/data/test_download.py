"""Downloads from a real server on this machine."""

from __future__ import annotations

import hashlib
import io
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from stand_in_server import StandIn, serving

from prol.data.download import DownloadError, fetch

CONTENT = np.random.default_rng(0).bytes(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "set.tar"


def part_of(target: Path) -> Path:
    return target.with_name("set.tar.part")


def is_whole(target: Path) -> bool:
    return target.read_bytes() == CONTENT and not part_of(target).exists()


def test_a_file_arrives_whole_under_its_name(target: Path) -> None:
    with serving(StandIn(CONTENT)) as server:
        fetch(server.address, target, MD5)
    assert is_whole(target)
    assert server.asked == [None]


def test_a_server_that_does_not_say_the_length_is_read_to_the_end(target: Path) -> None:
    with serving(StandIn(CONTENT, says_length=False)) as server:
        fetch(server.address, target, MD5)
    assert is_whole(target)


def test_a_dropped_connection_is_taken_up_where_it_was(target: Path) -> None:
    with serving(StandIn(CONTENT, cuts=[100_000, 50_000])) as server:
        fetch(server.address, target, MD5)
    assert is_whole(target)
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_what_an_earlier_process_left_is_taken_up(target: Path) -> None:
    part_of(target).write_bytes(CONTENT[:200_000])
    with serving(StandIn(CONTENT)) as server:
        fetch(server.address, target, MD5)
    assert is_whole(target)
    assert server.asked == ["bytes=200000-"]


def test_a_file_left_whole_but_not_renamed_is_finished(target: Path) -> None:
    part_of(target).write_bytes(CONTENT)
    with serving(StandIn(CONTENT)) as server:
        fetch(server.address, target, MD5)
    assert is_whole(target)


def test_a_server_that_cannot_go_on_sends_it_all_again(target: Path) -> None:
    part_of(target).write_bytes(CONTENT[:1000])
    with serving(StandIn(CONTENT, ranges=False, cuts=[200_000])) as server:
        fetch(server.address, target, MD5)
    assert is_whole(target)
    assert server.asked == ["bytes=1000-", "bytes=200000-"]


def test_a_server_in_trouble_is_retried_once_it_has_sent_something(target: Path) -> None:
    with serving(StandIn(CONTENT, cuts=[1000], statuses=[200, 503, 503])) as server:
        fetch(server.address, target, MD5, pause=0)
    assert is_whole(target)
    assert len(server.asked) == 4


def test_a_server_that_stays_in_trouble_is_given_up_and_the_received_part_is_stored(target: Path) -> None:
    with (
        serving(StandIn(CONTENT, cuts=[200_000], statuses=[200, *[503] * 9])) as server,
        pytest.raises(DownloadError, match=r"responds 503.*0\.2 MB are stored and the next attempt resumes from there"),
    ):
        fetch(server.address, target, MD5, tries=3, pause=0)
    assert len(server.asked) == 4
    assert part_of(target).read_bytes() == CONTENT[:200_000]
    assert not target.exists()


def test_a_wrong_checksum_is_reported_and_the_file_removed(target: Path) -> None:
    with (
        serving(StandIn(CONTENT)) as server,
        pytest.raises(DownloadError, match=rf"has the md5 {MD5} instead of 0123, so it was removed"),
    ):
        fetch(server.address, target, "0123")
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_response_without_a_file_is_reported_at_once(target: Path, status: int) -> None:
    with (
        serving(StandIn(CONTENT, statuses=[status] * 9)) as server,
        pytest.raises(DownloadError, match=rf"127\.0\.0\.1:\d+ responds {status} ") as caught,
    ):
        fetch(server.address, target, MD5)
    assert server.asked == [None]
    assert "\n" not in str(caught.value)
    assert list(target.parent.iterdir()) == []


def test_a_refused_connection_is_reported_at_once(target: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(DownloadError, match=rf"127\.0\.0\.1:{port} cannot be reached: .*refused"):
        fetch(f"http://127.0.0.1:{port}/set.tar", target, MD5)


def test_a_server_that_never_answers_is_not_waited_for(target: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(DownloadError, match=r"no response from 127\.0\.0\.1:\d+ in 0\.05 seconds"):
            fetch(f"http://127.0.0.1:{port}/set.tar", target, MD5, patience=0.05)


def test_progress_is_a_few_plain_lines_where_there_is_no_terminal(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(StandIn(CONTENT, cuts=[100_000])) as server:
        fetch(server.address, target, MD5)
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert shown.out == ""
    assert 2 <= len(lines) <= 7
    assert lines[0] == f"downloading set.tar from {server.address}, 0 % of 0.3 MB"
    assert lines[-1].endswith("100 % of 0.3 MB")


def test_progress_moves_on_a_terminal(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with serving(StandIn(CONTENT)) as server:
        fetch(server.address, target, MD5)
    assert "set.tar" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()

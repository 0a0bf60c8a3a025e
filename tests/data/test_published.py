"""Where a data set is looked for, what is unpacked and downloaded, and what is said when it is nowhere."""

from __future__ import annotations

import hashlib
import socket
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from small_sets import bare_machine, packed
from stand_in_server import StandIn, serving

from prol.data import ArraySplit, Dataset
from prol.data.published import Layout, Published, open_published

OFFICIAL = "http://127.0.0.1:9/files/tiny-set.tar"
TINY = Published("tiny", "tiny-set", f"{OFFICIAL}#md5=0123", licence="", classes=1, images=0)


def read(root: Path) -> Dataset:
    none = ArraySplit(np.zeros((0, 1, 1, 3), np.uint8), np.zeros(0, np.int64))
    return Dataset("any", ((root / "hello.txt").read_text(),), none, none)


LAYOUTS = (Layout("a file hello.txt", lambda root: (root / "hello.txt").is_file(), read),)


def found(data: str | Path | None = None, address: str | None = None) -> str:
    """The text in the copy that was opened."""
    return open_published(TINY, LAYOUTS, data, address).class_names[0]


def write_set(root: Path, text: str = "hello") -> Path:
    root.mkdir(parents=True)
    (root / "hello.txt").write_text(text)
    return root


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare_machine(monkeypatch, tmp_path / "cache")
    return TINY.cache


@pytest.mark.parametrize("inside", ["", "tiny", "tiny-set", "data"])
def test_data_is_the_folder_or_the_one_around_it(tmp_path: Path, inside: str) -> None:
    write_set(tmp_path / "mine" / inside)
    assert found(tmp_path / "mine") == "hello"
    assert found(str(tmp_path / "mine")) == "hello"


def test_data_that_is_not_there_is_an_error_even_if_the_cache_has_a_copy(tmp_path: Path, cache: Path) -> None:
    write_set(cache)
    with pytest.raises(FileNotFoundError, match=r"no folder '.*gone' to read 'tiny' from: expected a file hello\.txt"):
        found(tmp_path / "gone")


def test_a_wrong_folder_is_an_error_that_says_what_was_expected_and_found(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no copy of 'tiny' in .*: expected a file hello.txt; or .*; found nothing"):
        found(tmp_path)
    for number in range(12):
        (tmp_path / f"{number:02}.txt").touch()
    (tmp_path / "01.txt").unlink()
    (tmp_path / "01").mkdir()
    with pytest.raises(ValueError, match=r"found 00\.txt, 01/, 02\.txt.* and 4 more") as caught:
        found(tmp_path)
    assert "or the file tiny-set.tar;" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_archive_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match=r"'.*notes.txt' is a file but not a tar archive of 'tiny'"):
        found(tmp_path / "notes.txt")


@pytest.mark.parametrize("where", ["tiny-set.tar", ""])
def test_an_archive_is_unpacked_into_the_cache_once(
    tmp_path: Path, cache: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    packed(write_set(tmp_path / "tiny-set"), tmp_path / "mine" / "tiny-set.tar")
    assert found(tmp_path / "mine" / where) == found(tmp_path / "mine" / where) == "hello"
    assert capsys.readouterr().err.count("unpacking tiny-set.tar into") == 1
    assert len(list(cache.glob("unpacked-*"))) == 1
    assert list((tmp_path / "mine").iterdir()) == [tmp_path / "mine" / "tiny-set.tar"]


def test_another_archive_of_the_same_name_is_not_taken_for_the_first(tmp_path: Path) -> None:
    for number in ("1", "2"):
        (tmp_path / f"mine{number}").mkdir()
        folder = write_set(tmp_path / number / "tiny-set", text=number)
        packed(folder, tmp_path / f"mine{number}" / "tiny-set.tar")
    assert found(tmp_path / "mine1") == "1"
    assert found(tmp_path / "mine2") == "2"


def test_an_archive_that_holds_something_else_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(ValueError, match=r"no copy of 'tiny' in .*unpacked-.*found photos/"):
        found(packed(tmp_path / "photos", tmp_path / "tiny-set.tar"))


def test_an_archive_truncated_leaves_nothing_that_looks_finished(tmp_path: Path, cache: Path) -> None:
    folder = write_set(tmp_path / "tiny-set")
    (folder / "more.bin").write_bytes(np.random.default_rng(0).bytes(100_000))
    for name in ("tiny-set.tar", "tiny-set.tar.gz"):
        archive = packed(folder, tmp_path / name)
        archive.write_bytes(archive.read_bytes()[:60_000])
        with pytest.raises(ValueError, match=r"tiny-set\.tar.* is damaged, truncated or unsafe \(.*\): get it again"):
            found(archive)
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_a_damaged_archive_in_xz_is_an_error(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "tiny-set")
    (folder / "more.bin").write_bytes(np.random.default_rng(0).bytes(100_000))
    with tarfile.open(tmp_path / "tiny-set.tar.xz", "w:xz") as file:
        file.add(folder, arcname=folder.name)
    content = bytearray((tmp_path / "tiny-set.tar.xz").read_bytes())
    content[80_000:80_050] = bytes(50)
    (tmp_path / "tiny-set.tar.xz").write_bytes(content)
    with pytest.raises(ValueError, match=r"tiny-set\.tar\.xz is damaged, truncated or unsafe"):
        found(tmp_path / "tiny-set.tar.xz")


def test_an_archive_with_a_time_beyond_all_is_an_error(tmp_path: Path) -> None:
    member = tarfile.TarInfo("tiny-set/hello.txt")
    member.mtime = 2**70
    with tarfile.open(tmp_path / "tiny-set.tar", "w", format=tarfile.GNU_FORMAT) as file:
        file.addfile(member)
    with pytest.raises(ValueError, match="damaged, truncated or unsafe"):
        found(tmp_path / "tiny-set.tar")


def test_an_archive_with_a_member_inside_of_a_file_is_an_error(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "tiny-set.tar", "w") as file:
        for name in ("tiny-set/hello.txt", "tiny-set/hello.txt/more.txt"):
            file.addfile(tarfile.TarInfo(name))
    with pytest.raises(ValueError, match="damaged, truncated or unsafe"):
        found(tmp_path / "tiny-set.tar")


def test_a_file_that_begins_with_a_header_of_a_length_beyond_all_is_no_archive(tmp_path: Path) -> None:
    member = tarfile.TarInfo("tiny-set/hello.txt")
    member.type, member.size = tarfile.XHDTYPE, 2**70
    (tmp_path / "tiny-set.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(ValueError, match="is a file but not a tar archive"):
        found(tmp_path / "tiny-set.tar")


def test_what_a_killed_unpacking_left_is_not_used_and_removed(tmp_path: Path, cache: Path) -> None:
    write_set(cache / ".unpacking-abc" / "tiny-set", text="half of it")
    assert found(packed(write_set(tmp_path / "tiny-set"), tmp_path / "tiny-set.tar")) == "hello"
    assert not list(cache.glob(".unpacking-*"))


def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "tiny-set.tar"
    with tarfile.open(archive, "w") as file:
        file.addfile(tarfile.TarInfo("../../escaped.txt"))
    with pytest.raises(ValueError, match="damaged, truncated or unsafe"):
        found(archive)
    assert not list(tmp_path.rglob("escaped.txt"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_an_archive_with_links_or_devices_is_refused_even_if_they_stay_inside(tmp_path: Path, kind: bytes) -> None:
    archive = packed(write_set(tmp_path / "tiny-set"), tmp_path / "tiny-set.tar")
    member = tarfile.TarInfo("tiny-set/other.txt")
    member.type, member.linkname = kind, "tiny-set" if kind == tarfile.LNKTYPE else "."
    with tarfile.open(archive, "a") as file:
        file.addfile(member)
    with pytest.raises(ValueError, match=r"unsafe \('tiny-set/other.txt' is neither a file nor a folder\)"):
        found(archive)


@pytest.mark.parametrize("inside", ["tiny", "tiny-set", "tiny/tiny-set"])
def test_prol_data_names_a_folder_of_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    monkeypatch.setenv("PROL_DATA", str(tmp_path / "all"))
    write_set(tmp_path / "all" / inside)
    assert found() == "hello"


@pytest.mark.parametrize("inside", ["", "tiny"])
def test_prol_data_may_hold_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    monkeypatch.setenv("PROL_DATA", str(tmp_path / "all"))
    (tmp_path / "all" / inside).mkdir(parents=True)
    packed(write_set(tmp_path / "tiny-set"), tmp_path / "all" / inside / "tiny-set.tar")
    assert found() == "hello"


def test_prol_data_goes_before_the_cache_and_data_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    write_set(cache, text="cache")
    assert found() == "cache"
    monkeypatch.setenv("PROL_DATA", str(tmp_path))
    assert found() == "cache"
    write_set(tmp_path / "tiny", text="PROL_DATA")
    assert found() == "PROL_DATA"
    assert found(write_set(tmp_path / "mine", text="data")) == "data"


def test_prol_data_itself_is_no_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("PROL_DATA", str(write_set(tmp_path / "all", text="of which set?")))
    write_set(cache, text="cache")
    assert found() == "cache"


def test_a_wrong_folder_in_prol_data_is_an_error_rather_than_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROL_DATA", str(tmp_path))
    (tmp_path / "tiny").mkdir()
    with pytest.raises(ValueError, match=r"no copy of 'tiny' in .*found nothing"):
        found()


def test_the_cache_is_under_home_where_xdg_says_nothing_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", value) if value is not None else monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/home/ann")
        assert TINY.cache == Path("/home/ann/.cache/prol/datasets/tiny")


def test_a_cache_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = packed(write_set(tmp_path / "tiny-set"), tmp_path / "tiny-set.tar")
    monkeypatch.setenv("XDG_CACHE_HOME", str(archive))
    with pytest.raises(
        ValueError, match=r"cannot make the folder '.*tiny' \(.*\): set XDG_CACHE_HOME to one that you may"
    ):
        found(archive)


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    return packed(write_set(tmp_path / "tiny-set", text="from afar"), tmp_path / "elsewhere.tar").read_bytes()


def test_a_set_that_is_nowhere_is_downloaded_once_and_unpacked(archive: bytes, cache: Path) -> None:
    with serving(StandIn(archive, cuts=[3000])) as server:
        address = f"{server.address}#md5={hashlib.md5(archive).hexdigest()}"
        assert found(address=address) == "from afar"
        assert found(address=address) == "from afar"
    assert server.asked == [None, "bytes=3000-"]
    assert found() == "from afar"
    assert sorted(path.name for path in cache.iterdir()) == [".lock", "unpacked"]


def test_a_mirror_must_have_the_official_checksum_unless_it_names_its_own(archive: bytes, cache: Path) -> None:
    with (
        serving(StandIn(archive)) as server,
        pytest.raises(ValueError, match=r"data set 'tiny' .*failed: the file from .* has the md5 \w+ instead of 0123"),
    ):
        found(address=server.address)
    assert sorted(path.name for path in cache.iterdir()) == [".lock", "download"]
    assert list((cache / "download").iterdir()) == []


def test_a_download_that_was_not_unpacked_is_not_repeated(archive: bytes, cache: Path) -> None:
    (cache / "download").mkdir(parents=True)
    (cache / "download" / "tiny-set.tar").write_bytes(archive)
    with serving(StandIn(archive)) as server:
        assert found(address=server.address) == "from afar"
    assert server.asked == []


def test_two_at_once_download_once(archive: bytes) -> None:
    with serving(StandIn(archive)) as server, ThreadPoolExecutor(4) as threads:
        address = f"{server.address}#md5={hashlib.md5(archive).hexdigest()}"
        assert set(threads.map(lambda _: found(address=address), range(4))) == {"from afar"}
    assert server.asked == [None]


def test_without_a_network_one_line_says_what_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(
        ValueError, match=r"data set 'tiny' is not on this machine and downloading it failed: "
    ) as caught:
        found(address=f"http://127.0.0.1:{port}/tiny-set.tar")
    for wanted in (OFFICIAL, "folder tiny-set", "--data", "PROL_DATA names (now not set)", str(cache)):
        assert wanted in str(caught.value)
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("PROL_DATA", str(tmp_path / "all"))
    with pytest.raises(ValueError, match=r"PROL_DATA names \(now .*all\)"):
        found(address=f"http://127.0.0.1:{port}/tiny-set.tar")


@pytest.mark.parametrize("setting", ["PROL_OFFLINE", "HF_HUB_OFFLINE"])
def test_a_setting_forbids_the_network(archive: bytes, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv(setting, "1")
    with serving(StandIn(archive)) as server:
        with pytest.raises(
            ValueError, match=rf"'tiny' is not on this machine and {setting}=1 forbids downloading it\."
        ):
            found(address=server.address)
        assert server.asked == []
    monkeypatch.setenv(setting, "0")
    with serving(StandIn(archive)) as server:
        assert found(address=f"{server.address}#md5={hashlib.md5(archive).hexdigest()}") == "from afar"

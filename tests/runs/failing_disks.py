"""Disks that are full and folders that cannot be written to: real ones where mounting is allowed."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOM = 512 * 1024


def mount(*arguments: object) -> bool:
    """Whether the system did it; only root may, and not everywhere."""
    try:
        return subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def unmount(place: Path) -> None:
    subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=True)


class SmallDisk:
    """A folder whose disk can be filled and emptied.

    Where nothing can be mounted, files that may not grow beyond a few bytes stand in for a full disk.
    """

    def __init__(self, place: Path, real: bool) -> None:
        self.place, self.real = place, real
        self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        if not self.real:
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, self.limits[1]))
            return
        with (self.place / "filler").open("wb", buffering=0) as file:
            try:
                while file.write(b"0" * 512):
                    pass
            except OSError:
                pass

    def make_room(self) -> None:
        if not self.real:
            resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)
        (self.place / "filler").unlink(missing_ok=True)


@contextmanager
def small_disk(place: Path, may_mount: bool = True) -> Iterator[SmallDisk]:
    place.mkdir()
    with ExitStack() as after:
        real = may_mount and mount("-t", "tmpfs", "-o", f"size={ROOM}", "none", place)
        if real:
            after.callback(unmount, place)
        disk = SmallDisk(place, real)
        after.callback(disk.make_room)
        yield disk


class Lockable:
    """A folder that can be made read-only while files in it are open, and writable again.

    Root writes whatever the permissions say. Where it may not mount either, a file takes the folder's place.
    """

    def __init__(self, folder: Path, may_mount: bool = True) -> None:
        self.folder, self.may_mount = folder, may_mount
        self.undo = ExitStack()
        self.why = ""
        """What the system says to whoever makes a new file in it."""

    def lock(self) -> None:
        if os.geteuid() != 0:
            self.why = "Permission denied"
            self.folder.chmod(0o555)
            self.undo.callback(self.folder.chmod, 0o755)
        elif self.may_mount and mount("--bind", self.folder, self.folder):
            self.undo.callback(unmount, self.folder)
            assert mount("-o", "remount,bind,ro", self.folder)
            self.why = "Read-only file system"
        else:
            self.why = "File exists"
            aside = self.folder.rename(self.folder.with_name("aside"))
            self.folder.touch()
            self.undo.callback(aside.rename, self.folder)
            self.undo.callback(self.folder.unlink)


@contextmanager
def lockable(folder: Path, may_mount: bool = True) -> Iterator[Lockable]:
    """Writable again in the end, whatever happened."""
    target = Lockable(folder, may_mount)
    with target.undo:
        yield target

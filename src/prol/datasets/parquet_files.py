"""Finds the parquet files of a data set, in a folder or on the Hugging Face hub, and which half each belongs to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prol.datasets.finding import forbidden

HUB = "hub:"
LAYOUT = (
    "expected FILE.parquet, or a folder of parquet files: train*.parquet with test*.parquet or validation*.parquet, "
    "or any others, which are then cut by a seed"
)
_TESTS = ("test", "validation")  # of these the first that is there


@dataclass(frozen=True)
class Found:
    """The files to learn from and to test on, sorted. Without `test` the halves are still to be cut."""

    train: tuple[Path, ...]
    test: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def find_parquet(data: str | Path | None) -> Found:
    """The parquet files at a path, or in the hub's data set that "hub:OWNER/NAME" names."""
    if data is None:
        raise ValueError(
            f"data set 'parquet' needs to know where it is, --data PATH or parquet(PATH), or hub:OWNER/NAME: {LAYOUT}"
        )
    root = _from_hub(str(data)) if str(data).startswith(HUB) else Path(data).expanduser()
    if root.is_file():
        return Found((root,))
    if not root.exists():
        raise FileNotFoundError(f"no file or folder {str(root)!r}: {LAYOUT}")
    files = [path for path in root.rglob("*.parquet") if path.is_file() and not _is_hidden(path, root)]
    if not files:
        raise ValueError(f"no parquet files in {str(root)!r}: {LAYOUT}")
    return _halves(root, sorted(files, key=lambda path: path.relative_to(root).parts))


def _halves(root: Path, files: Sequence[Path]) -> Found:
    halves = {path: _half(path, root) for path in files}
    tested = next((half for half in _TESTS if half in halves.values()), None)
    train = tuple(path for path in files if halves[path] == "train")
    if tested is None or not train:
        return Found(tuple(files))
    _require_one_set(root, train)
    test = tuple(path for path in files if halves[path] == tested)
    unused = [path.relative_to(root).as_posix() for path in files if halves[path] not in ("train", tested)]
    more = f" and {len(unused) - 8} more" if len(unused) > 8 else ""
    note = f"parquet files that are neither train nor {tested} are left out: {', '.join(unused[:8])}{more}"
    return Found(train, test, (note,) if unused else ())


def _half(path: Path, root: Path) -> str | None:
    """The half that a file is named after, or else a folder it lies in.

    >>> [_half(Path("birds", name), Path("birds")) for name in ("data/train-0.parquet", "test/0.parquet", "0.parquet")]
    ['train', 'test', None]
    """
    halves = ("train", *_TESTS)
    folders = path.relative_to(root).parts[:-1]
    named = [half for half in halves if path.name.startswith(half)] + [half for half in halves if half in folders]
    return named[0] if named else None


def _require_one_set(root: Path, train: Sequence[Path]) -> None:
    """Refuses folders that hold a data set each, as hub repositories with several configurations do."""
    homes = {_home(path.relative_to(root)) for path in train}
    if len(homes) > 1:
        named = ", ".join(sorted(str(root / home) for home in homes))
        raise ValueError(f"{str(root)!r} holds more than one set of train files: give one of the folders {named}")


def _home(path: Path) -> Path:
    folders = path.parts[:-1]
    return Path(*folders[: folders.index("train")]) if "train" in folders else path.parent


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _from_hub(data: str) -> Path:
    """The folder with the parquet files of a hub data set, from the hub's cache or else over the network."""
    name = data.removeprefix(HUB)
    if name.count("/") != 1 or not all(name.split("/")):
        raise ValueError(f"{data!r} names no data set of the hub: write hub:OWNER/NAME")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.utils import logging as hub_logging

    loudness = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)  # its retries would hide our one line
    try:
        folder = snapshot_download(
            name, repo_type="dataset", allow_patterns=["*.parquet"], local_files_only=forbidden() is not None
        )
    except Exception as error:  # the hub client has many ways to be offline
        setting = forbidden()
        why = f"{setting} forbids asking the hub" if setting else f"the hub did not give it ({type(error).__name__})"
        raise ValueError(
            f"data set {name!r} is not in the hub cache {constants.HF_HUB_CACHE} and {why}: fetch the parquet files "
            f"of https://huggingface.co/datasets/{name} "
            f"into a folder and pass that folder with --data"
        ) from error
    finally:
        hub_logging.set_verbosity(loudness)
    return Path(folder)

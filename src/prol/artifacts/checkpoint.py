"""Numbered checkpoints in a folder: each one file, whole or absent, its checksum in its name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from prol.artifacts.atomic import publish
from prol.artifacts.tensors import file_sha256, read_note, read_tensors, write_tensors

_NAME = re.compile(r"(\d+)-([0-9a-f]{64})\.safetensors")


class Checkpoints:
    """The last few checkpoints of one run, each complete in itself: damage to one does not touch the others."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def write(self, number: int, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
        """Adds a checkpoint, then drops all but the newest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / ".unfinished"
        try:
            checksum = write_tensors(unfinished, tensors, note=json.dumps({"checkpoint": number, **content}))
            published = self.folder / f"{number:09d}-{checksum}.safetensors"
            publish(unfinished, published)
        finally:
            with suppress(OSError):  # what stopped the write may stop this too, and is the one to tell of
                unfinished.unlink(missing_ok=True)
        others = [path for _, _, path in self._newest_first() if path != published]
        for path in others[self.keep - 1 :]:
            with suppress(OSError):  # the new one is there: what cannot be dropped now is dropped after the next
                path.unlink()

    def read_newest(
        self, warn: Callable[[str], None], remove_damaged: bool = True
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is as it was written; damaged ones are reported and, if so wished, removed."""
        for stranger in sorted(set(self._files()) - {path for _, _, path in self._newest_first()}):
            warn(f"{stranger} is not named as checkpoints are: it is left alone and not used")
        candidates = self._newest_first()
        for number, checksum, path in candidates:
            try:
                return _read(path, number, checksum)
            except ValueError as error:
                warn(f"checkpoint {path} is damaged ({error}): going back to the one before it")
                if remove_damaged:
                    path.unlink()
            except OSError as error:  # it may be whole, and readable another time
                warn(f"checkpoint {path} cannot be read ({error.strerror}): going back to the one before it")
        if candidates:
            then = ": starting from the beginning" if remove_damaged else ""
            warn(f"no good checkpoint is left in {self.folder}{then}")
        return None

    def newest_number(self) -> int | None:
        """The highest number there, whether or not that checkpoint is as it was written."""
        return next((number for number, _, _ in self._newest_first()), None)

    def drop_after(self, number: int) -> None:
        """Removes checkpoints with higher numbers, as far as that is possible."""
        for present, _, path in self._newest_first():
            if present > number:
                with suppress(OSError):
                    path.unlink()

    def drop_before(self, number: int) -> None:
        """Removes checkpoints with lower numbers: what they hold is to be forgotten."""
        for present, _, path in self._newest_first():
            if present < number:
                path.unlink()

    def _newest_first(self) -> list[tuple[int, str, Path]]:
        """Number, checksum and path of each checkpoint."""
        named = [(path, _NAME.fullmatch(path.name)) for path in self._files()]
        return sorted(((int(match[1]), match[2], path) for path, match in named if match), reverse=True)

    def _files(self) -> list[Path]:
        return list(self.folder.glob("*.safetensors"))


def _read(path: Path, number: int, checksum: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What was written to a file; a ValueError says what is wrong with it."""
    if file_sha256(path) != checksum:
        raise ValueError("its checksum is not that of its name")
    tensors = read_tensors(path)
    try:
        content = json.loads(read_note(path))
    except ValueError as error:
        raise ValueError(f"its note is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("its note is no JSON object")
    if content.pop("checkpoint", number) != number:
        raise ValueError("its number is not that of its name")
    return tensors, content

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
    """The last few checkpoints of one run."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def write(self, number: int, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
        """Adds a checkpoint, then drops all but the newest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / ".unfinished"
        try:
            write_tensors(unfinished, tensors, note=json.dumps(content))
            publish(unfinished, self.folder / f"{number:09d}-{file_sha256(unfinished)}.safetensors")
        finally:
            unfinished.unlink(missing_ok=True)
        for _, _, path in self._newest_first()[self.keep :]:
            with suppress(OSError):  # the new one is there: what cannot be dropped now is dropped after the next
                path.unlink()

    def read_newest(self, warn: Callable[[str], None]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is as it was written; damaged ones are reported and removed."""
        for _, checksum, path in self._newest_first():
            if file_sha256(path) == checksum:
                return read_tensors(path), json.loads(read_note(path))
            warn(f"checkpoint {path} is damaged: going back to the one before it")
            path.unlink()
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
        named = [(path, _NAME.fullmatch(path.name)) for path in self.folder.glob("*.safetensors")]
        return sorted(((int(match[1]), match[2], path) for path, match in named if match), reverse=True)

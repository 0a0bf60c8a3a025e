"""What a tracker must remember of a run to go on with it: `trackers/NAME.json` in the run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Memory:
    """A small JSON file. One that is missing or damaged is empty: the tracker begins anew then."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / "trackers" / f"{name}.json"

    def read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def write(self, content: dict[str, Any]) -> None:
        self.file.parent.mkdir(exist_ok=True)
        # In one step, but not forced onto the disk: runs would wait for that, and it is written often.
        unfinished = self.file.with_suffix(".new")
        unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        unfinished.replace(self.file)

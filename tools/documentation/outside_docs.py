"""Links from pages to files of the repository that are not pages: result files, licences, tests.

On a code host such links just work. The site holds a copy of what is linked, under `repository/`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

DOCS = "docs"
OUTSIDE = "repository"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^(```.*?^```[ \t]*$)", re.DOTALL | re.MULTILINE)


def outside_targets(text: str, page: PurePosixPath, root: Path) -> Iterator[Path]:
    """Files and folders outside docs/ to which the text of `page`, a path in the repository, links."""
    for part in _FENCE.split(text)[::2]:
        for match in _LINK.finditer(part):
            target = _in_repository(page, match[1])
            if target.parts[0] == DOCS:
                continue
            if ".." in target.parts or not (root / target).exists():
                raise FileNotFoundError(f"{page} links to {match[1]}, which is not in the repository")
            yield root / target


def site_links(text: str, src_uri: str, root: Path) -> str:
    """The text of the page `src_uri` of the site with links to where the site has their targets."""
    inside = src_uri.startswith(f"{OUTSIDE}/")
    page = PurePosixPath(src_uri.removeprefix(f"{OUTSIDE}/")) if inside else PurePosixPath(DOCS, src_uri)

    def moved(match: re.Match[str]) -> str:
        target = _in_repository(page, match[1])
        if not inside and target.parts[0] == DOCS:
            return match[0]
        there = _on_site(target, root)
        return os.path.relpath(there, PurePosixPath(src_uri).parent) + (match[2] or "")

    parts = _FENCE.split(text)
    return "".join(part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts))


def folder_page(folder: Path, within: PurePosixPath) -> str:
    """A page that lists what is in a folder: its files, and of the runs in it the result."""
    lines = [f"# `{within}`", "", "Part of the repository. [Commands behind result files](" + _up(within) + ").", ""]
    lines += [f"- [`{path.name}`]({path.name})" for path in sorted(folder.iterdir()) if path.is_file()]
    runs = sorted(path for path in folder.iterdir() if (path / "result.json").is_file())
    if runs:
        lines += ["", "| run | FAA | CAA | forgetting |", "|---|---|---|---|"]
    for run in runs:
        metrics = json.loads((run / "result.json").read_text(encoding="utf-8"))["metrics"]
        numbers = " | ".join(_shown(metrics.get(name)) for name in ("faa", "caa", "forgetting"))
        lines.append(f"| [`{run.name}`]({run.name}/result.json) | {numbers} |")
    return "\n".join(lines) + "\n"


def _up(within: PurePosixPath) -> str:
    return "../" * (len(within.parts) - 1) + "README.md" if within.parts[0] == "results" else "README.md"


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _in_repository(page: PurePosixPath, link: str) -> PurePosixPath:
    return PurePosixPath(os.path.normpath(page.parent / link))


def _on_site(target: PurePosixPath, root: Path) -> PurePosixPath:
    if target.parts[0] == DOCS:
        return target.relative_to(DOCS)
    return PurePosixPath(OUTSIDE, target, "index.md") if (root / target).is_dir() else PurePosixPath(OUTSIDE, target)

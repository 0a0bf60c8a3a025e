"""The page on the architecture: every part of the package is on it, and what it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.pages import DOCS

PAGE = (DOCS / "architecture.md").read_text(encoding="utf-8")
PACKAGE = DOCS.parent / "src" / "prol"


def test_every_package_and_module_at_the_top_has_its_row() -> None:
    table = "".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| "))
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" and not path.name.startswith("__")}
    there |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {name for name in there if not re.search(rf"`(prol\.)?{name}(/|\.py|`)", table)} == set()
    named = re.findall(r"`([a-z_/]+(?:/|\.py))`", table)
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def names_in(file: Path) -> set[str]:
    """Functions, classes, methods as `Class.method`, and classes it inherits from another module."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_the_way_of_an_image_has_at_most_twelve_steps_through_functions_that_are_there() -> None:
    way = PAGE.split("## One image")[1].split("\n## ")[0]
    assert len(re.findall(r"^\d+\. ", way, re.MULTILINE)) <= 12
    named = re.findall(r"`([a-z_/]+\.py)`\s+`([A-Za-z_.]+)`", way)
    assert len(named) >= 12
    for file, name in named:
        assert name in names_in(PACKAGE / file), f"{file} {name}"

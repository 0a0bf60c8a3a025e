"""How large the package is, and how many modules a reader of a method has to read.

    python tools/measure_package.py [SRC]

The import closure counts every module of the package that a module imports, directly or not, also inside functions and
under TYPE_CHECKING; importing from a package counts its `__init__` and what that imports.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

PACKAGE = "prol"
METHODS = ("ncm", "prol_plus", "prol")


def modules(src: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for file in sorted((src / PACKAGE).rglob("*.py")):
        parts = file.relative_to(src).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(tree: ast.AST, known: dict[str, Path]) -> set[str]:
    """The package's modules that a syntax tree imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found = inner & known.keys()
            names |= found
            if len(found) < len(inner):
                names.add(node.module)
    return (names & known.keys()) - {PACKAGE}  # the root only lists names


def closure(start: str, graph: dict[str, set[str]]) -> set[str]:
    """All modules that are reached from one, itself among them."""
    seen, waiting = {start}, [start]
    while waiting:
        for name in graph[waiting.pop()] - seen:
            seen.add(name)
            waiting.append(name)
    return seen


def depth(name: str, bases: dict[str, list[str]]) -> int:
    """How many of a class's ancestors in the package lie on the longest line up."""
    return max((1 + depth(base, bases) for base in bases.get(name, ()) if base in bases), default=0)


def measure(src: Path) -> dict[str, object]:
    known = modules(src)
    trees = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in known.items()}
    graph = {name: imported(tree, known) for name, tree in trees.items()}
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {c.name: [b.id for b in c.bases if isinstance(b, ast.Name)] for c in classes}
    learner = next(c for c in classes if c.name == "Learner")
    learners = [name for name in bases if "Learner" in _ancestors(name, bases)]
    listed = ast.literal_eval(_built_in(trees[f"{PACKAGE}.registry"]))["methods"]
    return {
        "files": len(known),
        "lines": sum(len(file.read_text(encoding="utf-8").splitlines()) for file in known.values()),
        "classes": len(classes),
        "methods of Learner": sum(isinstance(node, ast.FunctionDef) for node in learner.body),
        "lines of Learner": (learner.end_lineno or 0) - learner.lineno + 1,
        "depth of inheritance below Learner": max(depth(name, bases) - depth("Learner", bases) for name in learners),
        "modules to read": {name: len(closure(listed[name].partition(":")[0], graph)) for name in METHODS},
    }


def _ancestors(name: str, bases: dict[str, list[str]]) -> set[str]:
    found = set(bases.get(name, ()))
    return found.union(*(_ancestors(base, bases) for base in found if base in bases and base != name))


def _built_in(tree: ast.Module) -> ast.expr:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_BUILT_IN":
            return node.value
    raise ValueError("the registry has no table _BUILT_IN")


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "src"
    print(json.dumps(measure(place), indent=2))

"""Every option of a method as a table, read from its options' dataclass."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from itertools import pairwise

from prol import registry
from prol.options import describe_options


def option_table(method: str) -> str:
    """Option, default, what it may be, and what it is, a row each."""
    kind = type(registry.method(method).read_options({}))
    allowed, meanings = describe_options(kind), said_in_code(kind)
    lines = ["| option | default | may be | what it is |", "|---|---|---|---|"]
    for option, default in dataclasses.asdict(registry.method(method).read_options({})).items():
        shown = str(default).lower() if default is None or isinstance(default, bool) else str(default)
        cells = [f"`{option}`", f"`{shown}`", allowed[option], meanings[option]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def said_in_code(kind: type) -> dict[str, str]:
    """The text below each field of a dataclass and of those it is derived from."""
    said: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _is_text(text):
                said[field.target.id] = " ".join(ast.literal_eval(text.value).split())  # type: ignore[attr-defined]
    return said


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

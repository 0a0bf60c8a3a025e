"""Every option of a method as a table, read from its options' dataclass."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
from itertools import pairwise
from pathlib import Path

from prol import registry
from prol.options import describe_options

WORDS = json.loads(Path(__file__).with_name("option_words.json").read_text(encoding="utf-8"))
"""Meanings of options that say nothing of themselves in the code, by METHOD.OPTION or, for many methods, OPTION."""


def option_table(method: str) -> str:
    """Option, default, what it may be, and what it is, a row each."""
    kind = type(registry.method(method).read_options({}))
    allowed, meanings = describe_options(kind), option_meanings(method)
    lines = ["| option | default | may be | what it is |", "|---|---|---|---|"]
    for option, default in dataclasses.asdict(registry.method(method).read_options({})).items():
        shown = str(default).lower() if default is None or isinstance(default, bool) else str(default)
        cells = [f"`{option}`", f"`{shown}`", allowed[option], meanings.get(option, "")]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def option_meanings(method: str) -> dict[str, str]:
    """What the code says of each option, and of those of which it says nothing what `WORDS` says."""
    kind = type(registry.method(method).read_options({}))
    said = said_in_code(kind)
    for field in dataclasses.fields(kind):
        word = WORDS.get(f"{method}.{field.name}", WORDS.get(field.name))
        if field.name not in said and word is not None:
            said[field.name] = word
    return said


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

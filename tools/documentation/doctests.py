"""Examples in docstrings stand there without a heading; the parsers of docstrings want one."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_EXAMPLES = re.compile(r"^>>> ", re.MULTILINE)
_NUMPY_SECTION = re.compile(r"^-{3,}$", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a heading before the examples at the end of a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_heading(obj.docstring.value)


def with_heading(docstring: str) -> str:
    """The docstring with its examples, from the first on, as a section of the kind that it has."""
    first = _EXAMPLES.search(docstring)
    if first is None:
        return docstring
    before, examples = docstring[: first.start()], docstring[first.start() :]
    if _NUMPY_SECTION.search(before):
        return f"{before}Examples\n--------\n{examples}"
    return f"{before}Examples:\n{textwrap.indent(examples, '    ')}"

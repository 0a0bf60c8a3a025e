"""A method with its options as one word: `prol:lr=0.05,length=3`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prol.options import parse_pairs


def read_method(word: str) -> tuple[str, dict[str, str]]:
    """A method and its options from one word; a comma is part of a value unless the next option follows it.

    >>> read_method("prol:lr=0.05,length=3")
    ('prol', {'lr': '0.05', 'length': '3'})
    >>> read_method("prol:widths=5,2,1,lr=0.1")
    ('prol', {'widths': '5,2,1', 'lr': '0.1'})
    """
    method, colon, options = word.partition(":")
    if not method or "=" in method:
        raise ValueError(f"{word!r} is not a method: write its options behind a colon, for example prol:lr=0.05")
    return method, parse_pairs(re.split(r",(?=\w+=)", options)) if colon else {}


def spell_method(method: str, options: Mapping[str, Any]) -> str:
    """The word that `read_method` reads.

    >>> spell_method("prol", {"lr": 0.05, "freeze": True, "clip": None})
    'prol:clip=none,freeze=true,lr=0.05'
    """
    return f"{method}:{spell_options(options)}" if options else method


def spell_options(options: Mapping[str, Any]) -> str:
    """Options as on a command line, in the order of their names."""
    return ",".join(f"{name}={spell(value)}" for name, value in sorted(options.items()))


def spell(value: Any) -> str:
    """A value as on a command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)

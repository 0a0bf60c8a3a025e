"""Values of files as words: safe to print, short, and only those in which some settings differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST_HASH, _LONGEST_LIST = 12, 8


def printable(text: object) -> str:
    """Names come from strangers' files: none may turn the direction of text or break a picture's file."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in str(text))


def shown(value: Any) -> str:
    """A number or word as it is, a hash by its beginning, a long list by its length.

    >>> shown(None), shown(True), shown([1, 2]), shown([0.1] * 100), shown("63fb1a20a19ea6abb750c3b2665615ce")
    ('none', 'true', '[1, 2]', '100 values', '63fb1a20a19e')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and len(value) > _LONGEST_LIST:
        return f"{len(value)} values"
    text = str(value)
    return text[:_LONGEST_HASH] if re.fullmatch(r"[0-9a-f]{32,}", text) else text


def written(value: Any) -> str:
    """The same text for the same value, to tell values apart."""
    return json.dumps(value, sort_keys=True, default=str)


def setting(name: str, settings: Mapping[str, Any]) -> str:
    """One setting of a dotted name with its value.

    >>> setting("protocol.class_order", {"protocol.class_order": "label"})
    'class order label'
    """
    return f"{name.rpartition('.')[2].replace('_', ' ')} {shown(settings.get(name))}"


def unlike_names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names, in their order, whose values are not the same in all settings.

    >>> unlike_names([{"lr": 0.1, "length": 3}, {"lr": 0.2, "length": 3}])
    ['lr']
    """
    names = sorted({name for one in settings for name in one})
    return [name for name in names if len({written(one.get(name)) for one in settings}) > 1]

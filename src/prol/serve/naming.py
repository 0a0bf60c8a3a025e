"""Labels as they come in forms, in JSON and in paths: text or whole numbers, and never one for the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from prol.labels import Label
from prol.serve.refusals import Refusal

LONGEST = 500
HIGHEST = 2**63 - 1

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def json_label(value: Any) -> Label:
    """A label out of JSON."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _bad("A label must be text or a whole number.")
    return _checked(value)


def text_label(text: str, integer: bool) -> Label:
    """A label out of a form or a path, where all is text."""
    if not integer:
        return _checked(text)
    if not _WHOLE.fullmatch(text.strip()):
        raise _bad("A label is not a whole number: leave out integers=true, or send digits.")
    return _checked(int(text))


def form_labels(texts: Sequence[str], integers: bool, images: int) -> list[Label]:
    """A label for each image; one alone is that of all of them."""
    labels = [text_label(text, integers) for text in texts]
    if len(labels) == 1:
        return labels * images
    if len(labels) != images:
        raise _bad(f"{images} images but {len(labels)} labels: send a label for each image, or one for all of them.")
    return labels


def form_flag(texts: Sequence[str], name: str) -> bool:
    """A field that is true or false, and false when it is missing."""
    words = {"true": True, "false": False}
    if len(texts) > 1 or any(text.lower() not in words for text in texts):
        raise Refusal(422, "bad_field", f"The field {name} must be true or false, once.")
    return bool(texts) and words[texts[0].lower()]


def shown(label: Label) -> str:
    """A label in a sentence."""
    text = repr(label)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _checked(label: Label) -> Label:
    if isinstance(label, int):
        if abs(label) > HIGHEST:
            raise _bad(f"A label is out of range: whole numbers go from -{HIGHEST} to {HIGHEST}.")
        return label
    if not 1 <= len(label) <= LONGEST:
        raise _bad(f"A label has {len(label)} characters: it must have 1 to {LONGEST}.")
    try:
        label.encode()
    except UnicodeEncodeError:
        raise _bad("A label is not valid Unicode: it holds half of a pair of signs.") from None
    return label


def _bad(message: str) -> Refusal:
    return Refusal(422, "bad_label", message)

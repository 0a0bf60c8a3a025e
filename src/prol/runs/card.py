"""The model card: `README.md` of a saved learner, written from its `meta.json` and `templates/card.md`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from prol.backbones.terms import weights_terms
from prol.runs.format import JOINED

_MOST_NAMED = 100


def model_card(meta: Mapping[str, Any], title: str, size: int, citation: str, from_scratch: bool = False) -> str:
    """The card of a saved learner in a folder called `title`, whose tensors take `size` bytes.

    With `from_scratch` the network has no pre-trained weights, and samples are stored as images.
    """
    backbone, footprint = meta["backbone"]["name"], meta["footprint"]
    terms = weights_terms(backbone)
    operations = {what: count for what, count in (meta.get("operations") or {}).items() if what != JOINED}
    return _template().render(
        meta={"merged": None, "method_file": None, **meta},
        title=title,
        size=size,
        citation=citation,
        from_scratch=from_scratch,
        terms=terms,
        # Weights in a file are named without their folder, which differs from machine to machine.
        moved=terms.title != backbone and "@" in backbone,
        seen=meta["seen"],
        run=meta["run"],
        parts=_parts(meta["run"]),
        named=_named_classes(meta["classes"], meta["seen"]["per_class"]),
        operations=[f"{_counted(count, 'class', 'classes')} {what}" for what, count in operations.items()],
        left_out=meta.get("left_out"),
        stored=footprint,
        samples=footprint["samples_stored"]["count"],
        recorded=len(meta.get("state", {}).get("method", {}).get("prequential", {}).get("ids", [])),
    )


@cache
def _template() -> Template:
    cards = Environment(
        loader=PackageLoader("prol.runs"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown: names from elsewhere are escaped by the filters
    )
    # JSON is valid YAML and Python, so no name can break out of its line.
    filters = {"json": partial(json.dumps, ensure_ascii=False), "ascii": json.dumps, "quote": shlex.quote}
    cards.filters |= {**filters, "counted": _counted, "plain": _plain}
    return cards.get_template("card.md")


def _parts(run: Mapping[str, Any] | None) -> list[str]:
    """Which part of a data set a run was on, if not all of it."""
    if run is None:
        return []
    data = run["dataset"]
    parts = ["a development split of its training images"] if data["development"] else []
    limit = data["limit_per_class"]
    return parts if limit is None else [*parts, f"at most {limit} images per class"]


def _named_classes(classes: list[Any], counts: list[int] | None) -> list[str]:
    """The first classes, with how many images of each were learnt where they were counted."""
    known: Sequence[int | None] = counts or [None] * len(classes)
    both = list(zip(classes, known, strict=True))[:_MOST_NAMED]
    named = [_plain(str(name)) + ("" if count is None else f" ({count:,})") for name, count in both]
    more = len(classes) - len(both)
    return [*named, f"and {more:,} more, which `meta.json` names"] if more else named


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _plain(text: str) -> str:
    """A name on one line, with Markdown characters escaped."""
    shown = (character for character in " ".join(text.split()) if character.isprintable())
    return "".join(f"\\{character}" if character in "\\`*_[]<>|#" else character for character in shown)

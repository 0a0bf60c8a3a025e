"""A picture inside a page: no address in it, its own names apart from those of others, colours of the page."""

from __future__ import annotations

import re
from html import escape

from prol.report.figures import INK, LINE, QUIET
from prol.report.picture import Picture

_PAGE_COLOURS = {INK: "var(--ink)", LINE: "var(--line)", QUIET: "var(--quiet)"}
_COLOUR = re.compile("|".join(_PAGE_COLOURS), re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")


def inline_svg(picture: Picture, key: str) -> str:
    """The picture as an `svg` element; `key` is no other picture's in the page."""
    drawing = picture.bytes("svg", titled=False).decode("utf-8")
    box = re.search(r'viewBox="([0-9. -]+)"', drawing)
    assert box is not None
    content = drawing[drawing.index(">", box.end()) + 1 :]
    content = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", content, flags=re.DOTALL)
    # Only within tags: what stands between them are names of methods and classes, which stay as they are.
    content = _TAG.sub(lambda tag: _of_the_page(tag[0], key), content)
    content = re.sub(r">\s*\n\s*<", "><", content)
    return f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(picture.words)}">{content.strip()}'


def _of_the_page(tag: str, key: str) -> str:
    tag = " ".join(tag.split())
    # Groups are named, but nobody refers to them.
    tag = re.sub(r' id="[^"]*"', "", tag) if tag.startswith("<g ") else re.sub(r'\bid="', f'id="{key}-', tag)
    tag = tag.replace("xlink:href=", "href=")
    tag = re.sub(r'(href="|url\()#', rf"\1#{key}-", tag)
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    tag = re.sub(r"font: ([0-9.]+px) [^;\"]*", r"font-size: \1", tag)
    tag = _COLOUR.sub(lambda colour: _PAGE_COLOURS[colour[0].upper()], tag)
    return tag if "base64" in tag else _LONG_NUMBER.sub(r"\1", tag)

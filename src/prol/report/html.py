"""HTML of the report: templates in which all text is escaped, and plots inside a page."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from prol.report.plot import INK, LINE, QUIET, Plot

_PAGE_COLOURS = {INK: "var(--ink)", LINE: "var(--line)", QUIET: "var(--quiet)"}
_COLOUR = re.compile("|".join(_PAGE_COLOURS), re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")


@cache
def _environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("prol.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["breaks"] = lambda name: re.split(r"(?<=[:,_])", name)
    templates.filters["code"] = lambda line: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(line)))
    templates.filters["svg"] = inline_svg
    return templates


def render(template: str, **values: Any) -> Markup:
    """A template of the package with its values; what comes from files is escaped."""
    return Markup(_environment().get_template(template).render(**values))


def source(template: str) -> str:
    """The text of a file among the templates."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, template)[0]


def inline_svg(plot: Plot, key: str) -> Markup:
    """The plot as an `svg` element: without addresses, in colours of the page; no other plot of it has this `key`."""
    drawing = plot.bytes("svg", titled=False).decode("utf-8")
    box = re.search(r'viewBox="([0-9. -]+)"', drawing)
    assert box is not None
    content = drawing[drawing.index(">", box.end()) + 1 :]
    content = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", content, flags=re.DOTALL)
    # Only within tags: between them are names of methods and classes, which matplotlib has escaped.
    content = _TAG.sub(lambda tag: _of_the_page(tag[0], key), content)
    content = re.sub(r">\s*\n\s*<", "><", content)
    return Markup(f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(plot.alt)}">{content.strip()}')


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

"""The page: one file that needs no other, no network and no script to be read."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from prol.files import write_text
from prol.report.page.found import LeftOut
from prol.report.page.inline_svg import inline_svg
from prol.report.page.parts import Part, best_line, parts_of
from prol.report.page.sections import Section
from prol.report.page.style import SCRIPT, STYLE
from prol.report.page.table import as_html
from prol.report.page.wording import printable
from prol.report.picture import Picture

_MEASURES = {
    "FAA": "accuracy at the end, over all test images",
    "CAA": "mean of the accuracies after each task",
    "forgetting": "mean loss of old tasks from their best",
    "A_AUC": "mean accuracy at equally spaced points of the stream, on the classes that had come",
}


def write_page(sections: Sequence[Section], left_out: Sequence[LeftOut], file: Path) -> None:
    """Writes the report of some sections, and of what is not in it, as one HTML file."""
    page = page_of(sections, left_out)
    write_text(file, page)


def page_of(sections: Sequence[Section], left_out: Sequence[LeftOut]) -> str:
    """The whole page as text; everything that comes from files is escaped."""
    title = f"Report on {', '.join(dict.fromkeys(section.title.partition(':')[0] for section in sections))}"
    runs = sum(len(runs) for section in sections for runs in section.runs_of.values())
    # What is not written here cannot run or be loaded, even if a name found a way through the escaping.
    rules = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_hash(SCRIPT)}'"
    count = f"{counted(runs, 'run')} on {counted(len(sections), 'stream')}"
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
            f'<header>\n<h1>{escape(title)}</h1>\n<p class="quiet">{count}</p>\n',
            _contents(sections) if len(sections) > 1 else "",
            _left_out(left_out),
            f"{_words_of_measures(sections)}</header>\n<main>\n",
            *(_section(number, section) for number, section in enumerate(sections, start=1)),
            '</main>\n<footer class="quiet">Made by <code>prol report</code> from result files alone.</footer>\n',
            f"<script>{SCRIPT}</script>\n</body>\n</html>\n",
        ]
    )


def counted(number: int, thing: str) -> str:
    """So many things.

    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _contents(sections: Sequence[Section]) -> str:
    links = "".join(f'<li><a href="#s{n}">{escape(one.title)}</a></li>' for n, one in enumerate(sections, start=1))
    return f'<nav aria-label="Streams"><ul>{links}</ul></nav>\n'


def _left_out(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return ""
    lines = "".join(f"<li>{escape(printable(one.run))}: {escape(printable(one.reason))}</li>" for one in left_out)
    return f'<div class="notice" role="note"><strong>Left out</strong><ul>{lines}</ul></div>\n'


def _words_of_measures(sections: Sequence[Section]) -> str:
    anytime = any(row.a_auc for section in sections for row in section.rows)
    shown = {name: words for name, words in _MEASURES.items() if anytime or name != "A_AUC"}
    lines = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in shown.items())
    return f"<details><summary>What the measures are</summary><dl>{lines}</dl></details>\n"


def _section(number: int, section: Section) -> str:
    key, parts = f"s{number}", parts_of(section)
    links = "".join(f'<li><a href="#{key}-{part.key}">{escape(part.title)}</a></li>' for part in parts)
    return "".join(
        [
            f'<section aria-labelledby="{key}">\n<h2 id="{key}">{escape(section.title)}</h2>\n',
            f'<p class="best">{escape(best_line(section))}</p>\n',
            f'<p class="quiet">{escape(printable(section.headline))}</p>\n',
            f'<nav aria-label="Parts of {escape(section.title)}"><ul>{links}</ul></nav>\n',
            *(_part(f"{key}-{part.key}", part) for part in parts),
            "</section>\n",
        ]
    )


def _part(key: str, part: Part) -> str:
    keys = (f"{key}-{number}" for number in range(len(part.pictures) + len(part.folded_pictures)))
    figures = [_figure(picture, next(keys)) for picture in (*part.pictures, *part.folded_pictures)]
    shown, folded = figures[: len(part.pictures)], figures[len(part.pictures) :]
    return "".join(
        [
            f'<section class="part" aria-labelledby="{key}">\n<h3 id="{key}">{escape(part.title)}</h3>\n',
            *(f'<p class="quiet">{escape(table.caption)}</p>\n{as_html(table)}' for table in part.tables),
            *(f'<p class="quiet">{_with_code(line)}</p>\n' for line in part.words),
            _grid(shown, part.small),
            _folded(f"{len(folded)} more", _grid(folded, part.small)) if folded else "",
            *(_folded(f"Table: {table.caption}", as_html(table)) for table in part.folded_tables),
            "</section>\n",
        ]
    )


def _grid(figures: Sequence[str], small: bool) -> str:
    kind = "pictures small" if small else "pictures"
    return f'<div class="{kind}">\n{"".join(figures)}</div>\n' if figures else ""


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>\n{content}</details>\n"


def _figure(picture: Picture, key: str) -> str:
    return f"<figure><figcaption>{escape(picture.title)}</figcaption>{inline_svg(picture, key)}</figure>\n"


def _with_code(line: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(line))


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")

"""The site as it was built: its pages, what they link to, and what they load."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "link": "href", "video": "src"}
"""Tags that make a browser fetch something, and the attribute that says what."""


@dataclass
class Page:
    """One page: ids, links, what it loads, and the words that a reader sees."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    metas: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.page.ids |= {given[name] for name in ("id", "name") if name in given and tag != "meta"}
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        if tag in LOADS and LOADS[tag] in given:
            self.page.loaded.append(given[LOADS[tag]])
        if tag == "meta":
            self.page.metas[given.get("name", "")] = given.get("content", "")
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.page.words.append(data)


def read_site(folder: Path) -> dict[Path, Page]:
    pages = {}
    for file in sorted(folder.rglob("*.html")):
        reader = _Reader()
        reader.feed(file.read_text(encoding="utf-8"))
        pages[file.resolve()] = reader.page
    return pages


def is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).netloc) or address.startswith("//")


def broken_links(pages: dict[Path, Page], folder: Path) -> list[str]:
    """Links and loaded files within the site that lead nowhere, or to no such place of a page."""
    broken = []
    for file, page in pages.items():
        for address in page.links + page.loaded:
            parts = urlsplit(address)
            if is_elsewhere(address) or parts.scheme in ("mailto", "data", "javascript"):
                continue
            start = folder if parts.path.startswith("/") else file.parent
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else file
            if target.is_dir():
                target = target / "index.html"
            anchor = unquote(parts.fragment)
            known = target in pages and (not anchor or anchor in pages[target].ids)
            if not known and not (target.is_file() and target not in pages):
                broken.append(f"{file.relative_to(folder.resolve())}: {address}")
    return broken

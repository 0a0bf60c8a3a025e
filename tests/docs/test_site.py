"""The documentation's site is built strictly, hangs together, needs nobody else, and says what the code says."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from docs.built_site import Page, broken_links, is_elsewhere, read_site
from docs.pages import DOCS, ROOT
from prol import registry

TOOLS = ROOT / "tools" / "documentation"
sys.path.insert(0, str(TOOLS))  # the site's hooks are scripts, not a package


@pytest.fixture(scope="session")
def site(folder: Path) -> dict[Path, Page]:
    return read_site(folder)


def page_at(site: dict[Path, Page], folder: Path, address: str) -> Page:
    return site[(folder / address).resolve()]


def test_every_link_and_anchor_leads_somewhere(site: dict[Path, Page], folder: Path) -> None:
    assert sum(len(page.links) for page in site.values()) > 1000
    assert broken_links(site, folder) == []


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    links = "".join(f'<a href="{address}"></a>' for address in ("#top", "b.html", "a.html#no"))
    (tmp_path / "a.html").write_text(f'<h1 id="top"></h1>{links}')
    assert broken_links(read_site(tmp_path), tmp_path) == ["a.html: b.html", "a.html: a.html#no"]


def test_nothing_is_loaded_from_other_hosts(site: dict[Path, Page], folder: Path) -> None:
    loaded = [address for page in site.values() for address in page.loaded]
    assert loaded
    assert [address for address in loaded if is_elsewhere(address)] == []
    for sheet in folder.rglob("*.css"):
        fetched = re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", sheet.read_text(encoding="utf-8"))
        assert [address for address in fetched if is_elsewhere(address)] == [], sheet
    for drawing in (folder / "assets").glob("*.svg"):
        assert re.findall(r"(?:href|src)=\"http", drawing.read_text(encoding="utf-8")) == []


def test_every_page_fits_a_phone_and_has_a_dark_scheme(site: dict[Path, Page]) -> None:
    for file, page in site.items():
        assert page.metas["viewport"] == "width=device-width,initial-scale=1"
        assert {'data-md-color-scheme="slate"', 'data-md-color-scheme="default"'} <= set(
            re.findall(r'data-md-color-scheme="\w+"', file.read_text(encoding="utf-8"))
        )


def test_every_page_of_the_docs_is_in_the_navigation() -> None:
    listed = set(re.findall(r"^\s+- (?:[^#\n]*: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert there - listed == set(), "add these pages to nav in mkdocs.yml"
    assert listed - there == set()


@pytest.mark.parametrize("method", sorted(registry.names("methods")))
def test_every_method_has_its_options_and_source_on_its_page(method: str, site: dict[Path, Page], folder: Path) -> None:
    overview = page_at(site, folder, "methods/index.html")
    assert method in overview.text
    if not (DOCS / "methods" / f"{method}.md").is_file():
        return  # several methods may share a page; then the overview and `prol methods` tell
    page = page_at(site, folder, f"methods/{method}.html")
    kind = registry.method(method)
    _, heading, options = page.text.partition("Every option")
    assert heading
    for option in dataclasses.fields(type(kind.read_options({}))):
        assert re.search(rf"\b{option.name}\b", options), f"{option.name} is missing"
    assert kind.citation in page.text


def test_measured_rows_come_from_the_result_files(site: dict[Path, Page], folder: Path) -> None:
    rows = json.loads((ROOT / "results" / "cifar100" / "comparison.json").read_text())["rows"]
    [row] = [row for row in rows if row["name"] == "slda"]
    shown = f"FAA {row['faa']['mean']:.1f} ± {row['faa']['deviation']:.1f}"
    assert shown in page_at(site, folder, "methods/slda.html").text
    assert "prol run slda cifar100" in page_at(site, folder, "methods/index.html").text


@pytest.mark.parametrize("method", sorted(registry.names("methods")))
def test_every_option_is_documented_in_the_code(method: str) -> None:
    from option_tables import said_in_code

    kind = type(registry.method(method).read_options({}))
    assert [field.name for field in dataclasses.fields(kind) if not said_in_code(kind).get(field.name)] == []


def test_the_search_index_holds_the_pages_and_is_there_without_a_server(folder: Path) -> None:
    index = json.loads((folder / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"] for entry in index["docs"]}
    assert {"start.html", "methods/prol_plus.html", "api/learners.html"} <= found
    assert (folder / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    home = (folder / "index.html").read_text(encoding="utf-8")
    assert "assets/iframe-worker.js" in home
    assert "unpkg" not in home


def test_examples_in_docstrings_become_sections_of_their_kind() -> None:
    from doctests import with_heading

    assert with_heading("Adds.\n\n>>> 1 + 1\n2") == "Adds.\n\nExamples:\n    >>> 1 + 1\n    2"
    numpy = "Adds.\n\nParameters\n----------\na\n    one\n\n"
    assert with_heading(f"{numpy}>>> 1\n1") == f"{numpy}Examples\n--------\n>>> 1\n1"
    assert with_heading("Adds.") == "Adds."


def test_the_drawings_are_as_the_scripts_draw_them() -> None:
    from draw import ASSETS, drawings

    for name, text in drawings().items():
        assert (ASSETS / name).read_text(encoding="utf-8") == text, f"run python tools/documentation/draw.py: {name}"


def test_the_citation_names_the_software_and_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert (cited["type"], cited["license"], str(cited["version"])) == ("software", "MIT", version[1])
    [paper] = cited["references"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Ma'sum",
        "Pratama",
        "Ramasamy",
        "Liu",
        "Habibullah",
        "Kowalczyk",
    ]
    assert paper["year"] == 2025

"""What mkdocs calls while it builds the site: see mkdocs.yml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from method_pages import dressed
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from outside_docs import OUTSIDE, folder_page, outside_targets, site_links

ROOT = Path(__file__).parent.parent.parent
_PAGE = re.compile(r'href="(\.\./[\w/-]+)\.md"')
_DRAWING = re.compile(r"^!\[([^\]]*)\]\((\S+)-light\.svg\)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files and folders of the repository to which pages link."""
    for path in sorted(_linked({Path(file.abs_src_path) for file in files.documentation_pages()})):
        within = PurePosixPath(path.relative_to(ROOT))
        if path.is_dir():
            text = folder_page(path, within)
            files.append(File.generated(config, f"{OUTSIDE}/{within}/index.md", content=text))
        else:
            files.append(File.generated(config, f"{OUTSIDE}/{within}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    text = dressed(markdown, PurePosixPath(page.file.src_uri), ROOT)
    return site_links(_DRAWING.sub(_in_both_palettes, text), page.file.src_uri, ROOT)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Notebooks link to pages as they are in the repository; mkdocs follows only those of pages in Markdown."""
    return _PAGE.sub(r'href="\1.html"', html) if page.file.src_uri.endswith(".ipynb") else html


def _in_both_palettes(found: re.Match[str]) -> str:
    """A drawing for light pages and its twin for dark ones; site.css shows one of them."""
    pictures = "\n".join(f"![{found[1]}]({found[2]}-{palette}.svg)" for palette in ("light", "dark"))
    return f'<div class="drawing" markdown>\n{pictures}\n</div>'


def _linked(pages: set[Path]) -> set[Path]:
    """Everything outside docs/ to which pages link, and to which that links in turn."""
    found: set[Path] = set()
    open_pages = set(pages)
    while open_pages:
        targets = {target for page in open_pages for target in _targets(page)} - found
        found |= targets
        open_pages = {target for target in targets if target.is_dir() or target.suffix == ".md"}
    return found


def _targets(page: Path) -> Iterator[Path]:
    if page.is_dir():
        text, page = folder_page(page, PurePosixPath(page.relative_to(ROOT))), page / "index.md"
    else:
        text = page.read_text(encoding="utf-8")
    yield from outside_targets(text, PurePosixPath(page.relative_to(ROOT)), ROOT)

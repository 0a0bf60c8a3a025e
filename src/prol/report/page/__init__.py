"""Runs as one page to read, and its pictures and tables as files."""

from prol.report.page.document import counted, page_of, write_page
from prol.report.page.exporting import export
from prol.report.page.found import Found, LeftOut
from prol.report.page.reading import find_runs
from prol.report.page.sections import Section, sections_of
from prol.report.page.wording import printable

__all__ = [
    "Found",
    "LeftOut",
    "Section",
    "counted",
    "export",
    "find_runs",
    "page_of",
    "printable",
    "sections_of",
    "write_page",
]

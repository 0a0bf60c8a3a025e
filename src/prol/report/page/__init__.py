"""Runs as one page to read, and its plots and tables as files."""

from prol.report.page.document import counted, export, page_of, write_page
from prol.report.page.search import FoundRuns, LeftOut, find_runs
from prol.report.page.sections import Section, sections_of
from prol.report.table import printable

__all__ = [
    "FoundRuns",
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

"""Runs as one page to read, and its pictures and tables as files."""

from prol.report.page.document import counted, page_of, write_page
from prol.report.page.exporting import export
from prol.report.page.reading import Found, LeftOut, find_runs
from prol.report.page.sections import Section, sections_of

__all__ = ["Found", "LeftOut", "Section", "counted", "export", "find_runs", "page_of", "sections_of", "write_page"]

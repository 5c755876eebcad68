"""One self-contained HTML page about fitted models; needs matplotlib for its pictures."""

from maxmargin.report.page import Section, page, table
from maxmargin.report.sections import Subject, sections, versions

__all__ = ["Section", "Subject", "page", "sections", "table", "versions"]

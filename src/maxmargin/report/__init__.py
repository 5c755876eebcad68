"""One self-contained HTML page about fitted models; needs matplotlib for its pictures."""

from maxmargin.report.page import Section, page, table, text
from maxmargin.report.sections import sections, versions
from maxmargin.report.subject import Subject

__all__ = ["Section", "Subject", "page", "sections", "table", "text", "versions"]

"""One self-contained HTML page about a fitted model; its pictures need matplotlib."""

from maxmargin.report.page import Section, page, table, text
from maxmargin.report.sections import sections, versions
from maxmargin.report.subject import Promise, Subject

__all__ = ["Promise", "Section", "Subject", "page", "sections", "table", "text", "versions"]

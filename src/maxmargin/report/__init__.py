"""One self-contained HTML page about fitted models; needs matplotlib for its pictures."""

from maxmargin.report._page import Section, page, table
from maxmargin.report._sections import sections, versions
from maxmargin.report._subject import Subject

__all__ = ["Section", "Subject", "page", "sections", "table", "versions"]

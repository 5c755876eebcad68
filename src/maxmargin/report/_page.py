"""HTML: escaping, tables, pictures, and the page around them. Nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1c1e21; --soft: #5c6470; --paper: #ffffff; --line: #d9dde3; --accent: #1f6feb;
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa3af; --paper: #14171b; --line: #343a43; --accent: #6cb0ff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1rem 0 0.25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 0.3rem; }
p, li { overflow-wrap: anywhere; }
p.lead, figcaption { color: var(--soft); }
nav a { color: var(--accent); margin-right: 1rem; white-space: nowrap; display: inline-block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
th, td { padding: 0.25rem 0.9rem 0.25rem 0; border-bottom: 1px solid var(--line); }
th, td { text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 0.8rem 0; }
figure img { max-width: 100%; height: auto; display: block; }
""".strip()


@dataclass(frozen=True)
class Section:
    """A heading and finished HTML; `level` is 2 or 3."""

    title: str
    html: str
    level: int = 2


def number(value: Any) -> str:
    """A figure as tables show it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"
    return str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table that scrolls inside itself when the screen is narrow."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(number(value))}</td>" for value in row) + "</tr>" for row in rows
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{inside}</table></div>'


def text(words: str) -> str:
    """A paragraph."""
    return f"<p>{escape(words)}</p>"


def picture(svg: bytes, description: str) -> str:
    """An SVG picture with its caption, inside the page."""
    data = base64.b64encode(svg).decode("ascii")
    caption = escape(description)
    return (
        f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole page."""
    parts = []
    links = []
    for k, section in enumerate(sections):
        if section.level == 2:
            links.append(f'<a href="#s{k}">{escape(section.title)}</a>')
        parts.append(f'<h{section.level} id="s{k}">{escape(section.title)}</h{section.level}>{section.html}')
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p><nav>{"".join(links)}</nav>'
        f"{''.join(parts)}</main></body></html>\n"
    )

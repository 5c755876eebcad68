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
  --good: #1a7f37; --bad: #cf222e; --bar: #cfe2ff; --tint: #f4f6f8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e8eb; --soft: #9aa3af; --paper: #14171b; --line: #343a43; --accent: #6cb0ff;
    --good: #4ac26b; --bad: #ff8182; --bar: #1d3a63; --tint: #1d2127;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1rem 0 0.25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 0.3rem; }
p, li, h2, h3, nav, figcaption { overflow-wrap: anywhere; }
p.lead, figcaption { color: var(--soft); }
nav a { color: var(--accent); margin-right: 1rem; max-width: 100%; display: inline-block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
th, td { padding: 0.25rem 0.9rem 0.25rem 0; border-bottom: 1px solid var(--line); }
th, td { text-align: right; white-space: nowrap; vertical-align: top; }
th { font-weight: 600; color: var(--soft); }
th:first-child, td:first-child, .w { text-align: left; }
td.long { white-space: normal; min-width: 14rem; max-width: 34rem; overflow-wrap: anywhere; }
b.best { font-weight: 650; color: var(--good); }
.plus, .found { color: var(--good); }
.minus, .missed { color: var(--bad); }
.missed { text-decoration: line-through; text-decoration-thickness: 1px; }
.chip { display: inline-block; background: var(--tint); border-radius: 0.3rem; padding: 0 0.4rem; }
.chip { margin: 0.05rem 0.2rem 0.05rem 0; max-width: 100%; }
.bar { display: inline-block; height: 0.7rem; background: var(--bar); border-radius: 2px; }
.bars { display: inline-block; width: 6rem; vertical-align: -0.05rem; }
details { margin: 0 0 0.8rem; }
code { font-family: ui-monospace, monospace; font-size: 0.88em; overflow-wrap: anywhere; }
summary { color: var(--soft); cursor: pointer; }
figure { margin: 0.8rem 0; }
figure img { max-width: 100%; height: auto; display: block; }
.side { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: flex-start; }
""".strip()


@dataclass(frozen=True)
class Section:
    """A heading and finished HTML; `level` is 2 or 3."""

    title: str
    html: str
    level: int = 2


class Html(str):
    """Text that is HTML already."""


class Figure(Html):
    """HTML that stands for a figure."""


def number(value: Any) -> str:
    """A figure as tables show it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"
    return str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], wrapped: Sequence[int] = ()) -> str:
    """A table that scrolls inside itself when the screen is narrow.

    Words stand left, figures right; columns named in `wrapped` may take several lines.
    """
    found = [list(row) for row in rows]
    words = [
        any(isinstance(row[k], str) and not isinstance(row[k], Figure) for row in found)
        for k in range(len(columns))
    ]
    kinds = ["long w" if k in wrapped else "w" if words[k] else "" for k in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_class("w" if kind else "")}>{escape(column)}</th>'
        for column, kind in zip(columns, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{_class(kind)}>{cell(value)}</td>" for value, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in found
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{inside}</table></div>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def cell(value: Any) -> str:
    """A value as HTML."""
    return value if isinstance(value, Html) else escape(number(value))


def share(value: float) -> Figure:
    """A figure between 0 and 1."""
    return Figure(f"{value:.3f}")


def bar(value: float) -> Html:
    """A figure between 0 and 1 as a bar."""
    width = 6 * min(max(value, 0.0), 1.0)
    return Html(f'<span class="bars"><span class="bar" style="width:{width:.2f}rem"></span></span>')


def chips(words: Iterable[tuple[str, str]]) -> Html:
    """Short words side by side, each with a class of the style."""
    return Html("".join(f'<span class="chip {kind}">{escape(word)}</span>' for word, kind in words))


def folded(title: str, html: str) -> str:
    """Something to open when it is wanted."""
    return f"<details><summary>{escape(title)}</summary>{html}</details>"


def text(words: str) -> str:
    """A paragraph."""
    return f"<p>{escape(words)}</p>"


def picture(svgs: Sequence[bytes], description: str) -> str:
    """SVG pictures, side by side where there is room, with their caption, inside the page."""
    caption = escape(description)
    images = "".join(
        f'<img src="data:image/svg+xml;base64,{base64.b64encode(svg).decode("ascii")}" alt="{caption}">'
        for svg in svgs
    )
    return f'<figure><div class="side">{images}</div><figcaption>{caption}</figcaption></figure>'


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

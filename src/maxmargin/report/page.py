"""HTML: escaping, tables, pictures, and the page around them. Nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from maxmargin.io.words import visible

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
main { max-width: 74rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1rem 0 0.25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 0.3rem; }
p, li, h2, h3, nav, figcaption { overflow-wrap: anywhere; }
p.lead, figcaption { color: var(--soft); }
nav a { color: var(--accent); margin-right: 1rem; max-width: 100%; display: inline-block; }
.scroll { overflow-x: auto; }
.tall { max-height: 32rem; overflow-y: auto; border: 1px solid var(--line); padding: 0 0.6rem; }
.tall thead th { position: sticky; top: 0; background: var(--paper); }
.verdict { background: var(--tint); border-left: 4px solid var(--accent); padding: 0.6rem 1rem; }
.verdict p { margin: 0.3rem 0; }
.verdict ul { margin: 0.3rem 0; padding-left: 1.2rem; }
input[type=search] { font: inherit; width: 100%; max-width: 24rem; margin: 0 0 0.5rem; padding: 0.3rem; }
input[type=search] { color: var(--ink); background: var(--paper); border: 1px solid var(--line); }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
th[aria-sort=ascending] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
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
details.part { border-top: 1px solid var(--line); margin: 0; padding: 0.4rem 0; }
details.part > summary h3 { display: inline; color: var(--ink); }
code { font-family: ui-monospace, monospace; font-size: 0.88em; overflow-wrap: anywhere; }
summary { color: var(--soft); cursor: pointer; }
figure { margin: 0.8rem 0; }
figure img { max-width: 100%; height: auto; display: block; }
.side { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: flex-start; }
@media (max-width: 40rem) {
  table { width: 100%; }
  th, td { padding-right: 0.5rem; }
  th, td.w, td:first-child { white-space: normal; overflow-wrap: break-word; }
  td.w { overflow-wrap: anywhere; }
  td.long { min-width: 0; }
  .bars { display: none; }
  .cards thead { position: absolute; left: -99rem; }
  .cards tr { display: block; border-bottom: 1px solid var(--line); padding: 0.35rem 0; }
  .cards td { display: block; border: 0; padding: 0.05rem 0; text-align: left; }
  .cards td[data-column]::before { content: attr(data-column) " "; color: var(--soft); }
  .cards td:first-child { font-weight: 600; }
}
""".strip()
# Sorts a table by a click on a column, and leaves the rows that have what is searched for.
_SCRIPT = """
for (const box of document.querySelectorAll(".sorted")) {
  const body = box.querySelector("tbody"), heads = [...box.querySelectorAll("th")];
  box.querySelector("input").addEventListener("input", event => {
    const wanted = event.target.value.toLowerCase();
    for (const row of body.rows)
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  });
  heads.forEach((head, k) => head.querySelector("button")?.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[k].textContent, figure = row => parseFloat(key(row));
    const order = (a, b) => isNaN(figure(a)) || isNaN(figure(b))
      ? key(a).localeCompare(key(b)) : figure(a) - figure(b);
    [...body.rows].sort((a, b) => down ? order(b, a) : order(a, b)).forEach(row => body.append(row));
  }));
}
""".strip()
# Columns up to which a table fits on a phone.
NARROW = 4


@dataclass(frozen=True)
class Section:
    """A heading and finished HTML; `level` is 2 or 3. Those of level 3 can be folded, and may start so."""

    title: str
    html: str
    level: int = 2
    folded: bool = False


class Html(str):
    """Text that is HTML already."""


class Figure(Html):
    """HTML that stands for a figure."""


def shown(words: str) -> str:
    """Words from anywhere as HTML."""
    return escape(visible(words))


def number(value: Any) -> str:
    """A figure as tables show it, or words made visible."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"
    return visible(str(value))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], wrapped: Sequence[int] = ()) -> str:
    """A table; on a phone, one of many columns shows every row as a card.

    Words stand left, figures right; columns named in `wrapped` may take several lines.
    """
    return f'<div class="scroll" tabindex="0">{_table(columns, rows, wrapped)}</div>'


def sorted_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], what: str) -> str:
    """A table of any length inside a box, to search by its first column and to sort by every column."""
    search = f'<input type="search" placeholder="search {shown(what)}" aria-label="search {shown(what)}">'
    inside = _table(columns, rows, (), button=True)
    return f'<div class="sorted">{search}<div class="scroll tall" tabindex="0">{inside}</div></div>'


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], wrapped: Sequence[int], button: bool = False
) -> str:
    found = [list(row) for row in rows]
    words = [
        any(isinstance(row[k], str) and not isinstance(row[k], Figure) for row in found)
        for k in range(len(columns))
    ]
    kinds = ["long w" if k in wrapped else "w" if words[k] else "" for k in range(len(columns))]
    names = [shown(column) for column in columns]
    head = "".join(
        f'<th scope="col"{_class("w" if kind else "")}>{f"<button>{name}</button>" if button else name}</th>'
        for name, kind in zip(names, kinds, strict=True)
    )
    # The name of a column stands before each of its figures where a row is a card.
    told = [f' data-column="{name}"' if k and name else "" for k, name in enumerate(names)]
    cards = len(columns) > NARROW or bool(wrapped)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_class(kind)}{name if cards else ''}>{cell(value)}</td>"
            for value, kind, name in zip(row, kinds, told, strict=True)
        )
        + "</tr>"
        for row in found
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f"<table{_class('cards' if cards else '')}>{inside}</table>"


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
    return Html("".join(f'<span class="chip {kind}">{shown(word)}</span>' for word, kind in words))


def signed(name: str, value: float) -> tuple[str, str]:
    """A name and its weight, with the class of the style for its sign."""
    return (
        f"{name} {'+' if value >= 0 else '−'}{number(abs(float(value)))}",
        "plus" if value >= 0 else "minus",
    )


def verdict(words: str, advice: Sequence[str]) -> str:
    """The sentence that matters most, and what follows from it."""
    listed = "".join(f"<li>{shown(each)}</li>" for each in advice)
    return f'<div class="verdict"><p>{shown(words)}</p>{f"<ul>{listed}</ul>" if listed else ""}</div>'


def folded(title: str, html: str) -> str:
    """Something to open when it is wanted."""
    return f"<details><summary>{shown(title)}</summary>{html}</details>"


def text(words: str) -> str:
    """A paragraph."""
    return f"<p>{shown(words)}</p>"


def picture(svgs: Sequence[bytes], description: str) -> str:
    """SVG pictures, side by side where there is room, with their caption, inside the page."""
    caption = shown(description)
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
        name = shown(section.title)
        if section.level == 2:
            links.append(f'<a href="#s{k}">{name}</a>')
            parts.append(f'<h2 id="s{k}">{name}</h2>{section.html}')
        else:
            start = "" if section.folded else " open"
            parts.append(
                f'<details class="part" id="s{k}"{start}><summary><h3>{name}</h3></summary>'
                f"{section.html}</details>"
            )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{shown(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{shown(title)}</h1><p class="lead">{shown(lead)}</p><nav>{"".join(links)}</nav>'
        f"{''.join(parts)}</main><script>{_SCRIPT}</script></body></html>\n"
    )

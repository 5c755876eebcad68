"""HTML: escaping, tables, pictures, and the page around them. The page loads nothing from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from maxmargin.io.words import number, visible

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
details { margin: 0 0 0.8rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 0.8rem; }
.figures div { border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.5rem 0.8rem; }
.figures { margin: 1rem 0; }
.figures b { display: block; font-size: 1.5rem; font-weight: 600; line-height: 1.3; }
.figures b small { font-size: 0.95rem; font-weight: 400; color: var(--soft); }
.figures span, .figures div > small { display: block; color: var(--soft); font-size: 0.85rem; }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
.side { gap: 0.5rem 2.5rem; align-items: start; }
.side > * { min-width: 0; max-width: 100%; }
.natural { display: flex; flex-wrap: wrap; }
.natural > * { flex: 1 1 20rem; }
.natural > :first-child { flex: 0 1 auto; }
details.part { border-top: 1px solid var(--line); margin: 0; padding: 0.4rem 0; min-width: 0; }
.parts { display: grid; gap: 0 2.5rem; }
@media (min-width: 60rem) {
  .parts { grid-template-columns: 1fr 1fr; grid-auto-flow: dense; align-items: start; }
  .parts > .wide { grid-column: 1 / -1; }
}
details.part > summary h3 { display: inline; color: var(--ink); }
code { font-family: ui-monospace, monospace; font-size: 0.88em; overflow-wrap: anywhere; }
summary { color: var(--soft); cursor: pointer; }
figure { margin: 0.8rem 0; }
figure img { max-width: 100%; height: auto; display: block; }
.images { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: flex-start; }
@media (max-width: 40rem) {
  table { width: 100%; }
  th, td { padding-right: 0.5rem; }
  th, td.w, td:first-child { white-space: normal; overflow-wrap: break-word; }
  td.w { overflow-wrap: anywhere; }
  td.long { min-width: 0; }
  .cards thead { position: absolute; left: -99rem; }
  .cards tr { display: block; border-bottom: 1px solid var(--line); padding: 0.35rem 0; }
  .cards td { display: block; border: 0; padding: 0.05rem 0; text-align: left; }
  .cards td[data-column]::before { content: attr(data-column) " "; color: var(--soft); }
  .cards td:first-child { font-weight: 600; }
}
""".strip()
# Sort a table by a click on a column; filter its rows by the search field.
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
# Tables with more columns than this become cards on a phone.
MAX_COLUMNS = 4


@dataclass(frozen=True)
class Section:
    """A heading and finished HTML. Sections of level 3 can be folded; those that are not wide pair up."""

    title: str
    html: str
    level: int = 2
    folded: bool = False
    wide: bool = False


class Html(str):
    """Text that is HTML already."""


class Figure(Html):
    """A number as HTML; tables align it right."""


def shown(words: str) -> str:
    """Escape any text for HTML."""
    return escape(visible(words))


def with_error(value: float, estimate: Any = None) -> str:
    """Format a measure with its standard error, if known."""
    return number(value) if estimate is None else f"{value:.3f} ± {estimate.error():.3f}"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], wrapped: Sequence[int] = ()) -> str:
    """Return a table with text on the left and numbers on the right; columns in `wrapped` may break.

    On a phone, the rows of a table with many columns become cards.
    """
    return f'<div class="scroll" tabindex="0">{_table(columns, rows, wrapped)}</div>'


def sorted_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], what: str) -> str:
    """Return a scrolling table with sortable columns and a search field for the first column."""
    search = f'<input type="search" placeholder="search {shown(what)}" aria-label="search {shown(what)}">'
    inside = _table(columns, rows, (), button=True)
    return f'<div class="sorted">{search}<div class="scroll tall" tabindex="0">{inside}</div></div>'


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], wrapped: Sequence[int], button: bool = False
) -> str:
    found = [list(row) for row in rows]
    texts = [
        any(isinstance(row[k], str) and not isinstance(row[k], Figure) for row in found)
        for k in range(len(columns))
    ]
    kinds = ["long w" if k in wrapped else "w" if texts[k] else "" for k in range(len(columns))]
    names = [shown(column) for column in columns]
    head = "".join(
        f'<th scope="col"{_class("w" if kind else "")}>{f"<button>{name}</button>" if button else name}</th>'
        for name, kind in zip(names, kinds, strict=True)
    )
    # In a card, the name of the column is written before each value.
    cards = len(columns) > MAX_COLUMNS or bool(wrapped)
    prefixes = [f' data-column="{name}"' if k and name and cards else "" for k, name in enumerate(names)]
    body = ""
    for row in found:
        cells = zip(row, kinds, prefixes, strict=True)
        body += "<tr>" + "".join(f"<td{_class(k)}{prefix}>{cell(v)}</td>" for v, k, prefix in cells) + "</tr>"
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f"<table{_class('cards' if cards else '')}>{inside}</table>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def cell(value: Any) -> str:
    """Return a value as HTML."""
    return value if isinstance(value, Html) else escape(number(value))


def share(value: float) -> Figure:
    """Return a number between 0 and 1."""
    return Figure(f"{value:.3f}")


def chips(words: Iterable[tuple[str, str]]) -> Html:
    """Return short texts side by side, each with a class of the style."""
    return Html("".join(f'<span class="chip {kind}">{shown(word)}</span>' for word, kind in words))


def signed(name: str, value: float) -> tuple[str, str]:
    """Return a name with its weight, and the class of the style for its sign."""
    sign, kind = ("+", "plus") if value >= 0 else ("−", "minus")
    return f"{name} {sign}{number(abs(float(value)))}", kind


def verdict(words: str, advice: Sequence[str]) -> str:
    """Return the most important sentence, and a list of advice."""
    listed = "".join(f"<li>{shown(each)}</li>" for each in advice)
    return f'<div class="verdict"><p>{shown(words)}</p>{f"<ul>{listed}</ul>" if listed else ""}</div>'


def figures(found: Iterable[tuple[str, str, str]]) -> str:
    """Return cards, each with a title, a large number and a note."""
    cards = ""
    for title, value, note in found:
        value, _, error = shown(value).partition(" ± ")
        more = f"<small> ± {error}</small>" if error else ""
        cards += f"<div><span>{shown(title)}</span><b>{value}{more}</b><small>{shown(note)}</small></div>"
    return f'<div class="figures">{cards}</div>'


def side(*parts: str, natural: bool = False) -> str:
    """Return parts side by side if the page is wide enough; `natural` keeps the width of the first."""
    name = "side natural" if natural else "side"
    return f'<div class="{name}">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


def folded(title: str, html: str) -> str:
    """Return HTML that opens on a click."""
    return f"<details><summary>{shown(title)}</summary>{html}</details>"


def text(words: str) -> str:
    """Return a paragraph."""
    return f"<p>{shown(words)}</p>"


def picture(svgs: Sequence[bytes], description: str) -> str:
    """Return SVG pictures with a common caption, embedded in the page."""
    caption = shown(description)
    images = "".join(
        f'<img src="data:image/svg+xml;base64,{base64.b64encode(svg).decode("ascii")}" alt="{caption}">'
        for svg in svgs
    )
    return f'<figure><div class="images">{images}</div><figcaption>{caption}</figcaption></figure>'


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return the whole page; consecutive sections of level 3 share a grid."""
    body, links, inside = "", [], False
    for k, section in enumerate(sections):
        name = shown(section.title)
        if inside != (section.level > 2):
            body += "</div>" if inside else '<div class="parts">'
            inside = not inside
        if section.level == 2:
            links.append(f'<a href="#s{k}">{name}</a>')
            body += f'<h2 id="s{k}">{name}</h2>{section.html}'
        else:
            wide, start = " wide" if section.wide else "", "" if section.folded else " open"
            body += (
                f'<details class="part{wide}" id="s{k}"{start}><summary><h3>{name}</h3></summary>'
                f"{section.html}</details>"
            )
    nav = f"<nav>{''.join(links)}</nav>" if len(links) > 2 else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{shown(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{shown(title)}</h1><p class="lead">{shown(lead)}</p>{nav}'
        f"{body}{'</div>' if inside else ''}</main><script>{_SCRIPT}</script></body></html>\n"
    )

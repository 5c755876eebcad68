"""HTML: escaping, tables, pictures, and the page around them. The page loads nothing from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from maxmargin.io.words import number, visible

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
    style, script = (
        files("maxmargin.report").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js")
    )
    nav = f"<nav>{''.join(links)}</nav>" if len(links) > 2 else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{shown(title)}</title><style>{style}</style></head><body><main>"
        f'<h1>{shown(title)}</h1><p class="lead">{shown(lead)}</p>{nav}'
        f"{body}{'</div>' if inside else ''}</main><script>{script}</script></body></html>\n"
    )

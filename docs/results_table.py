"""The results page, made from the CSV and PNG files of experiments and benchmarks and from claims.

Every file in a results folder appears under the script that names it, so a new file needs no change here.
`claims` makes the first section.
"""

from __future__ import annotations

import ast
import csv
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from claims import claim_list

# Tables with more than UNFOLDED rows are folded; of more than MOST_ROWS only SOME_ROWS are shown.
UNFOLDED, MOST_ROWS, SOME_ROWS = 15, 200, 40
INTRODUCTION = """
Every table and picture on this page comes from a file in the repository, written by a script beside it.
``maxmargin reproduce NAME`` runs an experiment, ``make bench`` the races. Columns called *paper* contain
the numbers that a paper reports. Compare times within a table only, not between machines.
"""


@dataclass
class Script:
    """A script, its docstring and the files it wrote."""

    name: str
    title: str
    about: list[str]
    files: list[Path] = field(default_factory=list)


def write_results(docs: Path) -> None:
    """Write results.rst beside this file."""
    lines = ["Results", "=======", *INTRODUCTION.splitlines(), ""]
    pictures = docs / "_build" / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    lines += claim_list(docs.parent / "experiments")
    for title, folder in (("Experiments", "experiments"), ("Benchmarks", "benchmarks")):
        lines += [title, "-" * len(title), ""]
        for script in scripts(docs.parent / folder):
            lines += [f".. _{folder}-{script.name}:", "", script.title, "~" * len(script.title), ""]
            lines += script.about
            for path in script.files:
                name = f"{folder}/results/{path.name}"
                if path.suffix == ".csv":
                    lines += table(path, name)
                else:
                    shutil.copy(path, pictures / f"{folder}-{path.name}")
                    lines += [
                        f".. figure:: /_build/pictures/{folder}-{path.name}",
                        f"   :alt: {path.stem}",
                        "",
                    ]
                    lines += [f"   ``{name}``", ""]
    text = "\n".join(lines)
    target = docs / "results.rst"
    if not target.exists() or target.read_text("utf-8") != text:
        target.write_text(text, "utf-8")


def scripts(folder: Path) -> list[Script]:
    """Return the scripts of a folder that have results, each with its files, tables before pictures."""
    files = {path.stem: path for path in [*folder.glob("[!_]*.py"), *folder.glob("problems/[!_]*.py")]}
    texts = {stem: files[stem].read_text("utf-8") for stem in sorted(files)}
    found: dict[str, Script] = {}
    for path in sorted((folder / "results").iterdir(), key=lambda path: (path.suffix, path.stem)):
        if path.suffix not in (".csv", ".png"):
            continue
        name = _maker(path.stem, texts)
        if name not in found:
            docstring = ast.get_docstring(ast.parse(texts[name])) if name in texts else ""
            about = protocol(str(files[name].relative_to(folder.parent)), docstring) if docstring else []
            found[name] = Script(name, name.replace("_", " ").capitalize(), about)
        found[name].files.append(path)
    return [found[name] for name in sorted(found)]


def protocol(path: str, docstring: str) -> list[str]:
    """Return the docstring of a script: its first line, and the rest folded."""
    first, _, rest = docstring.partition("\n")
    lines = [f"``{path}``: {marked(first)}", ""]
    paragraphs = [paragraph for paragraph in rest.strip("\n").split("\n\n") if paragraph.strip()]
    if not paragraphs:
        return lines
    lines += opened("Method and settings")
    for paragraph in paragraphs:
        if paragraph.startswith("    "):
            lines += ["::", "", *paragraph.splitlines(), ""]
        elif paragraph.startswith("- "):
            items = " ".join(paragraph.split()).removeprefix("- ").split("; - ")
            lines += [f"- {marked(item)}" for item in items] + [""]
        else:
            lines += [marked(" ".join(paragraph.split())), ""]
    return lines + CLOSED


def opened(summary: str) -> list[str]:
    """Return the lines that open a folded section; `CLOSED` ends it."""
    return [".. raw:: html", "", f"   <details><summary>{summary}</summary>", ""]


CLOSED = [".. raw:: html", "", "   </details>", ""]


def marked(text: str) -> str:
    """Escape text, and set the words in backticks as code."""
    parts = text.replace("``", "`").split("`")
    return "".join(f"``{part}``" if place % 2 else escaped(part) for place, part in enumerate(parts))


def _maker(stem: str, texts: dict[str, str]) -> str:
    """Return the script that wrote a file: its namesake, or one that contains its name or first words."""
    if stem in texts:
        return stem
    named = [name for name, text in texts.items() if f"{stem}." in text or f'"{stem}"' in text]
    alike = [name for name in texts if stem.startswith(f"{name}_")]
    prefix = stem.rpartition("_")[0]
    family = [name for name, text in texts.items() if prefix and f"{prefix}_" in text]
    return max(alike or named or family or [stem], key=len)


def table(path: Path, name: str) -> list[str]:
    """Return a CSV file as a table. A constant column moves into the caption."""
    with open(path, newline="", encoding="utf-8") as file:
        text = file.read().splitlines()
    notes = [line.lstrip("# ") for line in text if line.startswith("#")]
    head, *rows = csv.reader(line for line in text if line.strip() and not line.startswith("#"))
    rows = [(row + [""] * len(head))[: len(head)] for row in rows]
    constant = [
        k for k in range(len(head)) if len(rows) > 1 and len({row[k] for row in rows}) == 1 and rows[0][k]
    ]
    notes += [f"{head[k]}: {rows[0][k]}" for k in constant]
    shown = rows if len(rows) <= MOST_ROWS else rows[:SOME_ROWS]
    if len(shown) < len(rows):
        notes.append(f"the first {len(shown)} of {len(rows)} rows")
    kept = [k for k in range(len(head)) if k not in constant]
    lines = [f"``{name}``" + (f" ({'; '.join(escaped(note) for note in notes)})" if notes else ""), ""]
    folded = len(shown) > UNFOLDED
    lines += opened(f"{len(shown)} rows") if folded else []
    lines += [".. list-table::", "   :header-rows: 1", "   :class: wide", ""]
    for row in [[word.replace("_", " ") for word in head], *shown]:
        for place, k in enumerate(kept):
            lines.append(f"   {'* -' if place == 0 else '  -'} {escaped(shortened(row[k]))}".rstrip())
    return [*lines, "", *(CLOSED if folded else [])]


def shortened(field: str) -> str:
    """Return a number with four digits, anything else as it is."""
    with suppress(ValueError):
        value = float(field)
        return field if value.is_integer() and len(field) < 10 else f"{value:.4g}"
    return field


def escaped(field: str) -> str:
    """Escape markup in a text."""
    for character in "\\*`|_":
        field = field.replace(character, f"\\{character}")
    return field

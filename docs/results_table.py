"""The results page, made from the CSV files of experiments and benchmarks."""

from __future__ import annotations

import csv
import shutil
from contextlib import suppress
from pathlib import Path

MOST_ROWS = 40


def write_results(docs: Path) -> None:
    """Write results.rst beside this file."""
    root = docs.parent
    lines = [
        "Results",
        "=======",
        "",
        "Every table and picture on this page is read from a file in the repository, which a script",
        "beside it writes: ``maxmargin reproduce NAME`` for experiments, ``make bench`` for races.",
        "",
    ]
    pictures = docs / "_build" / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    for title, folder in (("Experiments", "experiments"), ("Benchmarks", "benchmarks")):
        lines += [title, "-" * len(title), ""]
        for path in sorted((root / folder / "results").glob("*.csv")):
            lines += _table(path, f"{folder}/results/{path.name}")
        for path in sorted((root / folder / "results").glob("*.png")):
            shutil.copy(path, pictures / path.name)
            lines += [f".. figure:: /_build/pictures/{path.name}", f"   :alt: {path.stem}", ""]
            lines += [f"   {folder}/results/{path.name}", ""]
    text = "\n".join(lines)
    target = docs / "results.rst"
    if not target.exists() or target.read_text("utf-8") != text:
        target.write_text(text, "utf-8")


def _table(path: Path, name: str) -> list[str]:
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(line for line in file if not line.startswith("#")))
    heading = path.stem.replace("_", " ")
    lines = [heading, "~" * len(heading), ""]
    if len(rows) - 1 > MOST_ROWS:
        lines += [f"``{name}``: the first {MOST_ROWS} of {len(rows) - 1} rows.", ""]
        rows = rows[: MOST_ROWS + 1]
    else:
        lines += [f"``{name}``", ""]
    lines += [".. list-table::", "   :header-rows: 1", ""]
    width = len(rows[0])
    for row in rows:
        for k, field in enumerate((row + [""] * width)[:width]):
            lines.append(f"   {'* -' if k == 0 else '  -'} {_plain(field)}".rstrip())
    return [*lines, ""]


def _plain(field: str) -> str:
    """A field as text without markup; long decimals are cut to five digits."""
    with suppress(ValueError):
        field = f"{float(field):.5g}"
    return (
        field.replace("\\", "\\\\")
        .replace("*", "\\*")
        .replace("`", "\\`")
        .replace("|", "\\|")
        .replace("_", "\\_")
    )

"""The claims of the papers beside our results: first section of the results page, from experiments/claims.

One file per paper, ``NN-name.toml``, in the order of the page::

    title = "Label ranking (Shalev-Shwartz, Singer 2007)"

    [[claim]]
    claim = "Update III makes fewer mistakes than I"
    where = "table 1"
    experiment = "ranking"                      # the script that tests it
    table = "ranking_table1"                    # the result file, if not named after the script
    paper = "22.0 to 29.5 %"
    ours = [{ row = { user = "beck-s", update = "I" }, show = "I {error_percent} %" }, "in words"]
    baseline = ["a constant answer"]
    verdict = "holds in part"                   # one of VERDICTS
    why = "One sentence."

`ours` and `baseline` are lists of texts and cells. A cell selects the one row of the result file (or of
another file, ``table = "name"``) that has the values of `row`, and formats its fields by `show`. Texts and
`why` contain no results, so that the page follows the files.
"""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import Any

VERDICTS = ("holds", "holds in part", "does not hold", "not tried")
INTRODUCTION = """
*Without learning* is the result of a constant answer on the same test data, or of the prior alone where there
is one. Spreads are standard deviations over draws or seeds.
"""


def claim_list(experiments: Path) -> list[str]:
    """Return the lines of the section, or none if there are no claims."""
    files = sorted((experiments / "claims").glob("*.toml"))
    if not files:
        return []
    title = "What the papers claim, and what holds"
    lines = [title, "-" * len(title), *INTRODUCTION.splitlines(), ""]
    for path in files:
        paper = tomllib.loads(path.read_text("utf-8"))
        lines += [paper["title"], "~" * len(paper["title"]), ""]
        for claim in paper["claim"]:
            lines += _entry(claim, experiments / "results")
    return lines


def _entry(claim: dict[str, Any], results: Path) -> list[str]:
    """Return one claim: its verdict as a heading, and the numbers as a list."""
    if claim["verdict"] not in VERDICTS:
        raise ValueError(f"{claim['claim']!r}: the verdict must be one of {', '.join(VERDICTS)}.")
    table = claim.get("table", claim.get("experiment", ""))
    name = claim.get("experiment")
    parts = {
        "Paper": claim.get("paper", ""),
        "Ours": _joined(claim.get("ours", []), table, results),
        "Without learning": _joined(claim.get("baseline", []), table, results),
        "Experiment": f":ref:`{name} <experiments-{name}>`" if name else "",
    }
    lines = [f"**{claim['claim']}** ({claim['where']}): *{claim['verdict']}*", ""]
    lines += [f"- {part}: {text}" for part, text in parts.items() if text]
    return [*lines, f"- {claim['why']}", ""]


def _joined(parts: list[str | dict[str, Any]], table: str, results: Path) -> str:
    return "; ".join(part if isinstance(part, str) else _cell(part, table, results) for part in parts)


def _cell(cell: dict[str, Any], table: str, results: Path) -> str:
    """Format the fields of the one row that a cell selects."""
    path = results / f"{cell.get('table', table)}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    wanted = {key: str(value) for key, value in cell["row"].items()}
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    if len(found) != 1:
        raise ValueError(f"{path.name} has {len(found)} rows with {wanted}, not one.")
    return cell["show"].format(**{key: _shown(key, value) for key, value in found[0].items()})


def _shown(key: str, value: str) -> str:
    """Return a field as it is, and a spread with two digits."""
    return f"{float(value):.2g}" if key.endswith("spread") and value else value

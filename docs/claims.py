"""What the papers claim, and what became of it here: tables of the results page, from experiments/claims.

One file per paper, ``NN-name.toml``, in the order of the page::

    title = "Label ranking (Shalev-Shwartz, Singer 2007)"

    [[claim]]
    claim = "Update III makes fewer mistakes than I"
    where = "table 1"
    experiment = "ranking"                      # the script that looks into it
    table = "ranking_table1"                    # the result file; as the script is called unless given
    paper = "22.0 to 29.5 %"
    ours = [{ row = { user = "beck-s", update = "I" }, show = "I {error_percent} %" }, "in words"]
    baseline = ["always the folder of the last message: 60 %"]
    verdict = "holds in part"                   # one of VERDICTS
    why = "One sentence."

`ours` and `baseline` are lists of words and of cells; a cell takes the one row of the result file (of another
one with ``table = "name"``) that has the values of `row`, and puts its fields into `show`. Words, and `why`,
may name what `counts` counts over several rows: "in {pl_fewer_passes} of {pl_cases} cases". So a number on
the page is that of the file.
"""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import Any

from counts import Counts

VERDICTS = ("holds", "holds in part", "does not hold", "not tried")
COLUMNS = {
    "claim": 28,
    "the paper's number": 14,
    "ours (± spread)": 22,
    "without learning": 14,
    "verdict": 22,
}
INTRODUCTION = """
*Without learning* is what a constant answer (or, where there is a prior, the prior alone) gets on the same
test data: a method has shown something where it is better than that. Spreads are standard
deviations over draws or seeds.
"""


def claim_tables(experiments: Path) -> list[str]:
    """The lines of the section, empty where there are no claims."""
    files = sorted((experiments / "claims").glob("*.toml"))
    if not files:
        return []
    results, counts = experiments / "results", Counts(experiments / "results")
    title = "What the papers claim, and what holds"
    lines = [title, "-" * len(title), *INTRODUCTION.splitlines(), ""]
    for path in files:
        paper = tomllib.loads(path.read_text("utf-8"))
        lines += [paper["title"], "~" * len(paper["title"]), ""]
        lines += [
            ".. list-table::",
            "   :header-rows: 1",
            "   :widths: " + " ".join(map(str, COLUMNS.values())),
        ]
        lines += ["", *_row(list(COLUMNS))]
        for claim in paper["claim"]:
            lines += _row(_fields(claim, results, counts))
        lines.append("")
    return lines


def _row(fields: list[str]) -> list[str]:
    return [f"   {'  -' if k else '* -'} {field}".rstrip() for k, field in enumerate(fields)]


def _fields(claim: dict[str, Any], results: Path, counts: Counts) -> list[str]:
    """The columns of one claim."""
    if claim["verdict"] not in VERDICTS:
        raise ValueError(f"{claim['claim']!r}: the verdict must be one of {', '.join(VERDICTS)}.")
    table = claim.get("table", claim.get("experiment", ""))
    name = claim.get("experiment")
    script = f" (:ref:`{name} <experiments-{name}>`)" if name else ""
    return [
        f"{claim['claim']} ({claim['where']})",
        claim.get("paper", ""),
        _joined(claim.get("ours", []), table, results, counts) + script,
        _joined(claim.get("baseline", []), table, results, counts),
        f"**{claim['verdict']}**. {claim['why'].format_map(counts)}",
    ]


def _joined(parts: list[str | dict[str, Any]], table: str, results: Path, counts: Counts) -> str:
    return "; ".join(
        part.format_map(counts) if isinstance(part, str) else _cell(part, table, results) for part in parts
    )


def _cell(cell: dict[str, Any], table: str, results: Path) -> str:
    """Fields of the one row that a cell names."""
    path = results / f"{cell.get('table', table)}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    wanted = {key: str(value) for key, value in cell["row"].items()}
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    if len(found) != 1:
        raise ValueError(f"{path.name} has {len(found)} rows with {wanted}, not one.")
    return cell["show"].format(**{key: _shown(key, value) for key, value in found[0].items()})


def _shown(key: str, value: str) -> str:
    """A field as it is; of a spread two digits."""
    return f"{float(value):.2g}" if key.endswith("spread") and value else value

"""Result files: one CSV per experiment, whose rows are replaced when a part is run again.

Every script knows ``--small``: the same at toy size, in seconds, to see that it runs. Its files go to the
folder `small` instead of `results`; the variable MAXMARGIN_RESULTS names another one. How long a script takes
otherwise is in `minutes.toml`.
"""

from __future__ import annotations

import csv
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SMALL = "--small" in sys.argv[1:]
KEPT = Path(__file__).parent / "results"
RESULTS = Path(os.environ.get("MAXMARGIN_RESULTS", KEPT.with_name("small") if SMALL else KEPT))


def chosen(default: Sequence[str], small: Sequence[str]) -> Sequence[str]:
    """The data sets that the command line names; else all, or those of the toy size."""
    named = [word for word in sys.argv[1:] if not word.startswith("-")]
    return named or (small if SMALL else default)


def machine() -> str:
    """The kind of machine, for the last column of a result file."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores"


def machine_state() -> str:
    """The kind of machine, and whether it was busy with other work when this was called."""
    return f"{machine()}, {load()}"


def load() -> str:
    """Whether the machine is busy with other work."""
    load = os.getloadavg()[0]
    return f"load {load:.1f} ({'shared with other work' if load > 0.5 else 'quiet'})"


def paper(name: str, key: tuple[str, ...]) -> dict[tuple[str, ...], dict[str, str]]:
    """The paper's numbers from paper/<name>.csv, each column with "paper_" before its name."""
    with (Path(__file__).parent / "paper" / f"{name}.csv").open(newline="") as file:
        return {
            tuple(row[k] for k in key): {f"paper_{k}": v for k, v in row.items() if k not in key}
            for row in csv.DictReader(file)
        }


def write(
    name: str, rows: Iterable[Mapping[str, Any]], key: tuple[str, ...], *, conditions: str = ""
) -> Path:
    """Write rows to results/<name>.csv; an older row with the same key gives way.

    `conditions` says, beside the machine, how the rows were measured.
    """
    path = RESULTS / f"{name}.csv"
    table = {}
    if path.exists():
        with path.open(newline="") as file:
            table = {tuple(row[k] for k in key): row for row in csv.DictReader(file)}
    ran_on = f"{machine()}, {conditions}" if conditions else machine()
    for row in rows:
        shown = {k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in row.items()}
        table[tuple(shown[k] for k in key)] = {**shown, "machine": ran_on}
    columns = list(dict.fromkeys(column for row in table.values() for column in row if column != "machine"))
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*columns, "machine"], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table.values())
    return path

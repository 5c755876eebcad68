"""Result files: one CSV per experiment, whose rows are replaced when a part is run again.

Every script knows ``--help``, which shows its docstring, and ``--small``: the same at toy size, in seconds,
to see that it runs. Its files go to the folder `small` instead of `results`; the variable MAXMARGIN_RESULTS
names another one. How long a script takes otherwise is in `minutes.toml`.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SMALL = "--small" in sys.argv[1:]
KEPT = Path(__file__).parent / "results"
RESULTS = Path(os.environ.get("MAXMARGIN_RESULTS", KEPT.with_name("small") if SMALL else KEPT))


def command_line(about: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows the docstring of a script and has `--small`, without abbreviations."""
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{Path(sys.argv[0]).stem}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--small", action="store_true", help="at toy size, into the folder experiments/small")
    return parser


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """The type of an argument that must be one of some names."""

    def known(word: str) -> str:
        if word not in names:
            raise argparse.ArgumentTypeError(f"there is no {word!r}, only {', '.join(names)}")
        return word

    return known


def several_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """The type of an argument of such names with commas between them."""
    return lambda words: [one_of(names)(word) for word in words.split(",")]


def chosen(about: str | None, default: Sequence[str], small: Sequence[str]) -> Sequence[str]:
    """The data sets that the command line names; else all, or those of the toy size.

    `about` is the docstring of the script; a set that is not among its own ends it.
    """
    parser = command_line(about)
    known = list(dict.fromkeys([*default, *small]))
    parser.add_argument("data", nargs="*", type=one_of(known), help=f"of {', '.join(known)}; default: all")
    return parser.parse_args().data or (small if SMALL else default)


def show(*rows: Mapping[str, Any]) -> None:
    """Print the rows of a table, each as a line of names and numbers."""
    for row in rows:
        words = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if v != "")
        print(", ".join(words), flush=True)


def spread_of(values: Sequence[float]) -> float | str:
    """The standard deviation of several values; nothing of one."""
    return round(float(np.std(values, ddof=1)), 9) if len(values) > 1 else ""


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
    name: str,
    rows: Iterable[Mapping[str, Any]],
    key: tuple[str, ...],
    *,
    whole: tuple[str, ...] = (),
    conditions: str = "",
) -> Path:
    """Write rows to results/<name>.csv; a row replaces an older one with the same key.

    With `whole`, a part of the key, a row replaces all older rows with the same values there, such as the
    points of a curve of another run. `conditions` describes how the rows were measured, in addition to the
    machine.
    """
    path = RESULTS / f"{name}.csv"
    table = {}
    if path.exists():
        with path.open(newline="") as file:
            table = {tuple(row[k] for k in key): row for row in csv.DictReader(file)}
    ran_on = f"{machine()}, {conditions}" if conditions else machine()
    shown = [{k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in row.items()} for row in rows]
    if whole:
        anew = {tuple(row[k] for k in whole) for row in shown}
        table = {k: row for k, row in table.items() if tuple(row[k] for k in whole) not in anew}
    for row in shown:
        table[tuple(row[k] for k in key)] = {**row, "machine": ran_on}
    columns = list(dict.fromkeys(column for row in table.values() for column in row if column != "machine"))
    path.parent.mkdir(exist_ok=True)
    whole_file = path.with_suffix(".part")  # a script that is stopped leaves no half table
    with whole_file.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*columns, "machine"], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table.values())
    return whole_file.replace(path)

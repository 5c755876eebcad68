"""The speed table of the README, made from the CSV files of the benchmarks.

    python docs/speed_table.py            # writes it into README.md
    python docs/speed_table.py --check    # says by its exit code whether README.md has it

Three kinds of files are races: those with the columns `problem` and `competitor`, whose first row is
ours; those with a column `method`, where ours starts with "maxmargin" and only what was run at
least three times counts; and those of `MultiClassSVC`, with a column `lambda`. Each problem has one
row in the table: our seconds, and those of the fastest peer that reached the gap asked for.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
HEAD = ["problem", "gap", "maxmargin", "seconds", "fastest peer", "seconds", "times faster", "file"]
NOBODY = {"nothing", "null"}


@dataclass(frozen=True)
class Run:
    """One line of a race."""

    problem: str
    target: float
    who: str
    ours: bool
    seconds: float
    gap: float


def runs(path: Path) -> list[Run]:
    """The lines of a race; none for a file of another kind."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    columns = set(rows[0]) if rows else set()
    if columns >= {"problem", "target_gap", "competitor", "cores", "seconds", "gap"}:
        return list(_competitors(rows))
    if columns >= {"images", "labels", "method", "repeats", "seconds", "gap"}:
        return [
            Run(
                f"{row['images']} images, {row['labels']} attributes, RBF kernel", 1e-3, row["method"],
                row["method"].startswith("maxmargin"), float(row["seconds"]), float(row["gap"]),
            )
            for row in rows
            if int(row["repeats"]) >= 3 and row["labels"] == "85" and "prior" not in row["method"]
        ]  # fmt: skip
    if columns >= {"data", "lambda", "competitor", "suboptimality", "gap", "seconds"}:
        return [
            Run(
                f"{row['data']}, {row['classes']} classes, lambda = {row['lambda']}", 1e-3, row["competitor"],
                row["competitor"] == "MultiClassSVC", float(row["seconds"]),
                float(row["gap"] or row["suboptimality"]),
            )
            for row in rows
            if not row["competitor"].endswith("by objective")
        ]  # fmt: skip
    return []


def _competitors(rows: list[dict[str, str]]) -> Iterator[Run]:
    ours = rows[0]["competitor"].split(",")[0]
    for row in rows:
        if row["cores"] == "1":
            who = row["competitor"]
            yield Run(
                row["problem"], float(row["target_gap"]), who, who.split(",")[0] == ours,
                float(row["seconds"]), float(row["gap"]),
            )  # fmt: skip


def speed_table(folder: Path) -> str:
    """The table in Markdown."""
    lines = [HEAD, ["---"] * len(HEAD)]
    for path in sorted(folder.glob("*.csv")):
        found = runs(path)
        for problem, target in dict.fromkeys((run.problem, run.target) for run in found):
            here = [run for run in found if (run.problem, run.target) == (problem, target)]
            reached = [run for run in here if run.who not in NOBODY and run.gap <= 1.01 * target]
            mine = [run for run in reached if run.ours]
            peers = [run for run in reached if not run.ours]
            if mine and peers:
                first, best = mine[0], min(peers, key=lambda run: run.seconds)
                lines.append(
                    [
                        problem, f"{target:g}", first.who, f"{first.seconds:.3g}", best.who,
                        f"{best.seconds:.3g}", f"{best.seconds / first.seconds:.1f}",
                        f"[{path.name}](benchmarks/results/{path.name})",
                    ]
                )  # fmt: skip
    return "\n".join(f"| {' | '.join(words)} |" for words in lines)


def with_table(readme: str, made: str) -> str:
    """The README with the table between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def main() -> int:
    path = ROOT / "README.md"
    readme = path.read_text("utf-8")
    wanted = with_table(readme, speed_table(ROOT / "benchmarks" / "results"))
    if "--check" in sys.argv[1:]:
        return int(wanted != readme)
    path.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

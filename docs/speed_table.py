"""The tables of the README, made from the files of the benchmarks and of the demo.

    python docs/speed_table.py            # writes them into README.md
    python docs/speed_table.py --check    # says by its exit code whether README.md has them

Three kinds of files are races: those with the columns `problem` and `competitor`, whose first row is
ours; those with a column `method`, where ours starts with "maxmargin" and only what was run at
least three times counts; and those of `MultiClassSVC`, with a column `lambda`. Each problem has one
row in the table: our seconds, and those of the fastest peer that reached the gap asked for.

The table of the demo is made from results/demo.jsonl, which is `maxmargin demo --json`; that of default
parameters is the first one of results/defaults.md, under the number of sets that results/defaults.csv holds.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
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
                        f"`{path.name}`",
                    ]
                )  # fmt: skip
    return "\n".join(f"| {' | '.join(words)} |" for words in lines)


def demo_table(path: Path) -> str:
    """Scores, and ratios of seconds and sizes, of our model and its first baseline in every task."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        tasks.setdefault(row["task"], []).append(row)
    head = ["task", "measure", "maxmargin", "", "baseline", "", "fits", "predicts", "size"]
    lines = [head, ["---"] * len(head)]
    for task, (mine, other, *_) in tasks.items():
        fits, predicts = (
            _ratio(other[key] / mine[key], "faster", "slower") for key in ("fit s", "predict s")
        )
        size = _ratio(other["KB"] / mine["KB"], "smaller", "larger")
        lines.append(
            [
                task, mine["measure"], mine["who"], f"{mine['score']:.3f}", other["who"],
                f"{other['score']:.3f}", fits, predicts, size,
            ]
        )  # fmt: skip
    return "\n".join(f"| {' | '.join(words)} |" for words in lines)


def _ratio(value: float, more: str, less: str) -> str:
    if 0.9 <= value <= 1.1:
        return "same"
    times, word = (value, more) if value > 1 else (1 / value, less)
    return f"{times:.0f}x {word}" if times >= 10 else f"{times:.2g}x {word}"


def first_table(path: Path) -> str:
    """The first table of a Markdown file."""
    lines = path.read_text("utf-8").splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("|"))
    end = next(k for k in range(start, len(lines)) if not lines[k].startswith("|"))
    return "\n".join(lines[start:end])


def defaults_table(folder: Path) -> str:
    """How many sets there are of every task, and how ours do beside their peers."""
    with open(folder / "defaults.csv", newline="", encoding="utf-8") as file:
        sets = {(row["task"], row["data"]) for row in csv.DictReader(file)}
    single, several = (sum(task == kind for kind, _ in sets) for task in ("multiclass", "multilabel"))
    counted = f"On {single} tables with one class a row and {several} with sets of labels:"
    return f"{counted}\n\n{first_table(folder / 'defaults.md')}"


def with_table(readme: str, name: str, made: str) -> str:
    """The README with a table between its marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = readme.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{made}\n{end}{after}"


def main() -> int:
    path = ROOT / "README.md"
    readme = path.read_text("utf-8")
    results = ROOT / "benchmarks" / "results"
    wanted = with_table(readme, "speed", speed_table(results))
    wanted = with_table(wanted, "demo", demo_table(results / "demo.jsonl"))
    wanted = with_table(wanted, "defaults", defaults_table(results))
    if "--check" in sys.argv[1:]:
        return int(wanted != readme)
    path.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Speed in the races: the README table, the tables of the comparison page, the figure of the first page.

    python docs/speed.py            # write the table into README.md
    python docs/speed.py --check    # exit with 1 if README.md has other figures

Three kinds of result files are races: those with the columns `problem` and `competitor`, whose first row is
ours; those with a column `method`, where names that start with "maxmargin" are ours and only rows with three
or more repeats count; and those of `MultiClassSVC`, with a column `lambda`. Each problem gives one row: our
seconds, and the seconds of the fastest peer that reached the same gap.
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
RESULTS = ROOT / "benchmarks" / "results"
NULL_PEERS = {"nothing", "null"}
# Rows of the README: file, problem, what the data are, and the race that measures them.
SHOWN = (
    ("multilabel_rcv1", "rcv1-subsets", "news (RCV1), 101 labels, linear", "multilabel rcv1"),
    ("multiclass", "mnist, 10 classes, lambda = 0.01", "mnist, 10 classes, linear", "multiclass mnist"),
    (
        "kernel_multilabel", "5000 images, 85 attributes, RBF kernel",
        "5,000 images, 85 labels, RBF kernel", "kernel_multilabel race",
    ),
)  # fmt: skip
COLOURS = {"kernel_multilabel": "C0", "multiclass": "C1"}
NAMES = {"C0": "kernel, several labels", "C1": "linear, one class", "C2": "linear, several labels"}


@dataclass(frozen=True)
class Run:
    """One row of a race."""

    problem: str
    target: float
    who: str
    ours: bool
    seconds: float
    gap: float


@dataclass(frozen=True)
class Race:
    """Our run and the fastest peer's on one problem, both to the gap `target`."""

    file: str
    problem: str
    target: float
    ours: Run
    peer: Run

    @property
    def ratio(self) -> float:
        return self.peer.seconds / self.ours.seconds


def runs(path: Path) -> list[Run]:
    """Return the runs in a result file, or none if the file is not a race."""
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


def races() -> Iterator[Race]:
    """Yield every problem on which we and at least one peer reached the gap."""
    for path in sorted(RESULTS.glob("*.csv")):
        found = runs(path)
        for problem, target in dict.fromkeys((run.problem, run.target) for run in found):
            here = [run for run in found if (run.problem, run.target) == (problem, target)]
            reached = [run for run in here if run.who not in NULL_PEERS and run.gap <= 1.01 * target]
            ours = [run for run in reached if run.ours]
            peers = [run for run in reached if not run.ours]
            if ours and peers:
                yield Race(path.stem, problem, target, ours[0], min(peers, key=lambda run: run.seconds))


def readme_table() -> str:
    """Return the table of the README in Markdown."""
    found = {(race.file, race.problem): race for race in races() if race.target == 1e-3}
    lines = ["| problem | maxmargin | fastest peer | measured by |", "| --- | --- | --- | --- |"]
    for file, problem, data, command in SHOWN:
        race = found[file, problem]
        lines.append(
            f"| {data} | {race.ours.seconds:.2g} s | {race.peer.seconds:.2g} s ({race.peer.who}) "
            f"| `python -m benchmarks {command}` |"
        )
    return "\n".join(lines)


def demo_rows() -> Iterator[tuple[str, ...]]:
    """Yield scores, and ratios of times and sizes, of our model and its first baseline in each demo task."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for line in (RESULTS / "demo.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        tasks.setdefault(row["task"], []).append(row)
    for task, (mine, other, *_) in tasks.items():
        fits, predicts = (
            _ratio(other[key] / mine[key], "faster", "slower") for key in ("fit s", "predict s")
        )
        yield (
            task, mine["measure"], f"{mine['score']:.3f} ({mine['model']})",
            f"{other['score']:.3f} ({other['model']})", fits, predicts,
            _ratio(other["KB"] / mine["KB"], "smaller", "larger"),
        )  # fmt: skip


def _ratio(value: float, more: str, less: str) -> str:
    if 0.9 <= value <= 1.1:
        return "same"
    times, word = (value, more) if value > 1 else (1 / value, less)
    return f"{times:.0f}x {word}" if times >= 10 else f"{times:.2g}x {word}"


def default_rows() -> Iterator[tuple[str, ...]]:
    """Yield the body of the first table of results/defaults.md."""
    lines = iter((RESULTS / "defaults.md").read_text("utf-8").splitlines())
    table = []
    for line in lines:
        if line.startswith("|"):
            table.append(tuple(word.strip() for word in line.strip("|").split("|")))
        elif table:
            break
    yield from table[2:]


def draw_speed(docs: Path) -> None:
    """Write the figure of all races to a gap of 1e-3 into the pictures of the build."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    found = sorted((race for race in races() if race.target == 1e-3), key=lambda race: race.ratio)
    colours = [COLOURS.get(race.file, "C2") for race in found]
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(8.4, 0.6 + 0.22 * len(found)), dpi=120, layout="constrained")
        axis = figure.subplots()
        names = [f"{race.problem}  (against {race.peer.who})" for race in found]
        bars = axis.barh(names, [race.ratio for race in found], color=colours)
        axis.bar_label(bars, [f"{race.ratio:.1f}" for race in found], padding=2)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set(xscale="log", xlabel="times faster than the fastest peer", xlim=(0.5, None))
        axis.margins(x=0.15, y=0.01)
        patches = [mpl.patches.Patch(color=colour) for colour in NAMES if colour in colours]
        axis.legend(patches, [NAMES[colour] for colour in NAMES if colour in colours], frameon=False)
    pictures = docs / "_build" / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    figure.savefig(pictures / "speed.png")


def main() -> int:
    path = ROOT / "README.md"
    readme = path.read_text("utf-8")
    begin, end = "<!-- speed: begin -->", "<!-- speed: end -->"
    before, _, rest = readme.partition(begin)
    wanted = f"{before}{begin}\n{readme_table()}\n{end}{rest.partition(end)[2]}"
    if "--check" in sys.argv[1:]:
        return int(wanted != readme)
    path.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

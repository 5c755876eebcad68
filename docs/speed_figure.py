"""The speed figure of the front page, drawn from the CSV files of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from speed_table import NOBODY, runs

COLOURS = {
    "kernel_multilabel": "C0",
    "multiclass": "C1",
    "multilabel_rcv1": "C2",
    "multilabel_sets": "C2",
    "multilabel_squared": "C2",
}
NAMES = {"C0": "kernel, many labels", "C1": "one class", "C2": "linear, many labels"}


def races(folder: Path) -> list[tuple[float, str, str]]:
    """Times faster, problem and colour of every race to a gap of a thousandth, the slowest first."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        all_runs = [run for run in runs(path) if run.target == 1e-3 and run.who not in NOBODY]
        for problem in dict.fromkeys(run.problem for run in all_runs):
            reached = [run for run in all_runs if run.problem == problem and run.gap <= 1.01 * run.target]
            ours = [run for run in reached if run.ours]
            peers = [run for run in reached if not run.ours]
            if ours and peers:
                best = min(peers, key=lambda run: run.seconds)
                times = best.seconds / ours[0].seconds
                found.append((times, f"{problem}  (against {best.who})", COLOURS.get(path.stem, "C3")))
    return sorted(found)


def draw_speed(docs: Path) -> None:
    """Write the figure into the pictures of the build."""
    rows = races(docs.parent / "benchmarks" / "results")
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(8.4, 0.6 + 0.22 * len(rows)), dpi=120, layout="constrained")
        axis = figure.subplots()
        bars = axis.barh(
            [name for _, name, _ in rows], [times for times, _, _ in rows], color=[c for *_, c in rows]
        )
        axis.bar_label(bars, [f"{times:.1f}" for times, _, _ in rows], padding=2)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set(xscale="log", xlabel="times faster than the fastest peer", xlim=(0.5, None))
        axis.margins(x=0.15, y=0.01)
        shown = {colour for *_, colour in rows}
        patches = [mpl.patches.Patch(color=colour) for colour in NAMES if colour in shown]
        axis.legend(patches, [NAMES[colour] for colour in NAMES if colour in shown], frameon=False)
    pictures = docs / "_build" / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    figure.savefig(pictures / "speed.png")

"""Time of a fit over many machines, simulated from measured times and message sizes.

`maxmargin.dask.MultiLabelSVC` with rows over workers on 10^8 rows like those of RCV1 with 103 labels, at 10
Gbit/s, for 4 to 256 workers of one core each. CPU seconds per row and label, bytes per row, and the number
of rounds as a power of the share of rows that a solve holds come from ``results/cluster_rounds.csv``. The
simulation assumes that rounds depend on this share alone. Workers forward the weights to each other; Dask's
scheduler takes a millisecond per task. Writes ``results/cluster_simulation.csv`` and ``.png``.

    python -m experiments.cluster_simulation
"""

from __future__ import annotations

import csv
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from experiments._results import RESULTS, command_line, show, write

ROWS, LABELS, FEATURES = 10**8, 103, 47_236
BYTES_PER_SECOND, TASK_SECONDS = 10e9 / 8, 1e-3
# Memory that a worker gives to the rows of a solve.
ROOM = 16e9
WORKERS = (4, 16, 64, 256)
PARTS_OF_TIME = ("look", "weights", "rows", "solve", "scheduler")


class Measured(NamedTuple):
    """CPU seconds per row and label of both kinds of tasks, bytes of a row sent, and the law of rounds."""

    look: float
    solve: float
    row_bytes: float
    power: tuple[float, float]


def measured() -> Measured:
    """What `experiments.cluster_rounds` found."""
    with (RESULTS / "cluster_rounds.csv").open(newline="") as file:
        table = [{key: row[key] for key in row if key != "machine"} for row in csv.DictReader(file)]
    rows = [{key: float(value) for key, value in row.items()} for row in table]
    shares = np.log([row["rows_of_a_solve"] / row["rows"] for row in rows])
    slope, level = np.polyfit(shares, np.log([row["rounds"] for row in rows]), 1)
    sent = [min(row["parts"], row["labels"]) * row["rows_of_a_solve"] for row in rows]
    return Measured(
        float(np.median([row["look_seconds_per_round"] / (row["rows"] * row["labels"]) for row in rows])),
        float(
            np.median(
                [row["solve_seconds_per_round"] / (row["rows_of_a_solve"] * row["labels"]) for row in rows]
            )
        ),
        float(np.median([row["row_bytes_per_round"] / n for row, n in zip(rows, sent, strict=True)])),
        (float(slope), float(level)),
    )


def simulate(found: Measured, workers: int, held: int, name: str) -> dict[str, object]:
    """Seconds of a fit whose solves hold so many rows."""
    groups = min(workers, LABELS)
    slope, level = found.power
    rounds = max(int(np.ceil(np.exp(level + slope * np.log(held / ROWS)))), 1)
    seconds = {
        "look": ROWS / workers * LABELS * found.look,
        "weights": 8 * (FEATURES + 1) * LABELS * np.ceil(np.log2(workers)) / BYTES_PER_SECOND,
        "rows": held * found.row_bytes / BYTES_PER_SECOND,
        "solve": held * LABELS / groups * found.solve,
        "scheduler": workers * groups * 2 * TASK_SECONDS,
    }
    total = rounds * sum(seconds.values())
    shown = {f"{key} s per round": round(float(seconds[key]), 3) for key in PARTS_OF_TIME}
    return {
        "workers": workers,
        "a solve holds": name,
        "rows of a solve": held,
        "rounds": rounds,
        **shown,
        "hours": round(float(total) / 3600, 3),
    }


def main() -> None:
    command_line(__doc__).parse_args()
    found = measured()
    table = []
    for workers in WORKERS:
        table.append(simulate(found, workers, ROWS // workers, "the rows of a part"))
        table.append(simulate(found, workers, int(ROOM / found.row_bytes), "16 GB"))
    for row in table:
        show(row)
    write("cluster_simulation", table, ("workers", "a solve holds"), conditions="simulated")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
    for name, style in (("the rows of a part", "o-"), ("16 GB", "s--")):
        rows = [row for row in table if row["a solve holds"] == name]
        axes[0].loglog([row["workers"] for row in rows], [row["hours"] for row in rows], style, label=name)
    axes[0].set(xlabel="workers", ylabel="hours", title="a fit of 10^8 rows (simulated)")
    axes[0].set_xticks(WORKERS, [str(workers) for workers in WORKERS])
    axes[0].legend(title="a solve holds")
    rows = [row for row in table if row["a solve holds"] == "16 GB"]
    for key in PARTS_OF_TIME:
        axes[1].loglog(WORKERS, [float(str(row[f"{key} s per round"])) for row in rows], "o-", label=key)
    axes[1].set(xlabel="workers", ylabel="seconds of a round", title="where they go (a solve holds 16 GB)")
    axes[1].set_xticks(WORKERS, [str(workers) for workers in WORKERS])
    axes[1].legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "cluster_simulation.png", dpi=110)


if __name__ == "__main__":
    main()

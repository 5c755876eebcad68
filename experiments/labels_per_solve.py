"""Number of labels that share a solve of some of the rows: rounds and CPU seconds by rows per label.

Rows of several data sets in eight parts, labels of two workers, solves that hold an eighth, a quarter or
half of the rows. Labels share a solve if it holds a given part of all rows for each of them; the smaller
this part, the more labels share. A fit ends at a certified relative gap of 1e-3 or after a minute.
`SHARE_OF_LABEL` in `maxmargin.dask.multilabel` is chosen from the result. Writes
``experiments/results/labels_per_solve.csv``.

    MAXMARGIN_DATA=... python -m experiments.labels_per_solve [rcv1-subsets bibtex generated ...]
"""

from __future__ import annotations

import time
from typing import Any

from experiments._results import SMALL, chosen, show, write
from experiments._results import load as load_now
from experiments.cluster_rounds import Game
from experiments.label_costs import load
from maxmargin.dask.multilabel import label_groups, split_groups

SETS = ("rcv1-subsets", "bibtex", "tmc2007-500", "enron", "generated")
PARTS, WORKERS, LABELS = 8, 2, 16
SHARES = (0.25,) if SMALL else (0.125, 0.25, 0.5)
# Parts of all rows for each label, and seconds after which a fit is given up.
EACH, GIVEN_UP = (1 / 4, 1 / 8, 1 / 16, 1 / 32), 60.0


def line(name: str, game: Game, share: float, each: float) -> dict[str, Any]:
    """One fit."""
    n, L = game.signs.shape
    groups = label_groups(L, None, WORKERS)
    start = time.process_time()
    rounds, gap, _ = game.play(groups, int(share * n), GIVEN_UP, each=each)
    return {
        "set": name,
        "rows": n,
        "labels": L,
        "share of rows in a solve": share,
        "rows per label": each,
        "labels of a solve": -(-L // len(split_groups(groups, None, share, each))),
        "rounds": rounds,
        "gap": f"{gap:.3g}",
        "cpu seconds": round(time.process_time() - start, 2),
    }


def main() -> None:
    for name in chosen(__doc__, SETS, ("enron",)):
        X, signs = load(name)
        game = Game(X, signs[:, :: -(-signs.shape[1] // LABELS)].copy(), PARTS)
        for share in SHARES:
            for each in EACH:
                row = line(name, game, share, each)
                show(row)
                key = ("set", "share of rows in a solve", "rows per label")
                write("labels_per_solve", [row], key, conditions=load_now())


if __name__ == "__main__":
    main()

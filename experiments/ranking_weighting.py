"""Choice of the default weighting of rows of the label ranker: mistakes of one online pass.

    MAXMARGIN_DATA=... python -m experiments.ranking_weighting [--small] [data set ...]

Every row is predicted before it is learned, so the mistakes on the stream are the test. The default is
chosen on bags of words, tags and symbols in random order (at most 8,000 rows, the mean over `ORDERS`
permutations, with the spread of "auto"). The mailboxes, in the order of their dates and with all folders
known, compare it with other learners (`python -m benchmarks ranking peers`). Rows with other values than
zeros and ones are often weighted already, which is why the default does not change them.

"unit" scales rows to length one without weights. "mistakes of a constant" are those of ranking labels by
their frequency so far, with ties as mistakes. Results: results/ranking_weighting.csv.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments._data import load
from experiments._results import SMALL, chosen, show, spread_of, write
from maxmargin import LabelRanker
from maxmargin.ranking.estimator import holds_presence

SETS = (
    *("bibtex", "enron", "medical", "tmc2007-500", "genbase", "corel5k", "delicious", "dna"),
    *("rcv1-subsets", "reuters-r8", "reuters-r52", "20newsgroups"),
    *(f"enron-folders/{user}" for user in ("beck-s", "farmer-d", "kitchen-l", "lokay-m", "williams-w3")),
)
WEIGHTINGS = (None, "unit", "idf", "sqrt-idf", "smooth-idf", "auto")
MOST_ROWS, ORDERS = (300, 2) if SMALL else (8000, 3)


def streams(name: str) -> Iterator[tuple[Any, Any, np.ndarray | None]]:
    """Rows and labels in the orders of the rounds, and the labels that are known from the start."""
    data = load(name)
    if "/" in name or name == "mail-stream":
        yield data.X[:MOST_ROWS], data.Y[:MOST_ROWS], np.unique(data.Y)
        return
    for seed in range(ORDERS):
        order = np.random.default_rng(seed).permutation(data.X.shape[0])[:MOST_ROWS]
        yield data.X[order], data.Y[order], None


def constant_mistakes(labels: Any) -> int:
    """Mistakes of ranking labels by their number of rounds so far: one label, or a 0/1 row, in each round."""
    Y = (
        sp.csr_array(labels)
        if np.ndim(labels) == 2
        else sp.csr_array(np.unique(labels)[None] == labels[:, None])
    )
    seen, wrong = np.zeros(Y.shape[1]), 0
    for i in range(Y.shape[0]):
        on = Y.indices[Y.indptr[i] : Y.indptr[i + 1]]
        if 0 < len(on) < len(seen):
            wrong += int(seen[on].min() <= np.delete(seen, on).max())
        seen[on] += 1
    return wrong


def main() -> None:
    for name in chosen(__doc__, SETS, ("mail-stream",)):
        mistakes: dict[str, list[int]] = {}
        for X, y, known in streams(name):
            for weighting in WEIGHTINGS:
                rows, given = (normalize(X), None) if weighting == "unit" else (X, weighting)
                model = LabelRanker(weighting=given).partial_fit(rows, y, classes=known)
                mistakes.setdefault(str(weighting), []).append(model.n_mistakes_)
            mistakes.setdefault("of a constant", []).append(constant_mistakes(y))
        auto = mistakes["auto"]
        row: dict[str, Any] = {"data": name, "presence": holds_presence(X), "rounds": X.shape[0]}
        row |= {"orders": len(auto), "spread of auto": spread_of(auto)}
        row |= {f"mistakes {way}": float(np.mean(found)) for way, found in mistakes.items()}
        show(row)
        write("ranking_weighting", [row], ("data",))


if __name__ == "__main__":
    main()

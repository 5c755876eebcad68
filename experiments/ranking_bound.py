"""The mistake bound of the label-ranking paper on the mail streams; iterations of its interior point method.

    python -m experiments.ranking_bound [user ...]
    python -m experiments.ranking_bound --small

A competitor W with objective P(W) allows at most P(W) / (margin C - curvature C^2) mistakes, Lemma 1 with
(2). The bound is finite only for C below margin / curvature, here 1 / |x|^2 of the longest message, far
below the C that makes few mistakes. So there are two rows per user and regulariser: at the setting of table
1 ("first fifth" in ranking_table1.csv), and at the C, margin and competitor of a grid with the smallest
bound. The competitors are the weights after five passes over the stream, for the squared norm times 0.1 to
10. A bound above the number of rounds is trivial. "Most frequent folder" counts the mistakes of the most
frequent folder so far.

Iterations are those of (12)-(20) in the first 400 rounds of update III with a loss, at the round's own C.
The users are those of `ranking`. Results: results/ranking_bound.csv.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from experiments._data import load
from experiments._results import SMALL, chosen, write
from maxmargin import LabelRanker
from maxmargin.ranking import step_loops as steps
from maxmargin.ranking.interior_loops import ITERATIONS, interior_path

USERS = ("beck-s", "farmer-d", "kitchen-l", "lokay-m", "williams-w3")
SHARES = (0.03, 0.1, 0.3)  # of the C at which the bound becomes infinite
MARGINS = {"squared": (1.0,), "entropy": (0.01, 0.1, 0.5)}
SCALES = {"squared": (0.1, 0.3, 1.0, 3.0, 10.0), "entropy": (1.0,)}
MOST_ROUNDS = 150 if SMALL else None
COUNTED = 100 if SMALL else 400


def learner(regulariser: str, C: float, margin: float, X: Any, y: np.ndarray) -> LabelRanker:
    """Update III on the whole stream, all folders known from the start."""
    model = LabelRanker("all_pairs", regulariser, C=C, margin=margin, weighting=None)
    return model.partial_fit(X, y, classes=np.unique(y))


def table_setting(user: str, regulariser: str) -> tuple[float, float]:
    """C and margin that table 1 chose on the first fifth of the stream."""
    with (Path(__file__).parent / "results" / "ranking_table1.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found = row["user"], row["regulariser"], row["update"], row["rule"]
            if found == (user, regulariser, "III", "first fifth"):
                return float(row["C"]), float(row["margin"])
    raise ValueError(f"ranking_table1.csv has no row of {user}.")


def competitors(regulariser: str, margin: float, C: float, X: Any, y: np.ndarray) -> list[np.ndarray]:
    """Return weights trained on the whole stream."""
    model = LabelRanker("all_pairs", regulariser, C=C, margin=margin, weighting=None, random_state=0).fit(
        X, y
    )
    order = np.searchsorted(model.classes_, np.unique(y), sorter=np.argsort(model.classes_))
    W = model.coef_[np.argsort(model.classes_)[order]]
    return [scale * W for scale in SCALES[regulariser]]


def smallest_bound(
    regulariser: str, table: tuple[float, float], X: Any, y: np.ndarray
) -> tuple[float, float, float]:
    """Bound, C and margin of the grid where the bound is smallest."""
    best = (np.inf, table[0], table[1])
    for margin in MARGINS[regulariser]:
        rivals = competitors(regulariser, margin, table[0], X, y)
        limit = margin / learner(regulariser, *table, X, y).curvature_
        for share in SHARES:
            model = learner(regulariser, share * limit, margin, X, y)
            for W in rivals:
                best = min(best, (model.mistake_bound(W, X, y), share * limit, margin))
    return best


def iterations(regulariser: str, C: float, margin: float, X: Any, y: np.ndarray) -> np.ndarray:
    """Iterations of the interior point method in the first rounds that have a loss."""
    classes = np.unique(y)
    model = LabelRanker("all_pairs", regulariser, C=C, margin=margin, weighting=None)
    counts = []
    empty = np.empty(0)
    for i in range(min(X.shape[0], COUNTED)):
        row = X[i : i + 1]
        if i:
            scores = model.decision_function(row)[0]
            relevant = (model.classes_ == y[i]).astype(np.uint8)
            loss = margin - scores[relevant > 0][0] + scores[relevant == 0].max()
            if loss > 0 and row.nnz:
                if regulariser == "squared":
                    kind, keys, reach = steps.LINEAR, scores, C * float(row.multiply(row).sum())
                else:
                    logits = np.log(np.clip(scores, 1e-300, 1)) - np.log(np.clip(1 - scores, 1e-16, 1))
                    kind, keys, reach = steps.LOGISTIC, np.array([steps.key_of(u) for u in logits]), C
                form = steps.Round(
                    kind, margin, reach, len(keys), relevant, keys, np.empty((0, 0)), empty, empty
                )
                counts.append(interior_path(form, reach, loss, ITERATIONS, np.empty(len(keys) + 1)))
        model.partial_fit(row, y[i : i + 1], classes=classes if i == 0 else None)
    return np.array(counts)


def most_frequent(y: np.ndarray) -> int:
    """Mistakes of always naming the folder that was most frequent so far."""
    names, codes = np.unique(y, return_inverse=True)
    seen, wrong = np.zeros(len(names)), 0
    for code in codes:
        wrong += int(np.argmax(seen) != code)
        seen[code] += 1
    return wrong


def rows_of(user: str) -> list[dict]:
    data = load(f"enron-folders/{user}")
    X, y = data.X[:MOST_ROUNDS], np.asarray(data.Y)[:MOST_ROUNDS]
    lines = []
    for regulariser in MARGINS:
        table = table_setting(user, regulariser)
        bound, C, margin = smallest_bound(regulariser, table, X, y)
        counts = iterations(regulariser, *table, X, y)
        for name, setting, limit in (("table 1", table, np.inf), ("smallest bound", (C, margin), bound)):
            model = learner(regulariser, *setting, X, y)
            lines.append(
                {
                    "user": user, "folders": len(np.unique(y)), "rounds": len(y), "regulariser": regulariser,
                    "setting": name, "C": setting[0], "margin": setting[1],
                    "mistakes": int(model.n_mistakes_),
                    "bound": float(limit), "says_something": "yes" if limit < len(y) else "no",
                    "most_frequent_folder": most_frequent(y),
                    "mean_iterations": float(counts.mean()) if name == "table 1" else "",
                    "most_iterations": int(counts.max()) if name == "table 1" else "",
                }
            )  # fmt: skip
            model_limit = setting[1] / model.curvature_
            assert name != "table 1" or setting[0] >= model_limit, "the bound of this row is finite"
    return lines


def main() -> None:
    for user in chosen(__doc__, USERS, ("williams-w3",)):
        write("ranking_bound", rows_of(user), ("user", "regulariser", "setting"))


if __name__ == "__main__":
    main()

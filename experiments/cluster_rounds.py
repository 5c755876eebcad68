"""Rounds and bytes of `maxmargin.dask.MultiLabelSVC` with rows over workers, played in one process.

For 2 to 256 parts of RCV1: a solve may hold as many rows as a part has (or so many times as many, or a number
of them). Writes
``experiments/results/cluster_rounds.csv``: rounds to a certified relative gap of 1e-3, bytes of weights to a
part and of rows to all solves in a round, and CPU seconds of all tasks of a kind in a round.

    MAXMARGIN_DATA=... python -m experiments.cluster_rounds [--labels 17] [--parts 2 8 32] [--rows 2811]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from experiments._results import write
from maxmargin import datasets
from maxmargin.core.loop import Stopping, run
from maxmargin.dask.label_groups import groups_of
from maxmargin.dask.multilabel import TASKS
from maxmargin.dask.rounds import Here, Rounds, Scattered
from maxmargin.dask.working_sets import Look, Part
from maxmargin.multilabel.problem import hamming_costs

TOL = 1e-3


class Counting(Here):
    """Counts the bytes of the rows that travel and the seconds of the two kinds of tasks."""

    def __init__(self) -> None:
        self.row_bytes = 0
        self.seconds: dict[str, float] = {}

    def submit(self, task: Any, *arguments: Any) -> Any:
        began = time.process_time()
        answer = task(*arguments)
        self.seconds[task.__name__] = self.seconds.get(task.__name__, 0.0) + time.process_time() - began
        if isinstance(answer, Look) and answer.call is not None:
            X = answer.call.X
            self.row_bytes += X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
            self.row_bytes += answer.call.alpha.nbytes + answer.call.costs.signs.nbytes
        return answer


def play(X: Any, signs: np.ndarray, n_parts: int, budget: int, seed: int = 0) -> dict[str, Any]:
    """One fit over parts of equal size; `budget` is how many rows a solve may hold."""
    n, L = signs.shape
    places = np.array_split(np.random.default_rng(seed).permutation(n), n_parts)
    upper = np.ones((2, L))
    parts = [
        Part(X[rows], hamming_costs(signs[rows], upper, np.ones((len(rows), 1))), 1.0) for rows in places
    ]
    problem = Scattered(
        TASKS, parts, [len(rows) for rows in places], X.shape[1], groups_of(L, None, n_parts), None, 1.0, 0.0
    )
    workers = Counting()
    solver = Rounds(problem, workers, tol=TOL, budget=budget, rng=np.random.RandomState(seed))
    outcome = run(solver, Stopping(TOL, 100))
    rounds = outcome.n_iter
    return {
        "rows": n,
        "labels": L,
        "parts": n_parts,
        "rows_of_a_solve": budget,
        "rounds": rounds,
        "gap": f"{outcome.certificate.gap:.3g}",
        "weight_bytes_per_part_and_round": 8 * (X.shape[1] + 1) * L,
        "row_bytes_per_round": workers.row_bytes // (rounds + 1),
        "look_seconds_per_round": round(workers.seconds["look"] / (rounds + 1), 4),
        "solve_seconds_per_round": round(workers.seconds["solve"] / rounds, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=0, help="so many of the labels, 0 for all")
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 8, 32, 256])
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0, 2.0])
    parser.add_argument("--rows", type=int, nargs="+", help="rows of a solve, whatever the parts")
    parser.add_argument("--small", action="store_true", help="2,000 rows in two parts")
    chosen = parser.parse_args()
    data = datasets.load("rcv1-subsets", split="all")
    X = sp.csr_array(normalize(data.X.astype(np.float64)))
    Y = data.Y.toarray() if sp.issparse(data.Y) else np.asarray(data.Y)
    Y = Y[:, (Y.sum(axis=0) > 0) & (Y.sum(axis=0) < len(Y))]
    step = max(1, Y.shape[1] // chosen.labels) if chosen.labels else 1
    signs = np.where(Y[:, ::step] > 0, 1, -1).astype(np.int8)
    if chosen.small:
        X, signs = X[:2000], signs[:2000, :5]
    table = []
    for n_parts in [2] if chosen.small else chosen.parts:
        budgets = chosen.rows or [int(share * len(signs) / n_parts) for share in chosen.shares]
        for budget in budgets:
            table.append(play(X, signs, n_parts, budget))
            print(table[-1], flush=True)
            write("cluster_rounds", table, ("rows", "labels", "parts", "rows_of_a_solve"))


if __name__ == "__main__":
    main()

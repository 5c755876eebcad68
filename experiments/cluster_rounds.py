"""Rounds and bytes of `maxmargin.dask.MultiLabelSVC` with rows over workers, simulated on one machine.

For 2 to 256 parts of RCV1, with solves that hold as many rows as a part (or a multiple, or a fixed number).
Writes ``experiments/results/cluster_rounds.csv``: rounds to a certified relative gap of 1e-3, bytes of
weights to a part and of rows to all solves in a round, and CPU seconds of all tasks of a kind in a round.

With ``--generated`` the rows are generated with the width of RCV1, and the table is
``cluster_rounds_generated.csv``. Independent groups of labels run in ``--processes``, each to the gap of
1e-3; rounds are those of the slowest group.

    MAXMARGIN_DATA=... python -m experiments.cluster_rounds [--labels 17] [--parts 2 8 32] [--rows 2811]
    python -m experiments.cluster_rounds --generated 781265 --labels 103 --parts 8 256 --processes 16
"""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from experiments import _data
from experiments._results import SMALL, command_line, load, show, write
from maxmargin.core.loop import Stopping, run
from maxmargin.dask.multilabel import SHARE_OF_LABEL, TASKS, label_groups, split_groups
from maxmargin.dask.rounds import FEW_ROWS, Here, Partitioned, Rounds
from maxmargin.dask.working_sets import Part, Sent
from maxmargin.multilabel.problem import hinge_costs

TOL, MOST_ROUNDS = 1e-3, 100
# Generated rows: columns, and nonzeros of a row before those that meet are added.
FEATURES, NONZEROS = 47_236, 80
# The most and the least frequent label of generated rows, and the size of noise beside that of scores: the
# weights that made them have a micro F1 of 0.81 with it, as linear models have on RCV1.
FREQUENT, RARE, NOISE = 0.3, 0.001, 0.3


class Counting(Here):
    """Counts the bytes of the rows that travel and the seconds of the two kinds of tasks."""

    def __init__(self) -> None:
        self.row_bytes = 0
        self.seconds: dict[str, float] = {}

    def submit(self, task: Any, *arguments: Any) -> Any:
        began = time.process_time()
        answer = task(*arguments)
        self.seconds[task.__name__] = self.seconds.get(task.__name__, 0.0) + time.process_time() - began
        if isinstance(answer, Sent):
            X = answer.X
            self.row_bytes += X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
            self.row_bytes += answer.alpha.nbytes + answer.costs.signs.nbytes
        return answer


class Game:
    """Rows in parts of equal size, and the labels as signs."""

    def __init__(self, X: Any, signs: np.ndarray, n_parts: int, seed: int = 0) -> None:
        self.places = np.array_split(np.random.default_rng(seed).permutation(len(signs)), n_parts)
        self.blocks = [X[rows] for rows in self.places]
        self.signs, self.seed, self.shape = signs, seed, (len(signs), X.shape[1])

    def play(
        self,
        groups: list[slice],
        budget: int,
        seconds: float | None = None,
        n_threads: int = 1,
        each: float = SHARE_OF_LABEL,
    ) -> tuple[int, float, Counting]:
        """Return rounds, gap and counts for neighbouring groups of labels; a solve may hold `budget` rows.

        Labels share a solve if it can hold the part `each` of all rows for each of them.
        """
        first, last = groups[0].start, groups[-1].stop
        ours = [slice(g.start - first, g.stop - first) for g in groups]
        ours = split_groups(ours, None, budget / len(self.signs), each)
        upper = np.ones((2, last - first))
        parts = [
            Part(X, hinge_costs(self.signs[rows, first:last], upper, np.ones((len(rows), 1))), 1.0)
            for X, rows in zip(self.blocks, self.places, strict=True)
        ]
        sizes = [len(rows) for rows in self.places]
        problem = Partitioned(TASKS, parts, sizes, self.shape[1], ours, None, 1.0, 0.0)
        workers, rng = Counting(), np.random.RandomState(self.seed)
        solver = Rounds(problem, workers, tol=TOL, budget=budget, rng=rng, n_threads=n_threads)
        outcome = run(solver, Stopping(TOL, MOST_ROUNDS, seconds))
        return outcome.n_iter, outcome.certificate.gap, workers

    def row(self, budget: int, answers: list[tuple[int, float, Counting]]) -> dict[str, Any]:
        """Return the row of the table for the results of some processes."""
        rounds, (n, width), L = max(answer[0] for answer in answers), self.shape, self.signs.shape[1]
        return {
            "rows": n,
            "labels": L,
            "parts": len(self.places),
            "rows_of_a_solve": budget,
            "rounds": rounds,
            "gap": f"{max(answer[1] for answer in answers):.3g}",
            "weight_bytes_per_part_and_round": 8 * (width + 1) * L,
            "row_bytes_per_round": sum(count.row_bytes // r for r, _, count in answers),
            "look_seconds_per_round": round(
                sum(c.seconds["scan"] / (r + 1) + c.seconds["send"] / r for r, _, c in answers), 4
            ),
            "solve_seconds_per_round": round(sum(c.seconds["solve"] / r for r, _, c in answers), 4),
        }


def rcv1(labels: int) -> tuple[Any, np.ndarray]:
    """Rows of length one and the signs of some of the labels, 0 for all."""
    data = _data.load("rcv1-subsets", split="all")
    X = sp.csr_array(normalize(data.X.astype(np.float64)))
    Y = data.Y.toarray() if sp.issparse(data.Y) else np.asarray(data.Y)
    Y = Y[:, (Y.sum(axis=0) > 0) & (Y.sum(axis=0) < len(Y))]
    step = max(1, Y.shape[1] // labels) if labels else 1
    return X, np.where(Y[:, ::step] > 0, 1, -1).astype(np.int8)


def generated(n: int, labels: int, block: int = 50_000) -> tuple[Any, np.ndarray]:
    """Rows of length one with columns as frequent as words are; noisy linear labels, frequent to rare."""
    weights = np.random.default_rng(10**6).normal(size=(FEATURES, labels))
    rates = np.geomspace(FREQUENT, RARE, labels)[np.random.default_rng(0).permutation(labels)]
    blocks, signs = [], []
    for number, first in enumerate(range(0, n, block)):
        rng, m = np.random.default_rng(number), min(block, n - first)
        columns = (FEATURES ** rng.random((m, NONZEROS))).astype(np.int32) - 1
        ends = np.arange(m + 1, dtype=np.int32) * NONZEROS
        X = sp.csr_array((np.ones(m * NONZEROS), columns.ravel(), ends), shape=(m, FEATURES))
        X.sum_duplicates()
        blocks.append(sp.csr_array(normalize(X)))
        F = blocks[-1] @ weights
        F += NOISE * F.std() * rng.normal(size=F.shape)
        if not number:
            cuts = np.array([np.quantile(f, 1.0 - rate) for f, rate in zip(F.T, rates, strict=True)])
        signs.append(np.where(cuts < F, 1, -1).astype(np.int8))
    return sp.vstack(blocks, format="csr"), np.vstack(signs)


def in_processes(game: Game, budget: int, n_processes: int, seconds: float | None) -> dict[str, Any]:
    """Play neighbouring groups of labels in processes, which have the rows in common."""
    groups = label_groups(game.signs.shape[1], None, len(game.places))
    shares = [groups[k.start : k.stop] for k in label_groups(len(groups), None, n_processes)]
    n_threads = max(n_processes // len(shares), 1)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def work(share: list[slice]) -> None:
        answers.put(game.play(share, budget, seconds, n_threads))

    processes = [context.Process(target=work, args=(share,)) for share in shares]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return game.row(budget, found)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--labels", type=int, default=0, help="so many of the labels, 0 for all")
    parser.add_argument("--parts", type=int, nargs="+", default=[2] if SMALL else [2, 8, 32, 256])
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0, 2.0])
    parser.add_argument("--rows", type=int, nargs="+", help="rows of a solve, whatever the parts")
    parser.add_argument("--generated", type=int, help="so many rows that are made here")
    parser.add_argument("--processes", type=int, default=1, help="with generated rows")
    parser.add_argument("--seconds", type=float, help="after which a game is given up")
    chosen = parser.parse_args()
    if chosen.generated:
        name, (X, signs) = "cluster_rounds_generated", generated(chosen.generated, chosen.labels or 103)
        warm = Game(X[:FEW_ROWS], signs[:FEW_ROWS], 2)
        warm.play([slice(0, 2)], FEW_ROWS)  # compiles, before processes part
    else:
        name, (X, signs) = "cluster_rounds", rcv1(chosen.labels)
    if SMALL:
        X, signs = X[:2000], signs[:2000, :5]
    for n_parts in chosen.parts:
        game = Game(X, signs, n_parts)
        for budget in chosen.rows or [int(share * len(signs) / n_parts) for share in chosen.shares]:
            if chosen.generated:
                row = in_processes(game, budget, chosen.processes, chosen.seconds)
            else:
                groups = label_groups(signs.shape[1], None, n_parts)
                row = game.row(budget, [game.play(groups, budget, chosen.seconds)])
            show(row)
            write(name, [row], ("rows", "labels", "parts", "rows_of_a_solve"), conditions=load())


if __name__ == "__main__":
    main()

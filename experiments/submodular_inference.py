"""Figure 2: quality of the paper's inference while training on yeast.

    python -m experiments.submodular_inference                # 100 iterations, about 3 minutes
    python -m experiments.submodular_inference --iterations 5

At every iterate of the bundle method the sets of all samples are computed four ways: by enumeration of the
2^14 sets, by Algorithm 2 (largest maximisers), with Algorithm 3's certificate, and exactly. Columns per
iteration: how often Algorithm 2 is optimal (paper: more than 50 %), how often Algorithm 3 proves it, how
often the exact search ends at its root and agrees with enumeration, and the relative error of Algorithm 2
in the objective (paper: below 4 % after the first iterations). A second run trains with Algorithm 2 for at
most `SECONDS` CPU seconds and reports the true objective, beside the example F1 on the training part of one
set for all samples. Results: results/submodular_inference.csv and .png,
results/submodular_inexact_training.csv.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from experiments import _data
from experiments._races import CpuClock
from experiments._results import RESULTS, SMALL, command_line, write
from experiments.submodular_f1 import constant_set
from maxmargin import SubmodularSVC
from maxmargin.core.loop import Clock
from maxmargin.core.rows import Rows
from maxmargin.metrics import example_f1
from maxmargin.submodular.bundle import Bundle
from maxmargin.submodular.problem import SubmodularF1, attractive_pairs, fixed_points, weighted_graph

C, SECONDS = 1.0, 120.0


class Enumeration:
    """max_y h(y) over all sets, for all samples at once, in chunks of samples."""

    def __init__(self, truth: np.ndarray, pairs: np.ndarray) -> None:
        self.sets = np.array(list(itertools.product((0, 1), repeat=truth.shape[1])), dtype=np.float64)
        self.joints = self.sets[:, pairs[:, 0]] * self.sets[:, pairs[:, 1]]
        self.truth = truth.astype(np.float64)

    def best(self, scores: np.ndarray, weight: np.ndarray) -> np.ndarray:
        both = self.joints @ weight
        sizes = self.sets.sum(axis=1)
        values = np.empty(len(scores))
        for start in range(0, len(scores), 100):
            part = slice(start, start + 100)
            total = sizes + self.truth[part].sum(axis=1)[:, None]
            loss = np.where(total > 0, 1 - 2 * (self.truth[part] @ self.sets.T) / np.maximum(total, 1), 0.0)
            values[part] = (scores[part] @ self.sets.T + both + loss).max(axis=1)
        return values


def watch(iterations: int, n_samples: int | None) -> list[dict]:
    data = _data.load("yeast", split="train")
    X, truth = data.X[:n_samples], np.ascontiguousarray(data.Y[:n_samples]).astype(np.uint8)
    pairs = attractive_pairs(truth, 0.5, 1.0)
    problem = SubmodularF1(
        Rows.of(np.ascontiguousarray(X, dtype=np.float64)), truth, np.full(len(X), C), pairs
    )
    reference = Enumeration(truth, pairs.index)
    method = Bundle(problem, line_search=False)
    i, j = pairs.index.T
    rows = []
    for iteration in range(1, iterations + 1):
        theta = method.theta
        Z, t = problem.split(theta)
        scores, weight = problem.scores(Z), pairs.strength * t
        at_truth = np.sum(scores * truth, axis=1) + (truth[:, i] & truth[:, j]) @ weight
        best = reference.best(scores, weight)
        found = fixed_points(scores, truth, weighted_graph(truth.shape[1], pairs.index, weight))
        exact = problem.infer(theta)
        true_objective = 0.5 * theta @ theta + C * np.sum(best - at_truth)
        believed = 0.5 * theta @ theta + C * np.sum(found.values - at_truth)
        rows.append(
            {
                "iteration": iteration,
                "algorithm_2_optimal": float(np.mean(found.values >= best - 1e-8)),
                "algorithm_3_proves": float(np.mean(found.proven)),
                "below_the_truth": float(np.mean(found.values < at_truth - 1e-9)),
                "exact_at_root": float(np.mean(exact.nodes == 1)),
                "exact_agrees": float(np.mean(np.abs(exact.slack + at_truth - best) <= 1e-7)),
                "objective_error": float((true_objective - believed) / true_objective),
            }
        )
        method.epoch(Clock())
    return rows


def compare_training(n_samples: int | None) -> list[dict]:
    """The true objective of models trained with exact and with the paper's inference."""
    data = _data.load("yeast", split="train")
    X, Y = data.X[:n_samples], data.Y[:n_samples]
    constant = example_f1(Y, np.tile(constant_set(Y), (len(Y), 1)))
    empty = dict.fromkeys(("proven_objective", "lower_bound", "gap", "iterations"), "")
    rows: list[dict] = [{"inference": "constant set", **empty, "train_f1": constant}]
    for inference in ("exact", "fixed_point"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = SubmodularSVC(C=C, inference=inference, tol=1e-2, max_iter=400)
            model.set_callbacks(CpuClock(SECONDS)).fit(X, Y)
        rows.append(
            {
                "inference": inference,
                "proven_objective": model.primal_objective_,
                "lower_bound": model.dual_objective_,
                "gap": model.duality_gap_,
                "iterations": model.n_iter_,
                "train_f1": example_f1(Y, model.predict(X)),
            }
        )
    return rows


def plot(rows: list[dict]) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    at = [row["iteration"] for row in rows]
    for name in ("algorithm_2_optimal", "algorithm_3_proves", "exact_at_root"):
        left.plot(at, [100 * row[name] for row in rows], label=name.replace("_", " "))
    left.set(xlabel="iteration", ylabel="% of samples", ylim=(0, 102))
    left.legend()
    right.plot(at, [100 * row["objective_error"] for row in rows])
    right.set(xlabel="iteration", ylabel="objective underestimated by (%)")
    figure.tight_layout()
    figure.savefig(RESULTS / "submodular_inference.png", dpi=120)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--iterations", type=int, default=2 if SMALL else 100)
    parser.add_argument(
        "--samples", type=int, default=60 if SMALL else None, help="use the first samples only"
    )
    chosen = parser.parse_args()
    rows = watch(chosen.iterations, chosen.samples)
    write("submodular_inference", rows, ("iteration",))
    plot(rows)
    write("submodular_inexact_training", compare_training(chosen.samples), ("inference",))


if __name__ == "__main__":
    main()

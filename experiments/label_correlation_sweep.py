"""Two attributes of animals under a prior [1 r; r 1], r from -1 to 1, beside the best constant answer.

    python -m experiments.label_correlation_sweep
    python -m experiments.label_correlation_sweep --small

"black" and "weak" are weakly correlated in the 40 training classes of Animals with Attributes and exclude
each other in the ten test classes: the mean of y y' (labels in -1, +1) changes from 0.22 to -0.77 (paper:
0.2 and -0.76). Test Hamming loss of the two labels against r, mean and spread over draws of 200 training
images; figure 5 of the paper has about 25 % at r = 0 and less for negative r. RBF, gamma = 1 / median
squared distance, a bias; C by four folds of training classes at r = 0. For comparison: the loss of the
majority of the drawn labels, that of the best constant answer (in hindsight), the number of distinct
predictions, and the area under the ROC curve averaged over both labels (50 for a constant answer). Results:
results/label_correlation_sweep.csv and .png.
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import hamming_loss
from sklearn.model_selection import GroupKFold

from experiments import _data
from experiments._results import RESULTS, SMALL, command_line, spread_of, write
from experiments.zero_shot_awa import machine, macro_auc

NAMES = ("black", "weak")
GRID = (0.02, 0.2, 2.0)


def pair_prior(r: float) -> np.ndarray:
    return np.array([[1.0, r], [r, 1.0]])


def chosen_C(X: np.ndarray, Y: np.ndarray, classes: np.ndarray) -> float:
    """The C with the least Hamming loss on classes left out, for independent labels."""
    losses = dict.fromkeys(GRID, 0.0)
    for train, test in GroupKFold(4).split(X, Y, classes):
        for C in GRID:
            model = machine("rbf", C, pair_prior(0.0), X[train]).fit(X[train], Y[train])
            losses[C] += hamming_loss(Y[test], model.predict(X[test]))
    return min(losses, key=lambda C: losses[C])


def sweep(n_draws: int, n_images: int, steps: np.ndarray) -> list[dict]:
    """One row per r."""
    data = _data.load("awa1")
    pair = [data.label_names.index(name) for name in NAMES]
    Y = data.Y[:, pair]
    seen, unseen = (float(np.mean(np.prod(2.0 * Y[rows] - 1, axis=1))) for rows in (data.train, data.test))
    losses, distinct, auc = np.empty((3, len(steps), n_draws))
    majority = np.empty(n_draws)
    for draw in range(n_draws):
        rows = np.random.RandomState(draw).choice(data.train, n_images, replace=False)
        C = chosen_C(data.X[rows], Y[rows], data.per_row["class_index"][rows])
        majority[draw] = 100 * np.mean((Y[rows].mean(axis=0) > 0.5) != Y[data.test])
        for k, r in enumerate(steps):
            model = machine("rbf", C, pair_prior(r), data.X[rows]).fit(data.X[rows], Y[rows])
            scores = model.decision_function(data.X[data.test])
            answers = scores > 0
            auc[k, draw] = 100 * macro_auc(scores, Y[data.test])
            losses[k, draw] = 100 * hamming_loss(Y[data.test], answers)
            distinct[k, draw] = len(np.unique(answers, axis=0))
    constants = [100 * np.mean(np.array(c) != Y[data.test]) for c in ((0, 0), (0, 1), (1, 0), (1, 1))]
    return [
        {
            "r": float(r), "hamming_percent": float(losses[k].mean()),
            "spread": spread_of(losses[k]),
            "draws": n_draws, "distinct_answers": float(distinct[k].mean()),
            "majority_percent": float(majority.mean()), "best_constant_percent": float(min(constants)),
            "mean_product_seen": seen, "mean_product_unseen": unseen, "auc_percent": float(auc[k].mean()),
        }
        for k, r in enumerate(steps)
    ]  # fmt: skip


def plot(rows: list[dict]) -> None:
    """Draw the figure of the table."""
    import matplotlib.pyplot as plt

    r, loss = (np.array([row[k] for row in rows]) for k in ("r", "hamming_percent"))
    spread = np.array([row["spread"] or 0.0 for row in rows])
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(r, loss, label="M3L")
    axes.fill_between(r, loss - spread, loss + spread, alpha=0.2)
    for key, style in (("mean_product_seen", ":"), ("mean_product_unseen", "--")):
        axes.axvline(rows[0][key], linestyle=style, color="grey", label=key.replace("_", " "))
    for name, colour in (("majority", "tab:orange"), ("best_constant", "tab:red")):
        level = rows[0][f"{name}_percent"]
        axes.axhline(level, color=colour, linewidth=1, label=name.replace("_", " "))
    axes.set(xlabel="r in the prior [1 r; r 1]", ylabel="test Hamming loss (%)", title="black and weak")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / "label_correlation_sweep.png", dpi=150)


def main() -> None:
    command_line(__doc__).parse_args()
    rows = sweep(1, 80, np.linspace(-1, 1, 3)) if SMALL else sweep(10, 200, np.linspace(-1, 1, 21).round(2))
    write("label_correlation_sweep", rows, ("r",))
    plot(rows)


if __name__ == "__main__":
    main()

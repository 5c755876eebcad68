"""Two attributes of animals under a prior [1 r; r 1], r from -1 to 1.

    python -m experiments.label_correlation_sweep

"black" and "weak" are weakly correlated in the 40 training classes of Animals with Attributes and
strongly anti-correlated in the ten unseen ones. Test Hamming loss of the two labels on the unseen
classes against r, mean and spread over draws of 200 training images; the paper's figure 5 shows
about 25 % at r = 0 and less for negative r. RBF, gamma = 1 / median squared distance, no bias.
Results: results/label_correlation_sweep.csv and .png.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.metrics import hamming_loss

from experiments._results import RESULTS, write
from experiments.zero_shot_awa import machine
from maxmargin import datasets

NAMES = ("black", "weak")
C = 0.2


def sweep(n_draws: int, n_images: int, steps: np.ndarray) -> list[dict]:
    """One row per r."""
    data = datasets.load("awa1")
    pair = [data.label_names.index(name) for name in NAMES]
    Y = data.Y[:, pair]
    seen, unseen = (np.corrcoef(Y[rows].T)[0, 1] for rows in (data.train, data.test))
    losses = np.empty((len(steps), n_draws))
    for draw in range(n_draws):
        rows = np.random.RandomState(draw).choice(data.train, n_images, replace=False)
        for k, r in enumerate(steps):
            prior = np.array([[1.0, r], [r, 1.0]])
            model = machine("rbf", C, prior, data.X[rows]).fit(data.X[rows], Y[rows])
            losses[k, draw] = 100 * hamming_loss(Y[data.test], model.predict(data.X[data.test]))
    return [
        {
            "r": float(r), "hamming_percent": float(losses[k].mean()), "spread": float(losses[k].std()),
            "draws": n_draws, "C": C, "correlation_seen": float(seen), "correlation_unseen": float(unseen),
        }
        for k, r in enumerate(steps)
    ]  # fmt: skip


def plot(rows: list[dict]) -> None:
    """The picture beside the table."""
    import matplotlib.pyplot as plt

    r, loss, spread = (np.array([row[k] for row in rows]) for k in ("r", "hamming_percent", "spread"))
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(r, loss)
    axes.fill_between(r, loss - spread, loss + spread, alpha=0.2)
    for key, style in (("correlation_seen", ":"), ("correlation_unseen", "--")):
        axes.axvline(rows[0][key], linestyle=style, color="grey", label=key.replace("_", ", "))
    axes.set(xlabel="r in the prior [1 r; r 1]", ylabel="test Hamming loss (%)", title="black and weak")
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "label_correlation_sweep.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    if parser.parse_args().small:
        print(*sweep(1, 60, np.linspace(-1, 1, 3)), sep="\n")
        return
    rows = sweep(20, 200, np.linspace(-1, 1, 21).round(2))
    write("label_correlation_sweep", rows, ("r",))
    plot(rows)


if __name__ == "__main__":
    main()

"""Digits hidden in clutter: a latent SVM that finds them, beside the same model without latent variables.

A strip of 8 x 40 pixels contains one handwritten digit (scikit-learn's 8 x 8 digits) at an unknown position
among quarters of other digits. A bag has all 33 windows of 8 x 8 pixels. Training uses the class of the
strip and not the position.

Run it as ``python -m experiments.latent_digits [--small]``.

latent_digits.csv  accuracy, and share of strips whose digit is found to within one pixel, means and spreads
                   over `SEEDS` draws of digits, clutter and positions; "constant" is the most frequent class
latent_digits.png  test strips of the first draw with the window chosen by the model with the largest C
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from experiments._results import RESULTS, SMALL, command_line, load, show, spread_of, write
from maxmargin import LatentSVC

WIDTH, SIDE = 40, 8
STRENGTHS, SEEDS = ((0.1,), 1) if SMALL else ((0.1, 1.0, 10.0), 3)


def hide(digits: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Strips with one digit each among quarters of other digits, and the place of each digit."""
    n = len(digits)
    strips = np.empty((n, SIDE, WIDTH))
    for x in range(0, WIDTH, 4):
        for top in (0, 4):
            pieces = digits[rng.integers(n, size=n)]
            down, right = rng.integers(0, 5, (2, n))
            for i in range(n):
                strips[i, top : top + 4, x : x + 4] = pieces[
                    i, down[i] : down[i] + 4, right[i] : right[i] + 4
                ]
    places = rng.integers(0, WIDTH - SIDE + 1, n)
    for i, place in enumerate(places):
        strips[i, :, place : place + SIDE] = digits[i]
    return strips, places


def windows(strips: np.ndarray) -> np.ndarray:
    """All windows of every strip, scaled to length one: (strips, places, pixels)."""
    cut = np.lib.stride_tricks.sliding_window_view(strips, SIDE, axis=2)
    flat = cut.transpose(0, 2, 1, 3).reshape(len(strips), WIDTH - SIDE + 1, SIDE * SIDE)
    return flat / np.maximum(np.linalg.norm(flat, axis=2, keepdims=True), 1e-12)


class Strips(NamedTuple):
    """Strips of one draw, their windows, classes and the places of the digits."""

    pixels: np.ndarray
    bags: np.ndarray
    y: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, digits: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Strips:
        pixels, places = hide(digits, rng)
        return cls(pixels, windows(pixels), y, places)

    @property
    def known(self) -> np.ndarray:
        """The window of the digit."""
        return self.bags[np.arange(len(self.y)), self.places]

    @property
    def flat(self) -> np.ndarray:
        return self.pixels.reshape(len(self.y), -1) / 60


def drawn(seed: int) -> tuple[Strips, Strips]:
    """Training and test strips; every draw deals out digits, clutter and places anew."""
    digits, rng = load_digits(), np.random.default_rng(seed)
    parts = train_test_split(
        digits.images, digits.target, test_size=597, stratify=digits.target, random_state=seed
    )
    A, B, y, z = (part[:60] for part in parts) if SMALL else parts
    return Strips.of(A, y, rng), Strips.of(B, z, rng)


def measured(C: float, train: Strips, test: Strips, A: np.ndarray, B: np.ndarray, **options: Any) -> tuple:
    """What one model gives and takes, and the model."""
    start = time.process_time()
    model = LatentSVC(C=C, tol=1e-2, random_state=0, **options).fit(A, train.y)
    row = {
        "accuracy": model.score(B, test.y),
        "found within one pixel": np.nan,
        "objective": model.primal_objective_,
        "rounds": len(model.objectives_),
        "epochs": model.n_iter_,
        "cpu seconds": time.process_time() - start,
    }
    if B.ndim == 3:
        row["found within one pixel"] = float(np.mean(np.abs(model.predict_latent(B) - test.places) <= 1))
    return row, model


def main() -> None:
    command_line(__doc__).parse_args()
    found: dict[tuple[str, Any], list[dict[str, float]]] = {}
    for seed in range(SEEDS):
        train, test = drawn(seed)
        usual = np.bincount(train.y).argmax()
        found.setdefault(("constant", ""), []).append({"accuracy": float(np.mean(test.y == usual))})
        for C in STRENGTHS:
            ways = {
                "latent place, start from means": (train.bags, test.bags, {}),
                "latent place, three starts": (train.bags, test.bags, {"n_init": 3}),
                "mean of all windows": (train.bags.mean(1), test.bags.mean(1), {}),
                "whole strip": (train.flat, test.flat, {}),
                "place known": (train.known, test.known, {}),
            }
            for name, (A, B, options) in ways.items():
                row, model = measured(C, train, test, A, B, **options)
                found.setdefault((name, C), []).append(row)
                show({"seed": seed, "model": name, "C": C, **row})
                if seed == 0 and name == "latent place, start from means":
                    shown = model, test
    rows = []
    for (name, C), runs in found.items():
        row = {"model": name, "C": C, "draws": len(runs)}
        for key in runs[0]:
            values = [run[key] for run in runs]
            row[key] = "" if np.isnan(values).any() else float(np.mean(values))
            if key in ("accuracy", "found within one pixel"):
                row[f"{key.split()[0]} spread"] = "" if row[key] == "" else spread_of(values)
        rows.append(row)
    write("latent_digits", rows, ("model", "C"), conditions=load())
    model, test = shown
    draw(model, test, RESULTS / "latent_digits.png")


def draw(model: LatentSVC, test: Strips, path: Path, shown: int = 24) -> None:
    """Test strips with the chosen window: green where the class is right, red where it is wrong."""
    import matplotlib.pyplot as plt

    strips, bags, y, places = test
    predicted, found = model.predict(bags[:shown]), model.predict_latent(bags[:shown])
    figure, axes = plt.subplots(shown // 3, 3, figsize=(11, 0.55 * shown))
    for i, axis in enumerate(axes.flat):
        axis.imshow(strips[i], cmap="gray_r", interpolation="nearest")
        colour = "tab:green" if predicted[i] == y[i] else "tab:red"
        axis.add_patch(plt.Rectangle((found[i] - 0.5, -0.5), SIDE, SIDE, fill=False, ec=colour, lw=2.5))
        axis.set_title(f"{y[i]} at {places[i]}: said {predicted[i]} at {found[i]}", fontsize=8)
        axis.axis("off")
    figure.suptitle("Digits in clutter: the window chosen by LatentSVC, trained without places")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()

"""Digits hidden in clutter: a latent SVM that finds them, against the same model without latents.

Each strip of 8 x 40 pixels holds one handwritten digit (scikit-learn's 8 x 8 digits) at an unknown
place; the rest is clutter made of quarters of other digits. A bag is all 33 windows of 8 x 8
pixels. Only the class of the strip is known in training, never the place.

Run it as ``python -m experiments.latent_digits [--small]``.

latent_digits.csv  accuracy, and share of strips whose digit is found to within one pixel; "constant" is the
                   most frequent class
latent_digits.png  test strips with the window that the model chose
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from experiments._results import RESULTS, SMALL, command_line, load, write
from maxmargin import LatentSVC

WIDTH, SIDE = 40, 8
STRENGTHS = (0.1,) if SMALL else (0.1, 1.0, 10.0)


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


def main() -> None:
    command_line(__doc__).parse_args()
    state, rng = load(), np.random.default_rng(0)
    digits = load_digits()
    train_digits, test_digits, y_train, y_test = train_test_split(
        digits.images, digits.target, test_size=597, stratify=digits.target, random_state=0
    )
    if SMALL:
        train_digits, y_train, test_digits, y_test = (
            train_digits[:60],
            y_train[:60],
            test_digits[:60],
            y_test[:60],
        )
    (train, train_places), (test, test_places) = hide(train_digits, rng), hide(test_digits, rng)
    X_train, X_test = windows(train), windows(test)

    def at(X: np.ndarray, places: np.ndarray) -> np.ndarray:
        return X[np.arange(len(X)), places]

    constant = float(np.mean(y_test == np.bincount(y_train).argmax()))
    rows, best = [{"model": "constant", "C": "", "accuracy": constant}], (0.0, None)

    def record(name: str, C: float, A: np.ndarray, B: np.ndarray, **options) -> LatentSVC:
        start = time.perf_counter()
        model = LatentSVC(C=C, tol=1e-2, random_state=0, **options).fit(A, y_train)
        found = np.nan
        if B.ndim == 3:
            found = float(np.mean(np.abs(model.predict_latent(B) - test_places) <= 1))
        rows.append(
            {
                "model": name,
                "C": C,
                "accuracy": model.score(B, y_test),
                "found within one pixel": found,
                "objective": model.primal_objective_,
                "rounds": len(model.objectives_),
                "epochs": model.n_iter_,
                "seconds": time.perf_counter() - start,
            }
        )
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
        return model

    for C in STRENGTHS:
        model = record("latent place, start from means", C, X_train, X_test)
        if rows[-1]["accuracy"] > best[0]:
            best = rows[-1]["accuracy"], model
        record("latent place, three starts", C, X_train, X_test, n_init=3)
        record("mean of all windows", C, X_train.mean(1), X_test.mean(1))
        record("whole strip", C, train.reshape(len(train), -1) / 60, test.reshape(len(test), -1) / 60)
        record("place known", C, at(X_train, train_places), at(X_test, test_places))
    write("latent_digits", rows, ("model", "C"), conditions=state)
    draw(best[1], test, X_test, y_test, test_places, RESULTS / "latent_digits.png")


def draw(model: LatentSVC, strips, bags, y, places, path: Path, shown: int = 24) -> None:
    """Test strips with the chosen window: green where the class is right, red where it is wrong."""
    import matplotlib.pyplot as plt

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

"""Zero-shot attributes of animals: independent labels, a prior from the test classes, and constants.

    python -m experiments.zero_shot_awa                     # ten draws of 200 images, three of 1,000
    python -m experiments.zero_shot_awa all --device cuda   # all 24,295 (minutes on a GPU)
    python -m experiments.zero_shot_awa --small             # one draw of 80 images

Animals with Attributes: train on images of 40 classes, predict the 85 attributes of the 6,180 images of ten
other classes. The prior is `priors.from_categories` on the attributes of these ten classes with their
shares p(c) in the test part, as in the paper. RBF with gamma = 1 / median squared distance; a bias.

All parameters are chosen on the training classes of a draw: four folds of ten classes stand in for the test
classes, with their own prior. "paper" rows choose C by the Hamming loss, without and with a prior. The
other rows choose C, the shrinkage of the prior and balanced weights by the measure that they name, with and
without a prior. C goes from 0.0002 in steps of ten to 5,000 / images. With all images and a linear kernel,
settings are those chosen most often with 1,000 images. With 200 images there are "paper" rows without a
bias and with a uniform p(c). The C of the power set and the alpha of ridge regression are chosen in the
same folds by the Hamming loss, in steps of ten. Other columns: the share of images whose animal is
recognised (as by `predict_category`; chance is 10 %), the area under the ROC curve averaged over
attributes, the number of distinct predictions, and the largest duality gap of the models. The power set,
one SVC over all classes, is left out beyond 5,000 images, where LIBSVM takes too long. Results:
zero_shot_awa.csv in experiments/results, or in MAXMARGIN_RESULTS.
"""

from __future__ import annotations

import csv
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GroupKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from experiments import _data
from experiments._results import KEPT, SMALL, command_line, one_of, several_of, spread_of, write
from maxmargin import MultiLabelSVC, priors

KEY = ("images", "kernel", "method", "chosen_by")
MEASURES = ("hamming", "class accuracy", "auc")
PAPER = {
    ("200", "one-vs-all"): 29.38, ("200", "m3l"): 26.35, ("all", "one-vs-all"): 28.64,
    ("200", "5-nn"): 31.79, ("200", "power set"): 32.70, ("200", "ridge"): 29.38,
}  # fmt: skip


class Setting(NamedTuple):
    """C, the shrinkage of the prior towards independent labels (1: no prior), class weights and bias.

    `uniform`: the prior assumes uniform frequencies of the test classes.
    """

    C: float
    shrinkage: float
    class_weight: str | None
    bias: bool = True
    uniform: bool = False


COSTS = (0.02, 0.2) if SMALL else (0.0002, 0.002, 0.02, 0.2, 2.0, 20.0)
# Without a bias, and with a uniform p(c): shrinkage, bias, uniform.
VARIANTS = {
    ("one-vs-all", "paper, no bias"): (1.0, False, False),
    ("m3l", "paper, no bias"): (0.0, False, False),
    ("m3l", "paper, uniform p(c)"): (0.0, True, True),
}


def grid(n: int) -> list[Setting]:
    """What is tried with n images."""
    return [
        Setting(C, shrinkage, weight)
        for C in COSTS
        if C * n <= 5000
        for shrinkage in (0.0, 0.5, 1.0)
        for weight in (None, "balanced")
    ]


class Classes(NamedTuple):
    """The classes to recognise: their signatures and shares."""

    signatures: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, signatures: np.ndarray, index: np.ndarray) -> Classes:
        found, counts = np.unique(index, return_counts=True)
        return cls(signatures[found], counts / counts.sum())

    @property
    def signs(self) -> np.ndarray:
        return 2.0 * self.signatures - 1

    def prior(self, setting: Setting) -> np.ndarray | None:
        if setting.shrinkage == 1.0:
            return None
        weights = None if setting.uniform else self.shares
        return priors.from_categories(self.signatures, weights=weights, shrinkage=setting.shrinkage)


class Images(NamedTuple):
    """Some images: features, attributes, and classes."""

    X: np.ndarray
    Y: np.ndarray
    index: np.ndarray

    def at(self, rows: np.ndarray) -> Images:
        return Images(self.X[rows], self.Y[rows], self.index[rows])


def median_gamma(X: np.ndarray) -> float:
    """1 / median squared distance of (at most 1,000) samples."""
    distances = euclidean_distances(X[:1000], squared=True)
    return float(1 / np.median(distances[np.triu_indices_from(distances, 1)]))


def machine(kernel: str, C: float, prior: np.ndarray | None, X: np.ndarray, **more: Any) -> MultiLabelSVC:
    """The model of one cell of the table; on a GPU, a linear kernel is that of degree one."""
    given = {"kernel": kernel, "gamma": median_gamma(X)}
    if kernel == "linear" and more.get("device", "cpu") != "cpu":
        given = {"kernel": "poly", "degree": 1, "gamma": 1.0, "coef0": 0.0}
    return MultiLabelSVC(C, prior=prior, cache_size=1200, random_state=0, **given, **more)


def macro_auc(scores: np.ndarray, Y: np.ndarray) -> float:
    """Area under the ROC curve, the mean over the labels with both sides."""
    on = Y.sum(axis=0)
    off = len(Y) - on
    both = (on > 0) & (off > 0)
    ranks = (rankdata(scores[:, both], axis=0) * Y[:, both]).sum(axis=0)
    return float(np.mean((ranks - on[both] * (on[both] + 1) / 2) / (on[both] * off[both])))


def measured(scores: np.ndarray, Y: np.ndarray, index: np.ndarray, classes: Classes) -> dict[str, float]:
    """Return all measures of the scores of some images; `index` is their row in `classes`."""
    answers = scores > 0
    return {
        "hamming": 100 * float(np.mean(answers != Y)),
        "class accuracy": 100 * float(np.mean(np.argmax(scores @ classes.signs.T, axis=1) == index)),
        "auc": 100 * macro_auc(scores, Y),
        "distinct": float(len(np.unique(answers, axis=0))),
    }  # fmt: skip


class Fits(NamedTuple):
    """How models of one kernel are fitted and measured."""

    kernel: str
    device: str

    def measured(self, setting: Setting, seen: Images, told: Images, aim: Classes) -> dict[str, float]:
        """All measures of one setting, and the gap of its model."""
        model = machine(
            self.kernel, setting.C, aim.prior(setting), seen.X, fit_intercept=setting.bias,
            class_weight=setting.class_weight, device=self.device, max_iter=200,
        )  # fmt: skip
        with warnings.catch_warnings():  # the gap is in the table
            warnings.simplefilter("ignore", UserWarning)
            model.fit(seen.X, seen.Y)
        place = np.searchsorted(np.unique(told.index), told.index)
        found = measured(model.decision_function(told.X), told.Y, place, aim)
        return {**found, "gap": float(model.duality_gap_)}

    def validated(
        self, seen: Images, signatures: np.ndarray, settings: list[Setting]
    ) -> dict[Setting, dict[str, float]]:
        """Every setting, by the mean of its measures over folds of classes."""
        sums = {s: dict.fromkeys(MEASURES, 0.0) for s in settings}
        for train, test in GroupKFold(4).split(seen.X, seen.Y, seen.index):
            aim = Classes.of(signatures, seen.index[test])
            for setting in settings:
                found = self.measured(setting, seen.at(train), seen.at(test), aim)
                for name in MEASURES:
                    sums[setting][name] += found[name] / 4
        return sums


def choices(found: dict[Setting, dict[str, float]]) -> Iterator[tuple[str, str, Setting]]:
    """Method, criterion of its choice, and setting."""

    def best(measure: str, allowed: Callable[[Setting], bool]) -> Setting:
        sign = 1 if measure == "hamming" else -1
        return min(filter(allowed, found), key=lambda s: sign * found[s][measure])

    yield "one-vs-all", "paper", best("hamming", lambda s: s.shrinkage == 1 and s.class_weight is None)
    yield "m3l", "paper", best("hamming", lambda s: s.shrinkage == 0 and s.class_weight is None)
    for measure in MEASURES:
        yield "one-vs-all", measure, best(measure, lambda s: s.shrinkage == 1)
        yield "m3l", measure, best(measure, lambda s: s.shrinkage < 1)


def variants(fits: Fits, seen: Images, signatures: np.ndarray) -> Iterator[tuple[str, str, Setting]]:
    """The settings of `VARIANTS`, each with the C of the lowest Hamming loss."""
    for (method, by), (shrinkage, bias, uniform) in VARIANTS.items():
        found = fits.validated(seen, signatures, [Setting(C, shrinkage, None, bias, uniform) for C in COSTS])
        yield method, by, min(found, key=lambda s: found[s]["hamming"])


def lowest(make: Callable[[float], Any], values: Sequence[float], seen: Images) -> Any:
    """The answer of `make` with the value of the lowest Hamming loss over folds of classes."""
    losses = dict.fromkeys(values, 0.0)
    for train, test in GroupKFold(4).split(seen.X, seen.Y, seen.index):
        for value in values:
            scores = make(value)(seen.at(train), seen.X[test])
            losses[value] += float(np.mean((scores > 0) != seen.Y[test]))
    return make(min(values, key=losses.__getitem__))


def power_set(C: float) -> Callable[[Images, np.ndarray], np.ndarray]:
    """One SVC over all combinations of labels."""

    def scores(seen: Images, X: np.ndarray) -> np.ndarray:
        combinations, codes = np.unique(seen.Y, axis=0, return_inverse=True)
        model = SVC(C=C, gamma=median_gamma(seen.X)).fit(seen.X, codes.ravel())
        return combinations[model.predict(X)] - 0.5

    return scores


def ridge(alpha: float) -> Callable[[Images, np.ndarray], np.ndarray]:
    return lambda seen, X: Ridge(alpha=alpha).fit(seen.X, 2.0 * seen.Y - 1).predict(X)


def other_methods(seen: Images, told: Images, aim: Classes) -> dict[str, np.ndarray]:
    """Scores of answers that learn nothing and of the paper's other methods; few images for the power set."""
    X, Y = seen.X, seen.Y
    n = len(told.X)
    nearest = KNeighborsClassifier(5).fit(X, Y).kneighbors(told.X, return_distance=False)
    found = {
        "constant: majority of the training labels": np.tile(Y.mean(axis=0) - 0.5, (n, 1)),
        "constant: prior alone": np.tile(aim.shares @ aim.signs, (n, 1)),
        "constant: prior alone, uniform p(c)": np.tile(aim.signs.mean(axis=0), (n, 1)),
        "5-nn": Y[nearest].mean(axis=1) - 0.5,
        "ridge": lowest(ridge, [10.0**k for k in range(-2, 5)], seen)(seen, told.X),
    }
    if len(X) <= 5000:
        found["power set"] = lowest(power_set, [10.0**k for k in range(-1, 4)], seen)(seen, told.X)
    return found


def table(images: str, n_draws: int, kernels: tuple[str, ...], device: str) -> None:
    """Mean and spread of all measures over the draws, written after each; kernel "" is all other methods."""
    data = _data.load("awa1")
    signatures, every = data.extras["signatures"], Images(data.X, data.Y, data.per_row["class_index"])
    told = every.at(data.test)
    aim = Classes.of(signatures, told.index)
    place = np.searchsorted(np.unique(told.index), told.index)
    cells: dict[tuple, list[tuple[dict[str, float], Any]]] = {}
    for draw in range(n_draws):
        rng = np.random.RandomState(draw)
        rows = data.train if images == "all" else rng.choice(data.train, int(images), replace=False)
        seen = every.at(rows)
        for kernel in kernels:
            if not kernel:
                for name, scores in other_methods(seen, told, aim).items():
                    cells.setdefault(("", name, ""), []).append((measured(scores, told.Y, place, aim), None))
                continue
            fits = Fits("rbf" if kernel == "variants" else kernel, device)
            if images == "all" and kernel == "linear":
                chosen = chosen_most_often("1000", kernel)
            elif kernel == "variants":
                chosen = list(variants(fits, seen, signatures))
            else:
                chosen = list(choices(fits.validated(seen, signatures, grid(len(seen.X)))))
            done: dict[Setting, dict[str, float]] = {}
            for method, by, setting in chosen:
                if setting not in done:
                    done[setting] = fits.measured(setting, seen, told, aim)
                cells.setdefault((fits.kernel, method, by), []).append((done[setting], setting))
        lines = [row(images, *cell, values) for cell, values in cells.items()]
        write("zero_shot_awa", lines, KEY, conditions="" if device == "cpu" else gpu())


def row(images: str, kernel: str, method: str, by: str, values: list[tuple[dict[str, float], Any]]) -> dict:
    """One line of the table."""
    settings = Counter(setting for _, setting in values if setting is not None)
    often = settings.most_common(1)[0][0] if settings else None

    reported = by in ("", "paper") and kernel != "linear"

    def over(name: str) -> float:
        return round(float(np.mean([value[name] for value, _ in values])), 2)

    def spread(name: str) -> float | str:
        found = spread_of([value[name] for value, _ in values])
        return found if isinstance(found, str) else round(found, 2)

    return {
        "images": images, "kernel": kernel, "method": method, "chosen_by": by, "draws": len(values),
        "hamming_percent": over("hamming"), "hamming_spread": spread("hamming"),
        "class_accuracy_percent": over("class accuracy"),
        "class_accuracy_spread": spread("class accuracy"),
        "auc_percent": over("auc"), "auc_spread": spread("auc"),
        "distinct_answers": round(over("distinct")),
        "largest_gap": max(value["gap"] for value, _ in values) if settings else "",
        "most_often_C": often.C if often else "", "most_often_shrinkage": often.shrinkage if often else "",
        "most_often_weights": (often.class_weight or "equal") if often else "",
        "paper_hamming_percent": PAPER.get((images, method), "") if reported else "",
    }  # fmt: skip


def chosen_most_often(images: str, kernel: str) -> list[tuple[str, str, Setting]]:
    """The settings of another number of images, from the table that is kept."""
    with (KEPT / "zero_shot_awa.csv").open(newline="") as file:
        lines = [
            line for line in csv.DictReader(file) if (line["images"], line["kernel"]) == (images, kernel)
        ]
    return [
        (line["method"], line["chosen_by"], Setting(
            float(line["most_often_C"]), float(line["most_often_shrinkage"]),
            None if line["most_often_weights"] == "equal" else line["most_often_weights"],
        ))
        for line in lines
    ]  # fmt: skip


def gpu() -> str:
    """The name of the GPU."""
    import torch

    return torch.cuda.get_device_name()


def main() -> None:
    parser = command_line(__doc__)
    kernels = ["other", "rbf", "linear", "variants"]
    parser.add_argument("images", nargs="*", type=one_of(["200", "1000", "all"]), help="200, 1000 or all")
    parser.add_argument(
        "--kernels",
        type=several_of(kernels),
        default=kernels,
        help="other: all methods but SVMs; variants: rbf without bias, and with a uniform p(c)",
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = parser.parse_args()
    for images in options.images or (["80"] if options.small else ["200", "1000"]):
        for kernel in ["other", "rbf", "variants"] if options.small else options.kernels:
            if kernel == "variants" and images not in ("80", "200"):
                continue
            draws = {"80": 1, "200": 10, "1000": 3, "all": 1}[images]
            table(images, draws, ("" if kernel == "other" else kernel,), options.device)


if __name__ == "__main__":
    main()

"""Race of kernel multi-label learning: Animals with Attributes, RBF, 85 attributes.

race      2,000 and 5,000 images, all peers
prior     1,000 and 2,000 images with a prior of rank ten, both solvers
growth    time against images and labels
all       24,295 images: time and peak memory, one thread and two

Every measurement is a fresh process with one BLAS thread, so that its peak memory is its own; the
competitors take turns. A first fit on 100 images compiles and is reported as "first_seconds". C = 1 and
gamma="scale". `gap` is the relative duality gap (P - D) / P summed over labels, recomputed in float64 from
the coefficients of the competitor; ours stop at a certified 1e-3. SVC runs with its default tol (1e-3) and
with tol=0.02, which gives about the same gap. Results: kernel_multilabel.csv (median of the
repeats; a competitor whose first fit takes more than a minute is not repeated) and
kernel_multilabel_growth.png.

`benchmarks/tried/multilabel.md` lists what was tried.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers import libsvm_official, nothing, ours, svc
from benchmarks.race import Competitor, Panel, Row, Setting, lines, machine, plot, race, save
from maxmargin import datasets, priors

REPEATS = 3
THREADS = {1: "one thread", 2: "two threads"}
TOO_LONG = 60  # seconds after which a competitor is not repeated
KEY = ("images", "labels", "method")


@dataclass(frozen=True)
class Problem:
    """Images, attributes, and a prior on attributes."""

    X: np.ndarray
    Y: np.ndarray
    R: np.ndarray
    C: float = 1.0

    @property
    def gamma(self) -> float:
        """The value of gamma="scale"."""
        return 1 / (self.X.shape[1] * self.X.var())

    def part(self, n: int) -> Problem:
        return replace(self, X=self.X[:n], Y=self.Y[:n])

    def gap(self, A: np.ndarray, intercept: np.ndarray, offset: float) -> float:
        """Relative gap of signed coefficients A (samples x labels) with kernel rbf + offset."""
        from maxmargin.core.kernel_matrix import KernelMatrix
        from maxmargin.core.kernels import Kernel

        F = KernelMatrix(Kernel.of(self.X, "rbf", offset=offset), self.X, 0, np.float64).times(A)
        signs = 2.0 * self.Y - 1
        norm = 0.5 * np.sum(A * F)
        primal = norm + self.C * np.maximum(0, 1 - signs * (F + intercept)).sum()
        return float((primal - (np.abs(A).sum() - norm)) / primal)


def animals(n_images: int, n_labels: int) -> Problem:
    """Images of the seen classes, and the prior of the ten unseen ones."""
    data = datasets.load("awa1")
    rows = np.random.RandomState(0).permutation(data.train)[:n_images]
    signatures = data.extras["signatures"][data.extras["test_classes"]][:, :n_labels]
    return Problem(data.X[rows], data.Y[rows][:, :n_labels], priors.from_categories(signatures))


def toy(n_images: int, n_labels: int) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_images, 6))
    Y = (X @ rng.normal(size=(6, n_labels)) + rng.normal(size=(n_images, n_labels)) > 0).astype(int)
    return Problem(X, Y, priors.from_labels(Y))


@dataclass(frozen=True)
class Entry:
    """Functions that fit and read the coefficients; None for a gap that our estimators certify."""

    fit: Callable[[Problem], Any]
    coefficients: Callable[[Problem, Any], tuple[np.ndarray, np.ndarray, float]] | None
    needs: tuple[str, ...] = ()
    cores: int = 1

    def warm(self, problem: Problem) -> None:
        self.fit(problem.part(100))

    def judge(self, problem: Problem, model: Any) -> float:
        return (
            model.duality_gap_
            if self.coefficients is None
            else problem.gap(*self.coefficients(problem, model))
        )


ENTRIES = {
    "null": Entry(nothing.fit_kernel, nothing.kernel_coefficients),
    "maxmargin auto": Entry(ours.fit_kernel, ours.kernel_coefficients),
    "maxmargin smo": Entry(partial(ours.fit_kernel, solver="smo"), ours.kernel_coefficients),
    "sklearn SVC": Entry(svc.fit_kernel, svc.kernel_coefficients),
    "sklearn SVC tol=0.02": Entry(partial(svc.fit_kernel, tol=0.02), svc.kernel_coefficients),
    "sklearn SVC shared kernel": Entry(partial(svc.fit_kernel, shared=True), svc.kernel_coefficients),
    "libsvm-official": Entry(
        libsvm_official.fit_kernel, libsvm_official.kernel_coefficients, libsvm_official.NEEDS
    ),
}
TIED = {
    "maxmargin auto, prior": Entry(partial(ours.fit_kernel, tied=True), None),
    "maxmargin smo, prior": Entry(partial(ours.fit_kernel, solver="smo", tied=True), None),
}


def at_sizes(
    entries: dict[str, Entry], sizes: Sequence[tuple[int, int]], repeats: int, setting: Setting
) -> list[Row]:
    """Write the medians of all entries at each size, and leave the other rows of the file."""
    rows: list[Row] = []
    for n_images, n_labels in [(300, 8)] if setting.small else sizes:
        prepare = partial(toy if setting.small else animals, n_images, n_labels)
        competitors = [
            Competitor(name, entry.fit, entry.warm, prepare, entry.judge, entry.needs, entry.cores)
            for name, entry in entries.items()
        ]
        results = race(competitors, repeats, fresh=True, too_long=TOO_LONG)
        auto = next((r.seconds for name, r in results.items() if name.startswith("maxmargin auto")), None)
        for name, result in results.items():
            rows.append(
                {
                    "images": n_images,
                    "labels": n_labels,
                    "method": name,
                    "repeats": len(result.runs),
                    "seconds": f"{result.seconds:.4g}",
                    "first_seconds": f"{statistics.median(run.warm_seconds for run in result.runs):.4g}",
                    "gap": f"{statistics.median(run.answer for run in result.runs):.4g}",
                    "peak_mib": f"{statistics.median(run.process_mib for run in result.runs):.4g}",
                    "times_auto": "" if auto is None else f"{result.seconds / auto:.4g}",
                    "machine": f"{machine()}, {THREADS[entries[name].cores]}",
                }
            )
    save(setting, "kernel_multilabel", rows, KEY)
    return rows


def peers(setting: Setting) -> None:
    for n_images in (2000,) if setting.small else (2000, 5000):
        at_sizes(ENTRIES, [(n_images, 85)], setting.times(REPEATS), setting)


def prior(setting: Setting) -> None:
    at_sizes(TIED, [(1000, 85), (2000, 85)], setting.times(REPEATS), setting)


def growth(setting: Setting) -> None:
    sizes = [(n, 85) for n in (500, 1000, 2000, 4000)] + [(2000, L) for L in (5, 10, 20, 40)]
    entries = {name: ENTRIES[name] for name in ("maxmargin auto", "maxmargin smo", "sklearn SVC")}
    rows = at_sizes(entries, sizes, setting.times(REPEATS), setting)
    against = [("images", {"labels": 85}), ("labels", {"images": 2000})]
    panels = [
        Panel(key, "seconds", lines(rows, key, "seconds", "method", **fixed), f"{fixed}")
        for key, fixed in against
    ]
    plot(setting, "kernel_multilabel_growth", [panels])


def everything(setting: Setting) -> None:
    two = Entry(partial(ours.fit_kernel, n_jobs=2), ours.kernel_coefficients, cores=2)
    entries = {"maxmargin auto": ENTRIES["maxmargin auto"], "maxmargin auto, two threads": two}
    at_sizes(entries, [(24_295, 85)], 1, setting)


RACES = {"race": peers, "prior": prior, "growth": growth, "all": everything}

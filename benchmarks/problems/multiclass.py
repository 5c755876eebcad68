"""Races of `MultiClassSVC` at equal quality, one thread each.

letter, reuters-r52, 20newsgroups, mnist    a data set each: letter (/ 15), tf-idf, tf-idf, pixels / 255
rbf                                         letter with an RBF kernel, beside SVC
growth                                      generated data of growing size: rows of 100 dense features, and
                                            sparse rows with many classes

No intercept, lambda = 0.1, 0.01, 0.001, with C = 1 / (lambda n). A run counts if its certified relative gap
is at most 1e-3: (P - D) / P <= 1e-3 with its own dual objective D, which LIBLINEAR prints. Peers are tried at
finely spaced tolerances from loose to tight, and the first that reaches the gap is timed: the median of three
runs. Rows named "by objective" only require P within 1e-3 of the best known dual bound, which a user of the
peer cannot check. One-vs-rest solves another objective and is shown for information. Results:
multiclass.csv, multiclass_growth.csv and multiclass_growth.png.

No peer has these objectives with a kernel: `rbf` fits both losses to a certified gap of 1e-3 beside SVC,
which solves one small problem per pair of classes to its default tolerance. Default C and gamma, raw and
scaled columns. Results: multiclass_rbf.csv.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfTransformer

from benchmarks.peers import liblinear_official, linearsvc, nothing, ours, svc
from benchmarks.problems.defaults import Table, multiclass_table, toy
from benchmarks.race import Competitor, Panel, Row, Setting, lines, loosest, plot, race, save
from maxmargin import MultiClassSVC, datasets

GAP = 1e-3
LAMBDAS = (0.1, 0.01, 0.001)
TOLERANCES = (
    1.0, 0.7, 0.5, 0.4, 0.3, 0.25, 0.2, 0.17, 0.15, 0.12, 0.1, 0.09, 0.08, 0.07, 0.06, 0.05, 0.03, 0.01,
    0.001,
)  # fmt: skip
REPEATS = 3
KEY = ("data", "lambda", "competitor")
Fit = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Problem:
    name: str
    X: Any
    y: np.ndarray
    C: float = 1.0

    def primal(self, W: np.ndarray) -> float:
        """Crammer and Singer's objective in float64."""
        total = 0.5 * float(np.sum(np.square(W, dtype=np.float64)))
        for start in range(0, len(self.y), 20_000):
            rows = slice(start, start + 20_000)
            scores = np.asarray(self.X[rows] @ W.T.astype(np.float64))
            truth = scores[np.arange(len(scores)), self.y[rows]].copy()
            scores += 1.0
            scores[np.arange(len(scores)), self.y[rows]] -= 1.0
            total += self.C * float((scores.max(axis=1) - truth).sum())
        return total

    def part(self, n: int) -> Problem:
        """So many samples drawn at random, for a first small run."""
        some = np.random.default_rng(0).permutation(len(self.y))[:n]
        return replace(self, X=self.X[some], y=np.unique(self.y[some], return_inverse=True)[1])

    def best_dual(self) -> float:
        model = MultiClassSVC(C=self.C, fit_intercept=False, tol=1e-5, max_iter=5000, random_state=0)
        return model.fit(self.X, self.y).dual_objective_


def real(name: str) -> Problem:
    data = datasets.load(name, split="train")
    y = np.unique(data.Y, return_inverse=True)[1]
    X = data.X
    if sp.issparse(X):
        X = TfidfTransformer().fit_transform(sp.csr_matrix(X, dtype=np.float64))
        X.sum_duplicates()
    else:
        X = np.ascontiguousarray(X, dtype=np.float64) / {"mnist": 255.0, "letter": 15.0}[name]
    return Problem(name, X, y)


def dense(n: int, seed: int = 0) -> Problem:
    """Ten overlapping clouds in 100 dimensions, float32."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10, 100)).astype(np.float32)
    y = rng.integers(0, 10, n)
    X = rng.standard_normal((n, 100), dtype=np.float32)
    X += centres[y]
    return Problem(f"dense-{n}", X / 10, y)


def sparse(classes: int, n: int = 20_000, d: int = 20_000, seed: int = 0) -> Problem:
    """Sixty words a row, a third of them typical of the class."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    typical = rng.integers(0, d, (classes, 40))
    own = typical[y[:, None], rng.integers(0, 40, (n, 20))]
    columns = np.hstack([own, rng.integers(0, d, (n, 40))])
    X = sp.csr_matrix((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 60)), (n, d))
    X.sum_duplicates()
    return Problem(f"sparse-{classes}", TfidfTransformer().fit_transform(X), y)


@dataclass(frozen=True)
class Entry:
    """Function that fits, tolerances to try, and the criterion of a run.

    `judge` is "gap" (its own), "objective" (distance to the best bound known) or "none".
    """

    fit: Fit
    tolerances: tuple[float, ...]
    judge: str = "none"
    needs: tuple[str, ...] = ()

    def trial(self, name: str, problem: Problem, bound: float, tol: float) -> Competitor:
        """A run that answers with the distance to the bound and the peer's own gap."""

        def judged(found: tuple[np.ndarray, float]) -> tuple[float, float]:
            P = problem.primal(found[0])
            return (P - bound) / P, (P - found[1]) / P

        run = partial(with_dual, self.fit) if self.judge == "gap" else partial(without_dual, self.fit)
        return Competitor(name, partial(run, problem, tol), judge=judged, needs=self.needs)

    def good(self, answer: tuple[float, float]) -> bool:
        return {"gap": answer[1], "objective": answer[0], "none": 0.0}[self.judge] <= GAP


def with_dual(fit: Fit, problem: Problem, tol: float) -> tuple[np.ndarray, float]:
    """Weights of a LIBLINEAR run and the dual objective that it prints, with its sign turned."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile("w+") as printed:
        os.dup2(printed.fileno(), 1)
        try:
            W = fit(problem, tol, verbose=True)
            ctypes.CDLL(None).fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        printed.seek(0)
        text = printed.read()
    return W, -float(re.findall(r"Objective value = (\S+)", text)[-1])


def without_dual(fit: Fit, problem: Problem, tol: float) -> tuple[np.ndarray, float]:
    return fit(problem, tol), math.nan


OURS = "MultiClassSVC"
ENTRIES = {
    OURS: Entry(ours.multiclass_weights, (GAP,)),
    "LinearSVC crammer_singer": Entry(linearsvc.multiclass_weights, TOLERANCES, "gap"),
    "liblinear-official -s 4": Entry(
        liblinear_official.multiclass_weights, TOLERANCES, "gap", liblinear_official.NEEDS
    ),
    "LinearSVC crammer_singer, by objective": Entry(linearsvc.multiclass_weights, TOLERANCES, "objective"),
    "liblinear-official -s 4, by objective": Entry(
        liblinear_official.multiclass_weights, TOLERANCES, "objective", liblinear_official.NEEDS
    ),
    "LinearSVC one-vs-rest": Entry(linearsvc.one_vs_rest_weights, (0.1,)),
    "nothing": Entry(nothing.multiclass_weights, (0.0,)),
}


def on_data(name: str, setting: Setting) -> None:
    """All entries at every lambda."""
    whole = replace(dense(250), name=name) if setting.small else real(name)
    rows: list[Row] = []
    for lam in LAMBDAS[:1] if setting.small else LAMBDAS:
        problem = replace(whole, C=1.0 / (lam * len(whole.y)))
        bound, warm = problem.best_dual(), problem.part(300)
        chosen: dict[str, tuple[float, Any]] = {}
        for key, entry in ENTRIES.items():
            found = loosest(partial(entry.trial, key, problem, bound), entry.tolerances, entry.good)
            if found is not None:
                chosen[key] = found
        competitors = [
            Competitor(key, partial(ENTRIES[key].fit, problem, tol), partial(ENTRIES[key].fit, warm, tol))
            for key, (tol, _) in chosen.items()
        ]
        results = race(competitors, setting.times(REPEATS))
        for key, (tol, (far, gap)) in chosen.items():
            result = results[key]
            rows.append(
                {
                    "data": problem.name,
                    "n": len(problem.y),
                    "features": problem.X.shape[1],
                    "classes": int(problem.y.max()) + 1,
                    "lambda": lam,
                    "competitor": key,
                    "tolerance": tol,
                    "suboptimality": f"{far:.2e}",
                    "gap": "" if math.isnan(gap) else f"{gap:.2e}",
                    "seconds": f"{result.seconds:.4f}",
                    "times_ours": f"{result.seconds / results[OURS].seconds:.2f}",
                    "first_call_seconds": f"{result.first_call:.2f}",
                    "peak_mib": f"{result.peak_mib:.1f}",
                }
            )
    save(setting, "multiclass", rows, KEY)


def rbf(setting: Setting) -> None:
    """Letter with an RBF kernel, one core."""
    table = toy(several=False) if setting.small else multiclass_table("letter")
    models = {
        OURS: MultiClassSVC(kernel="rbf", tol=GAP, random_state=0),
        f"{OURS}, Weston-Watkins": MultiClassSVC(
            kernel="rbf", loss="weston_watkins", tol=GAP, random_state=0
        ),
        "SVC one-vs-one": svc.machine(),
        "most frequent class": DummyClassifier(),
    }
    rows: list[Row] = []
    for each in (table, table.scaled()):
        competitors = [
            Competitor(
                name,
                partial(clone(model).fit, each.X, each.y),
                partial(clone(model).fit, *each.some()),
                judge=partial(judged, each),
            )
            for name, model in models.items()
        ]
        results = race(competitors, setting.times(REPEATS))
        rows += [
            {
                "data": each.name,
                "prep": each.prep,
                "competitor": name,
                **result.answer,
                "seconds": f"{result.seconds:.3f}",
                "times_svc": f"{result.seconds / results['SVC one-vs-one'].seconds:.2f}",
                "peak_mib": f"{result.peak_mib:.0f}",
            }
            for name, result in results.items()
        ]
    save(setting, "multiclass_rbf", rows)


def judged(table: Table, model: Any) -> Row:
    """Test accuracy of a model, and the gap of one that certifies it."""
    gap = getattr(model, "duality_gap_", None)
    return {
        "accuracy": f"{model.score(table.X_test, table.y_test):.4f}",
        "gap": "" if gap is None else f"{gap:.1e}",
    }


def growth(setting: Setting) -> None:
    """Seconds and peak memory against samples (dense) and classes (sparse), once each."""
    sizes = (250, 500) if setting.small else (10_000, 100_000, 1_000_000)
    class_counts = (5, 10) if setting.small else (10, 100, 1_000)
    problems = [partial(dense, n) for n in sizes]
    problems += [partial(sparse, c, *((300, 500) if setting.small else ())) for c in class_counts]
    rows: list[Row] = []
    for make in problems:
        made = make()
        problem = replace(made, C=1.0 / (1e-3 * len(made.y)))
        warm = problem.part(500)
        tolerances = {OURS: GAP, "LinearSVC crammer_singer": 0.1}
        competitors = [
            Competitor(key, partial(ENTRIES[key].fit, problem, tol), partial(ENTRIES[key].fit, warm, tol))
            for key, tol in tolerances.items()
        ]
        for key, result in race(competitors, 1).items():
            rows.append(
                {
                    "data": problem.name,
                    "n": len(problem.y),
                    "classes": int(problem.y.max()) + 1,
                    "competitor": key,
                    "objective": f"{problem.primal(result.answer):.6g}",
                    "seconds": f"{result.seconds:.3f}",
                    "peak_mib": f"{result.peak_mib:.0f}",
                }
            )
    save(setting, "multiclass_growth", rows)
    panels = []
    for quantity, unit in (("seconds", "seconds"), ("peak_mib", "peak MiB")):
        panels.append([])
        for kind, size in (("dense", "n"), ("sparse", "classes")):
            mine = [row for row in rows if row["data"].startswith(kind)]
            panels[-1].append(Panel(size, unit, lines(mine, size, quantity, "competitor"), kind))
    plot(setting, "multiclass_growth", panels)


RACES = {name: partial(on_data, name) for name in ("letter", "reuters-r52", "20newsgroups", "mnist")} | {
    "rbf": rbf,
    "growth": growth,
}

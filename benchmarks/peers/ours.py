"""The estimators of this package."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from benchmarks.problems import kernel_multilabel, multiclass, multilabel
    from maxmargin import MultiLabelSVC


def multilabel_weights(
    problem: multilabel.Problem, tol: float, dtype: Any = None, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Its tolerance is the certified gap itself."""
    from maxmargin import MultiLabelSVC

    X = problem.X if dtype is None else problem.X.astype(dtype)
    if problem.squared:
        options = {**options, "loss": "squared_hinge"}
    model = MultiLabelSVC(C=problem.C, tol=tol, random_state=0, **options).fit(X, problem.Y)
    return model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_, model.intercept_


def multiclass_weights(problem: multiclass.Problem, tol: float) -> np.ndarray:
    from maxmargin import MultiClassSVC

    model = MultiClassSVC(C=problem.C, fit_intercept=False, tol=tol, random_state=0)
    return model.fit(problem.X, problem.y).coef_


def fit_kernel(
    problem: kernel_multilabel.Problem, solver: str = "auto", tied: bool = False, n_jobs: int | None = None
) -> MultiLabelSVC:
    """`tied`: with the prior of the problem."""
    from maxmargin import MultiLabelSVC

    return MultiLabelSVC(
        problem.C, kernel="rbf", solver=solver, prior=problem.R if tied else None, tol=1e-3, random_state=0,
        cache_size=2400, max_iter=100_000, time_limit=1800, n_jobs=n_jobs,
    ).fit(problem.X, problem.Y)  # fmt: skip


def kernel_coefficients(
    problem: kernel_multilabel.Problem, model: MultiLabelSVC
) -> tuple[np.ndarray, np.ndarray, float]:
    """The intercept is a constant added to the kernel."""
    A = np.zeros(problem.Y.shape)
    A[model.support_] = model.dual_coef_.T
    return A, np.zeros(problem.Y.shape[1]), 1.0


def learn(
    X: Any,
    y: np.ndarray,
    n_classes: int,
    update: str = "all_pairs",
    regulariser: str = "squared",
    unit: bool = False,
    **options: Any,
) -> tuple[float, np.ndarray]:
    """`LabelRanker.partial_fit` on the whole stream in one call; scaling to unit length is timed too."""
    from sklearn.preprocessing import normalize

    from maxmargin import LabelRanker

    model = LabelRanker(update, regulariser, trace=True, **options)
    start = time.perf_counter()
    X = normalize(X) if unit else X
    model.partial_fit(X, y, classes=np.arange(n_classes))
    return time.perf_counter() - start, model.trace_["mistake"]


def learn_row_by_row(X: Any, y: np.ndarray, n_classes: int) -> tuple[float, np.ndarray]:
    """`LabelRanker.partial_fit` with one row at a time, slicing included."""
    from maxmargin import LabelRanker

    model = LabelRanker(trace=True)
    classes = np.arange(n_classes)
    start = time.perf_counter()
    for i in range(len(y)):
        model.partial_fit(X[i : i + 1], y[i : i + 1], classes=classes)
    return time.perf_counter() - start, model.trace_["mistake"]


def learn_dictionaries(X: Any, y: np.ndarray, n_classes: int) -> tuple[float, np.ndarray]:
    """`StreamRanker`, predict_one then learn_one, on dictionaries."""
    from benchmarks.peers.river import dictionaries
    from maxmargin import StreamRanker

    rows, model = dictionaries(X), StreamRanker()
    wrong = np.empty(len(y), bool)
    start = time.perf_counter()
    for i, (row, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        wrong[i] = model.predict_one(row) != label
        model.learn_one(row, label)
    return time.perf_counter() - start, wrong


def graph(n_labels: int, index: np.ndarray, weight: np.ndarray) -> Any:
    """The graph that all cuts share, built once per model."""
    from maxmargin.submodular.problem import weighted_graph

    return weighted_graph(n_labels, index, weight)


def cut(scores: np.ndarray, graph: Any, n_threads: int = 1) -> np.ndarray:
    from maxmargin.submodular.problem import best_sets

    return best_sets(scores, graph, n_threads)

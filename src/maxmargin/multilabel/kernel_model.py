"""The kernelised side of `MultiLabelSVC`: its problem, its solver, its model, its scores.

The bias is a constant s^2 added to the kernel, so that a score is
sum_i k(x, x_i) c_il + b_l with b_l = s^2 sum_i c_il: the model keeps the plain kernel, the
coefficients of the support vectors and b.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from maxmargin.core.kernel_matrix import KernelMatrix, check_precomputed, smallest_eigenvalue
from maxmargin.core.kernels import Kernel
from maxmargin.core.threads import count_threads
from maxmargin.multilabel.kernel_problem import KernelM3L
from maxmargin.multilabel.pairs import PairDescent
from maxmargin.multilabel.problem import EntryCosts
from maxmargin.multilabel.smo import SMO

MODEL = ("coef_", "intercept_", "support_", "support_vectors_", "dual_coef_", "_kernel")
# Kernel values are kept in float32 down to this gap; the certificate is in float64 anyway.
SINGLE_TOL = 1e-4
PROBED_SAMPLES = 300


def needs_kernel(model: Any) -> bool:
    """Whether the parameters ask for the kernelised solvers."""
    if model.solver in ("dca", "interior") and model.kernel != "linear":
        raise ValueError(
            f"solver={model.solver!r} is linear; with kernel={model.kernel!r} use solver='auto' or 'smo'."
        )
    return model.kernel != "linear" or model.solver == "smo"


def kernel_problem(model: Any, X: Any, costs: EntryCosts, bias: float) -> KernelM3L:
    """The problem on the kernel that the parameters name."""
    kernel = Kernel.of(
        X, model.kernel, gamma=model.gamma, degree=model.degree, coef0=model.coef0, offset=bias**2,
        sample_weight=costs.weight[:, 0] if costs.weight.shape[1] == 1 else None,
    )  # fmt: skip
    if kernel.name == "precomputed":
        check_precomputed(X)
    elif kernel.name in ("sigmoid", "callable"):
        _warn_if_indefinite(replace(kernel, offset=0.0), X)
    single = model.precision == "single"
    if model.precision == "auto" and model.solver == "auto":
        single = model._stopping(costs.signs.size).target >= SINGLE_TOL
    dtype: Any = np.float32 if single else np.float64
    if kernel.name == "precomputed" and not kernel.offset:
        dtype = X.dtype  # the user's matrix serves as it is, without a copy
    K = KernelMatrix(kernel, X, model.cache_size, dtype)
    return KernelM3L(K, costs, model.prior_)


def _warn_if_indefinite(kernel: Kernel, X: Any) -> None:
    """Look at some samples; a kernel that is not semi-definite has no certified optimum."""
    n = X.shape[0]
    some = np.linspace(0, n - 1, min(n, PROBED_SAMPLES)).astype(int)
    K = KernelMatrix(kernel, X[some], np.inf, np.float64).whole
    assert K is not None
    smallest = smallest_eigenvalue((K + K.T) / 2)
    if smallest < -1e-6 * np.abs(K).max() * len(some) ** 0.5:
        warnings.warn(
            f"kernel is not positive semi-definite on these samples (eigenvalue {smallest:.3g}); the "
            "solution is a stationary point and its gap no proof of optimality.",
            UserWarning,
            stacklevel=6,
        )


def kernel_method(model: Any, problem: KernelM3L, alpha: np.ndarray, tol: float, rng: Any) -> Any:
    """The solver, started at the given dual variables."""
    start = problem.coefficients(alpha) if alpha.any() else None
    if model.solver == "smo":
        return SMO(problem, start)
    return PairDescent(problem, tol, rng, count_threads(model.n_jobs), start)


def kernel_attributes(model: Any, problem: KernelM3L, method: Any) -> dict[str, Any]:
    """What prediction needs, from the state of the solver."""
    B = method.solution()
    X, kernel = problem.K.X, problem.K.kernel
    support = np.flatnonzero(B.any(axis=0))
    weights = problem.dual_coef(B)[support]
    constants = model.constant_labels_
    intercept = np.where(constants, model._constant_scores, kernel.offset * weights.sum(axis=0))
    dual_coef = np.ascontiguousarray(weights.T.astype(X.dtype))
    vectors = X[:0, :0] if kernel.name == "precomputed" else X[support]
    attributes = {
        "support_": support,
        "support_vectors_": vectors,
        "dual_coef_": dual_coef,
        "intercept_": intercept.astype(X.dtype),
        "classes_": model.classes_,
        "prior_": model.prior_,
        "constant_labels_": constants,
        "_space": model._space,
        "_kernel": replace(kernel, offset=0.0),
        "n_features_in_": model.n_features_in_,
    }
    if kernel.name == "linear":
        attributes["coef_"] = np.asarray(vectors.T.dot(weights), dtype=X.dtype).T
    return attributes


def kernel_scores(model: Any, X: Any) -> np.ndarray:
    """Scores of new samples, in blocks of bounded memory."""
    basis = model.support_ if model._kernel.name == "precomputed" else model.support_vectors_
    return model._kernel.scores(X, basis, model.dual_coef_.T) + model.intercept_


def forget_model(model: Any) -> None:
    """Drop what an earlier fit with other parameters may have left."""
    for name in MODEL:
        model.__dict__.pop(name, None)

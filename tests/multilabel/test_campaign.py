"""Random problems of every kind: what a fit reports is true of the model that it stores.

For each one, from the stored model alone and in float64: the primal objective is the one reported, no dual
value lies above any primal value that any solver found (weak duality), the gap is at most tol or a warning
says so, and everything is finite. ``python -m tests.multilabel.test_campaign 1000 2000`` runs other seeds.
"""

import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from maxmargin import MultiLabelSVC

# Of objectives, and of the scores that kernel values and coefficients of both signs add up to.
ROUNDING, SCORE_ROUNDING = 1e-7, 1e-14
KERNELS = ("linear", "linear", "linear", "rbf", "poly", "precomputed")
PRIORS = ("none", "none", "diagonal", "dense", "singular", "rank one")


def random_prior(kind, L, rng):
    if kind == "none":
        return None
    if kind == "diagonal":
        return np.diag(10.0 ** rng.uniform(-2, 2, L))
    rank = {"dense": L + 2, "singular": max(L - 1, 1), "rank one": 1}[kind]
    P = rng.normal(size=(rank, L)) + 0.1
    return P.T @ P


def random_problem(seed):
    """X, y, sample weights and the parameters of one fit."""
    rng = np.random.default_rng(seed)
    n, d, L = rng.integers(4, 50), rng.integers(1, 12), rng.integers(1, 5)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < rng.choice([0.3, 1.0]))
    Y = (X @ rng.normal(size=(d, L)) + rng.choice([0.1, 2.0]) * rng.normal(size=(n, L)) > 0).astype(float)
    Y[0], Y[1] = 0, 1
    kernel = str(rng.choice(KERNELS))
    # Extreme scales: of all features, of each of them, or a mean far from zero.
    scaling = rng.integers(4)
    reach = 6 if kernel == "linear" else 2
    if scaling == 1:
        X = X * 10.0 ** rng.uniform(-reach, reach)
    elif scaling == 2:
        X = X * 10.0 ** rng.uniform(-reach, reach, d)
    elif scaling == 3:
        X = X + 10.0 ** rng.uniform(0, reach / 2)
    if rng.random() < 0.1:
        X[:] = 0
    X = X.astype(rng.choice([np.float32, np.float64]))
    if rng.random() < 0.2:
        Y[2:][rng.random((n - 2, L)) < 0.2] = np.nan
    parameters = {
        "C": 10.0 ** rng.uniform(-6, 6),
        "prior": random_prior(str(rng.choice(PRIORS)), L, rng),
        "kernel": kernel,
        "fit_intercept": bool(rng.random() < 0.8),
        "intercept_scaling": float(rng.choice([1.0, 1.0, 0.01, 100.0])),
        "class_weight": "balanced" if rng.random() < 0.2 else None,
        "precision": "single" if rng.random() < 0.2 else "auto",
        "tol": 10.0 ** rng.uniform(-6, -2),
        "degree": int(rng.integers(1, 4)),
        "random_state": 0,
    }
    weights = 10.0 ** rng.uniform(-2, 2, n) if rng.random() < 0.3 else None
    if kernel == "precomputed":  # in float64, or rounding would make it indefinite
        X = X.astype(np.float64) @ X.T
        X = (X + X.T) / 2
    elif rng.random() < 0.4:
        X = sp.csr_array(X)
    return X, Y, weights, parameters


def boxes(Y, weights, parameters, live):
    """Weight of every entry's hinge: C, sample weights, balance; zero where unknown or constant."""
    weights = np.ones(len(Y)) if weights is None else weights
    c = parameters["C"] * weights[:, None] * np.isfinite(Y)
    if parameters["class_weight"] == "balanced":
        on, off = ((side == Y) * weights[:, None] for side in (1, 0))
        total = on.sum(0) + off.sum(0)
        for side in (on, off):
            c[side > 0] *= np.broadcast_to(total / (2 * np.maximum(side.sum(0), 1e-300)), Y.shape)[side > 0]
    return c * live


def stored_objective(model, X, Y, weights, parameters):
    """Primal objective of what the model stores, by its definition, and how far rounding may take it."""
    live = ~model.constant_labels_
    dense = X.toarray() if sp.issparse(X) else X
    dense = np.asarray(dense, np.float64)
    bias = parameters["intercept_scaling"]
    intercept = np.where(live, model.intercept_, 0.0)
    R = np.eye(Y.shape[1]) if model.prior_ is None else model.prior_
    values, vectors = np.linalg.eigh(R)
    kept = values > 1e-12 * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    if hasattr(model, "coef_"):
        Z = np.column_stack([model.coef_, intercept / bias]).T
        scores = dense @ model.coef_.T
        norm = np.sum((Z @ half) ** 2)
        terms = np.abs(dense) @ np.abs(model.coef_.T) + np.abs(intercept)
    else:
        kernel = model._kernel
        K = kernel.block(dense, np.arange(len(Y)) if kernel.name == "precomputed" else dense)
        K = K[:, model.support_]
        scores = K @ model.dual_coef_.T
        A = model.dual_coef_.T @ half
        offset = bias**2 if parameters["fit_intercept"] else 0.0
        norm = np.sum(A * ((K[model.support_] + offset) @ A))
        terms = (np.abs(K) + offset) @ np.abs(model.dual_coef_.T)
    signs = np.where(Y > 0, 1.0, -1.0)
    hinge = np.maximum(0, 1 - signs * (scores + intercept))
    c = boxes(Y, weights, parameters, live)
    primal = 0.5 * norm + np.sum(c * hinge)
    return primal, ROUNDING * primal + SCORE_ROUNDING * np.sum(c * terms)


def fitted(X, Y, weights, parameters, solver):
    """The model and whether it said that it stopped short."""
    if solver in ("dca", "newton"):
        parameters = {key: value for key, value in parameters.items() if key != "precision"}
    model = MultiLabelSVC(solver=solver, max_iter=100, **parameters)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, Y, sample_weight=weights)
    return model, any(issubclass(warning.category, ConvergenceWarning) for warning in said)


def rounds_much(X, Y, weights, parameters):
    """Whether rounding may keep a fit from its tol: sums over a kernel, or C |x|^2 beyond 16 digits."""
    if parameters["kernel"] != "linear":
        return True
    squares = (X.multiply(X) if sp.issparse(X) else X**2).sum(axis=1)
    return boxes(Y, weights, parameters, True).max() * squares.max() > 1e16


def check(seed):
    X, Y, weights, parameters = random_problem(seed)
    solvers = ("auto", "dca", "newton") if parameters["kernel"] == "linear" else ("auto", "smo")
    primals, duals = {}, {}
    for solver in solvers:
        model, short = fitted(X, Y, weights, parameters, solver)
        told = f"seed {seed}, {solver}"
        primal, dual = model.primal_objective_, model.dual_objective_
        assert np.isfinite([primal, dual, model.duality_gap_]).all(), told
        assert np.isfinite(model.decision_function(X)).all(), told
        assert short or model.duality_gap_ <= parameters["tol"], told
        stored, rounding = stored_objective(model, X, Y, weights, parameters)
        reachable = rounding < parameters["tol"] * primal or not rounds_much(X, Y, weights, parameters)
        assert not (solver == "auto" and short and reachable), f"{told}: gap {model.duality_gap_:.2g}"
        assert stored == pytest.approx(primal, abs=rounding), told
        primals[solver], duals[solver] = stored + rounding, dual
    best = min(primals.values())
    for solver, dual in duals.items():
        assert dual <= best, f"seed {seed}: dual of {solver} {dual!r} above {best!r}"


@pytest.mark.parametrize("seed", range(20))
def test_what_a_fit_reports_is_true(seed):
    check(seed)


def test_boxes_far_larger_than_the_dual_variables_in_them():
    check(1619)


def test_a_bias_beyond_single_precision():
    check(1220)


def test_a_kernel_fit_that_rounding_stops_says_so_and_what_helps():
    X, Y, _, parameters = random_problem(749)
    parameters["intercept_scaling"] = 1e4
    with pytest.warns(ConvergenceWarning, match="lower C or intercept_scaling, or loosen tol") as said:
        model = MultiLabelSVC(**parameters).fit(X, Y)
    assert len(said) == 1
    model.set_params(intercept_scaling=1.0).fit(X, Y)
    assert model.duality_gap_ <= parameters["tol"]


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 2000, 50))
def test_many_random_problems(start):
    for seed in range(start, start + 50):
        check(seed)


if __name__ == "__main__":
    failures = 0
    for seed in range(*map(int, sys.argv[1:3])):
        try:
            check(seed)
        except (AssertionError, ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            failures += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error).strip().splitlines()[0]}", flush=True)
    print(f"{failures} failures")

"""`multilabel.many` by other ways: objectives of dense matrices, a generic method on all samples, sorting."""

import numpy as np
from scipy.optimize import minimize


def primal(X, Y, W, bias, C=1.0, weight=None, margin=1.0, squared=False):
    """Objective of weights ((D+1) x L, the bias last) for a 0/1 matrix Y."""
    weight = np.ones(len(Y)) if weight is None else weight
    h = np.maximum(0, margin - (2 * Y - 1) * (X @ W[:-1] + bias * W[-1]))
    return 0.5 * np.sum(W**2) + C * np.sum(weight[:, None] * (h**2 if squared else h))


def dual_optimum(X, y, bias, C=1.0, squared=False):
    """The dual of one label over all samples by a generic method; returns the objective and w."""
    Z = np.column_stack([X, np.full(len(X), bias)]) * (2 * y - 1)[:, None]
    Q = Z @ Z.T + (np.eye(len(Z)) / (2 * C) if squared else 0)
    bounds = [(0, None if squared else C)] * len(Z)
    found = minimize(
        lambda a: (0.5 * a @ Q @ a - a.sum(), Q @ a - 1),
        np.zeros(len(Z)),
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-11, "maxiter": 100_000, "maxfun": 1_000_000, "maxcor": 50},
    )
    return -found.fun, Z.T @ found.x


def shared(X, y, common, terse=0.2):
    """What samples share with the positives: roots of sums, rare features and short samples most."""
    total, counts = y @ X, np.count_nonzero(X, axis=0)
    return np.maximum(np.count_nonzero(X, axis=1), 1.0) ** -terse * (
        X @ (np.sign(total) * np.sqrt(np.abs(total) / (1 + counts / common)))
    )


def top(scores, k):
    """Labels by falling score, equal ones in their order."""
    labels = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return labels, np.take_along_axis(scores, labels, axis=1)

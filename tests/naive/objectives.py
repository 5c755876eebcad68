"""Primal objectives by their definitions, in float64, from what a fitted model stores and nothing else."""

import itertools

import numpy as np

KERNELS = {
    "linear": lambda A, B, gamma: A @ B.T,
    "rbf": lambda A, B, gamma: np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(axis=2)),
}


def float64(*arrays):
    return [np.asarray(array, np.float64) for array in arrays]


def parts(model, rows, basis):
    """Scores of the rows without an offset, kernel matrix of the basis, and coefficients in columns."""
    kernel, gamma = KERNELS[model.kernel], getattr(model._kernel, "gamma", 0.0)
    (basis, rows), B = float64(basis, rows), getattr(model, "dual_coef_", None)
    B = np.asarray(model.coef_ if B is None else B, np.float64).T
    return kernel(rows, basis, gamma) @ B, kernel(basis, basis, gamma), B


def multilabel(model, rows, y):
    """1/2 tr(Z R^-1 Z') + C sum of hinges."""
    bias = model.intercept_scaling
    if hasattr(model, "coef_"):
        W, b, rows = float64(model.coef_, model.intercept_, rows)
        scores, Z = rows @ W.T + b, np.column_stack([W, b / bias]).T
        square = Z.T @ Z
    else:
        scores, K, B = parts(model, rows, model.support_vectors_)
        scores, square = scores + model.intercept_, B.T @ (K + bias**2) @ B
    R = np.eye(y.shape[1]) if model.prior_ is None else model.prior_
    hinges = np.maximum(0, 1 - (2 * y - 1) * scores)
    return 0.5 * np.trace(np.linalg.solve(R, square)) + model.C * hinges.sum()


def multiclass(model, rows, y):
    """1/2 |W|^2 + C sum_i max_k [1[k != y_i] + f_k - f_{y_i}]; two classes share the difference."""
    bias = model.intercept_scaling
    if hasattr(model, "coef_"):
        W, b, rows = float64(model.coef_, model.intercept_, rows)
        scores, square = rows @ W.T + b, np.sum(W**2) + np.sum((b / bias) ** 2)
    else:
        scores, K, B = parts(model, rows, model.support_vectors_)
        scores, square = scores + bias**2 * B.sum(axis=0), np.trace(B.T @ (K + bias**2) @ B)
    if len(model.classes_) == 2:
        scores, square = np.hstack([-scores / 2, scores / 2]), square / 2
    truth = np.searchsorted(model.classes_, y)
    own = scores[np.arange(len(y)), truth]
    augmented = scores + (np.arange(scores.shape[1]) != truth[:, None])
    return 0.5 * square + model.C * (augmented.max(axis=1) - own).sum()


def chain(model, rows, y):
    """By enumeration of all labelings of three rows."""
    W, R, b, first, last, rows = float64(
        model.coef_, model.transitions_, model.intercept_, model.first_, model.last_, rows
    )
    constants = sum(np.sum(part**2) for part in (R, b, first, last))
    half = 0.5 * (np.sum(W**2) + constants / model.intercept_scaling**2)
    truth = np.searchsorted(model.classes_, y)

    def score(unary, z):
        inner = sum(R[z[t], z[t + 1]] for t in range(len(z) - 1))
        return sum(unary[t, z[t]] for t in range(len(z))) + inner + first[z[0]] + last[z[-1]]

    total = 0.0
    for start in range(0, len(y), 3):
        unary = rows[start : start + 3] @ W.T + b
        own = tuple(truth[start : start + 3])
        total += max(
            np.mean(np.array(z) != own) + score(unary, z) for z in itertools.product(range(len(W)), repeat=3)
        ) - score(unary, own)
    return half + model.C * total


def latent(model, rows, y):
    """Bags of three rows; two classes or more, each with weights of its own."""
    W, b, rows = float64(model.coef_, model.intercept_, rows)
    scores = (rows @ W.T + b).reshape(len(y), 3, -1)
    truth = np.searchsorted(model.classes_, y)
    wrong = np.arange(len(W)) != truth[:, None]
    hinge = (scores.max(axis=1) + wrong).max(axis=1) - scores.max(axis=1)[np.arange(len(y)), truth]
    half = 0.5 * (np.sum(W**2) + np.sum((b / model.intercept_scaling) ** 2))
    return half + model.C * hinge.sum()


def ranking(model, rows, y):
    """1/2 |W|^2 + C sum_i max over relevant r, other s of [1 - f_r + f_s]_+."""
    W, rows = float64(model.coef_, rows)
    scores = rows @ W.T
    worst = np.where(y == 1, scores, np.inf).min(axis=1)
    best = np.where(y == 1, -np.inf, scores).max(axis=1)
    return 0.5 * np.sum(W**2) + model.C * np.maximum(0, 1 - worst + best).sum()


def basis_of_classes(model, rows, y):
    """1/2 tr(B' K B) + C sum_i sum_{k != y_i} [1 + f_k - f_{y_i}]_+^2."""
    scores, K, B = parts(model, rows, model.basis_vectors_)
    scores, truth = scores + model.intercept_, np.searchsorted(model.classes_, y)
    margins = 1 + scores - scores[np.arange(len(y)), truth][:, None]
    margins[np.arange(len(y)), truth] = 0
    half = 0.5 * np.trace(B.T @ (K + model.intercept_scaling**2) @ B)
    return half + model.C * (np.maximum(0, margins) ** 2).sum()


def basis_of_labels(model, rows, y):
    """1/2 tr(B' K B) + C sum of squared hinges."""
    scores, K, B = parts(model, rows, model.basis_vectors_)
    hinges = np.maximum(0, 1 - (2 * y - 1) * (scores + model.intercept_))
    half = 0.5 * np.trace(B.T @ (K + model.intercept_scaling**2) @ B)
    return half + model.C * (hinges**2).sum()


def submodular(model, rows, y):
    """By enumeration of all sets of labels."""
    Z, b, pairs, strength, rows = float64(
        model.coef_, model.intercept_, model.interaction_, model.pair_strength_, rows
    )
    i, j = model.pairs_.T
    t = pairs[i, j] / strength
    sets = np.array(list(itertools.product([0, 1], repeat=len(Z))))
    unary = rows @ Z.T + b

    def score(n, z):
        return unary[n] @ z + 0.5 * z @ pairs @ z

    def cost(z, own):
        return 1 - 2 * (z @ own) / (z.sum() + own.sum()) if z.any() or own.any() else 0.0

    total = sum(max(cost(z, own) + score(n, z) for z in sets) - score(n, own) for n, own in enumerate(y))
    half = 0.5 * (np.sum(Z**2) + np.sum((b / model.intercept_scaling) ** 2) + np.sum(t**2))
    return half + model.C * total

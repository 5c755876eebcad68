"""Label-correlation matrices R: build, check, shrink, normalise.

R is symmetric positive semi-definite with a positive diagonal; R[l, k] > 0 says that labels
l and k tend to be on together. A singular R is fine. Only the product of R and C matters
(scaling R by c is scaling C by c), so builders return a unit diagonal.

Examples
--------
>>> import numpy as np
>>> from maxmargin import priors
>>> signatures = np.array([[1, 1, 0], [0, 1, 1]])          # two categories, three attributes
>>> priors.from_categories(signatures)
array([[ 1.,  0., -1.],
       [ 0.,  1.,  0.],
       [-1.,  0.,  1.]])
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

SYMMETRY = 1e-8
DEFINITENESS = 1e-8
RANK = 1e-12


def identity(labels: Any) -> np.ndarray:
    """No correlation: one independent classifier per label (their number, or a label matrix)."""
    return np.eye(labels if np.ndim(labels) == 0 else np.shape(labels)[1])


def from_categories(signatures: Any, weights: Any = None, shrinkage: float = 0.0) -> np.ndarray:
    """R = sum over categories c of p(c) y_c y_c', the prior for zero-shot learning.

    Parameters
    ----------
    signatures : array-like of shape (n_categories, n_labels)
        What each category looks like: 0/1 or -1/+1, or real strengths (then normalised to a
        unit diagonal).
    weights : array-like of shape (n_categories,), default=None
        How likely each category is; normalised to sum one, uniform when None.
    shrinkage : float in [0, 1], default=0
        Mix with the identity, see `shrink`. Use a positive value when there are very few
        categories: R has at most their number as rank.
    """
    S = _matrix(signatures, "signatures")
    if np.isin(S, (0, 1)).all():
        S = 2 * S - 1
    p = np.full(len(S), 1 / len(S)) if weights is None else np.asarray(weights, dtype=float)
    if p.shape != (len(S),) or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
        raise ValueError(
            f"weights must be {len(S)} nonnegative finite numbers, one per category, not all zero."
        )
    R = (S.T * (p / p.sum())) @ S
    return shrink(R if np.isin(S, (-1, 1)).all() else normalise(R), shrinkage)


def from_labels(Y: Any, method: str = "correlation", shrinkage: float | None = None) -> np.ndarray:
    """Estimate R from label indicators of held-out samples.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        Indicators, 0/1 or -1/+1.
    method : {"correlation", "second_moment"}, default="correlation"
        "correlation" centres and scales each label (a constant label gets a row of the
        identity); "second_moment" is Y'Y/n of the signs, which for rare labels is close to
        rank one.
    shrinkage : float in [0, 1], default=None
        Mix with the identity; None means 0.1 for "correlation" and 0 for "second_moment".
    """
    S = _matrix(Y.toarray() if sp.issparse(Y) else Y, "Y")
    if np.isin(S, (0, 1)).all():
        S = 2 * S - 1
    if not np.isin(S, (-1, 1)).all():
        raise ValueError("Y must be a complete label indicator of 0/1 or of -1/+1.")
    if method == "second_moment":
        R = S.T @ S / len(S)
        off = R[~np.eye(len(R), dtype=bool)]
        if off.size and np.median(off) > 0.8:
            warnings.warn(
                "from_labels: the second moment of rare labels is almost rank one (median entry "
                f"{np.median(off):.2f}); method='correlation' is usually the better prior.",
                UserWarning,
                stacklevel=2,
            )
        return shrink(R, 0.0 if shrinkage is None else shrinkage)
    if method != "correlation":
        raise ValueError(f"method must be 'correlation' or 'second_moment'. Got {method!r} instead.")
    centred = S - S.mean(axis=0)
    deviation = centred.std(axis=0)
    constant = deviation < 1e-12
    scaled = np.where(constant, 0.0, centred / np.where(constant, 1.0, deviation))
    R = scaled.T @ scaled / len(S)
    R[np.diag_indices_from(R)] = 1.0
    return shrink(R, 0.1 if shrinkage is None else shrinkage)


def shrink(R: Any, amount: float) -> np.ndarray:
    """(1 - s) R + s I: s = 0 keeps R, s = 1 forgets it; smallest eigenvalue at least s."""
    if not 0 <= amount <= 1:
        raise ValueError(f"amount must lie in [0, 1]. Got {amount} instead.")
    R = np.asarray(R, dtype=float)
    return (1 - amount) * R + amount * np.eye(len(R))


def normalise(R: Any) -> np.ndarray:
    """Scale rows and columns of R to a unit diagonal."""
    R = np.asarray(R, dtype=float)
    diagonal = np.diag(R)
    if not (diagonal > 0).all():
        k = int(np.flatnonzero(~(diagonal > 0))[0])
        raise ValueError(f"R[{k}, {k}] is {diagonal[k]:g}; a prior needs a positive diagonal.")
    d = np.sqrt(diagonal)
    R = R / np.outer(d, d)
    R[np.diag_indices_from(R)] = 1.0
    return R


def check(R: Any, n_labels: int | None = None, clip: bool = False) -> np.ndarray:
    """Return R as a symmetric positive semi-definite float64 matrix, or say what is wrong.

    Parameters
    ----------
    R : array-like of shape (n_labels, n_labels)
    n_labels : int, default=None
        The size it must have.
    clip : bool, default=False
        Set negative eigenvalues to zero instead of refusing the matrix.
    """
    R = _matrix(R.toarray() if sp.issparse(R) else R, "prior")
    if R.shape[0] != R.shape[1]:
        raise ValueError(f"prior must be square, one row and column per label. Got shape {R.shape} instead.")
    if n_labels is not None and len(R) != n_labels:
        raise ValueError(
            f"prior has shape {R.shape}, but there are {n_labels} labels; pass one row per label."
        )
    scale = np.abs(R).max(initial=0.0)
    asymmetry = np.abs(R - R.T)
    if asymmetry.max(initial=0.0) > SYMMETRY * scale:
        l, k = np.unravel_index(np.argmax(asymmetry), R.shape)
        raise ValueError(
            f"prior must be symmetric, but prior[{l}, {k}] = {R[l, k]:g} and prior[{k}, {l}] = "
            f"{R[k, l]:g}; pass (R + R.T) / 2."
        )
    R = (R + R.T) / 2
    if not (np.diag(R) > 0).all():
        bad = int(np.flatnonzero(~(np.diag(R) > 0))[0])
        raise ValueError(f"prior must have a positive diagonal, but prior[{bad}, {bad}] = {R[bad, bad]:g}.")
    eigenvalues, vectors = np.linalg.eigh(R)
    if eigenvalues[0] < -DEFINITENESS * eigenvalues[-1]:
        if not clip:
            raise ValueError(
                f"prior must be positive semi-definite, but its smallest eigenvalue is "
                f"{eigenvalues[0]:.3g}; pass maxmargin.priors.check(R, clip=True) or shrink it."
            )
        R = (vectors * np.maximum(eigenvalues, 0)) @ vectors.T
        R = (R + R.T) / 2
    return R


def read_prior(prior: Any, signs: np.ndarray) -> np.ndarray | None:
    """The R that the `prior` of an estimator stands for.

    Parameters
    ----------
    prior : array-like of shape (n_labels, n_labels), callable or None
        A callable is given the training labels (0/1, an unknown one is 0).
    signs : array of shape (n_samples, n_labels)
        Positive where a label is on.
    """
    if prior is None:
        return None
    R = prior((signs > 0).astype(np.int8)) if callable(prior) else prior
    return check(R, signs.shape[1])


def factor(R: np.ndarray) -> np.ndarray:
    """P (rank x n_labels) with P'P = R, dropping directions without weight."""
    eigenvalues, vectors = np.linalg.eigh(R)
    keep = eigenvalues > RANK * eigenvalues[-1]
    return (np.sqrt(eigenvalues[keep]) * vectors[:, keep]).T


def _matrix(values: Any, name: str) -> np.ndarray:
    try:
        matrix = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a matrix of numbers.") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be a non-empty matrix. Got shape {matrix.shape} instead.")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} contains NaN or infinity.")
    return matrix

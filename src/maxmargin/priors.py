"""Label-correlation matrices R: build, check, shrink, normalise.

R is symmetric and positive semi-definite with a positive diagonal, and may be singular. R[l, k] > 0 means
that labels l and k tend to be on together. Only the product of R and C matters, so the functions here return
a unit diagonal.

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
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.sparse_format import check_format

SYMMETRY = 1e-8
DEFINITENESS = 1e-8
RANK = 1e-12


def identity(labels: Any) -> np.ndarray:
    """Return no correlation: independent labels. `labels` is their number, or a label matrix."""
    return np.eye(labels if np.ndim(labels) == 0 else np.shape(labels)[1])


def from_categories(signatures: Any, weights: Any = None, shrinkage: float = 0.0) -> np.ndarray:
    """Return R = sum over categories c of p(c) y_c y_c', the prior for zero-shot learning.

    Parameters
    ----------
    signatures : array-like of shape (n_categories, n_labels)
        The labels of each category: 0/1 or -1/+1, or real numbers; R is then normalised to a unit
        diagonal.
    weights : array-like of shape (n_categories,), default=None
        Probability of each category, up to a factor; None means uniform.
    shrinkage : float in [0, 1], default=0
        Weight of the identity, see `shrink`. Use a positive value for few categories: the rank of R is at
        most their number.
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
    """Estimate R from label indicators.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        Indicators, 0/1 or -1/+1.
    method : {"correlation", "second_moment"}, default="correlation"
        "correlation" centres and scales each label; a constant label gets a row of the identity.
        "second_moment" is Y'Y/n of the signs; for rare labels it is close to rank one.
    shrinkage : float in [0, 1], default=None
        Weight of the identity; None means 0.1 for "correlation" and 0 for "second_moment".
    """
    S = _matrix(Y, "Y")
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


def from_graph(graph: Any, labels: Any = None, strength: float = 10.0) -> np.ndarray:
    """Return R = (I + strength L)^-1 with a unit diagonal, for the Laplacian L of a graph of labels.

    Parameters
    ----------
    graph : matrix of shape (n_labels, n_labels), or sequence of (label, label) or (label, label, weight)
        Symmetric nonnegative weights of the edges, or a list of the edges.
    labels : sequence, default=None
        The labels in the order of the columns of y, if edges contain names. None means that edges contain
        column numbers; the largest of them is the last label.
    strength : float, default=10.0
        Larger values give larger correlations of neighbours; 0 gives none.

    Examples
    --------
    >>> from maxmargin import priors
    >>> priors.from_graph([("cat", "dog")], labels=["cat", "dog", "car"]).round(2)
    array([[1.  , 0.91, 0.  ],
           [0.91, 1.  , 0.  ],
           [0.  , 0.  , 1.  ]])
    """
    if not strength >= 0 or not np.isfinite(strength):
        raise ValueError(f"strength must be a nonnegative number. Got {strength!r} instead.")
    if sp.issparse(graph) or isinstance(graph, np.ndarray):
        A = _matrix(graph, "graph")
        if A.shape[0] != A.shape[1] or (A < 0).any() or not np.allclose(A, A.T):
            raise ValueError("graph must be a square, symmetric matrix of nonnegative weights, or edges.")
    else:
        edges = [(*edge, 1.0) if len(edge) == 2 else tuple(edge) for edge in graph]
        number = _numbers([edge[:2] for edge in edges], labels, strict=True)
        A = np.zeros((len(number), len(number)))
        for a, b, weight in edges:
            if not weight >= 0:
                raise ValueError(f"graph has an edge of weight {weight!r}; weights must not be negative.")
            A[number[a], number[b]] = A[number[b], number[a]] = weight
    np.fill_diagonal(A, 0.0)
    return normalise(np.linalg.inv(np.eye(len(A)) + strength * (np.diag(A.sum(axis=1)) - A)))


def from_tree(edges: Any, labels: Any = None, strength: float = 1.0) -> np.ndarray:
    """Return the correlations of labels with common ancestors in a tree.

    The weight vector of a label is modelled as the sum of independent vectors, one of the label and one of
    each ancestor. Those of nodes with children have the variance `strength`, the others 1.

    Parameters
    ----------
    edges : sequence of (parent, child)
        A label may have several parents.
    labels : sequence, default=None
        The labels in the order of the columns of y; edges may contain further ancestors. None means that
        edges contain column numbers, and all nodes are labels.
    strength : float, default=1.0

    Examples
    --------
    >>> from maxmargin import priors
    >>> edges = [("animal", "cat"), ("animal", "dog"), ("thing", "car")]
    >>> priors.from_tree(edges, labels=["cat", "dog", "car"])
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    """
    if not 0 < strength < np.inf:
        raise ValueError(f"strength must be a positive number. Got {strength!r} instead.")
    number = _numbers(edges, labels)
    lineage = np.eye(len(number))
    for node, above in ancestors(edges, number).items():
        lineage[number[node], [number[name] for name in above]] = 1.0
    variance = np.ones(len(number))
    variance[[number[parent] for parent, _ in edges]] = strength
    n = len(number) if labels is None else len(list(labels))
    return normalise((lineage * variance)[:n] @ lineage[:n].T)


def ancestors(edges: Any, nodes: Any) -> dict[Any, set[Any]]:
    """Return the ancestors of each node of a tree, or of a directed graph without cycles."""
    parents: dict[Any, list[Any]] = {}
    for parent, child in edges:
        parents.setdefault(child, []).append(parent)
    found: dict[Any, set[Any]] = {}

    def above_of(node: Any, path: tuple[Any, ...]) -> set[Any]:
        if node in path:
            raise ValueError(f"edges contain a cycle through {node!r}; a child cannot be its own ancestor.")
        if node not in found:
            above = set(parents.get(node, ()))
            for parent in parents.get(node, ()):
                above |= above_of(parent, (*path, node))
            found[node] = above
        return found[node]

    for node in nodes:
        above_of(node, ())
    return found


def _numbers(edges: Any, labels: Any, strict: bool = False) -> dict[Any, int]:
    """Return the number of every node: labels first, then others."""
    pairs = [tuple(edge) for edge in edges]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise ValueError("edges must be a non-empty sequence of pairs.")
    named = dict.fromkeys(name for pair in pairs for name in pair)
    if labels is None:
        if not all(isinstance(name, (int, np.integer)) and name >= 0 for name in named):
            raise ValueError("edges contain names; pass labels, in the order of the columns of y.")
        return {k: k for k in range(int(max(named)) + 1)}
    number = {name: k for k, name in enumerate(list(labels))}
    unknown = [name for name in named if name not in number]
    if strict and unknown:
        raise ValueError(f"an edge names {unknown[0]!r}, which is not among the labels.")
    return number | {name: len(number) + k for k, name in enumerate(unknown)}


def learned(estimator: Any, X: Any, y: Any, n_rounds: int = 5, shrinkage: float = 0.1) -> np.ndarray:
    """Learn R together with the weights W: minimise the objective over both, with trace(R) = n_labels.

    Fits of `estimator` with fixed R alternate with the best R for fixed W, which is proportional to the
    square root of W W' (Zhang, Yeung, "A convex formulation for learning task relationships in multi-task
    learning", UAI 2010). Fit an estimator with the result as its `prior`; its certificate holds for this R.
    The diagonal of R is not one: a large entry allows large weights of the label.

    Parameters
    ----------
    estimator : MultiLabelSVC
        Its `prior` is the R of the first round.
    X, y : as for its `fit`
    n_rounds : int, default=5
    shrinkage : float in (0, 1], default=0.1
        A multiple of the identity, this factor times the mean eigenvalue, is added to the square root of
        W W' to make R positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin import MultiLabelSVC, priors
    >>> X = np.random.RandomState(0).randn(80, 5)
    >>> Y = (X @ np.ones((5, 2)) + [0.5, -0.5] > 0).astype(int)
    >>> R = priors.learned(MultiLabelSVC(C=0.1), X, Y)
    >>> bool(R[0, 1] > 0.5)
    True
    """
    from sklearn.base import clone

    if not 0 < shrinkage <= 1:
        raise ValueError(f"shrinkage must lie in (0, 1]. Got {shrinkage!r} instead.")
    if isinstance(n_rounds, bool) or not isinstance(n_rounds, (int, np.integer)) or n_rounds < 1:
        raise ValueError(f"n_rounds must be a whole number, at least 1. Got {n_rounds!r} instead.")
    model = clone(estimator)
    for _ in range(n_rounds):
        model.fit(X, y)
        model.set_params(prior=best_for(_products_of(model), shrinkage))
    return model.prior


def best_for(products: np.ndarray, shrinkage: float) -> np.ndarray:
    """Return the best R with trace n_labels for weights with the inner products W W'."""
    eigenvalues, vectors = np.linalg.eigh((products + products.T) / 2)
    roots = np.sqrt(np.maximum(eigenvalues, 0.0))
    mean = roots.mean()
    roots = roots + shrinkage * mean if mean > 0 else np.ones_like(roots)
    R = (vectors * (roots * len(roots) / roots.sum())) @ vectors.T
    # Labels without weights must have exactly zero correlations; rounding errors would couple them.
    has_weights = products.any(axis=1)
    R *= np.outer(has_weights, has_weights) | np.eye(len(R), dtype=bool)
    return (R + R.T) / 2


def _products_of(model: Any) -> np.ndarray:
    """Return the inner products of the weight vectors, in the feature space of the kernel."""
    bias = float(model.intercept_scaling) if model.fit_intercept else 0.0
    if hasattr(model, "coef_"):
        b = model.intercept_ / (bias or np.inf)
        products = model.coef_ @ model.coef_.T
        products = (products.toarray() if sp.issparse(products) else products) + np.outer(b, b)
    elif model._kernel.name == "precomputed":
        raise ValueError("learned needs the rows of X; kernel='precomputed' does not have them.")
    else:
        # The stored kernel has no bias; add it as a constant feature.
        kernel = replace(model._kernel, offset=bias**2)
        K = kernel.block(model.support_vectors_, model.support_vectors_, np.float64)
        products = model.dual_coef_ @ K @ model.dual_coef_.T
    # The intercept of a constant label is not a weight.
    has_weights = ~model.constant_labels_
    return products * np.outer(has_weights, has_weights)


def shrink(R: Any, amount: float) -> np.ndarray:
    """Return (1 - amount) R + amount I, whose smallest eigenvalue is at least `amount`."""
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
    """Return R as a symmetric positive semi-definite float64 matrix, or raise an error.

    Parameters
    ----------
    R : array-like of shape (n_labels, n_labels)
    n_labels : int, default=None
        The required size.
    clip : bool, default=False
        Set negative eigenvalues to zero instead of raising an error.
    """
    R = _matrix(R, "prior")
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
    """Return the R of the `prior` of an estimator.

    Parameters
    ----------
    prior : array-like of shape (n_labels, n_labels), callable or None
        A callable is called with the training labels (0/1, 0 for an unknown entry).
    signs : array of shape (n_samples, n_labels)
        Positive where a label is on.
    """
    if prior is None:
        return None
    R = prior((signs > 0).astype(np.int8)) if callable(prior) else prior
    return check(R, signs.shape[1])


def factor(R: np.ndarray) -> np.ndarray:
    """Return P (rank x n_labels) with P'P = R."""
    eigenvalues, vectors = np.linalg.eigh(R)
    keep = eigenvalues > RANK * eigenvalues[-1]
    return (np.sqrt(eigenvalues[keep]) * vectors[:, keep]).T


def _matrix(values: Any, name: str) -> np.ndarray:
    if sp.issparse(values):
        values = check_format(values, name).toarray()
    try:
        matrix = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a matrix of numbers.") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be a non-empty matrix. Got shape {matrix.shape} instead.")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} contains NaN or infinity.")
    return matrix

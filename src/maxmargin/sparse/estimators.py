"""Sparse max-margin machines: a small basis of training samples shared by all classes or labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import _fit_context

from maxmargin import priors
from maxmargin.core.kernels import Kernel
from maxmargin.sparse.answers import ClassMachine, LabelMachine
from maxmargin.sparse.growth import BASIS_CONSTRAINTS
from maxmargin.sparse.losses import SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import BasisProblem


class SparseMultiClassSVC(ClassMachine):
    """Multi-class SVM whose kernel functions are few and shared by all classes (SMSVM).

    It minimises, over the coefficients of a basis of training samples that is grown greedily,

        1/2 sum_r |w_r|^2 + C sum_i sum_{r != y_i} max(0, 1 + f_r(x_i) - f_{y_i}(x_i))^2 .

    Prediction needs one kernel value per basis vector and sample, whatever the number of
    classes. The papers' parameter is lambda = 1/(2C). Training costs O(n_candidates l k) and
    a few Newton steps of O(l d k) per basis vector; memory is l d + l k numbers.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the squared margin violations.
    max_basis : int, default=100
        Most basis vectors; the basis stops growing earlier by `rel_tol`.
    n_candidates : int or None, default=25
        Samples drawn as candidates for every new basis vector; None tries all.
    selection : {"block", "sequential", "jacobi"}, default="block"
        How a candidate's coefficients are found: jointly for all classes, in one pass over
        the classes with a random first basis vector (the paper), or each class for itself.
    solver : {"auto", "newton", "newton-cg", "sweeps"}, default="auto"
        How coefficients are optimised for a fixed basis: Newton's method on all of them, with
        the linear system solved directly or by conjugate gradients ("auto": by size), or
        class-by-class sweeps (the paper; slow to converge).
    kernel : {"rbf", "linear", "poly", "sigmoid", "chi2", "precomputed"} or callable, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
    degree : int, default=3
    coef0 : float, default=0.0
    fit_intercept : bool, default=False
        Add the constant ``intercept_scaling**2`` to the kernel, that is, a regularised bias.
    intercept_scaling : float, default=1.0
    rel_tol : float, default=1e-3
        Growth stops when a new basis vector lowers the objective by less than this fraction;
        0 goes on to `max_basis`.
    n_iter_no_change : int, default=1
        ... for this many basis vectors in a row.
    tol : float, default=1e-6
        Relative gap, for the final basis, between the objective and its lower bound.
    max_iter : int, default=200
        Newton iterations (or sweeps) for one basis.
    full_bound : bool, default=False
        Also bound from below the objective of the model with all samples as basis; needs the
        kernel values between all samples that violate a margin.
    keep_path : bool, default=True
        Keep the coefficients of every stage for `truncate` and `staged_predict`; they are
        d^2 k / 2 numbers.
    time_limit : float or None, default=None
        Seconds after which growth stops.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0

    Attributes
    ----------
    basis_indices_ : array of shape (n_basis,)
        Training samples in the basis, in the order they joined.
    basis_vectors_ : array or CSR matrix of shape (n_basis, n_features)
    coef_ : array of shape (n_classes, n_basis)
        Coefficients of the kernel functions.
    intercept_ : array of shape (n_classes,)
    path_ : list of arrays
        Coefficients with the first 1, 2, ... basis vectors.
    primal_objective_, dual_objective_, duality_gap_ : float
        Objective, its lower bound for this basis, and their relative distance, recomputed in
        float64 from `coef_`.
    full_model_bound_, full_model_gap_ : float
        With `full_bound`: lower bound on the objective of the dense model, and by which
        fraction of it the objective of this model could at most be lowered.
    classes_ : array of shape (n_classes,)
    history_ : list of dict
        One record per basis vector: epoch, seconds, primal, dual, gap, active (basis vectors).
    n_iter_ : int
        Rounds of growth.

    See Also
    --------
    maxmargin.baselines.SparseOneVsRest : A basis of its own for every class.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin import SparseMultiClassSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = SparseMultiClassSVC(C=10, max_basis=10, random_state=0).fit(X, y)
    >>> machine.n_basis_ <= 10
    True
    >>> bool(machine.score(X, y) > 0.95)
    True
    >>> [round(float((p == y).mean()), 1) for p in machine.staged_predict(X)][-1]
    1.0
    """

    def _problem(self, kernel: Kernel, X: Any, codes: np.ndarray, costs: np.ndarray) -> BasisProblem:
        loss = SquaredMargins(codes, costs, len(self.classes_))
        return BasisProblem(kernel, X, loss, selection=self.selection)


class SparseMultiLabelSVC(LabelMachine):
    """Multi-label SVM whose kernel functions are few and shared by all labels (SM3L, SM3L-P).

    It minimises, over the coefficients of a basis of training samples that is grown greedily,

        1/2 sum_{r,m} (R^-1)_rm <w_r, w_m> + C sum_{i,r} max(0, 1 - y_ir f_r(x_i))^2

    with R the `prior` (the identity when None: the objective of one squared-hinge SVM per
    label). Only R enters the computation, so it may be singular; a prior of low rank makes the
    problem smaller. The papers' parameter is lambda = 1/C.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the squared margin violations.
    prior : array-like of shape (n_labels, n_labels), callable or None, default=None
        Label correlations R, see `maxmargin.priors`; a callable, such as
        ``maxmargin.priors.from_labels``, is given the training labels (0/1).
    max_basis : int, default=100
        Most basis vectors; the basis stops growing earlier by `rel_tol`.
    n_candidates : int or None, default=25
        Samples drawn as candidates for every new basis vector; None tries all.
    selection : {"block", "sequential", "jacobi"}, default="block"
        How a candidate's coefficients are found: jointly for all labels, in one pass over
        the labels with a random first basis vector (the paper), or each label for itself.
    solver : {"auto", "newton", "newton-cg", "sweeps"}, default="auto"
        How coefficients are optimised for a fixed basis: Newton's method on all of them, with
        the linear system solved directly or by conjugate gradients ("auto": by size), or
        label-by-label sweeps (the paper).
    kernel : {"rbf", "linear", "poly", "sigmoid", "chi2", "precomputed"} or callable, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
    degree : int, default=3
    coef0 : float, default=0.0
    fit_intercept : bool, default=False
        Add the constant ``intercept_scaling**2`` to the kernel, that is, a regularised bias,
        correlated by the prior like everything else.
    intercept_scaling : float, default=1.0
    rel_tol : float, default=1e-3
        Growth stops when a new basis vector lowers the objective by less than this fraction;
        0 goes on to `max_basis`.
    n_iter_no_change : int, default=1
        ... for this many basis vectors in a row.
    tol : float, default=1e-6
        Relative gap, for the final basis, between the objective and its lower bound.
    max_iter : int, default=200
        Newton iterations (or sweeps) for one basis.
    full_bound : bool, default=False
        Also bound from below the objective of the model with all samples as basis; needs the
        kernel values between all samples that violate a margin.
    keep_path : bool, default=True
        Keep the coefficients of every stage for `truncate` and `staged_predict`; they are
        d^2 k / 2 numbers.
    time_limit : float or None, default=None
        Seconds after which growth stops.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0

    Attributes
    ----------
    basis_indices_ : array of shape (n_basis,)
        Training samples in the basis, in the order they joined.
    basis_vectors_ : array or CSR matrix of shape (n_basis, n_features)
    coef_ : array of shape (n_labels, n_basis)
        Coefficients of the kernel functions.
    intercept_ : array of shape (n_labels,)
        A label that is always on or always off in the training data has +1 or -1 here and no
        coefficients.
    path_ : list of arrays
        Coefficients with the first 1, 2, ... basis vectors.
    primal_objective_, dual_objective_, duality_gap_ : float
        Objective, its lower bound for this basis, and their relative distance, recomputed in
        float64 from the stored solution.
    full_model_bound_, full_model_gap_ : float
        With `full_bound`: lower bound on the objective of the dense model, and by which
        fraction of it the objective of this model could at most be lowered.
    constant_labels_ : bool array of shape (n_labels,)
        Labels that never changed in training.
    classes_ : array of shape (n_labels,)
    history_ : list of dict
        One record per basis vector: epoch, seconds, primal, dual, gap, active (basis vectors).
    n_iter_ : int
        Rounds of growth.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from maxmargin import SparseMultiLabelSVC, priors
    >>> X, Y = make_multilabel_classification(200, n_classes=4, random_state=0)
    >>> R = priors.from_labels(Y[100:])
    >>> machine = SparseMultiLabelSVC(C=10, prior=R, max_basis=20, random_state=0)
    >>> machine.fit(X[:100], Y[:100]).predict(X[:3]).shape
    (3, 4)
    >>> machine.truncate(5).coef_.shape
    (4, 5)
    """

    _parameter_constraints = {**BASIS_CONSTRAINTS, "prior": ["array-like", callable, None]}

    def __init__(
        self,
        C: float = 1.0,
        *,
        prior: Any = None,
        max_basis: int = 100,
        n_candidates: int | None = 25,
        selection: str = "block",
        solver: str = "auto",
        kernel: Any = "rbf",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = False,
        intercept_scaling: float = 1.0,
        rel_tol: float = 1e-3,
        n_iter_no_change: int = 1,
        tol: float = 1e-6,
        max_iter: int = 200,
        full_bound: bool = False,
        keep_path: bool = True,
        time_limit: float | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            C, max_basis=max_basis, n_candidates=n_candidates, selection=selection, solver=solver,
            kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling, rel_tol=rel_tol, n_iter_no_change=n_iter_no_change,
            tol=tol, max_iter=max_iter, full_bound=full_bound, keep_path=keep_path,
            time_limit=time_limit, random_state=random_state, verbose=verbose,
        )  # fmt: skip
        self.prior = prior

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseMultiLabelSVC:
        """Grow a basis and fit its coefficients.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : labels of n_samples
            Indicators (0/1 or -1/+1, dense, sparse or a frame; NaN for unknown), a sequence of
            label sets, or a vector of classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights on the losses; equal to repeating samples.
        """
        X = self._read_rows(X, reset=True)
        weights, costs = self._read_costs(sample_weight, X)
        signs, constant = self._read_labels(X, y, costs)
        kernel, loss = self._settle_kernel(X, weights), SquaredHinges(signs, costs)
        problem = BasisProblem(kernel, X, loss, self._factor(signs), self.selection)
        self._grow(problem, costs, y, constant)
        self.constant_labels_ = constant != 0
        return self

    def _factor(self, signs: np.ndarray) -> np.ndarray | None:
        if self.prior is None:
            return None
        R = self.prior((signs > 0).astype(np.int8)) if callable(self.prior) else self.prior
        return priors.factor(priors.check(R, signs.shape[1]))

    def staged_decision_function(self, X: Any) -> Iterator[np.ndarray]:
        """`decision_function` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self._labels.scores(scores)

    def staged_predict(self, X: Any) -> Iterator[Any]:
        """`predict` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self._labels.answer(self._labels.choose(scores), like=X)

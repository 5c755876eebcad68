"""Sparse kernel machines without a common max-margin objective: one basis per class, and KLR."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from maxmargin.estimators._basis import (
    BASIS_CONSTRAINTS,
    BasisMachine,
    check_size,
    constant_labels,
    read_classes,
    sample_costs,
)
from maxmargin.estimators._labels import LabelSpace
from maxmargin.kernels import Kernel
from maxmargin.problems.basis_losses import MultiLogit, SquaredHinges
from maxmargin.problems.sparse import BasisProblem, FullStepProblem
from maxmargin.solvers._loop import Certificate, Clock, Stopping, run

SHARED = {
    name: BASIS_CONSTRAINTS[name]
    for name in BASIS_CONSTRAINTS
    if name not in ("selection", "solver", "full_bound", "keep_path")
}


class SparseOneVsRest(BasisMachine):
    """One sparse squared-hinge SVM per class or label, each with a basis of its own (SpSVM).

    Every column r minimises ``1/2 |w_r|^2 + C sum_i max(0, 1 - y_ir f_r(x_i))^2`` over a
    basis grown for it alone. In the paper's scaling, lambda/2 |w|^2 + 1/2 sum of squares, that
    is C = 1/(2 lambda). Prediction evaluates the kernel once for each of the distinct basis vectors.

    Parameters
    ----------
    C : float, default=1.0
    max_basis : int, default=100
        Most basis vectors of one class.
    n_candidates : int or None, default=25
    kernel : {"rbf", "linear", "poly", "sigmoid", "chi2", "precomputed"} or callable, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
    degree : int, default=3
    coef0 : float, default=0.0
    fit_intercept : bool, default=False
    intercept_scaling : float, default=1.0
    rel_tol : float, default=1e-3
    n_iter_no_change : int, default=1
    tol : float, default=1e-6
    max_iter : int, default=200
    time_limit : float or None, default=None
    random_state : int, RandomState or None, default=None
    verbose : int, default=0

    Attributes
    ----------
    basis_indices_ : array of shape (n_basis,)
        The distinct basis vectors of all classes.
    basis_vectors_ : array or CSR matrix of shape (n_basis, n_features)
    basis_sizes_ : array of shape (n_columns,)
        Number of basis vectors of every class.
    coef_ : array of shape (n_columns, n_basis)
        Zero where a basis vector does not belong to a class.
    intercept_ : array of shape (n_columns,)
    primal_objective_, dual_objective_, duality_gap_ : float
        Summed over the classes, for the bases found.
    classes_, history_, n_iter_
        As in `maxmargin.SparseMultiClassSVC`; a record also names its column.

    See Also
    --------
    maxmargin.SparseMultiClassSVC : One basis for all classes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin.baselines import SparseOneVsRest
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = SparseOneVsRest(C=10, max_basis=10, random_state=0).fit(X, y)
    >>> bool(machine.score(X, y) > 0.95)
    True
    >>> machine.basis_sizes_.shape
    (3,)
    """

    _parameter_constraints = SHARED

    def __init__(
        self,
        C: float = 1.0,
        *,
        max_basis: int = 100,
        n_candidates: int | None = 25,
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
        time_limit: float | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.max_basis = max_basis
        self.n_candidates = n_candidates
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.rel_tol = rel_tol
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseOneVsRest:
        """Grow one basis per class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : labels of n_samples
            A vector of classes, or several labels per sample in any kind that
            `maxmargin.SparseMultiLabelSVC` takes.
        sample_weight : array-like of shape (n_samples,), default=None
        """
        X = self._read_rows(X, reset=True)
        self._labels, signs = LabelSpace.read(y)
        check_consistent_length(X, signs)
        self.classes_ = self._labels.classes
        weights = self._read_weights(sample_weight, X)
        costs = sample_costs(self.C, weights, X.shape[0])
        self._constant = constant_labels(signs, costs, self._labels)
        kernel = self._settle_kernel(X, weights)
        losses = [
            SquaredHinges(s[:, None], costs) for s in np.where(self._constant == 0, signs, np.int8(0)).T
        ]
        self._grow_all(kernel, X, losses, costs, y)
        self._store_union(X, kernel)
        return self

    def _grow_all(
        self, kernel: Kernel, X: Any, losses: list[SquaredHinges], costs: np.ndarray, y: Any
    ) -> None:
        rng, clock = check_random_state(self.random_state), Clock(self.time_limit)
        observer = self._observer(X, y, max_epochs=self.max_basis * len(losses))
        self.history_, outcomes, self._stages_of = [], [], []
        for column, loss in enumerate(losses):
            problem = BasisProblem(kernel, X, loss)
            method = self._method(problem, costs, rng)
            left = None if self.time_limit is None else max(clock.limit - clock.seconds, 1e-9)
            outcome = run(method, Stopping(self.tol, self.max_basis, left), observer)
            self.history_ += [{**record, "column": column} for record in outcome.history]
            self._stages_of.append((problem.basis, [problem.coefficients(W)[:, 0] for W in method.path]))
            outcomes.append(outcome)
        primal = sum(outcome.certificate.primal for outcome in outcomes)
        dual = sum(outcome.certificate.dual for outcome in outcomes)
        self._store_certificate(Certificate(primal, dual))
        self._complain(outcomes)
        self._callback_fit_ctx.call_on_fit_task_end(estimator=self)

    def _store_union(self, X: Any, kernel: Kernel) -> None:
        """Join the bases of all classes; a class has zeros at the vectors of the others."""
        self._keep_kernel(kernel)
        self._merge(max(self.max_basis, 1))
        rows = X[self.basis_indices_]
        self.basis_vectors_ = rows if kernel.name != "precomputed" else rows[:, :0]

    def _merge(self, n_basis: int) -> None:
        parts = [(np.array(basis[:n_basis], dtype=np.intp), path) for basis, path in self._stages_of]
        self.basis_sizes_ = np.array([len(basis) for basis, _ in parts])
        self.basis_indices_ = np.unique(np.concatenate([basis for basis, _ in parts]))
        coef = np.zeros((len(parts), len(self.basis_indices_)))
        for row, (basis, path) in zip(coef, parts, strict=True):
            if basis.size:
                row[np.searchsorted(self.basis_indices_, basis)] = path[basis.size - 1]
        self._store_coefficients(coef)

    def truncate(self, n_basis: int) -> SparseOneVsRest:
        """The fitted machine as it was with at most `n_basis` basis vectors per class."""
        check_is_fitted(self)
        check_size(n_basis, int(self.basis_sizes_.max(initial=0)))
        machine = copy.copy(self)
        machine._merge(n_basis)
        places = np.searchsorted(self.basis_indices_, machine.basis_indices_)
        machine.basis_vectors_ = self.basis_vectors_[places]
        last = [r for r in self.history_ if r["epoch"] <= n_basis]
        machine.history_ = last
        final = {record["column"]: record for record in last}.values()
        machine._store_certificate(
            Certificate(sum(r["primal"] for r in final), sum(r["dual"] for r in final))
        )
        return machine

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the classes or labels; a vector when y was one of two classes."""
        scores = self._scores(X)
        return self._labels.scores(scores)

    def predict(self, X: Any) -> Any:
        """The best class, or the labels with a positive score, in the kind given to `fit`."""
        scores = self._scores(X)
        return self._labels.answer(self._labels.choose(scores), like=X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class ImportVectorMachine(BasisMachine):
    """Sparse kernel logistic regression with a greedily grown basis (ImVM).

    It minimises ``1/2 sum_r |w_r|^2 + C sum_i [log sum_r exp f_r(x_i) - f_{y_i}(x_i)]``, so C is
    that of LogisticRegression and lambda = 1/C.

    Parameters
    ----------
    C : float, default=1.0
    max_basis : int, default=100
    n_candidates : int or None, default=25
    scoring : {"step", "full"}, default="step"
        Judge a candidate by the objective after a Newton step in its own coefficients, or,
        as published and much slower, after one in all coefficients.
    solver : {"auto", "newton", "newton-cg"}, default="auto"
    kernel : {"rbf", "linear", "poly", "sigmoid", "chi2", "precomputed"} or callable, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
    degree : int, default=3
    coef0 : float, default=0.0
    fit_intercept : bool, default=False
    intercept_scaling : float, default=1.0
    rel_tol : float, default=1e-3
    n_iter_no_change : int, default=1
    tol : float, default=1e-6
    max_iter : int, default=200
    time_limit : float or None, default=None
    random_state : int, RandomState or None, default=None
    verbose : int, default=0

    Attributes
    ----------
    basis_indices_, basis_vectors_, coef_, intercept_, path_, classes_, history_, n_iter_
        As in `maxmargin.SparseMultiClassSVC`.
    primal_objective_, dual_objective_, duality_gap_ : float
        Objective, its lower bound for this basis, and their relative distance.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin.baselines import ImportVectorMachine
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = ImportVectorMachine(C=10, max_basis=10, random_state=0).fit(X, y)
    >>> bool(machine.score(X, y) > 0.95)
    True
    >>> machine.predict_proba(X[:2]).shape
    (2, 3)
    """

    _parameter_constraints = {
        **SHARED,
        "scoring": [StrOptions({"step", "full"})],
        "solver": [StrOptions({"auto", "newton", "newton-cg"})],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        max_basis: int = 100,
        n_candidates: int | None = 25,
        scoring: str = "step",
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
        time_limit: float | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.max_basis = max_basis
        self.n_candidates = n_candidates
        self.scoring = scoring
        self.solver = solver
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.rel_tol = rel_tol
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ImportVectorMachine:
        """Grow a basis and fit its coefficients.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        """
        X = self._read_rows(X, reset=True)
        self.classes_, codes = read_classes(X, y)
        weights = self._read_weights(sample_weight, X)
        costs = sample_costs(self.C, weights, X.shape[0])
        loss = MultiLogit(codes, costs, len(self.classes_))
        make = FullStepProblem if self.scoring == "full" else BasisProblem
        problem = make(self._settle_kernel(X, weights), X, loss)
        growth = self._grow(problem, costs, y)
        self._store_machine(problem, growth.path, constant=np.zeros(len(self.classes_)))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the classes; for two classes the difference of the second and the first."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes."""
        scores = self._scores(X)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return scores

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        scores = self._scores(X)
        return self.classes_[np.argmax(scores, axis=1)]

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """`predict` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self.classes_[np.argmax(scores, axis=1)]

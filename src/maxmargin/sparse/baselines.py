"""Sparse kernel machines without a common max-margin objective: one basis per class, and KLR."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Certificate, Clock, Stopping, run
from maxmargin.sparse.answers import ClassMachine, LabelMachine
from maxmargin.sparse.growth import BASIS_CONSTRAINTS, check_size
from maxmargin.sparse.losses import MultiLogit, SquaredHinges
from maxmargin.sparse.problem import BasisProblem, FullStepProblem


class SparseOneVsRest(LabelMachine):
    """One sparse squared-hinge SVM per class or label, each with a basis of its own (SpSVM).

    Every column r minimises ``1/2 |w_r|^2 + C sum_i max(0, 1 - y_ir f_r(x_i))^2`` over a
    basis grown for it alone. In the paper's scaling, lambda/2 |w|^2 + 1/2 sum of squares, that
    is C = 1/(2 lambda). Prediction evaluates the kernel once for each of the distinct basis vectors.

    Parameters that are not listed are those of `maxmargin.SparseMultiClassSVC`, for every class by
    itself; the ways of `selection` differ only in the first basis vector, which "sequential" draws
    at random.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the squared margin violations.
    max_basis : int, default=100
        Most basis vectors of one class.

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
    full_model_bound_, full_model_gap_ : float
        With `full_bound`, also summed over the classes.
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
        weights, costs = self._read_costs(sample_weight, X)
        signs, self._constant = self._read_labels(X, y, costs)
        kernel = self._settle_kernel(X, weights)
        self._grow_all(kernel, X, [SquaredHinges(s[:, None], costs) for s in signs.T], costs, y)
        self._store_union(X, kernel)
        return self

    def _grow_all(
        self, kernel: Kernel, X: Any, losses: list[SquaredHinges], costs: np.ndarray, y: Any
    ) -> None:
        rng, clock = check_random_state(self.random_state), Clock(self.time_limit)
        observer = self._observer(X, y, max_epochs=self.max_basis * len(losses))
        self.history_, outcomes, self._stages_of, bound = [], [], [], 0.0
        self._forget()
        for column, loss in enumerate(losses):
            problem = BasisProblem(kernel, X, loss, selection=self.selection)
            method = self._method(problem, costs, rng)
            left = None if self.time_limit is None else max(clock.limit - clock.seconds, 1e-9)
            outcome = run(method, Stopping(self.tol, self.max_basis, left), observer)
            self.history_ += [{**record, "column": column} for record in outcome.history]
            path = method.path if self.keep_path else [problem.W]
            self._stages_of.append((problem.basis, [problem.coefficients(W)[:, 0] for W in path]))
            bound += problem.full_model_bound() if self.full_bound else 0.0
            outcomes.append(outcome)
        primal = sum(outcome.certificate.primal for outcome in outcomes)
        dual = sum(outcome.certificate.dual for outcome in outcomes)
        self._store_certificate(Certificate(primal, dual))
        if self.full_bound:
            self._store_full_bound(bound)
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
                row[np.searchsorted(self.basis_indices_, basis)] = path[min(basis.size, len(path)) - 1]
        self._store_coefficients(coef)

    def truncate(self, n_basis: int) -> SparseOneVsRest:
        """The fitted machine as it was with at most `n_basis` basis vectors per class."""
        check_is_fitted(self)
        self._require_path(all(len(path) == len(basis) for basis, path in self._stages_of))
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
        if hasattr(self, "full_model_bound_"):
            machine._store_full_bound(self.full_model_bound_)
        return machine


class ImportVectorMachine(ClassMachine):
    """Sparse kernel logistic regression with a greedily grown basis (ImVM).

    It minimises ``1/2 sum_r |w_r|^2 + C sum_i [log sum_r exp f_r(x_i) - f_{y_i}(x_i)]``, so C is
    that of LogisticRegression and lambda = 1/C.

    Parameters that are not listed are those of `maxmargin.SparseMultiClassSVC`.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss.
    scoring : {"step", "full"}, default="step"
        Judge a candidate by the objective after a Newton step in its own coefficients, or,
        as published and much slower, after one in all coefficients.

    Attributes
    ----------
    basis_indices_, basis_vectors_, coef_, intercept_, path_, classes_, history_, n_iter_
        As in `maxmargin.SparseMultiClassSVC`.
    primal_objective_, dual_objective_, duality_gap_ : float
        Objective, its lower bound for this basis, and their relative distance.
    full_model_bound_, full_model_gap_ : float
        With `full_bound`, as in `maxmargin.SparseMultiClassSVC`.

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

    _parameter_constraints = {**BASIS_CONSTRAINTS, "scoring": [StrOptions({"step", "full"})]}

    def __init__(
        self,
        C: float = 1.0,
        *,
        scoring: str = "step",
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
        self.scoring = scoring

    def _problem(self, kernel: Kernel, X: Any, codes: np.ndarray, costs: np.ndarray) -> BasisProblem:
        loss = MultiLogit(codes, costs, len(self.classes_))
        make = FullStepProblem if self.scoring == "full" else BasisProblem
        return make(kernel, X, loss, selection=self.selection)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes."""
        scores = self._scores(X)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return scores

"""What the machines with few basis vectors share: parameters, growth, prediction, the path."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from maxmargin.estimators._base import COMMON_CONSTRAINTS, MaxMarginEstimator
from maxmargin.estimators._labels import LabelSpace
from maxmargin.kernels import NAMES, Kernel
from maxmargin.problems._pool import candidate_pool
from maxmargin.problems.sparse import SELECTIONS, BasisProblem
from maxmargin.solvers._loop import Certificate, Outcome, Stopping, run
from maxmargin.solvers.greedy import SOLVERS, Greedy

# A relative gap this small is rounding: objective and bound are recomputed from kernel values.
ROUNDED = 1e-10

BASIS_CONSTRAINTS: dict[str, list[Any]] = {
    "C": COMMON_CONSTRAINTS["C"],
    "max_basis": [Interval(Integral, 1, None, closed="left")],
    "n_candidates": [Interval(Integral, 1, None, closed="left"), None],
    "selection": [StrOptions(set(SELECTIONS))],
    "solver": [StrOptions(set(SOLVERS))],
    "kernel": [StrOptions(set(NAMES)), callable],
    "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
    "degree": [Interval(Integral, 0, None, closed="left")],
    "coef0": [Interval(Real, None, None, closed="neither")],
    "fit_intercept": ["boolean"],
    "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
    "rel_tol": [Interval(Real, 0, None, closed="left")],
    "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    "tol": COMMON_CONSTRAINTS["tol"],
    "max_iter": COMMON_CONSTRAINTS["max_iter"],
    "full_bound": ["boolean"],
    "keep_path": ["boolean"],
    "time_limit": COMMON_CONSTRAINTS["time_limit"],
    "random_state": COMMON_CONSTRAINTS["random_state"],
    "verbose": COMMON_CONSTRAINTS["verbose"],
}


class BasisMachine(ClassifierMixin, MaxMarginEstimator):
    """Scores from few kernel functions that all classes or labels share."""

    def _settle_kernel(self, X: Any, weights: np.ndarray | None) -> Kernel:
        return Kernel.of(
            X,
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            offset=self.intercept_scaling**2 if self.fit_intercept else 0.0,
            sample_weight=weights,
        )

    def _method(self, problem: BasisProblem, weights: np.ndarray, rng: Any) -> Greedy:
        """The greedy solver with this estimator's parameters."""
        by_content = problem.kernel.name != "precomputed"
        return Greedy(
            problem,
            candidate_pool(problem.X, weights, by_content),
            rng,
            max_basis=self.max_basis,
            n_candidates=self.n_candidates,
            rel_tol=self.rel_tol,
            patience=self.n_iter_no_change,
            tol=self.tol,
            max_iter=self.max_iter,
            solver=getattr(self, "solver", "auto"),
            random_start=problem.selection == "sequential",
            keep_path=getattr(self, "keep_path", True),
        )

    def _grow(self, problem: BasisProblem, weights: np.ndarray, y: Any) -> Greedy:
        """Grow the basis and keep what the run proved."""
        method = self._method(problem, weights, check_random_state(self.random_state))
        observer = self._observer(problem.X, y, max_epochs=self.max_basis)
        outcome = run(method, Stopping(self.tol, self.max_basis, self.time_limit), observer)
        self.history_ = outcome.history
        self._store_certificate(outcome.certificate)
        self._complain([outcome])
        self._callback_fit_ctx.call_on_fit_task_end(estimator=self)
        return method

    def _store_certificate(self, certificate: Certificate) -> None:
        self.primal_objective_ = certificate.primal
        self.dual_objective_ = certificate.dual
        self.duality_gap_ = certificate.gap
        self.n_iter_ = max(len(self.history_), 1)

    def _complain(self, outcomes: list[Outcome]) -> None:
        """Warn when growth was cut short or the coefficients are not at their optimum."""
        cut = next((outcome for outcome in outcomes if not outcome.converged), None)
        if cut is not None:
            size = cut.history[-1]["active"] if cut.history else 0
            knob = "raise time_limit to go on" if cut.reason == "time_limit" else cut.reason
            complaint = (
                f"growth of the basis ended at {size} of max_basis={self.max_basis} basis vectors; "
                f"the model is usable ({knob})."
            )
        elif self.duality_gap_ > max(self.tol, ROUNDED):
            complaint = (
                f"the coefficients stopped at a relative duality gap of {self.duality_gap_:.3g} "
                f"(tol={self.tol:g}) after max_iter={self.max_iter} Newton iterations or sweeps; the model "
                "is usable. To get closer, increase max_iter or use solver='auto'."
            )
        else:
            return
        warnings.warn(f"{type(self).__name__}: {complaint}", ConvergenceWarning, stacklevel=4)

    def _store_full_bound(self, bound: float) -> None:
        self.full_model_bound_ = bound
        self.full_model_gap_ = max(1 - bound / self.primal_objective_, 0.0) if self.primal_objective_ else 0.0

    def _store_machine(self, problem: BasisProblem, path: list[np.ndarray], constant: np.ndarray) -> None:
        """Keep basis and coefficients; a column with a constant answer has no coefficients.

        The offset of the kernel is a bias: offset times the sum of a column's coefficients.
        """
        self._keep_kernel(problem.kernel)
        self._constant = constant
        self.basis_indices_ = np.array(problem.basis, dtype=np.intp)
        rows = problem.X[self.basis_indices_]
        self.basis_vectors_ = rows if problem.kernel.name != "precomputed" else rows[:, :0]
        if path:
            self.path_ = [self._clean(problem.coefficients(W)) for W in path]
        self._store_coefficients(self._clean(problem.coefficients()))

    def _keep_kernel(self, kernel: Kernel) -> None:
        """For prediction: the offset is in the intercepts, not in the kernel values."""
        self._kernel, self._offset = replace(kernel, offset=0.0), kernel.offset

    def _clean(self, coefficients: np.ndarray) -> np.ndarray:
        return np.where(self._constant == 0, coefficients, 0.0).T

    def _store_coefficients(self, coef: np.ndarray) -> None:
        self.coef_ = coef
        self.intercept_ = self._intercept(coef)

    def _intercept(self, coef: np.ndarray) -> np.ndarray:
        return self._offset * coef.sum(axis=1) + self._constant

    @property
    def n_basis_(self) -> int:
        """Number of basis vectors."""
        return len(self.basis_indices_)

    def _basis(self, n_basis: int) -> Any:
        precomputed = self._kernel.name == "precomputed"
        return self.basis_indices_[:n_basis] if precomputed else self.basis_vectors_[:n_basis]

    def _scores(self, X: Any) -> np.ndarray:
        """Scores (n x k) in the dtype of X, some rows at a time."""
        check_is_fitted(self)
        X = self._read_rows(X, reset=False)
        scores = self._kernel.scores(X, self._basis(self.n_basis_), self.coef_.T)
        scores += self.intercept_.astype(X.dtype)
        return scores

    def _staged_scores(self, X: Any) -> Iterator[np.ndarray]:
        """Scores with the first 1, 2, ... basis vectors; kernel values are computed once."""
        check_is_fitted(self)
        path = self._stages()
        X = self._read_rows(X, reset=False)
        K = self._kernel.block(X, self._basis(self.n_basis_))
        for coef in path:
            yield K[:, : coef.shape[1]] @ coef.T.astype(X.dtype) + self._intercept(coef).astype(X.dtype)

    def _stages(self) -> list[np.ndarray]:
        if not hasattr(self, "path_"):
            raise AttributeError(
                f"This {type(self).__name__} was fitted with keep_path=False; fit it with keep_path=True."
            )
        return self.path_

    def truncate(self, n_basis: int) -> Any:
        """The fitted machine as it was with its first `n_basis` basis vectors.

        Parameters
        ----------
        n_basis : int
            From 1 to the number of basis vectors.

        Returns
        -------
        machine : estimator
            A fitted copy; `history_` and objectives are those of that stage.
        """
        check_is_fitted(self)
        path = self._stages()
        check_size(n_basis, len(path))
        machine = copy.copy(self)
        if n_basis == len(path):
            return machine
        machine.path_ = path[:n_basis]
        machine.basis_indices_ = self.basis_indices_[:n_basis]
        machine.basis_vectors_ = self.basis_vectors_[:n_basis]
        machine.history_ = self.history_[:n_basis]
        machine.n_iter_ = n_basis
        stage = self.history_[n_basis - 1]
        machine.primal_objective_, machine.dual_objective_ = stage["primal"], stage["dual"]
        machine.duality_gap_ = stage["gap"]
        if hasattr(self, "full_model_bound_"):
            machine._store_full_bound(self.full_model_bound_)
        machine._store_coefficients(path[n_basis - 1])
        return machine

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.positive_only = self.kernel == "chi2"
        return tags


def sample_costs(C: float, weights: np.ndarray | None, n: int) -> np.ndarray:
    """C times the weight of every sample."""
    return np.full(n, float(C)) if weights is None else C * weights


def check_size(n_basis: Any, most: int) -> None:
    """Refuse a number of basis vectors that is no integer from 1 to `most`."""
    whole = isinstance(n_basis, Integral) and not isinstance(n_basis, bool)
    if not whole or not 1 <= n_basis <= most:
        raise ValueError(
            f"n_basis must be an integer from 1 to {most}, the number of basis vectors. "
            f"Got {n_basis!r} instead."
        )


def read_classes(X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Classes in sorted order, and the code of every sample's class."""
    if y is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None; pass the classes."
        )
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y holds one class only, {classes[0]!r}; at least 2 classes are needed.")
    return classes, codes


def constant_labels(signs: np.ndarray, costs: np.ndarray, labels: LabelSpace) -> np.ndarray:
    """+1 or -1 for a label that is always on or off (an unknown one is off), else 0."""
    seen = signs[costs > 0]
    on, off = (seen == 1).any(axis=0), (seen == -1).any(axis=0)
    constant = np.where(on & off, 0.0, np.where(on, 1.0, -1.0))
    if constant.any():
        names = labels.classes[-len(constant) :][constant != 0].tolist()
        shown = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
        warnings.warn(
            f"{np.count_nonzero(constant)} of {len(constant)} labels never change in the training data "
            f"({shown}); for them the constant is predicted.",
            UserWarning,
            stacklevel=3,
        )
    return constant

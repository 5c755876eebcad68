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
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.kernels import NAMES, Kernel
from maxmargin.core.loop import Certificate, Outcome, Stopping, run
from maxmargin.edge.estimator import COMMON_CONSTRAINTS, MaxMarginEstimator
from maxmargin.sparse.greedy import SOLVERS, Greedy
from maxmargin.sparse.pool import candidate_pool
from maxmargin.sparse.problem import SELECTIONS, BasisProblem

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

    _parameter_constraints = BASIS_CONSTRAINTS

    def __init__(
        self,
        C: float = 1.0,
        *,
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
        self.C = C
        self.max_basis = max_basis
        self.n_candidates = n_candidates
        self.selection = selection
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
        self.full_bound = full_bound
        self.keep_path = keep_path
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def _read_costs(self, sample_weight: Any, X: Any) -> tuple[np.ndarray | None, np.ndarray]:
        """Validated sample weights, and C times the weight of every sample."""
        weights = self._read_weights(sample_weight, X)
        costs = np.full(X.shape[0], float(self.C)) if weights is None else self.C * weights
        return weights, costs

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
            solver=self.solver,
            random_start=problem.selection == "sequential",
            keep_path=self.keep_path,
        )

    def _grow(self, problem: BasisProblem, weights: np.ndarray, y: Any, constant: np.ndarray) -> None:
        """Grow the basis; keep the machine and what the run proved."""
        self._forget()
        method = self._method(problem, weights, check_random_state(self.random_state))
        observer = self._observer(problem.X, y, max_epochs=self.max_basis)
        outcome = run(method, Stopping(self.tol, self.max_basis, self.time_limit), observer)
        self.history_ = outcome.history
        self._store_certificate(outcome.certificate)
        self._complain([outcome])
        self._callback_fit_ctx.call_on_fit_task_end(estimator=self)
        self._store_machine(problem, method.path, constant)
        if self.full_bound:
            self._store_full_bound(problem.full_model_bound())

    def _forget(self) -> None:
        """Drop what an earlier fit with other options has left."""
        for name in ("path_", "full_model_bound_", "full_model_gap_"):
            self.__dict__.pop(name, None)

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
        warnings.warn(f"{type(self).__name__}: {complaint}", ConvergenceWarning, stacklevel=5)

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
        if self.keep_path:
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
        self._require_path(hasattr(self, "path_"))
        return self.path_

    def _require_path(self, kept: bool) -> None:
        if not kept:
            raise AttributeError(
                f"This {type(self).__name__} was fitted with keep_path=False; fit it with keep_path=True."
            )

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


def check_size(n_basis: Any, most: int) -> None:
    """Refuse a number of basis vectors that is no integer from 1 to `most`."""
    whole = isinstance(n_basis, Integral) and not isinstance(n_basis, bool)
    if not whole or not 1 <= n_basis <= most:
        raise ValueError(
            f"n_basis must be an integer from 1 to {most}, the number of basis vectors. "
            f"Got {n_basis!r} instead."
        )

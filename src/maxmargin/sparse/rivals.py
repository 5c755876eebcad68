"""The machines that the paper on sparse machines compares with: SpSVM and ImVM."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.loop import Certificate, Clock, Outcome, Stopping, run
from maxmargin.edge.estimator import fit_context
from maxmargin.sparse.basis_machine import (
    BasisMachine,
    ClassMachine,
    LabelMachine,
    check_size,
    documented,
    with_sizes,
)
from maxmargin.sparse.greedy import Solution
from maxmargin.sparse.loss_loops import Loss, MultiLogit, SquaredHinges
from maxmargin.sparse.problem import BasisProblem


@documented
class SparseOneVsRest(LabelMachine):
    """One sparse squared-hinge SVM per class or label, each with a basis of its own (SpSVM).

    Every column r minimises ``1/2 |w_r|^2 + C sum_i max(0, 1 - y_ir f_r(x_i))^2`` over a basis grown for it
    alone. In the scaling of the paper, lambda/2 |w|^2 + 1/2 sum of squares, that is C = 1/(2 lambda).
    Prediction evaluates the kernel once for each distinct basis vector.

    `max_basis` and the other parameters apply to each class separately. The values of `selection` differ only
    in the first basis vector, which "sequential" draws at random.

    Parameters
    ----------
    {parameters}

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
        As in `maxmargin.SparseMultiClassSVC`; a record also has the number of its column.

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

    @fit_context(prefer_skip_nested_validation=True)
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
        kernel = self._make_kernel(X, weights)
        problems = [BasisProblem(kernel, X, SquaredHinges(s[:, None], costs)) for s in signs.T]
        self._delete_optional()
        runs = self._grow_all(problems, costs, y)
        self.history_ = [{**record, "column": r} for r, cut in enumerate(runs) for record in with_sizes(*cut)]
        ran = [name for outcome, _ in runs for name in outcome.solver.split(", then ")]
        self.solver_ = ", then ".join(dict.fromkeys(ran))
        certificates = [outcome.certificate for outcome, _ in runs]
        self._store_certificate(
            Certificate(sum(c.primal for c in certificates), sum(c.dual for c in certificates))
        )
        if self.full_bound:
            bounds = [p.full_model_bound(s.loss) for p, (_, s) in zip(problems, runs, strict=True)]
            self._store_full_bound(sum(bounds, 0.0))
        self._warn_if_unfinished(runs)
        self._callback_fit_ctx.call_on_fit_task_end(estimator=self)
        self._store_union(problems[0], [solution for _, solution in runs])
        for outcome, _ in runs:
            self._go_on_with_interrupt(outcome, "its bases are those found so far")
        return self

    def _grow_all(
        self, problems: list[BasisProblem], costs: np.ndarray, y: Any
    ) -> list[tuple[Outcome, Solution]]:
        """Run one solver per column; they share the time limit."""
        rng, clock = check_random_state(self.random_state), Clock(self.time_limit)
        observer = self._observer(problems[0].X, y, max_epochs=self.max_basis * len(problems))
        runs: list[tuple[Outcome, Solution]] = []
        for problem in problems:
            solver = self._solver(problem, costs, rng)
            # After Ctrl-C the remaining columns take one step each, so that the machine is complete.
            limit = 0.0 if any(outcome.interrupted for outcome, _ in runs) else clock.left()
            outcome = run(solver, Stopping(self.tol, self.max_basis, limit), observer, self.solver)
            runs.append((outcome, solver.solution()))
        return runs

    def _store_union(self, problem: BasisProblem, solutions: list[Solution]) -> None:
        """Merge the bases of all classes; a class has zeros at the vectors of the others."""
        self._keep_kernel(problem.kernel)
        stages = [(s.basis, [s.coefficients] if s.path is None else s.path) for s in solutions]
        self._stages_of = [(basis.tolist(), [c[:, 0] for c in path]) for basis, path in stages]
        self._merge(self.max_basis)
        self._keep_basis(problem, self.basis_indices_, problem.vectors(self.basis_indices_))

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
        """Return the fitted machine with at most `n_basis` basis vectors per class."""
        check_is_fitted(self)
        self._require_path(all(len(path) == len(basis) for basis, path in self._stages_of))
        check_size(n_basis, int(self.basis_sizes_.max(initial=0)))
        machine = copy.copy(self)
        machine._merge(n_basis)
        positions = np.searchsorted(self.basis_indices_, machine.basis_indices_)
        machine.basis_vectors_ = self.basis_vectors_[positions]
        last = [r for r in self.history_ if r["epoch"] <= n_basis]
        machine.history_ = last
        final = {record["column"]: record for record in last}.values()
        machine._store_certificate(
            Certificate(sum(r["primal"] for r in final), sum(r["dual"] for r in final))
        )
        if hasattr(self, "full_model_bound_"):
            machine._store_full_bound(self.full_model_bound_)
        return machine


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class ImportVectorMachine(ClassMachine):
    """Sparse kernel logistic regression with a greedily grown basis (ImVM).

    It minimises ``1/2 sum_r |w_r|^2 + C sum_i [log sum_r exp f_r(x_i) - f_{y_i}(x_i)]``, so C is that of
    LogisticRegression and lambda = 1/C.

    Parameters
    ----------
    {parameters}
    scoring : {"step", "full"}, default="step"
        Score a candidate by the objective after a Newton step in its own coefficients, or, as published and
        much slower, after one in all coefficients.

    Attributes
    ----------
    {attributes}

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

    scoring: str = "step"

    _parameter_constraints = {
        **BasisMachine._parameter_constraints,
        "scoring": [StrOptions({"step", "full"})],
    }

    def _loss(self, codes: np.ndarray, costs: np.ndarray) -> Loss:
        return MultiLogit(codes, costs, len(self.classes_))

    def _growth(self) -> dict[str, Any]:
        return {"full_steps": self.scoring == "full"}

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes."""
        return softmax(self._scores(X), axis=1)

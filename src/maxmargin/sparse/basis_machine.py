"""What all sparse machines share: parameters, growth of a basis, prediction, and the path of stages."""

from __future__ import annotations

import copy
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from maxmargin.core.jit import interpret
from maxmargin.core.kernels import Clouds, Kernel, check_basis
from maxmargin.core.loop import Certificate, Outcome, Solver, Stopping, run
from maxmargin.core.state import (
    OUTCOME,
    ROWS,
    Field,
    LabelNames,
    Number,
    Samples,
    Several,
    Sizes,
    floats,
    indices,
    part,
)
from maxmargin.device.backend import (
    DEVICES,
    basis_demand,
    check_width,
    find,
    kernel_in_kind,
    kernel_scores,
    like,
)
from maxmargin.edge.estimator import (
    COMMON_CONSTRAINTS,
    Choice,
    Iterative,
    Kernelised,
    choose,
    fit_context,
    is_foreign,
    to_numpy,
    warn,
)
from maxmargin.edge.explain import Explained, Terms, kernel_terms
from maxmargin.edge.labels import (
    LabelClassifier,
    LabelSpace,
    check_answers,
    constant_labels,
    warn_of_constants,
)
from maxmargin.sparse.greedy import Greedy, Newton, Solution, Sweeps
from maxmargin.sparse.loss_loops import Loss, SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import SELECTIONS, BasisProblem, candidate_pool

# A smaller relative gap is rounding.
ROUNDED = 1e-10
# Removed solvers and selections, and their replacements.
REMOVED = {"solver": {"newton": "auto", "newton-cg": "auto"}, "selection": {"jacobi": "block"}}
# Stored attributes of all machines.
MACHINE: dict[str, Field] = {
    **ROWS,
    **OUTCOME,
    "classes_": LabelNames("n_classes"),
    "_kernel": part("Kernel"),
    "_offset": Number(0.0),
    "_constant": floats("n_columns"),
    "basis_indices_": indices("n_basis"),
    "basis_vectors_": Samples(),
    "_spread": floats("n_basis", "n_features", low=0.0, group="spread"),
    "path_": Several(floats("n_columns", None), group="path"),
    "coef_": floats("n_columns", "n_basis"),
    "intercept_": floats("n_columns"),
    "full_model_bound_": Number(finite=False, group="bound"),
    "full_model_gap_": Number(finite=False, group="bound"),
}


def check_machine(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check that the basis is as wide as X, that it has a stage per vector, and that answers fit scores."""
    if "coef_" not in state:
        return
    check_basis(state["_kernel"], state["basis_indices_"], state["basis_vectors_"], sizes)
    rows = state["basis_vectors_"]
    if "_spread" in state and (state["_kernel"].name != "rbf" or not isinstance(rows, np.ndarray)):
        raise ValueError("its basis has a spread, but only dense vectors of an rbf kernel may have one")
    stages = [stage.shape[1] for stage in state.get("path_", [])]
    if "path_" in state and stages != list(range(1, sizes["n_basis"] + 1)):
        raise ValueError("its path_ does not have one stage for every basis vector")
    if "_labels" in state:
        check_answers(state["_labels"], state["classes_"])
    else:
        sizes.fix("n_columns", sizes["n_classes"])


def _growing(optimiser: type[Newton | Sweeps], *args: Any, max_iter: int, **options: Any) -> Greedy:
    return Greedy(*args, optimiser=optimiser(max_iter), **options)


SOLVERS: dict[str, Choice] = {
    "auto": Choice(
        partial(_growing, Newton),
        "Newton's method on all coefficients, by a Cholesky factor or conjugate gradients.",
    ),
    "sweeps": Choice(partial(_growing, Sweeps), "Class after class (Algorithm 3 of the paper)."),
}


@dataclass(eq=False, repr=False)
class BasisMachine(Explained, LabelClassifier, Kernelised, Iterative):
    """Scores from few kernel functions that all classes or labels share.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss.
    tol : float, default=1e-6
        Relative gap, for the final basis, between the objective and its lower bound.
    max_iter : int, default=200
        Newton iterations (or sweeps) for one basis.
    time_limit : float or None, default=None
        Seconds after which the search for a basis stops.
    random_state : int, RandomState instance or None, default=0
        Draws the candidates; None means different ones in every fit.
    verbose : int, default=0
    kernel : {"rbf", "linear", "poly", "sigmoid", "chi2", "precomputed"} or callable, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
    degree : int, default=3
    coef0 : float, default=0.0
    max_basis : int, default=100
        Most basis vectors; `rel_tol` may stop the growth earlier.
    n_candidates : int or None, default=25
        Samples drawn as candidates for every new basis vector; None tries all.
    selection : {"block", "sequential"}, default="block"
        How the coefficients of a candidate are computed: jointly for all classes or labels, or in one pass
        over them with a random first basis vector (the paper).
    solver : {"auto", "sweeps"}, default="auto"
        How coefficients are optimised for a fixed basis: by Newton's method on all of them, with a Cholesky
        factor or conjugate gradients for the linear system, whichever is cheaper, or by class-by-class sweeps
        (the paper; slow to converge).
    fit_intercept : bool, default=False
        Add the constant ``intercept_scaling**2`` to the kernel, that is, a regularised bias.
    intercept_scaling : float, default=1.0
    rel_tol : float, default=1e-3
        Growth stops when a new basis vector lowers the objective by less than this fraction; with 0 it
        continues to `max_basis`.
    n_iter_no_change : int, default=1
        Number of consecutive basis vectors below `rel_tol` that stop the growth.
    full_bound : bool, default=False
        Also compute a lower bound on the objective of the model with all samples as basis; needs the kernel
        values between all samples with loss.
    keep_path : bool, default=True
        Keep the coefficients of every stage for `truncate` and `staged_predict`: d^2 k / 2 numbers.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        "cuda" trains on an NVIDIA GPU through PyTorch (``pip install torch``), in float64: the same
        objective, certificate and attributes. "auto" uses a GPU if there is one and the problem is large
        enough, and otherwise logs the reason.

    Attributes
    ----------
    basis_indices_ : array of shape (n_basis,)
        Training samples in the basis, in the order they joined; for a learned basis, the samples that its
        vectors started from.
    basis_vectors_ : array or CSR matrix of shape (n_basis, n_features)
    coef_ : array of shape (n_classes, n_basis)
        Coefficients of the kernel functions, a row for every class or label.
    intercept_ : array of shape (n_classes,)
    path_ : list of arrays
        Coefficients with the first 1, 2, ... basis vectors.
    primal_objective_, dual_objective_, duality_gap_ : float
        Objective, its lower bound for this basis, and their relative distance, recomputed in float64 from the
        stored solution.
    full_model_bound_, full_model_gap_ : float
        With `full_bound`: lower bound on the objective of the dense model, and the largest fraction by which
        the objective of this model could be lowered.
    classes_ : array of shape (n_classes,)
    solver_ : str
        How the coefficients were found: the name of the solver, or several names in order ("cholesky, then
        cg").
    history_ : list of dict
        One record per basis vector: epoch, seconds, primal, dual, gap, active (samples with loss), solver,
        basis (number of basis vectors). The bounds are those of the basis at that time.
    n_iter_ : int
        Rounds of growth.
    """

    C: float = 1.0
    _: KW_ONLY
    max_basis: int = 100
    n_candidates: int | None = 25
    selection: str = "block"
    solver: str = "auto"
    kernel: Any = "rbf"
    fit_intercept: bool = False
    intercept_scaling: float = 1.0
    rel_tol: float = 1e-3
    n_iter_no_change: int = 1
    tol: float = 1e-6
    max_iter: int = 200
    full_bound: bool = False
    keep_path: bool = True
    device: str = "cpu"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Iterative._parameter_constraints,
        **Kernelised.kernel_constraints,
        "C": COMMON_CONSTRAINTS["C"],
        "max_basis": [Interval(Integral, 1, None, closed="left")],
        "n_candidates": [Interval(Integral, 1, None, closed="left"), None],
        "selection": [StrOptions(set(SELECTIONS))],
        "solver": [StrOptions(SOLVERS.keys())],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "rel_tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "full_bound": ["boolean"],
        "keep_path": ["boolean"],
        "device": [StrOptions(set(DEVICES))],
    }

    def _read_costs(self, sample_weight: Any, X: Any) -> tuple[np.ndarray | None, np.ndarray]:
        """Return the validated sample weights, and C times the weight of every sample."""
        weights = self._read_weights(sample_weight, X)
        costs = np.full(X.shape[0], float(self.C)) if weights is None else self.C * weights
        return weights, costs

    def _make_kernel(self, X: Any, weights: np.ndarray | None) -> Kernel:
        return Kernel.of(
            X,
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            offset=self.intercept_scaling**2 if self.fit_intercept else 0.0,
            sample_weight=weights,
        )

    def _solver(self, problem: BasisProblem, weights: np.ndarray, rng: Any, **options: Any) -> Solver:
        """Build the solver with the parameters of this estimator."""
        interpret(*problem.X.shape, problem.loss.n_columns)
        pool = candidate_pool(problem.X, weights, by_content=problem.kernel.name != "precomputed")
        build, device = choose(self, SOLVERS).build, self._device(problem, options)
        if device is not None:
            from maxmargin.device.sparse import growing

            build = partial(growing, device=device)
        return build(
            problem,
            pool,
            rng,
            max_basis=self.max_basis,
            n_candidates=self.n_candidates,
            rel_tol=self.rel_tol,
            patience=self.n_iter_no_change,
            tol=self.tol,
            max_iter=self.max_iter,
            selection=self.selection,
            keep_path=self.keep_path,
            **options,
        )

    def _device(self, problem: BasisProblem, options: dict[str, Any]) -> Any:
        """Return the GPU to use, or None."""
        if self.device == "cpu":
            return None
        unable = "" if self.solver == "auto" else f"solver={self.solver!r} runs on the CPU only"
        if not isinstance(problem.loss, SquaredMargins | SquaredHinges) or options:
            unable = f"{type(self).__name__} with this loss runs on the CPU only"
        elif getattr(self, "basis", "greedy") == "learned":
            unable = "basis='learned' runs on the CPU only"
        elif problem.kernel.name == "callable":
            unable = "a kernel that is a Python function runs on the CPU only"
        n, d = problem.X.shape
        demand = basis_demand(n, d, problem.loss.n_columns, min(self.max_basis, n))
        return find(self.device, demand, unable)

    def _grow(
        self, problem: BasisProblem, weights: np.ndarray, y: Any, constant: np.ndarray, **options: Any
    ) -> None:
        """Grow the basis; store the machine and its certificate."""
        solver = self._solver(problem, weights, check_random_state(self.random_state), **options)
        self._delete_optional()
        self._constant = constant
        observer = self._observer(
            problem.X, y, lambda: self._snapshot(problem, solver.solution()), max_epochs=self._most_epochs()
        )
        stopping = Stopping(self.tol, self._most_epochs(), self.time_limit)
        outcome = run(solver, stopping, observer, self.solver)
        solution = solver.solution()
        self.history_, self.solver_ = with_sizes(outcome, solution), outcome.solver
        self._store_certificate(outcome.certificate)
        self._warn_if_unfinished([(outcome, solution)])
        self._callback_fit_ctx.call_on_fit_task_end(estimator=self)
        self._store_machine(problem, solution)
        if self.full_bound:
            stored = replace(problem, kernel=solution.kernel)
            self._store_full_bound(stored.full_model_bound(solution.loss))
        self._go_on_with_interrupt(outcome, "its basis is the one found so far")

    def _most_epochs(self) -> int:
        return self.max_basis

    def _delete_optional(self) -> None:
        """Delete the optional attributes of an earlier fit."""
        for name in ("path_", "_spread", "full_model_bound_", "full_model_gap_"):
            self.__dict__.pop(name, None)

    def _store_certificate(self, certificate: Certificate) -> None:
        self.primal_objective_ = certificate.primal
        self.dual_objective_ = certificate.dual
        self.duality_gap_ = certificate.gap
        self.n_iter_ = max(len(self.history_), 1)

    def _warn_if_unfinished(self, runs: list[tuple[Outcome, Solution]]) -> None:
        """Warn if growth was cut short or the coefficients are not optimal."""
        cut = next(((outcome, solution) for outcome, solution in runs if not outcome.converged), None)
        if any(outcome.interrupted for outcome, _ in runs):
            return
        if cut is not None:
            outcome, solution = cut
            remedy = "increase time_limit" if outcome.reason == "time_limit" else outcome.reason
            message = (
                f"the search for a basis was cut short, with {len(solution.basis)} of max_basis="
                f"{self.max_basis} vectors; the model is usable ({remedy})."
            )
        elif self.duality_gap_ > max(self.tol, ROUNDED):
            message = (
                f"the coefficients stopped at a relative duality gap of {self.duality_gap_:.3g} "
                f"(tol={self.tol:g}) after max_iter={self.max_iter} Newton iterations or sweeps; the model "
                "is usable. To get closer, increase max_iter or use solver='auto'."
            )
        else:
            return
        warn(f"{type(self).__name__}: {message}", ConvergenceWarning)

    def _store_full_bound(self, bound: float) -> None:
        self.full_model_bound_ = bound
        self.full_model_gap_ = max(1 - bound / self.primal_objective_, 0.0) if self.primal_objective_ else 0.0

    def _store_machine(self, problem: BasisProblem, solution: Solution) -> None:
        """Store basis and coefficients; a column with a constant answer has zero coefficients."""
        self._keep_kernel(solution.kernel)
        self._keep_basis(problem, solution.basis, solution.vectors)
        if solution.path is not None:
            self.path_ = [self._clean(stage) for stage in solution.path]
        self._store_coefficients(self._clean(solution.coefficients))

    def _snapshot(self, problem: BasisProblem, solution: Solution) -> dict[str, Any]:
        """Return the attributes of a solution, for callbacks; `self` is unchanged."""
        machine = copy.copy(self)
        machine._store_machine(problem, solution)
        return dict(vars(machine))

    def _keep_basis(self, problem: BasisProblem, basis: np.ndarray, vectors: Any) -> None:
        self.basis_indices_ = basis
        if isinstance(vectors, Clouds):
            vectors, self._spread = vectors.centres, vectors.spread
        precomputed = problem.kernel.name == "precomputed"
        self.basis_vectors_ = problem.X[basis][:, :0] if precomputed else vectors

    def _keep_kernel(self, kernel: Kernel) -> None:
        # The offset becomes the intercepts: offset times the sum of the coefficients of a column.
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
        if self._kernel.name == "precomputed":
            return self.basis_indices_[:n_basis]
        vectors = self.basis_vectors_[:n_basis]
        return Clouds(vectors, self._spread[:n_basis]) if hasattr(self, "_spread") else vectors

    def _scores(self, X: Any) -> np.ndarray:
        """Return scores f_r(x) = sum_j coef_rj k(x_j, x), (3.7), by chunks of rows."""
        check_is_fitted(self)
        basis = self._basis(self.n_basis_)
        if is_foreign(X):
            check_width(X, self.n_features_in_)
            return kernel_in_kind(X, self._kernel, basis, self.coef_.T) + like(self.intercept_, X)
        X = self._read_rows(X, reset=False)
        scores = kernel_scores(self.device, self._kernel, X, basis, self.coef_.T)
        scores += self.intercept_.astype(X.dtype)
        return scores

    def _terms(self, X: Any) -> Terms:
        check_is_fitted(self)
        X = self._read_rows(X, reset=False)
        basis = self._basis(self.n_basis_)
        return kernel_terms(self._kernel, X, basis, self.basis_indices_, self.coef_, self.intercept_)

    def _staged_scores(self, X: Any) -> Iterator[np.ndarray]:
        """Yield scores with the first 1, 2, ... basis vectors; kernel values are computed once."""
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
        """Return the fitted machine with its first `n_basis` basis vectors.

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


def documented(cls: type[BasisMachine]) -> Any:
    """Insert the parameters and attributes of `BasisMachine` into the docstring of a class."""
    if "{parameters}" in (cls.__doc__ or ""):  # python -OO leaves no docstring
        shared = inspect.cleandoc(BasisMachine.__doc__ or "")
        _, parameters, attributes = re.split(r"\n\n(?:Parameters|Attributes)\n-+\n", shared)
        own = inspect.cleandoc(cls.__doc__ or "")
        cls.__doc__ = own.replace("{parameters}", parameters).replace("{attributes}", attributes)
    return cls


class ClassMachine(BasisMachine, ABC):
    """A machine that predicts the class with the highest score."""

    @abstractmethod
    def _loss(self, codes: np.ndarray, costs: np.ndarray) -> Loss:
        """Return the loss for classes 0, 1, ... and weights C * sample_weight."""

    def _growth(self) -> dict[str, Any]:
        """Return additional options of the greedy search."""
        return {}

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Grow a basis and fit its coefficients.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            Weights on the losses; equal to repeating samples.
        """
        X = self._read_rows(X, reset=True)
        codes = self._read_classes(y, X.shape[0])
        weights, costs = self._read_costs(sample_weight, X)
        problem = BasisProblem(self._make_kernel(X, weights), X, self._loss(codes, costs))
        self._grow(problem, costs, y, np.zeros(len(self.classes_)), **self._growth())
        return self

    def _terms(self, X: Any) -> Terms:
        terms = super()._terms(X)
        return terms.contrasted() if len(self.classes_) == 2 else terms

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes; for two classes, the second minus the first."""
        return _contrast(self._scores(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the highest score; ties go to the first class."""
        scores = self._scores(X)
        if is_foreign(X):
            return like(self.classes_[np.argmax(to_numpy(scores), axis=1)], X)
        return self.classes_[np.argmax(scores, axis=1)]

    def staged_decision_function(self, X: Any) -> Iterator[np.ndarray]:
        """Yield `decision_function` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield _contrast(scores)

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Yield `predict` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self.classes_[np.argmax(scores, axis=1)]


class LabelMachine(BasisMachine):
    """A machine that predicts the labels with a positive score, or the best of several classes."""

    def _read_labels(self, X: Any, y: Any, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the signs of the labels, 0 without loss, and the constant score of constant labels."""
        self._labels, signs = LabelSpace.read(y)
        check_consistent_length(X, signs)
        self.classes_ = self._labels.classes
        one_sided, on = constant_labels(signs, costs[:, None])
        warn_of_constants(self._labels.names, one_sided)
        constant = np.where(one_sided, np.where(on, 1.0, -1.0), 0.0)
        return np.where(constant == 0, signs, np.int8(0)), constant

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the labels (n_samples, n_labels); a vector for two classes."""
        scores = self._scores(X)
        return self._labels.scores(scores)

    def predict(self, X: Any) -> Any:
        """Return the labels with a positive score, or the best class, in the kind given to `fit`."""
        scores = self._scores(X)
        if is_foreign(X):
            return like(self._labels.answer(self._labels.choose(to_numpy(scores)), like=None), X)
        return self._labels.answer(self._labels.choose(scores), like=X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.two_d_labels = False
        return tags


def _contrast(scores: np.ndarray) -> np.ndarray:
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def with_sizes(outcome: Outcome, solution: Solution) -> list[dict[str, Any]]:
    """Return the records of a run, each with its number of basis vectors."""
    most = len(solution.basis)
    return [{**record, "basis": min(record["epoch"], most)} for record in outcome.history]


def check_size(n_basis: Any, most: int) -> None:
    """Raise an error unless `n_basis` is an integer from 1 to `most`."""
    whole = isinstance(n_basis, Integral) and not isinstance(n_basis, bool)
    if not whole or not 1 <= n_basis <= most:
        raise ValueError(
            f"n_basis must be an integer from 1 to {most}, the number of basis vectors. "
            f"Got {n_basis!r} instead."
        )

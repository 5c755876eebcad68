"""Sparse max-margin machines: a small basis of training samples shared by all classes or labels.

`SparseMultiClassSVC` and `SparseMultiLabelSVC` are the machines of Ganu, Shevade and Sundararajan;
`rivals` holds those that the paper compares with. They share parameters, growth, prediction and the
path of stages (`BasisMachine`) and differ in the loss and in how scores become answers: one class
(`ClassMachine`) or labels (`LabelMachine`).
"""

from __future__ import annotations

import copy
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, cast

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from maxmargin import priors
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
    State,
    flags,
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
from maxmargin.sparse.greedy import Greedy, Newton, Optimiser, Solution, Sweeps
from maxmargin.sparse.largest_margin import SquaredLargestMargin
from maxmargin.sparse.learned import ROUNDS, Learned
from maxmargin.sparse.loss_loops import Loss, SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import SELECTIONS, BasisProblem, candidate_pool

# A relative gap this small is rounding: objective and bound are recomputed from kernel values.
ROUNDED = 1e-10
# Least smoothing of kinks; with less, float64 loses the Newton equation.
SMOOTHEST = 1e-9


# Solvers and selections that are no more, and what to use instead.
GONE = {"solver": {"newton": "auto", "newton-cg": "auto"}, "selection": {"jacobi": "block"}}
# What a machine holds, whatever its answers.
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


def _check_machine(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: a basis as wide as X, a stage for every basis vector, and answers for all scores."""
    if "coef_" not in state:
        return
    check_basis(state["_kernel"], state["basis_indices_"], state["basis_vectors_"], sizes)
    rows = state["basis_vectors_"]
    if "_spread" in state and (state["_kernel"].name != "rbf" or not isinstance(rows, np.ndarray)):
        raise ValueError("its basis has a spread, which only dense vectors of an rbf kernel have")
    stages = [stage.shape[1] for stage in state.get("path_", [])]
    if "path_" in state and stages != list(range(1, sizes["n_basis"] + 1)):
        raise ValueError("its path_ does not have one stage for every basis vector")
    if "_labels" in state:
        check_answers(state["_labels"], state["classes_"])
    else:
        sizes.fix("n_columns", sizes["n_classes"])


def _growing(optimiser: Callable[[int], Optimiser], *args: Any, max_iter: int, **options: Any) -> Greedy:
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
    max_basis : int, default=100
        Most basis vectors; the basis stops growing earlier by `rel_tol`.
    n_candidates : int or None, default=25
        Samples drawn as candidates for every new basis vector; None tries all.
    selection : {"block", "sequential"}, default="block"
        How a candidate's coefficients are found: jointly for all classes or labels, or in one pass
        over them with a random first basis vector (the paper).
    solver : {"auto", "sweeps"}, default="auto"
        How coefficients are optimised for a fixed basis: Newton's method on all of them, with the linear
        system solved by a Cholesky factor or by conjugate gradients, whichever takes fewer products, or
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
        kernel values between all samples that carry loss.
    keep_path : bool, default=True
        Keep the coefficients of every stage for `truncate` and `staged_predict`; they are
        d^2 k / 2 numbers.
    time_limit : float or None, default=None
        Seconds after which the search for a basis stops.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        "cuda" trains on an NVIDIA GPU through PyTorch (``pip install torch``), in
        float64: the same objective, certificate and attributes. "auto" takes a GPU where there is
        one and the problem is large enough, and says in the log why not.
    random_state : int, RandomState instance or None, default=0
        Candidates that are drawn; None draws others in every fit.
    verbose : int, default=0

    Attributes
    ----------
    basis_indices_ : array of shape (n_basis,)
        Training samples in the basis, in the order they joined; the samples that the vectors of a
        learned basis started from.
    basis_vectors_ : array or CSR matrix of shape (n_basis, n_features)
    coef_ : array of shape (n_classes, n_basis)
        Coefficients of the kernel functions, a row for every class or label.
    intercept_ : array of shape (n_classes,)
    path_ : list of arrays
        Coefficients with the first 1, 2, ... basis vectors.
    primal_objective_, dual_objective_, duality_gap_ : float
        Objective, its lower bound for this basis, and their relative distance, recomputed in
        float64 from the stored solution.
    full_model_bound_, full_model_gap_ : float
        With `full_bound`: lower bound on the objective of the dense model, and by which
        fraction of it the objective of this model could at most be lowered.
    classes_ : array of shape (n_classes,)
    solver_ : str
        How the coefficients were found: the name of the solver, or of one after the other
        ("cholesky, then cg").
    history_ : list of dict
        One record per basis vector: epoch, seconds, primal, dual, gap, active (samples that
        carry loss), solver, basis (number of basis vectors). The bounds are those of the basis at that time.
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

    def _solver(self, problem: BasisProblem, weights: np.ndarray, rng: Any, **options: Any) -> Solver:
        """The solver with this estimator's parameters."""
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
        """The GPU to work on, or None."""
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
        """Grow the basis; keep the machine and what the run proved."""
        solver = self._solver(problem, weights, check_random_state(self.random_state), **options)
        self._run(problem, solver, y, constant)

    def _run(self, problem: BasisProblem, solver: Solver, y: Any, constant: np.ndarray) -> None:
        """Run the solver; keep the machine and what the run proved."""
        self._forget()
        self._constant = constant
        observer = self._observer(
            problem.X, y, lambda: self._reached(problem, solver.solution()), max_epochs=self._most_epochs()
        )
        stopping = Stopping(self.tol, self._most_epochs(), self.time_limit)
        outcome = run(solver, stopping, observer, self.solver)
        solution = solver.solution()
        self.history_, self.solver_ = with_sizes(outcome, solution), outcome.solver
        self._store_certificate(outcome.certificate)
        self._complain([(outcome, solution)])
        self._callback_fit_ctx.call_on_fit_task_end(estimator=self)
        self._store_machine(problem, solution)
        if self.full_bound:
            stored = replace(problem, kernel=solution.kernel)
            self._store_full_bound(stored.full_model_bound(solution.loss))
        self._go_on_with_interrupt(outcome, "its basis is the one found so far")

    def _most_epochs(self) -> int:
        return self.max_basis

    def _forget(self) -> None:
        """Drop what an earlier fit with other options has left."""
        for name in ("path_", "_spread", "full_model_bound_", "full_model_gap_"):
            self.__dict__.pop(name, None)

    def _store_certificate(self, certificate: Certificate) -> None:
        self.primal_objective_ = certificate.primal
        self.dual_objective_ = certificate.dual
        self.duality_gap_ = certificate.gap
        self.n_iter_ = max(len(self.history_), 1)

    def _complain(self, runs: list[tuple[Outcome, Solution]]) -> None:
        """Warn when growth was cut short or the coefficients are not at their optimum."""
        cut = next(((outcome, solution) for outcome, solution in runs if not outcome.converged), None)
        if any(outcome.interrupted for outcome, _ in runs):
            return
        if cut is not None:
            outcome, solution = cut
            knob = "raise time_limit to go on" if outcome.reason == "time_limit" else outcome.reason
            complaint = (
                f"the search for a basis was cut short, with {len(solution.basis)} of max_basis="
                f"{self.max_basis} vectors; the model is usable ({knob})."
            )
        elif self.duality_gap_ > max(self.tol, ROUNDED):
            complaint = (
                f"the coefficients stopped at a relative duality gap of {self.duality_gap_:.3g} "
                f"(tol={self.tol:g}) after max_iter={self.max_iter} Newton iterations or sweeps; the model "
                "is usable. To get closer, increase max_iter or use solver='auto'."
            )
        else:
            return
        warn(f"{type(self).__name__}: {complaint}", ConvergenceWarning)

    def _store_full_bound(self, bound: float) -> None:
        self.full_model_bound_ = bound
        self.full_model_gap_ = max(1 - bound / self.primal_objective_, 0.0) if self.primal_objective_ else 0.0

    def _store_machine(self, problem: BasisProblem, solution: Solution) -> None:
        """Keep basis and coefficients; a column with a constant answer has no coefficients.

        The offset of the kernel is a bias: offset times the sum of a column's coefficients.
        """
        self._keep_kernel(solution.kernel)
        self._keep_basis(problem, solution.basis, solution.vectors)
        if solution.path is not None:
            self.path_ = [self._clean(stage) for stage in solution.path]
        self._store_coefficients(self._clean(solution.coefficients))

    def _reached(self, problem: BasisProblem, solution: Solution) -> dict[str, Any]:
        """The machine of a solution as a callback sees it; this estimator stays as it is."""
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
        if self._kernel.name == "precomputed":
            return self.basis_indices_[:n_basis]
        vectors = self.basis_vectors_[:n_basis]
        return Clouds(vectors, self._spread[:n_basis]) if hasattr(self, "_spread") else vectors

    def _scores(self, X: Any) -> np.ndarray:
        """Scores f_r(x) = sum_j coef_rj k(x_j, x), (3.7), some rows at a time."""
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


def documented(cls: type[BasisMachine]) -> Any:
    """Put the parameters and attributes of `BasisMachine` where a docstring leaves room for them."""
    if "{parameters}" in (cls.__doc__ or ""):  # python -OO leaves no docstring
        shared = inspect.cleandoc(BasisMachine.__doc__ or "")
        _, parameters, attributes = re.split(r"\n\n(?:Parameters|Attributes)\n-+\n", shared)
        own = inspect.cleandoc(cls.__doc__ or "")
        cls.__doc__ = own.replace("{parameters}", parameters).replace("{attributes}", attributes)
    return cls


class ClassMachine(BasisMachine, ABC):
    """The class with the highest score."""

    @abstractmethod
    def _loss(self, codes: np.ndarray, costs: np.ndarray) -> Loss:
        """The loss for classes 0, 1, ... and weights C * sample_weight."""

    def _growth(self) -> dict[str, Any]:
        """What this machine asks of the greedy search."""
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
        problem = BasisProblem(self._settle_kernel(X, weights), X, self._loss(codes, costs))
        self._grow(problem, costs, y, np.zeros(len(self.classes_)), **self._growth())
        return self

    def _terms(self, X: Any) -> Terms:
        terms = super()._terms(X)
        return terms.contrasted() if len(self.classes_) == 2 else terms

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the classes; for two classes the difference of the second and the first."""
        return _contrast(self._scores(X))

    def predict(self, X: Any) -> np.ndarray:
        """The class with the highest score; among equals the first."""
        scores = self._scores(X)
        if is_foreign(X):
            return like(self.classes_[np.argmax(to_numpy(scores), axis=1)], X)
        return self.classes_[np.argmax(scores, axis=1)]

    def staged_decision_function(self, X: Any) -> Iterator[np.ndarray]:
        """`decision_function` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield _contrast(scores)

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """`predict` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self.classes_[np.argmax(scores, axis=1)]


@dataclass(eq=False, repr=False, kw_only=True)
class MovableMachine(BasisMachine):
    """A machine whose basis vectors may leave the training samples."""

    basis: str = "greedy"

    @property
    def gamma_(self) -> float:
        """The gamma of the kernel: as given and settled, or as learned."""
        check_is_fitted(self)
        return self._kernel.gamma

    @property
    def metric_(self) -> np.ndarray | None:
        """The M of exp(-gamma |M (x - z)|^2) as learned; None where gamma serves all directions."""
        check_is_fitted(self)
        return self._kernel.metric

    @property
    def spread_(self) -> np.ndarray | None:
        """The r of exp(-gamma sum_f (M (x - z_j))_f^2 / (1 + r_jf)) as learned; None for points."""
        check_is_fitted(self)
        return getattr(self, "_spread", None)

    _parameter_constraints = {
        **BasisMachine._parameter_constraints,
        "basis": [StrOptions({"greedy", "learned"})],
    }

    def _solver(self, problem: BasisProblem, weights: np.ndarray, rng: Any, **options: Any) -> Solver:
        greedy = super()._solver(problem, weights, rng, **options)
        if self.basis == "greedy":
            return greedy
        if problem.kernel.name != "rbf":
            raise ValueError(
                f"basis='learned' moves vectors of kernel='rbf' only. Got kernel={self.kernel!r}; "
                "use basis='greedy' with it."
            )
        if isinstance(problem.loss, SquaredLargestMargin):
            raise ValueError(
                "basis='learned' needs a loss without kinks, loss='weston_watkins'; use basis='greedy' with "
                "loss='crammer_singer'."
            )
        return Learned(cast(Greedy, greedy), rng)

    def _most_epochs(self) -> int:
        return self.max_basis + (ROUNDS if self.basis == "learned" else 0)

    def _require_path(self, kept: bool) -> None:
        if self.basis == "learned":
            raise AttributeError(
                f"This {type(self).__name__} has a learned basis, which has no smaller stages; fit it with a "
                "smaller max_basis, or with basis='greedy'."
            )
        super()._require_path(kept)


class LabelMachine(BasisMachine):
    """The labels with a positive score, or the best of several classes."""

    def _read_labels(self, X: Any, y: Any, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Signs of the labels, 0 where nothing is to be learnt, and the answer of constant labels."""
        self._labels, signs = LabelSpace.read(y)
        check_consistent_length(X, signs)
        self.classes_ = self._labels.classes
        one_sided, on = constant_labels(signs, costs[:, None])
        warn_of_constants(self._labels.names, one_sided)
        constant = np.where(one_sided, np.where(on, 1.0, -1.0), 0.0)
        return np.where(constant == 0, signs, np.int8(0)), constant

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the labels (n_samples, n_labels); a vector when y was one of two classes."""
        scores = self._scores(X)
        return self._labels.scores(scores)

    def predict(self, X: Any) -> Any:
        """Labels with a positive score, or the best class, in the kind that `fit` was given."""
        scores = self._scores(X)
        if is_foreign(X):
            return like(self._labels.answer(self._labels.choose(to_numpy(scores)), like=None), X)
        return self._labels.answer(self._labels.choose(scores), like=X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.two_d_labels = False
        return tags


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class SparseMultiClassSVC(MovableMachine, ClassMachine):
    """Multi-class SVM whose kernel functions are few and shared by all classes (SMSVM).

    It minimises, over the coefficients of a basis of training samples that is grown greedily,

        1/2 sum_r |w_r|^2 + C sum_i sum_{r != y_i} max(0, 1 + f_r(x_i) - f_{y_i}(x_i))^2 ,

    or, with ``loss="crammer_singer"``, the largest of the margins of a sample in place of their sum.

    Prediction needs one kernel value per basis vector and sample, whatever the number of
    classes. The papers' parameter is lambda = 1/(2C). Training costs O(n_candidates l k) and
    a few Newton steps of O(l d k) per basis vector; memory is l d + l k numbers.

    Parameters
    ----------
    {parameters}
    loss : {"weston_watkins", "crammer_singer"}, default="weston_watkins"
        Squared margins of all wrong classes, or of the worst one. The second has kinks: it is minimised
        through smooth copies, the last at most a quarter of `tol` below it, needs l k^2 numbers and more
        time, and every certificate is that of the loss itself.
    basis : {"greedy", "learned"}, default="greedy"
        "greedy" is the paper's: training samples, one by one. "learned" (kernel="rbf" only) starts
        from it and moves the vectors, the width and the coefficients together, on nine tenths of
        the samples, as long as the others gain; with few features (dense, at most 64, and no more
        than the root of the number of samples) also how far the kernel reaches in every direction,
        `metric_`, and how much farther every vector does, `spread_`. Then it optimises the
        coefficients for the vectors found. Far more accurate for its size, slower to train, not
        convex: another `random_state`, or samples repeated instead of weighted, leads to other
        vectors. It has no smaller stages (`truncate`).

    Attributes
    ----------
    {attributes}

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
    >>> machine.set_params(max_basis=3, basis="learned").fit(X, y).basis_vectors_.shape
    (3, 4)
    """

    loss: str = "weston_watkins"

    _parameter_constraints = {
        **MovableMachine._parameter_constraints,
        "loss": [StrOptions({"weston_watkins", "crammer_singer"})],
    }

    STATE: ClassVar[State] = State(MACHINE, _check_machine, removed=GONE)

    def _loss(self, codes: np.ndarray, costs: np.ndarray) -> Loss:
        k = len(self.classes_)
        if self.loss == "crammer_singer" and k > 1:
            return SquaredLargestMargin(codes, costs, k, max(0.25 * self.tol, SMOOTHEST))
        return SquaredMargins(codes, costs, k)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class SparseMultiLabelSVC(MovableMachine, LabelMachine):
    """Multi-label SVM whose kernel functions are few and shared by all labels (SM3L, SM3L-P).

    It minimises, over the coefficients of a basis of training samples that is grown greedily,

        1/2 sum_{r,m} (R^-1)_rm <w_r, w_m> + C sum_{i,r} max(0, 1 - y_ir f_r(x_i))^2

    with R the `prior` (the identity when None: the objective of one squared-hinge SVM per
    label). Only R enters the computation, so it may be singular; a prior of low rank makes the
    problem smaller. The papers' parameter is lambda = 1/C.

    Parameters
    ----------
    {parameters}
    basis : {"greedy", "learned"}, default="greedy"
        "greedy" is the paper's: training samples, one by one. "learned" (kernel="rbf" only) starts
        from it and moves the vectors, the width and the coefficients together, on nine tenths of
        the samples, as long as the others gain; with few features (dense, at most 64, and no more
        than the root of the number of samples) also how far the kernel reaches in every direction,
        `metric_`, and how much farther every vector does, `spread_`. Then it optimises the
        coefficients for the vectors found. Far more accurate for its size, slower to train, not
        convex: another `random_state`, or samples repeated instead of weighted, leads to other
        vectors. It has no smaller stages (`truncate`).
    prior : array-like of shape (n_labels, n_labels), callable or None, default=None
        Label correlations R, see `maxmargin.priors`; a callable, such as
        ``maxmargin.priors.from_labels``, is given the training labels (0/1). The intercept is
        correlated by it like everything else.

    Attributes
    ----------
    {attributes}
    constant_labels_ : bool array of shape (n_labels,)
        Labels that never changed in training; one that was always on or always off has +1 or -1
        as intercept and no coefficients.

    Notes
    -----
    One class per sample (a 1d y of more than two classes) becomes one label per class, one against
    the rest; `SparseMultiClassSVC` learns the classes together.

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

    prior: Any = None

    STATE: ClassVar[State] = State(
        {
            "_labels": part("LabelSpace"),
            **MACHINE,
            "constant_labels_": flags("n_columns", group="constant"),
        },
        _check_machine,
        removed=GONE,
    )
    _parameter_constraints = {
        **MovableMachine._parameter_constraints,
        "prior": ["array-like", callable, None],
    }

    @fit_context(prefer_skip_nested_validation=True)
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
        self._grow(BasisProblem(kernel, X, loss, self._factor(signs)), costs, y, constant)
        self.constant_labels_ = constant != 0
        return self

    def _factor(self, signs: np.ndarray) -> np.ndarray | None:
        """P with P'P = R, see `BasisProblem`."""
        R = None if self.prior is None else priors.read_prior(self.prior, signs)
        return None if R is None else priors.factor(R)

    def staged_decision_function(self, X: Any) -> Iterator[np.ndarray]:
        """`decision_function` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self._labels.scores(scores)

    def staged_predict(self, X: Any) -> Iterator[Any]:
        """`predict` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self._labels.answer(self._labels.choose(scores), like=X)


def _contrast(scores: np.ndarray) -> np.ndarray:
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def with_sizes(outcome: Outcome, solution: Solution) -> list[dict[str, Any]]:
    """The records of a run, each with the number of basis vectors then."""
    most = len(solution.basis)
    return [{**record, "basis": min(record["epoch"], most)} for record in outcome.history]


def check_size(n_basis: Any, most: int) -> None:
    """Refuse a number of basis vectors that is no integer from 1 to `most`."""
    whole = isinstance(n_basis, Integral) and not isinstance(n_basis, bool)
    if not whole or not 1 <= n_basis <= most:
        raise ValueError(
            f"n_basis must be an integer from 1 to {most}, the number of basis vectors. "
            f"Got {n_basis!r} instead."
        )

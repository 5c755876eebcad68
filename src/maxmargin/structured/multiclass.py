"""`MultiClassSVC`: multi-class support vector machines by dual block methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.kernel_matrix import INDEFINITE, KernelMatrix, check_precomputed
from maxmargin.core.kernels import Kernel, check_basis
from maxmargin.core.linalg import product
from maxmargin.core.loop import Solver, run
from maxmargin.core.rows import Rows
from maxmargin.core.state import OUTCOME, ROWS, LabelNames, Samples, Sizes, State, floats, indices, part
from maxmargin.core.threads import count_threads
from maxmargin.device.backend import (
    DEVICES,
    check_width,
    find,
    kernel_demand,
    kernel_in_kind,
    kernel_scores,
    like,
    linear_in_kind,
)
from maxmargin.edge.estimator import (
    COMMON_CONSTRAINTS,
    Choice,
    Iterative,
    Kernelised,
    automatic,
    balance,
    check_columns,
    choose,
    fit_context,
    is_foreign,
    to_numpy,
    warn,
)
from maxmargin.edge.explain import Explained, Terms, kernel_terms, linear_terms
from maxmargin.structured.multiclass_choice import ROWS as ROWS_OF_AUTO
from maxmargin.structured.multiclass_choice import single_is_enough
from maxmargin.structured.multiclass_problem import (
    KernelMultiClass,
    KernelSolution,
    Labels,
    LinearMultiClass,
    LinearSolution,
    Setup,
)
from maxmargin.structured.newton import ProximalNewton
from maxmargin.structured.paper_steps import BatchSteps, BlockSteps

# `reads` are keyword arguments of the solver, under the names of the parameters.
SOLVERS: dict[str, Choice] = {
    "auto": Choice(
        automatic(ROWS_OF_AUTO),
        "Chosen by the size and kind of the data: interior points, newton, exact, or newton after exact.",
    ),
    "newton": Choice(ProximalNewton, "Newton steps on a smoothed objective, for few features of any scale."),
    "exact": Choice(
        automatic([row for row in ROWS_OF_AUTO if row.name in ("exact", "working-sets")]),
        "Solves one sample's block at a time by a projection; newton takes over if the gap falls too slowly.",
    ),
    "bcfw": Choice(partial(BlockSteps, "fw"), "Block-coordinate Frank-Wolfe."),
    "bcpl": Choice(
        partial(BlockSteps, "pl"),
        "Block-coordinate partial linearization, Algorithm 2 of the paper.",
        ("temperature", "safeguard"),
    ),
    "oeg": Choice(partial(BlockSteps, "eg"), "Online exponentiated gradient.", ("temperature",)),
    "fw": Choice(partial(BatchSteps, "fw"), "Frank-Wolfe on all blocks at once."),
    "pl": Choice(
        partial(BatchSteps, "pl"),
        "Partial linearization of all blocks at once, Algorithm 1 of the paper.",
        ("temperature",),
    ),
    "eg": Choice(
        partial(BatchSteps, "eg"), "Exponentiated gradient on all blocks at once.", ("temperature",)
    ),
}
# Solvers of the Weston-Watkins loss.
BOTH_LOSSES = ("auto", "newton", "exact")
# An RBF kernel matrix of so few features is kept up to so many MiB: its values are computed as fast as
# read. Letter, 15,000 rows of 16 features, takes a twentieth less time than with all of its matrix, and does
# not wait for 0.9 GB of new memory, which may cost as much as the fit.
FEW_FEATURES, KEPT = 64, 128.0


# What a fit stores; one with another kernel may store less, and must leave none of it behind.
MODEL = ("coef_", "intercept_", "support_", "support_vectors_", "dual_coef_", "_kernel")


def _check_scores(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: there are weights, of features or of support vectors; two classes share a column."""
    if "classes_" not in state:
        return
    sizes.fix("n_columns", 1 if sizes["n_classes"] == 2 else sizes["n_classes"])
    if "coef_" in state:
        return
    if "_kernel" not in state:
        raise ValueError("it has no weights")
    kernel = state["_kernel"]
    if (kernel.name == "precomputed") != (state["kernel"] == "precomputed"):
        raise ValueError("`kernel` and the stored kernel disagree about 'precomputed'")
    check_basis(kernel, state["support_"], state["support_vectors_"], sizes)


@dataclass(eq=False, repr=False)
class MultiClassSVC(Explained, ClassifierMixin, Kernelised, Iterative):
    """Multi-class SVM with one joint objective, solved to a certified duality gap.

    The objective is that of ``LinearSVC(C=C, multi_class="crammer_singer")``, with any cost
    matrix Delta in place of 0/1 errors::

        1/2 |W|^2 + C sum_i s_i max_k [ Delta(y_i, k) + f_k(x_i) - f_{y_i}(x_i) ]

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses next to 1/2 |W|^2, as in scikit-learn. The lambda of the
        partial-linearization paper is 1 / (C sum_i s_i).
    tol : float, default=1e-3
        Relative duality gap (P - D) / |P| at which training stops, certified in float64.
    max_iter : int, default=1000
        Largest number of passes.
    time_limit : float, default=None
        Seconds after which training stops with the best model so far.
    random_state : int, RandomState instance or None, default=0
        Order in which samples are visited; None draws another one in every fit.
    verbose : int, default=0
        Print a line per epoch when positive.
    kernel : {"linear", "rbf", "poly", "sigmoid", "chi2", "precomputed"} or callable, default="linear"
    gamma : {"scale", "auto"} or float, default="scale"
        Of the kernels "rbf", "poly", "sigmoid" and "chi2".
    degree : int, default=3
        Of the kernel "poly".
    coef0 : float, default=0.0
        Of the kernels "poly" and "sigmoid".
    loss : {"crammer_singer", "weston_watkins"}, default="crammer_singer"
        "weston_watkins" sums the positive margins over the wrong classes instead of taking the
        largest; it is solved by "auto", "newton" and "exact".
    solver : {"auto", "newton", "exact", "bcfw", "bcpl", "oeg", "fw", "pl", "eg"}, default="auto"
        "auto" chooses by the size and kind of the data alone; the table is in
        `maxmargin.structured.multiclass_choice`, and `solver_` names the solver that ran. "newton" takes
        Newton steps on a smoothed objective with decreasing smoothing. It needs memory for a matrix of order
        n_classes (n_features + 1) or, above 600, of order n_features + 1 for every class; its speed does not
        depend on the scale of features. "exact" solves one sample's block at a time by a projection and
        visits optimal blocks less and less often; with fewer features than samples, "newton" takes over if
        the gap falls too slowly. With a kernel it works on sets of samples, and by interior points at a large
        C. The other solvers are the methods of the paper: block-coordinate Frank-Wolfe, partial linearization
        and online exponentiated gradient, and the batch forms of these three. All reach the same optimum. A
        parameter below that names its solvers must have its default value with any other solver.
    cost_matrix : array-like of shape (n_classes, n_classes), default=None
        Cost of predicting the column's class when the truth is the row's, in the order of
        `classes_`: nonnegative, zero on the diagonal. None is 1 for every error.
    class_weight : dict or "balanced", default=None
        Multiplies the weights of the samples of a class.
    cache_size : float, default=200
        Memory for kernel values in MiB. A kernel matrix that fits is computed once, except for a large one
        of few features, whose values are cheaper to compute than to store.
    fit_intercept : bool, default=True
        Whether to add a constant feature (to a kernel: a constant).
    intercept_scaling : float, default=1.0
        Value of the constant feature; the larger, the less the intercept is regularised.
    temperature : "auto" or float, default="auto"
        Temperature tau of "bcpl", "oeg", "pl" and "eg". "auto" follows the curvature
        kappa_i = C_i |x_i|^2 of a block: 0.1 kappa_i for "bcpl" and the smallest safe value
        kappa_i / 4 for "oeg". At 0, partial linearization is Frank-Wolfe.
    safeguard : bool, default=True
        For "bcpl": take the Frank-Wolfe step if its gain is larger; False is the paper's form.
    precision : {"auto", "single", "double"}, default="auto"
        Working precision of "exact", and of other block methods with a linear kernel; "newton" and the
        certificate are always in double precision. "auto" takes single precision if tol is at least 1e-4 and
        the curvature of the blocks is moderate; "exact" continues in double precision if single is too
        coarse.
    warm_start : bool, default=False
        Start from the last solution, which is stored with the model (n_samples x n_classes numbers). For
        data of another shape, warn and start from zero.
    n_jobs : int, default=None
        Threads for the certificates of linear models; None means one, -1 all cores.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        With a kernel, "cuda" trains on an NVIDIA GPU through PyTorch (``pip install torch``):
        the same objective, certificate and attributes. "auto" takes a GPU where there is one and the
        problem is large enough; otherwise a log message states the reason.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Only with a linear kernel.
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Only with a linear kernel.
    support_, support_vectors_, dual_coef_ : ndarray
        Indices and rows of the training samples with a part in the model, and their
        coefficients (n_classes or 1, n_support); not with a linear kernel.
    classes_ : ndarray of shape (n_classes,)
    primal_objective_, dual_objective_, duality_gap_ : float
        Certificate of the stored solution: the objective at `coef_`, and that of the dual variables, a lower
        bound on the objective of any weights.
    n_iter_ : int
        Number of passes.
    solver_ : str
        The solver that ran, or several in turn ("exact, then newton").
    history_ : list of dict
        One record per pass: epoch, seconds, primal, dual, gap, active, solver. Primal and dual are the best
        bounds so far, and the model returned has the primal objective of the last record; before the
        first certificate the primal objective is infinite.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Notes
    -----
    A pass costs O(n_classes nnz(X)) at most. Memory besides X: n_samples x n_classes dual variables,
    (n_features + 1) x n_classes weights (classes rounded up to a multiple of 8), and for a dense X with many
    zeros a copy of nonzeros, up to 1/6 of X. Newton steps with more than 600 weights copy the rows near the
    margin.

    `coef_` is the weights with the smallest objective found: those of the dual variables after some pass or,
    with solver="exact", a linear kernel and tol >= 1e-4, their mean over the last passes.

    Two classes give one column of scores, f_1 - f_0, as in scikit-learn; the objective is that of a binary
    hinge loss with 2C. A class without weight in training can still be predicted. A single class gives a
    constant model.

    References
    ----------
    Mohapatra, Dokania, Jawahar, Kumar, "Partial linearization based optimization for
    multi-class SVM", ECCV 2016. Crammer, Singer, "On the algorithmic implementation of
    multiclass kernel-based vector machines", JMLR 2, 2001. Weston, Watkins, "Support vector
    machines for multi-class pattern recognition", ESANN 1999.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin import MultiClassSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MultiClassSVC(C=1.0, random_state=0).fit(X, y)
    >>> model.duality_gap_ <= 1e-3
    True
    >>> model.predict(X[:3])
    array([0, 0, 0])
    """

    C: float = 1.0
    _: KW_ONLY
    loss: str = "crammer_singer"
    solver: str = "auto"
    cost_matrix: Any = None
    class_weight: Any = None
    cache_size: float = 200
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    temperature: Any = "auto"
    safeguard: bool = True
    precision: str = "auto"
    warm_start: bool = False
    n_jobs: int | None = None
    device: str = "cpu"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **COMMON_CONSTRAINTS,
        **Kernelised.kernel_constraints,
        "loss": [StrOptions({"crammer_singer", "weston_watkins"})],
        "solver": [StrOptions(SOLVERS.keys())],
        "cost_matrix": ["array-like", None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "cache_size": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "temperature": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "safeguard": ["boolean"],
        "precision": [StrOptions({"auto", "single", "double"})],
        "warm_start": ["boolean"],
        "device": [StrOptions(set(DEVICES))],
    }

    STATE: ClassVar[State] = State(
        {
            **ROWS,
            **OUTCOME,
            "classes_": LabelNames("n_classes"),
            "coef_": floats("n_columns", "n_features", group="linear"),
            "intercept_": floats("n_columns", group="linear"),
            "support_": indices("n_support", group="kernel"),
            "support_vectors_": Samples(group="kernel"),
            "dual_coef_": floats("n_columns", "n_support", group="kernel"),
            "_kernel": part("Kernel", group="kernel"),
        },
        _check_scores,
        removed={
            "solver": {"pairwise": "auto"},
            **dict.fromkeys(("averaging", "truncation", "floor", "sampling", "shrinking")),
        },
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.positive_only = self.kernel == "chi2"
        return tags

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            With kernel="precomputed", the square matrix of kernel values.
        y : array-like of shape (n_samples,)
            One class per sample.
        sample_weight : array-like of shape (n_samples,), default=None
            Nonnegative weights; a weight of two is the same as the sample twice.

        Returns
        -------
        self : MultiClassSVC
        """
        chosen = self._chosen()
        X = self._read_rows(X, reset=True)
        weights = self._read_weights(sample_weight, X)
        labels = self._read_labels(X, y, weights)
        if sp.issparse(X) and self.kernel == "linear":
            check_columns(X.shape[1], n_weights=len(labels.Delta))
        shape = len(labels.y), len(labels.Delta)
        stopping = self._stopping()
        solver = self._solver(chosen, self._problem(X, labels, weights, stopping.target), stopping.target)
        observer = self._observer(X, y, lambda: self._attributes(X, solver.solution()))
        outcome = run(solver, stopping, observer, self.solver)
        solution = solver.solution()
        attributes = self._attributes(X, solution)
        for name in MODEL:
            self.__dict__.pop(name, None)
        self.__dict__.update(attributes)
        self._remember(solution.blocks, shape)
        self._store_outcome(outcome, X)
        return self

    def _chosen(self) -> Choice:
        """The chosen solver, once the parameters are known to go together."""
        if self.loss == "weston_watkins" and self.solver not in BOTH_LOSSES:
            raise ValueError(
                "loss='weston_watkins' is solved by solver='auto', 'newton' and 'exact' only. "
                f"Got solver={self.solver!r} instead."
            )
        if self.solver == "newton" and self.kernel != "linear":
            raise ValueError(
                "solver='newton' needs kernel='linear'; leave solver at 'auto'. "
                f"Got kernel={self.kernel!r} instead."
            )
        if self.solver in ("oeg", "eg") and self.temperature == 0:
            raise ValueError(f"solver={self.solver!r} needs a positive temperature. Got 0 instead.")
        return choose(self, SOLVERS)

    def _read_labels(self, X: Any, y: Any, weights: np.ndarray | None) -> Labels:
        codes = self._read_classes(y, X.shape[0])
        weights = np.ones(len(codes)) if weights is None else weights
        if self.class_weight is not None:
            weights = balance(self.class_weight, self.classes_, codes, weights)
        self._warn_of_idle(np.bincount(codes, weights=weights, minlength=len(self.classes_)))
        return Labels(codes, self.C * weights, self._read_costs(len(self.classes_)), self.loss)

    def _warn_of_idle(self, totals: np.ndarray) -> None:
        """Name classes whose samples have no weight."""
        idle = totals == 0
        if idle.any():
            names = ", ".join(repr(name) for name in self.classes_[idle][:5].tolist())
            warn(f"Class {names} has no weight in training.")

    def _read_costs(self, c: int) -> np.ndarray:
        """Delta, by default the 0/1 loss (3)."""
        if self.cost_matrix is None:
            return 1.0 - np.eye(c)
        Delta = np.asarray(self.cost_matrix, dtype=np.float64)
        if Delta.shape != (c, c):
            raise ValueError(
                f"cost_matrix must have one row and one column per class, shape {(c, c)}. "
                f"Got shape {Delta.shape} instead."
            )
        if not np.isfinite(Delta).all() or (Delta < 0).any() or np.diagonal(Delta).any():
            raise ValueError("cost_matrix must be finite, nonnegative, and zero on its diagonal.")
        return Delta

    def _problem(
        self, X: Any, labels: Labels, weights: np.ndarray | None, tol: float
    ) -> LinearMultiClass | KernelMultiClass:
        bias = float(self.intercept_scaling) if self.fit_intercept else 0.0
        if self.kernel == "linear":
            return LinearMultiClass(Rows.of(X), labels, bias, n_threads=count_threads(self.n_jobs))
        if self.kernel == "precomputed" and (smallest := check_precomputed(X)) < 0:
            warn(INDEFINITE.format(smallest))
        self._kernel = Kernel.of(
            X,
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            offset=bias * bias,
            sample_weight=weights,
        )
        problem = KernelMultiClass(KernelMatrix(self._kernel, X, self.cache_size, np.float64), labels)
        steps = self.solver in ("auto", "exact") and self.kernel != "precomputed"
        if not (steps and self._is_single(problem, tol)):
            return problem
        cheap = self.kernel == "rbf" and X.shape[1] <= FEW_FEATURES and not sp.issparse(X)
        cache_size = min(self.cache_size, KEPT) if cheap else self.cache_size
        return KernelMultiClass(KernelMatrix(self._kernel, X, cache_size, np.float32), labels)

    def _is_single(self, problem: LinearMultiClass | KernelMultiClass, tol: float) -> bool:
        """Whether to work in single precision."""
        return self.precision == "single" or (self.precision == "auto" and single_is_enough(problem, tol))

    def _solver(self, chosen: Choice, problem: LinearMultiClass | KernelMultiClass, tol: float) -> Solver:
        """The solver, at its own start or at the last solution."""
        single = isinstance(problem, LinearMultiClass) and self._is_single(problem, tol)
        last = self._recall((problem.n, problem.c))
        setup = Setup(
            tol,
            check_random_state(self.random_state),
            None if last is None else last[0],
            np.float32 if single else np.float64,
        )
        device = self._device(problem)
        if device is None or isinstance(problem, LinearMultiClass):
            return chosen.build(problem, setup, **{name: getattr(self, name) for name in chosen.reads})
        from maxmargin.device.multiclass import DeviceBlocks

        itemsize = 4 if self._is_single(problem, tol) else 8
        return DeviceBlocks(problem, setup, device=device, itemsize=itemsize)

    def _device(self, problem: LinearMultiClass | KernelMultiClass) -> Any:
        """The GPU to work on, or None."""
        if self.device == "cpu":
            return None
        unable = ""
        if isinstance(problem, LinearMultiClass):
            unable = "linear models are trained on the CPU"
        elif self.solver != "auto":
            unable = f"solver={self.solver!r} runs on the CPU only"
        elif self._kernel.name == "callable":
            unable = "a kernel that is a Python function runs on the CPU only"
        return find(self.device, kernel_demand(problem.n, self.n_features_in_, problem.c), unable)

    def _attributes(self, X: Any, solution: LinearSolution | KernelSolution) -> dict[str, Any]:
        """What prediction needs, from the solution of the solver; of two classes, their difference."""
        shared = {"classes_": self.classes_, "n_features_in_": self.n_features_in_}
        two = len(self.classes_) == 2
        if isinstance(solution, LinearSolution):
            W = solution.weights.T
            W = W[1:] - W[:1] if two else W
            bias = float(self.intercept_scaling) if self.fit_intercept else 0.0
            return {"coef_": W[:, :-1].copy(order="F"), "intercept_": bias * W[:, -1], **shared}
        B = solution.coefficients
        B = B[:, 1:] - B[:, :1] if two else B
        support = np.flatnonzero(B.any(axis=1))
        return {
            "support_": support,
            "support_vectors_": X[:0] if self.kernel == "precomputed" else X[support],
            "dual_coef_": np.ascontiguousarray(B[support].T),
            "_kernel": self._kernel,
            **shared,
        }

    def _terms(self, X: Any) -> Terms:
        check_is_fitted(self, "classes_")
        X = self._read_rows(X, reset=False)
        if hasattr(self, "coef_"):
            return linear_terms(self, X, self.coef_, self.intercept_)
        # The constant in the kernel is a bias: it multiplies the sum of the coefficients.
        kernel, bias = replace(self._kernel, offset=0.0), self._kernel.offset * self.dual_coef_.sum(axis=1)
        basis = self.support_ if kernel.name == "precomputed" else self.support_vectors_
        return kernel_terms(kernel, X, basis, self.support_, self.dual_coef_, bias)

    def decision_function(self, X):
        """Score of every class; the largest one is predicted.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
        """
        check_is_fitted(self, "classes_")
        if is_foreign(X):
            scores = self._scores_in_kind(X)
        elif hasattr(self, "coef_"):
            X = self._read_rows(X, reset=False)
            scores = product(X, self.coef_.T) + self.intercept_
        else:
            X = self._read_rows(X, reset=False)
            scores = kernel_scores(self.device, self._kernel, X, self._basis(), self.dual_coef_.T)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _basis(self) -> Any:
        return self.support_ if self.kernel == "precomputed" else self.support_vectors_

    def _scores_in_kind(self, X: Any) -> Any:
        check_width(X, self.n_features_in_)
        if hasattr(self, "coef_"):
            return linear_in_kind(X, self.coef_, self.intercept_)
        return kernel_in_kind(X, self._kernel, self._basis(), self.dual_coef_.T)

    def predict(self, X):
        """Predict the class with the largest score, the first one on ties."""
        scores = self.decision_function(X)
        if is_foreign(X):
            scores = to_numpy(scores)
            best = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
            return like(self.classes_[best], X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
        return self.classes_[best]

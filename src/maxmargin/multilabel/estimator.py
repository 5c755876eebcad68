"""`MultiLabelSVC`: max-margin multi-label classification with a prior on label correlations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from maxmargin import priors
from maxmargin.core.jit import interpret
from maxmargin.core.kernel_matrix import (
    DEFINITENESS,
    INDEFINITE,
    KernelMatrix,
    check_precomputed,
    smallest_eigenvalue,
)
from maxmargin.core.kernels import Kernel, check_basis
from maxmargin.core.linalg import product
from maxmargin.core.loop import ROUNDING, Solver, Stopping, run
from maxmargin.core.rows import Rows, without_zeros
from maxmargin.core.state import (
    OUTCOME,
    ROWS,
    LabelNames,
    Samples,
    Sizes,
    State,
    Weights,
    flags,
    floats,
    indices,
    part,
)
from maxmargin.core.threads import aligned_empty, aligned_zeros, count_threads, ranges, run_threads
from maxmargin.device.backend import (
    DEVICES,
    check_width,
    find,
    kernel_demand,
    kernel_in_kind,
    kernel_scores,
    like,
    linear_in_kind,
    rows_demand,
)
from maxmargin.edge.estimator import (
    COMMON_CONSTRAINTS,
    Choice,
    Iterative,
    Kernelised,
    choose,
    fit_context,
    ignoring,
    is_foreign,
    to_numpy,
    warn,
)
from maxmargin.edge.explain import Explained, Terms, kernel_terms, linear_terms
from maxmargin.edge.labels import (
    LabelClassifier,
    LabelSpace,
    check_answers,
    constant_labels,
    warn_of_constants,
)
from maxmargin.multilabel import choice, label_blocks
from maxmargin.multilabel.label_blocks import ManyM3L
from maxmargin.multilabel.paper_kernel import SMO
from maxmargin.multilabel.paper_linear import UntilProjected, paper_ascent
from maxmargin.multilabel.problem import (
    LARGEST_SINGLE,
    EntryCosts,
    KernelM3L,
    LinearM3L,
    Solution,
    entry_weights,
    frequent_first,
    given_costs,
    hinge_costs,
    label_numbers,
    side_totals,
    side_weights,
    tied_costs,
)

# Single precision reliably reaches this gap. In a linear model it pays from this many products per pass, for
# sparse rows (which are copied) and for dense ones; with fewer a first fit compiles for longer than it saves.
SINGLE_TOL = 1e-4
LARGE_SPARSE, LARGE_DENSE = 10**7, 10**8
# Bytes of a dual variable with its flags, and of a weight with its copy, as dense matrices.
PER_ENTRY, PER_WEIGHT = 10, 16
# Samples on which the definiteness of a kernel is checked.
PROBED_SAMPLES = 300
# Coefficients that are copied at a time, so that they stay in cache.
COPIED = 2**17
# Attributes of a model; a fit with other parameters stores fewer of them and removes the others.
MODEL = ("coef_", "intercept_", "support_", "support_vectors_", "dual_coef_", "_kernel")


def _check_scores(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: the model has weights of features or of support vectors for its labels."""
    if "_space" not in state:
        return
    check_answers(state["_space"], state["classes_"])
    if "_kernel" in state:
        check_basis(state["_kernel"], state["support_"], state["support_vectors_"], sizes)
    elif "coef_" not in state:
        raise ValueError("it has no weights")


# Every solver is built from the problem, the dual variables to start from, tol, rng and n_threads; the
# solvers of the paper also take parameters of their own.
SOLVERS = {
    "auto": Choice(
        choice.default,
        "Newton's method (few features, or a kernel of few samples), dual coordinate ascent (wide or sparse "
        "rows), or block sweeps and pair steps on a shared kernel matrix; if one of the last two stalls, "
        "Newton's method continues.",
        reads=("n_jobs", "precision", "memory_limit", "prune_below"),
    ),
    "dca": Choice(
        lambda problem, alpha, tol, rng, n_threads, **own: paper_ascent(
            problem, alpha, tol=tol, rng=rng, **own
        ),
        "The paper's linear algorithm: dual coordinate ascent with label-coupled shrinking.",
        reads=("stopping",),
    ),
    "smo": Choice(
        lambda problem, alpha, tol, rng, n_threads, **own: SMO(problem, alpha, tol=tol, **own),
        "The paper's Algorithm 1: pair steps with delayed gradients, for any kernel.",
        reads=("precision", "stopping", "break_factor"),
    ),
    "newton": Choice(
        choice.newton,
        "Linear, for few features of any scale: proximal steps, each solved by Newton's method.",
        reads=("n_jobs",),
    ),
}
LINEAR_ONLY, KERNEL_ONLY = ("dca", "newton"), ("smo",)


@dataclass(eq=False, repr=False)
class MultiLabelSVC(Explained, LabelClassifier, Kernelised, Iterative):
    """Max-margin classifier for many labels, with a prior on how they correlate (M3L).

    Without a prior it minimises the objective of one ``LinearSVC(C=C, loss="hinge")`` per label, all labels
    together::

        1/2 tr(R^-1 W'W) + C sum_il s_i max(0, 1 - y_il f_l(x_i)),     f_l(x) = w_l . x + b_l

    With a kernel, f_l(x) = sum_i k(x, x_i) c_il + b_l and the objective is the same in the feature space of
    k; all labels share one kernel matrix.

    With ``prior=R`` the weights of labels that are correlated under R are pulled towards each other. In
    zero-shot learning R describes categories without training samples.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses next to 1/2 |W|^2, as in scikit-learn. The M3L paper's C is C / 2.
    tol : float, default=1e-3
        Relative duality gap (P - D) / |P| at which training stops, certified in float64.
    max_iter : int, default=1000
        Largest number of epochs.
    time_limit : float, default=None
        Seconds after which training stops and keeps the model reached.
    random_state : int, RandomState instance or None, default=0
        Seed of the order in which samples are visited; None draws another seed in every fit.
    verbose : int, default=0
        Print a line per epoch when positive.
    kernel : {"linear", "rbf", "poly", "sigmoid", "chi2", "precomputed"} or callable, default="linear"
        A callable takes two matrices of rows and returns the matrix of their kernel values. With
        "precomputed", X is the kernel matrix: of the training samples with each other in `fit`,
        of new samples with them in `predict`.
    gamma : {"scale", "auto"} or float, default="scale"
        For "rbf", "poly", "sigmoid" and "chi2". "scale" is 1 / (n_features * X.var()), "auto"
        1 / n_features; the variance counts sample weights.
    degree : int, default=3
        For "poly".
    coef0 : float, default=0.0
        For "poly" and "sigmoid".
    prior : array-like of shape (n_labels, n_labels) or callable, default=None
        Symmetric positive semi-definite label correlations R with a positive diagonal; it may
        be singular. A callable, such as ``maxmargin.priors.from_labels``, takes the training
        labels (0/1) and returns R. None treats labels as independent.
    cache_size : float, default=200
        Memory for kernel values in MiB. A kernel matrix that fits is computed once.
    loss : {"hinge", "tied", "squared_hinge"}, default="hinge"
        "hinge" is the objective above, an upper bound on the number of wrong labels. "tied" measures
        errors by the prior, y'R(y - z), and needs a diagonally dominant R. "squared_hinge" squares every
        max(0, ...) (linear, without a prior; labels are then solved block by block, or by Newton's method if
        features are few and dense). "hamming" is a deprecated name of "hinge".
    class_weight : "balanced", dict or array-like, default=None
        Weights of the two sides of a label. "balanced" gives both the same total; a dict maps
        a label (or class) to the weight of its positive entries; an array of shape
        (n_labels, 2) holds the weights of negative and positive entries.
    label_weight : dict or array-like of shape (n_labels,), default=None
        Cost of a label: multiplies the slope of its loss.
    label_margin : float, dict or array-like of shape (n_labels,), default=1.0
        Margin of a label, 1 in the objective above.
    fit_intercept : bool, default=True
        Whether to add a constant feature.
    intercept_scaling : float, default=1.0
        Value of the constant feature; the larger, the less the intercept is regularised.
    solver : {"auto", "dca", "smo", "newton"}, default="auto"
        "auto" uses Newton's method for few features and for positive semi-definite kernels of up to 300
        samples, dual coordinate ascent for wide or sparse rows, and block sweeps and pair steps for other
        kernels. If one of the last two stalls and the problem is small enough, Newton's method continues.
        "dca" (linear) and "smo" (any kernel) are the paper's algorithms; "newton" (linear) suits few
        features of any scale. All reach the same optimum.
    stopping : {"gap", "projected_gradient"}, default="gap"
        Of solvers "dca" and "smo": "projected_gradient" is the paper's rule. It stops when no projected
        gradient of the dual exceeds `tol`, in units of the margin (the paper's tau is 2 tol).
    break_factor : float, default=0.5
        Of solver "smo": steps on one label end when its largest projected gradient has fallen to this part of
        its first value. 0 is the paper's rule, as many steps as there are labels.
    warm_start : bool, default=False
        Start from the last solution, scaled to the new C. The dual variables (n_samples x
        n_labels) are then kept with the model.
    precision : {"auto", "single", "double"}, default="auto"
        Working precision of solver "auto", and of the kernel values of "smo"; the model and its
        certificate are always in double precision. "auto" uses single precision when tol is at
        least 1e-4, X is float32, large, or sparse and not small, and features are not few. Kernel
        values above 1e30 stay in double precision.
    memory_limit : float, default=2048
        Memory in MiB for dual variables (n_samples x n_labels) and dense weights. If they need more, a
        linear fit without a prior solves labels block by block: y stays sparse, only the samples near a
        label's margin have dual variables, and `coef_` is sparse. 0 always does so. `predict` then keeps
        to the limit as well.
    prune_below : float, default=0.01
        Of labels that are solved block by block: weights up to this size are set to zero, or fewer of them
        if `tol` would be missed. The certificate is that of the remaining weights. 0 keeps all weights.
    n_jobs : int, default=None
        Number of threads of solvers "auto" and "newton"; None means one, -1 all cores. The model does
        not depend on it.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        "cuda" trains on an NVIDIA GPU through PyTorch (``pip install torch``), with a kernel, or on sparse
        rows without labels that a prior couples: the same objective, certificate and attributes. "auto" uses
        a GPU if there is one and the problem is large enough; otherwise the log gives the reason.
    cull : float, default=None
        Deprecated name of `prune_below`.

    Attributes
    ----------
    coef_ : ndarray or CSC array of shape (n_labels, n_features)
        Only for the linear kernel. Sparse if a dense model needs more than `memory_limit`, and with
        loss="squared_hinge" also if more than half of the weights are zero; otherwise dense.
    intercept_ : ndarray of shape (n_labels,)
    support_ : ndarray of shape (n_support,)
        Training samples with a nonzero weight in any label. This attribute and the next two exist only for
        a kernel or solver="smo".
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        The rows of these samples; empty with kernel="precomputed".
    dual_coef_ : ndarray of shape (n_labels, n_support)
        Weights of these samples in the score of each label.
    classes_ : ndarray of shape (n_labels,)
        Label names, column numbers, or the classes of a 1d y.
    prior_ : ndarray of shape (n_labels, n_labels) or None
        The checked prior.
    constant_labels_ : ndarray of bool of shape (n_labels,)
        Labels with a single value in training, which the model always predicts.
    primal_objective_, dual_objective_, duality_gap_ : float
        Certificate of the stored solution.
    n_iter_ : int
        Number of epochs.
    solver_ : str
        Names of the solvers that ran, in order: "sweeps, then newton".
    history_ : list of dict
        One record per epoch: epoch, seconds, primal, dual, gap, active, solver. Primal and dual are the best
        bounds so far; the model has the primal objective of the last record.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Notes
    -----
    One class per sample (a 1d y of more than two classes) becomes one label per class, one against the rest;
    `MultiClassSVC` learns the classes together, which is usually more accurate.

    Labels may be 0/1 or -1/+1 indicators (arrays, sparse matrices, pandas or polars frames; NaN marks an
    unknown entry, which has no loss), lists of sets of names, or a vector of classes; `predict` returns the
    same kind. A label that is always or never positive in training is predicted as that constant.

    A pass costs O(n_labels nnz(X)). Memory besides X is n_samples x n_labels dual variables (4 or 8 bytes
    each, plus 2) and (n_features + 1) x n_labels weights. A dense X with at least 90 % zeros is also copied
    to its nonzeros, up to a fifth of its memory. Above `memory_limit` blocks of labels are solved on the
    samples near their margins, each label until its own gap is at most `tol`; an epoch is then `n_jobs`
    blocks, and `max_iter` limits the passes over all samples per label. With a kernel, memory is `cache_size`
    and about six arrays of n_samples x n_labels, and `predict` works in blocks of bounded memory; the bias is
    a constant added to the kernel.

    References
    ----------
    Hariharan, Vishwanathan, Varma, "Efficient max-margin multi-label classification with
    applications to zero-shot learning", Machine Learning 88, 2012.

    Examples
    --------
    >>> from maxmargin import MultiLabelSVC
    >>> X = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.2]]
    >>> y = [{"round"}, {"red"}, {"red", "round"}, set()]
    >>> model = MultiLabelSVC(C=10, random_state=0).fit(X, y)
    >>> [sorted(labels) for labels in model.predict([[0.9, 0.9], [0.1, 0.9]])]
    [['red', 'round'], ['round']]
    >>> model.duality_gap_ <= 1e-3
    True
    """

    C: float = 1.0
    _: KW_ONLY
    prior: Any = None
    cache_size: float = 200
    loss: str = "hinge"
    class_weight: Any = None
    label_weight: Any = None
    label_margin: Any = 1.0
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    solver: str = "auto"
    stopping: str = "gap"
    break_factor: float = 0.5
    warm_start: bool = False
    precision: str = "auto"
    memory_limit: float = 2048
    prune_below: float = 0.01
    n_jobs: int | None = None
    device: str = "cpu"
    cull: float | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **COMMON_CONSTRAINTS,
        **Kernelised.kernel_constraints,
        "prior": ["array-like", "sparse matrix", callable, None],
        "cache_size": [Interval(Real, 0, None, closed="left")],
        "loss": [StrOptions({"hinge", "hamming", "tied", "squared_hinge"}, deprecated={"hamming"})],
        "class_weight": [StrOptions({"balanced"}), dict, "array-like", None],
        "label_weight": [dict, "array-like", None],
        "label_margin": [Interval(Real, 0, None, closed="left"), dict, "array-like"],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "solver": [StrOptions(SOLVERS.keys())],
        "stopping": [StrOptions({"gap", "projected_gradient"})],
        "break_factor": [Interval(Real, 0, 1, closed="left")],
        "warm_start": ["boolean"],
        "precision": [StrOptions({"auto", "single", "double"})],
        "memory_limit": [Interval(Real, 0, None, closed="left")],
        "prune_below": [Interval(Real, 0, None, closed="left")],
        "device": [StrOptions(set(DEVICES))],
        "cull": [Interval(Real, 0, None, closed="left"), None],
    }

    STATE: ClassVar[State] = State(
        {
            **ROWS,
            **OUTCOME,
            "_space": part("LabelSpace"),
            "classes_": LabelNames("n_classes"),
            "prior_": floats("n_columns", "n_columns", none=True),
            "constant_labels_": flags("n_columns"),
            "_constant_scores": floats("n_columns"),
            "coef_": Weights(("n_columns", "n_features"), group="linear"),
            "intercept_": floats("n_columns"),
            "support_": indices("n_support", group="kernel"),
            "support_vectors_": Samples(group="kernel"),
            "dual_coef_": floats("n_columns", "n_support", group="kernel"),
            "_kernel": part("Kernel", group="kernel"),
        },
        _check_scores,
        removed={"solver": {"interior": "newton"}},
        renamed={"loss": {"hamming": "hinge"}, "cull": "prune_below"},
    )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.positive_only = self.kernel == "chi2"
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None, label_cost=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : labels, see Notes
        sample_weight : array-like of shape (n_samples,) or (n_samples, n_labels), default=None
            Nonnegative weights; a weight of two is the same as the sample twice. With one
            weight per entry, zero takes the entry out of the loss.
        label_cost : array-like of shape (n_samples, n_labels) or (n_samples, n_labels, 2), default=None
            Any loss that is a sum over labels: the cost of a wrong prediction of each entry, or the costs of
            a right and a wrong one (the wrong one at least as high). It becomes the margin of the entry;
            ones are the Hamming loss.

        Returns
        -------
        self : MultiLabelSVC
        """
        chosen = choose(self, SOLVERS)
        X = self._read_rows(X, reset=True)
        self._space = LabelSpace.recognise(y)
        stopping, rng = self._stopping(), check_random_state(self.random_state)
        problem: LinearM3L | KernelM3L | ManyM3L
        if self._needs_blocks(X.shape, sample_weight, label_cost):
            problem = self._sparse_problem(X, self._space.positives(y), sample_weight)
            self._device(problem)  # always None; logs the reason
            solver = self._label_blocks(problem, stopping, rng)
            stopping = replace(stopping, max_iter=solver.n_epochs)
        else:
            signs = np.ascontiguousarray(self._space.signs(y))
            check_consistent_length(X, signs)
            interpret(*X.shape, signs.shape[1])
            problem = self._problem(X, signs, sample_weight, label_cost)
            problem.check_sizes()
            alpha, device = self._start(problem, stopping), self._device(problem)
            if device is None:
                solver = self._built(chosen, problem, alpha, stopping, rng)
            else:
                solver = self._device_solver(problem, alpha, stopping, rng, device)
        observer = self._observer(
            X, y, lambda: self._attributes(problem, solver.solution()), max_epochs=stopping.max_iter
        )
        outcome = run(solver, stopping, observer, self.solver)
        solution = solver.solution()
        for name in MODEL:
            self.__dict__.pop(name, None)
        self.__dict__.update(self._attributes(problem, solution))
        self._remember(getattr(solution, "alpha", None), problem.shape)
        self._store_outcome(outcome, X)
        return self

    def _label_blocks(self, problem: ManyM3L, stopping: Stopping, rng: np.random.RandomState) -> Any:
        """The solver of sparse labels."""
        return choice.default(
            problem,
            tol=stopping.target,
            rng=rng,
            n_threads=count_threads(self.n_jobs),
            prune_below=self._parameter("prune_below"),
            max_rounds=self.max_iter,
        )

    def _built(
        self, chosen: Choice, problem: LinearM3L | KernelM3L, alpha: np.ndarray, stopping: Stopping, rng: Any
    ) -> Solver:
        """The chosen solver with the chosen stopping rule."""
        own: dict[str, Any] = {"n_threads": count_threads(self.n_jobs)}
        if "break_factor" in chosen.reads:
            own["break_factor"] = self.break_factor
        if self.stopping == "gap":
            return chosen.build(problem, alpha, tol=stopping.target, rng=rng, **own)
        if isinstance(problem, LinearM3L):
            own["switch"] = 100 * stopping.target
        # No gap is small enough, so only entries without a gap are skipped.
        solver = chosen.build(problem, alpha, tol=ROUNDING, rng=rng, **own)
        return UntilProjected(solver, problem, stopping.target)

    def _needs_blocks(self, shape: tuple[int, int], sample_weight: Any, label_cost: Any) -> bool:
        """Whether labels are solved block by block, for the loss or the memory limit."""
        plain = isinstance(self.kernel, str) and self.kernel == "linear" and self.prior is None
        plain = plain and not self.warm_start and label_cost is None
        plain = plain and np.asarray(sample_weight).ndim < 2
        if self.loss == "squared_hinge":
            if not plain or self.solver != "auto":
                raise ValueError(
                    "loss='squared_hinge' needs solver='auto', kernel='linear', prior=None, "
                    "warm_start=False, one weight per sample and no label_cost; use loss='hinge' otherwise."
                )
            return True
        plain = plain and self.solver == "auto" and self._parameter("loss") == "hinge"
        return plain and not self._fits(*shape)

    def _fits(self, n: int, d: int) -> bool:
        """Whether dual variables and dense weights stay within `memory_limit`."""
        return self._space.n_columns * (PER_ENTRY * n + PER_WEIGHT * d) <= self.memory_limit * 2**20

    def _sparse_problem(self, X: Any, on: Any, sample_weight: Any) -> ManyM3L:
        """The problem of the parameters and sparse labels."""
        check_consistent_length(X, on)
        space = self._space
        self.classes_ = space.classes
        self.prior_: np.ndarray | None = None
        given = self._read_weights(sample_weight, X)
        weight = np.ones(X.shape[0]) if given is None else given
        upper = self.C * side_weights(self.class_weight, space, lambda: label_blocks.side_totals(on, weight))
        upper *= label_numbers(self.label_weight, space, "label_weight", default=1.0)
        self._remove_constants(*label_blocks.constant_labels(on, weight), upper)
        margin = label_numbers(self.label_margin, space, "label_margin", default=1.0)
        bias = float(self.intercept_scaling) if self.fit_intercept else 0.0
        squared = self.loss == "squared_hinge"
        return ManyM3L.of(X, on, weight=weight, upper=upper, margin=margin, bias=bias, squared=squared)

    def smallest_C(self, X, y, sample_weight=None):
        """The C up to which every dual variable sits at its bound and the solution is closed-form.

        Parameters
        ----------
        X, y, sample_weight : as for `fit`

        Returns
        -------
        C : float
            Infinite when no C leaves the closed form.
        """
        probe = clone(self).set_params(C=1.0)
        X = probe._read_rows(X, reset=True)
        probe._space, signs = LabelSpace.read(y)
        with ignoring(""):
            return probe._problem(X, signs, sample_weight).closed_form_scale()

    def _problem(
        self, X: Any, signs: np.ndarray, sample_weight: Any, label_cost: Any = None
    ) -> LinearM3L | KernelM3L:
        """The problem of the parameters and the data."""
        space = self._space
        self.classes_ = space.classes
        self.prior_ = None if self.prior is None else priors.read_prior(self.prior, signs)
        weight = entry_weights(sample_weight, signs)
        upper = self.C * side_weights(self.class_weight, space, lambda: side_totals(signs, weight))
        upper *= label_numbers(self.label_weight, space, "label_weight", default=1.0)
        self._remove_constants(*constant_labels(signs, weight), upper)
        if label_cost is not None:
            if self._parameter("loss") != "hinge" or not np.all(np.equal(self.label_margin, 1.0)):
                raise ValueError("label_cost defines the loss; leave loss at 'hinge' and label_margin at 1.")
            costs = given_costs(signs, upper, weight, label_cost)
        elif self.loss == "tied":
            R = priors.identity(space.n_columns) if self.prior_ is None else self.prior_
            costs = tied_costs(signs, upper, weight, R)
        else:
            margin = label_numbers(self.label_margin, space, "label_margin", default=1.0)
            costs = hinge_costs(signs, upper, weight, np.tile(margin, (2, 1)))
        bias = float(self.intercept_scaling) if self.fit_intercept else 0.0
        n_threads = count_threads(self.n_jobs)
        if self._needs_kernel():
            K = self._kernel_matrix(X, costs, bias)
            linear = None
            if K.kernel.name == "linear":
                linear = LinearM3L(Rows.of(without_zeros(X)), costs, self.prior_, bias, None, n_threads)
            return KernelM3L(K, costs, self.prior_, linear)
        rows, columns = frequent_first(Rows.of(without_zeros(X)))
        return LinearM3L(rows, costs, self.prior_, bias, columns, n_threads)

    def _device(self, problem: LinearM3L | KernelM3L | ManyM3L) -> Any:
        """The GPU to work on, or None."""
        if self.device == "cpu":
            return None
        n, L = problem.shape
        unable = "" if self.solver == "auto" else f"solver={self.solver!r} runs on the CPU only"
        if isinstance(problem, KernelM3L):
            if problem.K.kernel.name == "callable":
                unable = "a kernel that is a Python function runs on the CPU only"
            return find(self.device, kernel_demand(n, self.n_features_in_, L), unable)
        if isinstance(problem, ManyM3L):
            unable = "labels that are solved block by block, for loss or memory_limit, run on the CPU only"
        elif problem.coupled or problem.rows.dense:
            unable = "linear models run on a GPU only on sparse rows and without labels that a prior couples"
        return find(self.device, rows_demand(problem.rows.data.size, n, self.n_features_in_, L), unable)

    def _device_solver(
        self, problem: Any, alpha: np.ndarray, stopping: Stopping, rng: np.random.RandomState, device: Any
    ) -> Solver:
        """The solver for a GPU."""
        from maxmargin.device.multilabel import DeviceLabels, DeviceSweeps

        itemsize = np.dtype(self._working_dtype(stopping, problem.costs, pays=True)).itemsize
        if isinstance(problem, KernelM3L):
            return DeviceSweeps(problem, alpha, rng=rng, device=device, itemsize=itemsize)
        tol = stopping.target
        return DeviceLabels(problem, alpha, tol=tol, rng=rng, device=device, itemsize=itemsize)

    def _needs_kernel(self) -> bool:
        """Whether the parameters ask for the kernelised solvers."""
        linear = isinstance(self.kernel, str) and self.kernel == "linear"
        if self.solver in LINEAR_ONLY and not linear:
            raise ValueError(
                f"solver={self.solver!r} is linear; with kernel={self.kernel!r} use solver='auto' or 'smo'."
            )
        return not linear or self.solver in KERNEL_ONLY

    def _kernel_matrix(self, X: Any, costs: EntryCosts, bias: float) -> KernelMatrix:
        """The kernel matrix, with the bias as a constant added to the kernel."""
        kernel = Kernel.of(
            X,
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            offset=bias**2,
            sample_weight=costs.weight.max(axis=1),
        )
        if kernel.name == "precomputed":
            if (smallest := check_precomputed(X)) < 0:
                warn(INDEFINITE.format(smallest))
        elif kernel.name in ("sigmoid", "callable"):
            _warn_if_indefinite(replace(kernel, offset=0.0), X)
        # With precision="auto" the paper's solver works in double precision.
        dtype: Any = self._working_dtype(self._stopping(), costs, pays=self.solver == "auto")
        if kernel.name == "precomputed" and not kernel.offset:
            dtype = X.dtype  # the user's matrix is used without a copy
        return KernelMatrix(kernel, X, self.cache_size, dtype, count_threads(self.n_jobs))

    def _working_dtype(self, stopping: Stopping, *costs: EntryCosts, pays: bool) -> type:
        """Single precision if requested, or if it `pays` and suffices for `tol`, unless it may overflow."""
        single = pays and stopping.target >= SINGLE_TOL
        if self.precision != "auto":
            single = self.precision == "single"
        sizes = [float(np.max(part, initial=0.0)) for each in costs for part in (each.upper, each.margin)]
        return np.float32 if single and max(sizes, default=self.C) <= LARGEST_SINGLE else np.float64

    def _remove_constants(self, one_sided: np.ndarray, on: np.ndarray, upper: np.ndarray) -> None:
        """Take labels of a single value out of the loss, unless a prior couples them, and warn of them."""
        if self.prior_ is not None:
            one_sided &= np.count_nonzero(self.prior_, axis=1) == 1
        self.constant_labels_ = one_sided
        self._constant_scores = np.where(on, 1.0, -1.0)
        upper[:, one_sided] = 0.0
        warn_of_constants(self._space.names, one_sided)

    def _start(
        self, problem: LinearM3L | KernelM3L, stopping: Stopping, n_labels: int | None = None
    ) -> np.ndarray:
        """The first dual variables, in working precision: zero, or the scaled last solution.

        `n_labels` is the number of all labels if the problem has only some of them.
        """
        dtype: Any = np.float64
        if isinstance(problem, LinearM3L):
            data = problem.rows.data
            size = data.size * (n_labels or problem.shape[1])
            large = size >= (LARGE_DENSE if problem.rows.dense else LARGE_SPARSE)
            single_or_large = data.dtype == np.float32 or large
            pays = single_or_large and self.solver == "auto" and not choice.few_features(problem)
            dtype = self._working_dtype(stopping, problem.costs, pays=pays)
        alpha = aligned_zeros(*problem.shape, dtype, multiple=1, n_threads=count_threads(self.n_jobs))
        recalled = self._recall(problem.shape)
        if recalled is not None:
            last, C = recalled
            alpha[:] = problem.warm(last, self.C / C)
            if dtype == np.float32:
                np.minimum(alpha, problem.costs.boxes(np.float32), out=alpha)
        return alpha

    def _attributes(self, problem: LinearM3L | KernelM3L | ManyM3L, solution: Any) -> dict[str, Any]:
        """The attributes that prediction reads."""
        scores: dict[str, Any]
        if isinstance(problem, ManyM3L):
            d = self.n_features_in_
            scores = label_blocks.attributes(problem, solution, d, dense=self._fits(problem.shape[0], d))
        elif isinstance(problem, LinearM3L):
            scores = self._linear_attributes(problem, solution)
        else:
            scores = _kernel_attributes(problem, solution)
            if problem.linear is not None:
                weights, _ = problem.linear.evaluate(solution.alpha, n_threads=problem.linear.n_threads)
                scores |= self._linear_attributes(problem.linear, Solution(solution.alpha, weights))
        bias = scores["intercept_"]
        scores["intercept_"] = np.where(self.constant_labels_, self._constant_scores, bias).astype(bias.dtype)
        return scores | {
            "classes_": self.classes_,
            "prior_": self.prior_,
            "constant_labels_": self.constant_labels_,
            "_space": self._space,
            "n_features_in_": self.n_features_in_,
        }

    def _linear_attributes(self, problem: LinearM3L, solution: Solution) -> dict[str, Any]:
        """Coefficients in float64, as they were certified; zero for columns without an entry.

        The labels of a feature lie side by side, so that sparse rows read only the weights they need.
        """
        Z = solution.weights
        d, used = self.n_features_in_, slice(None) if problem.columns is None else problem.columns
        place, empty = np.zeros(d, np.intp), np.ones(d, np.bool_)
        place[used], empty[used] = np.arange(len(Z) - 1), False
        coef = aligned_empty((d, Z.shape[1]), np.float64)
        size = max(16, COPIED // Z.shape[1])
        n_threads = count_threads(self.n_jobs)

        def write(part: tuple[int, int]) -> None:
            for start in range(*part, size):
                columns = slice(start, min(start + size, part[1]))
                some = coef[columns]
                some[:] = Z[place[columns]]
                some[empty[columns]] = 0

        run_threads(write, ranges(d, n_threads), n_threads)
        return {"coef_": coef.T, "intercept_": problem.bias * Z[-1]}

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "intercept_")
        foreign = is_foreign(X)
        if foreign:
            check_width(X, self.n_features_in_)
        else:
            X = self._read_rows(X, reset=False)
        if not hasattr(self, "coef_"):
            basis = self.support_ if self._kernel.name == "precomputed" else self.support_vectors_
            if foreign:
                return kernel_in_kind(X, self._kernel, basis, self.dual_coef_.T) + like(self.intercept_, X)
            return kernel_scores(self.device, self._kernel, X, basis, self.dual_coef_.T) + self.intercept_
        if foreign:
            return linear_in_kind(X, self.coef_, self.intercept_)
        if sp.issparse(self.coef_):
            return label_blocks.scores(X, self.coef_, self.intercept_)
        return product(X, self.coef_.T) + self.intercept_

    def _terms(self, X: Any) -> Terms:
        check_is_fitted(self, "intercept_")
        X = self._read_rows(X, reset=False)
        if hasattr(self, "coef_"):
            return linear_terms(self, X, self.coef_, self.intercept_)
        basis = self.support_ if self._kernel.name == "precomputed" else self.support_vectors_
        return kernel_terms(self._kernel, X, basis, self.support_, self.dual_coef_, self.intercept_)

    def decision_function(self, X):
        """Score of every label; a label is predicted when its score is positive.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_labels), or (n_samples,) for two classes
        """
        return self._space.scores(self._scores(X)) if hasattr(self, "_space") else self._scores(X)

    def predict(self, X):
        """Predict labels, in the kind of the labels passed to `fit`."""
        check_is_fitted(self, "intercept_")
        if is_foreign(X):
            return like(self._space.answer(self._space.choose(to_numpy(self._scores(X))), like=None), X)
        if not sp.issparse(getattr(self, "coef_", None)):
            return self._space.answer(self._space.choose(self._scores(X)), like=X)
        rows = self._read_rows(X, reset=False)
        on = [
            sp.csr_array(self._space.choose(label_blocks.scores(rows[part], self.coef_, self.intercept_)))
            for part in label_blocks.chunks(rows.shape[0], len(self.intercept_), self.memory_limit)
        ]
        return self._space.answer(sp.vstack(on, format="csr"), like=X)

    def predict_top(self, X, k=5):
        """The k labels with the highest scores, best first, whether the scores are positive or not.

        Labels of equal scores keep the order of `classes_`. If `coef_` is sparse, memory is one score per
        label and thread (`n_jobs`).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        k : int, default=5
            From 1 to the number of labels.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Entries of `classes_`.
        scores : ndarray of shape (n_samples, k)

        Examples
        --------
        >>> from maxmargin import MultiLabelSVC
        >>> X = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.2]]
        >>> y = [{"round"}, {"red"}, {"red", "round"}, set()]
        >>> labels, scores = MultiLabelSVC(C=10, random_state=0).fit(X, y).predict_top([[0.1, 0.9]], k=1)
        >>> labels.tolist(), scores.shape
        ([['round']], (1, 1))
        """
        check_is_fitted(self, "intercept_")
        names = self._space.names
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= len(names):
            raise ValueError(f"k must be from 1 to the number of labels, {len(names)}. Got {k!r} instead.")
        if sp.issparse(getattr(self, "coef_", None)):
            rows = self._read_rows(X, reset=False)
            places, best = label_blocks.top(
                rows, self.coef_, self.intercept_, int(k), count_threads(self.n_jobs)
            )
        else:
            places, best = label_blocks.top_dense(self._scores(X), int(k))
        return names[places], best

    def predict_category(self, X, signatures):
        """Find the category whose label signature fits the scores of each sample best.

        This is the exact maximiser of the model's score over the given signatures, which may be those of
        categories without training samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        signatures : array-like or DataFrame of shape (n_categories, n_labels)
            Labels of each category, 0/1 or -1/+1.

        Returns
        -------
        categories : ndarray of shape (n_samples,)
            Row numbers of `signatures`, or entries of its index for a pandas DataFrame.
        """
        scores = self._scores(X)
        S = np.asarray(signatures, dtype=float)
        if S.ndim != 2 or S.shape[1] != scores.shape[1] or not len(S):
            raise ValueError(
                f"signatures must have one row per category and {scores.shape[1]} columns, one per label. "
                f"Got shape {S.shape} instead."
            )
        if np.isin(S, (0, 1)).all():
            S = 2 * S - 1
        if not np.isin(S, (-1, 1)).all():
            raise ValueError("signatures must hold 0/1 or -1/+1.")
        best = np.argmax(scores @ S.T, axis=1)
        index = getattr(signatures, "index", None)
        return best if index is None else np.asarray(index)[best]


def _kernel_attributes(problem: KernelM3L, solution: Solution) -> dict[str, Any]:
    """Support vectors and their coefficients, in float64, as they were certified.

    A score is sum_i k(x, x_i) c_il + b_l with b_l = s^2 sum_i c_il, so the model stores the kernel without
    its constant, the coefficients of the support vectors, and b.
    """
    X, kernel = problem.K.X, problem.K.kernel
    support = np.flatnonzero(solution.weights.any(axis=1))
    weights = solution.weights[support]
    vectors = X[:0, :0] if kernel.name == "precomputed" else X[support]
    return {
        "support_": support,
        "support_vectors_": vectors,
        "dual_coef_": np.ascontiguousarray(weights.T),
        "intercept_": kernel.offset * weights.sum(axis=0),
        "_kernel": replace(kernel, offset=0.0),
    }


def _warn_if_indefinite(kernel: Kernel, X: Any) -> None:
    """Warn if a kernel is not positive semi-definite on some samples: its optimum has no certificate."""
    n = X.shape[0]
    some = np.linspace(0, n - 1, min(n, PROBED_SAMPLES)).astype(int)
    K = KernelMatrix(kernel, X[some], np.inf, np.float64).whole
    assert K is not None
    smallest = smallest_eigenvalue((K + K.T) / 2)
    if smallest < -DEFINITENESS * np.abs(K).max() * len(some) ** 0.5:
        warn(INDEFINITE.format(smallest))

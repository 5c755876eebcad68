"""The sparse machines of Ganu, Shevade and Sundararajan: `SparseMultiClassSVC` and `SparseMultiLabelSVC`.

`rivals` has the machines that the paper compares with.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin import priors
from maxmargin.core.loop import Solver
from maxmargin.core.state import State, flags, part
from maxmargin.edge.estimator import fit_context
from maxmargin.sparse.basis_machine import (
    MACHINE,
    REMOVED,
    BasisMachine,
    ClassMachine,
    LabelMachine,
    check_machine,
    documented,
)
from maxmargin.sparse.basis_machine import SOLVERS as SOLVERS
from maxmargin.sparse.greedy import Greedy
from maxmargin.sparse.largest_margin import SquaredLargestMargin
from maxmargin.sparse.learned import ROUNDS, Learned
from maxmargin.sparse.loss_loops import Loss, SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import BasisProblem

# Smallest smoothing of kinks for which float64 can solve the Newton equation.
LEAST_SMOOTHING = 1e-9
# The parameter `basis` in the docstrings of both machines.
BASIS = """\
basis : {"greedy", "learned"}, default="greedy"
    "greedy" is the paper's basis: training samples, one by one. "learned" (kernel="rbf" only) starts from it
    and moves the vectors, the width and the coefficients together on nine tenths of the samples, as long as
    the loss on the others falls. With few features (dense, at most 64, at most the square root of the
    number of samples) it also learns a linear map `metric_` and a width of every vector, `spread_`. Then it
    optimises the coefficients for the vectors found. A learned basis is far more accurate for its size and
    slower to train. The problem is not convex: another `random_state`, or samples repeated instead of
    weighted, leads to other vectors. It has no smaller stages (`truncate`)."""


def _documented(cls: type[BasisMachine]) -> Any:
    """Insert the shared parameters, `basis` and the attributes into the docstring of a class."""
    if cls.__doc__:
        cls.__doc__ = inspect.cleandoc(cls.__doc__).replace("{basis}", BASIS)
    return documented(cls)


@dataclass(eq=False, repr=False, kw_only=True)
class MovableMachine(BasisMachine):
    """A machine whose basis vectors may move away from the training samples."""

    basis: str = "greedy"

    @property
    def gamma_(self) -> float:
        """The gamma of the kernel, as given, computed or learned."""
        check_is_fitted(self)
        return self._kernel.gamma

    @property
    def metric_(self) -> np.ndarray | None:
        """The learned M of exp(-gamma |M (x - z)|^2); None for the identity."""
        check_is_fitted(self)
        return self._kernel.metric

    @property
    def spread_(self) -> np.ndarray | None:
        """The learned r of exp(-gamma sum_f (M (x - z_j))_f^2 / (1 + r_jf)); None for points."""
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
                f"basis='learned' needs kernel='rbf'. Got kernel={self.kernel!r}; use basis='greedy' with it."
            )
        if isinstance(problem.loss, SquaredLargestMargin):
            raise ValueError(
                "basis='learned' needs the smooth loss='weston_watkins'. Got loss='crammer_singer'; use "
                "basis='greedy' with it."
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


@_documented
@dataclass(eq=False, repr=False, kw_only=True)
class SparseMultiClassSVC(MovableMachine, ClassMachine):
    """Multi-class SVM with few kernel functions that all classes share (SMSVM).

    It minimises, over the coefficients of a basis of training samples that is grown greedily,

        1/2 sum_r |w_r|^2 + C sum_i sum_{r != y_i} max(0, 1 + f_r(x_i) - f_{y_i}(x_i))^2 ,

    or, with ``loss="crammer_singer"``, the largest of the margins of a sample instead of their sum.

    Prediction needs one kernel value per basis vector and sample, for any number of classes. lambda of the
    papers is 1/(2C). Training costs O(n_candidates l k) and a few Newton steps of O(l d k) per basis vector;
    memory is l d + l k numbers.

    Parameters
    ----------
    {parameters}
    {basis}
    loss : {"weston_watkins", "crammer_singer"}, default="weston_watkins"
        Squared margins of all wrong classes, or of the worst one. The second loss has kinks. It is minimised
        through smooth copies, the last at most a quarter of `tol` below it; it needs l k^2 numbers and more
        time. Every certificate is that of the loss itself.

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

    STATE: ClassVar[State] = State(MACHINE, check_machine, removed=REMOVED)

    def _loss(self, codes: np.ndarray, costs: np.ndarray) -> Loss:
        k = len(self.classes_)
        if self.loss == "crammer_singer" and k > 1:
            return SquaredLargestMargin(codes, costs, k, max(0.25 * self.tol, LEAST_SMOOTHING))
        return SquaredMargins(codes, costs, k)


@_documented
@dataclass(eq=False, repr=False, kw_only=True)
class SparseMultiLabelSVC(MovableMachine, LabelMachine):
    """Multi-label SVM with few kernel functions that all labels share (SM3L, SM3L-P).

    It minimises, over the coefficients of a basis of training samples that is grown greedily,

        1/2 sum_{r,m} (R^-1)_rm <w_r, w_m> + C sum_{i,r} max(0, 1 - y_ir f_r(x_i))^2

    with R the `prior` (the identity if None: the objective of one squared-hinge SVM per label). Only R is
    used, never its inverse, so R may be singular; a prior of low rank makes the problem smaller. lambda of
    the papers is 1/C.

    Parameters
    ----------
    {parameters}
    {basis}
    prior : array-like of shape (n_labels, n_labels), callable or None, default=None
        Label correlations R, see `maxmargin.priors`. A callable, such as ``maxmargin.priors.from_labels``, is
        called with the training labels (0/1). The prior also couples the intercepts.

    Attributes
    ----------
    {attributes}
    constant_labels_ : bool array of shape (n_labels,)
        Labels that were constant in training; one that was always on or always off has +1 or -1 as intercept
        and no coefficients.

    Notes
    -----
    One class per sample (a 1d y of more than two classes) becomes one label per class, one against the rest;
    `SparseMultiClassSVC` learns the classes together.

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
        check_machine,
        removed=REMOVED,
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
            Indicators (0/1 or -1/+1, dense, sparse or a frame; NaN for unknown), a sequence of label sets,
            or a vector of classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights on the losses; equal to repeating samples.
        """
        X = self._read_rows(X, reset=True)
        weights, costs = self._read_costs(sample_weight, X)
        signs, constant = self._read_labels(X, y, costs)
        kernel, loss = self._make_kernel(X, weights), SquaredHinges(signs, costs)
        self._grow(BasisProblem(kernel, X, loss, self._factor(signs)), costs, y, constant)
        self.constant_labels_ = constant != 0
        return self

    def _factor(self, signs: np.ndarray) -> np.ndarray | None:
        """Return P with P'P = R, see `BasisProblem`."""
        R = None if self.prior is None else priors.read_prior(self.prior, signs)
        return None if R is None else priors.factor(R)

    def staged_decision_function(self, X: Any) -> Iterator[np.ndarray]:
        """Yield `decision_function` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self._labels.scores(scores)

    def staged_predict(self, X: Any) -> Iterator[Any]:
        """Yield `predict` with the first 1, 2, ... basis vectors."""
        for scores in self._staged_scores(X):
            yield self._labels.answer(self._labels.choose(scores), like=X)

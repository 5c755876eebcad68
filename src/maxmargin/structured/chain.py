"""Sequence labelling by a chain-structured SVM."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.loop import run
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import count_threads
from maxmargin.edge.estimator import COMMON_CONSTRAINTS, MaxMarginEstimator
from maxmargin.edge.groups import Groups, read_groups
from maxmargin.edge.sequences import SequenceLabels, stack_labels
from maxmargin.structured.chain_bcfw import ChainFrankWolfe
from maxmargin.structured.chain_bcpl import ChainPartialLinearisation
from maxmargin.structured.chain_decoding import best_labelings, best_labels, marginals
from maxmargin.structured.chain_oeg import ChainExponentiatedGradient
from maxmargin.structured.chain_pairwise import ChainPairwise
from maxmargin.structured.chain_problem import ChainProblem, ChainWeights


class ChainSVC(ClassifierMixin, MaxMarginEstimator):
    """Label the positions of sequences jointly, by a structured SVM on a chain.

    A labeling z of a sequence with rows x_1..x_L scores

        sum_t (coef_[z_t] . x_t + intercept_[z_t]) + sum_t transitions_[z_t, z_{t+1}]
        + first_[z_1] + last_[z_L],

    and training minimises 1/2 |w|^2 + C sum_i loss_i over all of these weights, where loss_i
    is the margin violation of sequence i, scaled by the Hamming loss. In the scaling of the
    partial-linearization paper lambda = 1 / (C n).

    An epoch costs O(rows (K^2 + nonzeros K)) for K labels; memory beyond the data is a few
    labelings per sequence (solver "pairwise"), rows K + n K^2 numbers ("bcfw", "oeg"), or
    rows K^2 numbers ("bcpl").

    Parameters
    ----------
    C : float, default=1.0
        Weight of the sum of the losses of all sequences.
    solver : {"pairwise", "bcfw", "bcpl", "oeg"}, default="pairwise"
        How to get to the one optimum: pairwise Frank-Wolfe steps on cached labelings,
        block-coordinate Frank-Wolfe, block-coordinate partial linearisation, or online
        exponentiated gradient.
    temperature : float or "auto", default="auto"
        For "bcpl" and "oeg": how much the target of a step is softened. "auto" is 0.1 of the
        largest loss of a sequence for "bcpl", and the smallest temperature that provably
        never lowers the dual for "oeg".
    safeguard : bool, default=True
        For "bcpl": take the Frank-Wolfe step where it promises more. Without it small
        temperatures can stall.
    normalize_loss : bool, default=True
        Divide the number of wrong labels of a sequence by its length, so that a sequence
        costs at most 1; False counts the wrong labels, which suits sequences of thousands
        of rows better (the margin is not divided by the length).
    tol : float, default=1e-3
        Relative duality gap at which training stops.
    max_iter : int, default=1000
        Most epochs (visits of every sequence).
    time_limit : float or None, default=None
        Seconds after which training stops.
    warm_start : bool, default=False
        Go on from the dual solution of the last fit, which must have had the same sequences,
        labels and solver; C and weights may change.
    n_jobs : int or None, default=None
        Threads for evaluating the objective and for prediction.
    random_state : int, RandomState or None, default=None
        Order of the visits.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
    coef_ : array of shape (n_labels, n_features)
    intercept_, first_, last_ : arrays of shape (n_labels,)
    transitions_ : array of shape (n_labels, n_labels)
        Score of a label (row) being followed by another (column).
    primal_objective_, dual_objective_, duality_gap_ : float
        Objective of the stored weights, dual objective, relative gap.
    n_iter_ : int
    history_ : list of dict
        One record per epoch: epoch, seconds, primal (when last evaluated), dual,
        gap, active (labelings, or pairs of position and label, that carry weight).
    n_features_in_ : int

    Notes
    -----
    X is a list of (length x features) matrices, dense or CSR, or one stacked matrix with
    `lengths`. A matrix without `lengths` is read as sequences of length one, for which the
    model is a multi-class SVM with a constant column of sqrt(3); a model that was fitted on
    longer sequences refuses it.

    Cross-validation works on lists. With label sequences that are lists or arrays pass a
    splitter, as in ``cross_val_score(ChainSVC(), X, y, cv=KFold(5))``: for a bare number
    scikit-learn tries to stratify, which it can do for labels but not for sequences of them.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin import ChainSVC
    >>> X = [np.array([[1.0, 0], [0, 1], [0, 0]]), np.array([[0.0, 1], [0, 0]])]
    >>> model = ChainSVC(C=10, random_state=0).fit(X, ["abb", "bb"])
    >>> model.predict(X)
    ['abb', 'bb']
    >>> model.predict([np.array([[1.0, 0], [0, 0]])])
    ['ab']
    """

    _parameter_constraints = {
        **COMMON_CONSTRAINTS,
        "solver": [StrOptions({"pairwise", "bcfw", "bcpl", "oeg"})],
        "temperature": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "safeguard": ["boolean"],
        "normalize_loss": ["boolean"],
        "warm_start": ["boolean"],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        solver: str = "pairwise",
        temperature: float | str = "auto",
        safeguard: bool = True,
        normalize_loss: bool = True,
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.solver = solver
        self.temperature = temperature
        self.safeguard = safeguard
        self.normalize_loss = normalize_loss
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, lengths: Any = None) -> ChainSVC:
        """Train on sequences.

        Parameters
        ----------
        X : list of matrices of shape (length, n_features), or one stacked matrix with `lengths`
        y : list of label sequences (strings, lists, arrays), or one stacked vector
        sample_weight : array-like of shape (n_sequences,), default=None
            Multiplies C for each sequence.
        lengths : array-like of int, default=None
            Rows of each sequence in a stacked X.
        """
        groups = read_groups(self, X, lengths, reset=True)
        self._labels, codes = SequenceLabels.read(y, groups)
        self.classes_ = self._labels.classes
        weights = self._read_weights(sample_weight, groups.lengths)
        problem = ChainProblem(
            Rows.of(groups.X),
            groups.offsets,
            codes,
            self.classes_.size,
            self.C,
            weights,
            self.normalize_loss,
            count_threads(self.n_jobs),
        )
        method = self._method(problem)
        outcome = run(
            method,
            self._stopping(codes.size * self.classes_.size),
            self._observer(X, y, lambda: _named(method.candidate())),
        )
        self.__dict__.update(_named(method.best))
        self._dual = self.solver, problem.offsets, problem.y, _probe(problem.rows), method.state
        self._store_outcome(outcome)
        return self

    def _method(self, problem: ChainProblem) -> Any:
        """The chosen solver, at its start or where the last fit ended."""
        state = None
        if self.warm_start and hasattr(self, "_dual"):
            solver, offsets, y, probe, state = self._dual
            if (
                solver != self.solver
                or not np.array_equal(offsets, problem.offsets)
                or not np.array_equal(y, problem.y)
                or not np.allclose(probe, _probe(problem.rows), rtol=1e-6)
            ):
                raise ValueError(
                    "warm_start=True goes on from the last fit and needs the same sequences, labels and "
                    "solver; set warm_start=False to start anew."
                )
        arguments = problem, check_random_state(self.random_state), self.tol, state
        temperature = None if self.temperature == "auto" else float(self.temperature)
        if self.solver == "bcfw":
            return ChainFrankWolfe(*arguments)
        if self.solver == "bcpl":
            return ChainPartialLinearisation(*arguments, temperature, self.safeguard)
        if self.solver == "oeg":
            return ChainExponentiatedGradient(*arguments, temperature)
        return ChainPairwise(*arguments)

    def __getstate__(self) -> Any:
        # The dual solution serves warm starts only and can be far larger than the model.
        return {name: value for name, value in super().__getstate__().items() if name != "_dual"}

    def predict(self, X: Any, lengths: Any = None) -> Any:
        """The labeling with the highest score for each sequence.

        Parameters
        ----------
        X : list of matrices of shape (length, n_features), or one stacked matrix with `lengths`
        lengths : array-like of int, default=None

        Returns
        -------
        y : list of label sequences in the kind given to fit, or one stacked vector
        """
        groups = self._read(X, lengths)
        return self._labels.answer(self._decode(groups), groups)

    def predict_marginals(self, X: Any, temperature: float = 1.0, lengths: Any = None) -> Any:
        """Probability of every label at every position under softmax(score / temperature).

        An SVM is not trained to be a probability model: choose the temperature on held-out
        data. As it goes to 0 the marginals become the indicator of the prediction.

        Parameters
        ----------
        X : list of matrices of shape (length, n_features), or one stacked matrix with `lengths`
        temperature : float, default=1.0
        lengths : array-like of int, default=None

        Returns
        -------
        marginals : list of arrays of shape (length, n_labels), or one stacked array
        """
        if not (isinstance(temperature, Real) and temperature > 0):
            raise ValueError(f"temperature must be a positive number. Got {temperature!r} instead.")
        groups = self._read(X, lengths)
        out = marginals(
            Rows.of(groups.X), groups.offsets, self._weights(), temperature, count_threads(self.n_jobs)
        )
        return groups.cut(out) if groups.kind == "list" else out

    def predict_kbest(self, X: Any, k: int = 5, lengths: Any = None) -> list[list[tuple[Any, float]]]:
        """The k labelings with the highest scores, best first, for each sequence.

        Parameters
        ----------
        X : list of matrices of shape (length, n_features), or one stacked matrix with `lengths`
        k : int, default=5
        lengths : array-like of int, default=None

        Returns
        -------
        labelings : list of lists of (label sequence, score)
            Fewer than k where a sequence has fewer labelings.
        """
        if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
            raise ValueError(f"k must be a whole number, at least 1. Got {k!r} instead.")
        groups = self._read(X, lengths)
        found = best_labelings(Rows.of(groups.X), groups.offsets, self._weights(), int(k))
        return [
            [
                (self._labels.pack(self.classes_[z]), float(value))
                for z, value in zip(labels, values, strict=True)
            ]
            for labels, values in found
        ]

    def score(self, X: Any, y: Any, sample_weight: Any = None, lengths: Any = None) -> float:
        """Letter accuracy: the share of positions with the right label.

        Parameters
        ----------
        X : list of matrices of shape (length, n_features), or one stacked matrix with `lengths`
        y : list of label sequences, or one stacked vector; labels unknown to fit count as wrong
        sample_weight : array-like of shape (n_sequences,), default=None
        lengths : array-like of int, default=None
        """
        groups = self._read(X, lengths)
        right = self.classes_[self._decode(groups)] == stack_labels(y, groups)
        weights = self._read_weights(sample_weight, groups.lengths)
        per_row = None if weights is None else np.repeat(weights, groups.lengths)
        return float(np.average(right, weights=per_row))

    def _read(self, X: Any, lengths: Any) -> Groups:
        check_is_fitted(self)
        return read_groups(self, X, lengths, reset=False)

    def _weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(U, R, B) as the compiled loops take them."""
        B = np.stack([self.intercept_, self.first_, self.last_])
        return readonly(self.coef_.T), readonly(self.transitions_), readonly(B)

    def _decode(self, groups: Groups) -> np.ndarray:
        """Code of the predicted label of every row."""
        return best_labels(Rows.of(groups.X), groups.offsets, self._weights(), count_threads(self.n_jobs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _probe(rows: Rows) -> np.ndarray:
    """One random projection of every row, which tells two training sets apart."""
    return rows.matrix @ np.random.RandomState(0).standard_normal(rows.shape[1])


def _named(weights: ChainWeights) -> dict[str, np.ndarray]:
    """The weights under their public names."""
    bias, first, last = weights.B.copy()
    return {
        "coef_": weights.U.T.copy(),
        "transitions_": weights.R.copy(),
        "intercept_": bias,
        "first_": first,
        "last_": last,
    }

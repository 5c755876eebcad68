"""Sequence labelling by a chain-structured SVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.jit import interpret
from maxmargin.core.loop import Solver, run
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.state import DOUBLE, INPUT, OUTCOME, Flag, LabelNames, Sizes, State, floats, part
from maxmargin.core.threads import count_threads, memory, run_threads
from maxmargin.edge.estimator import (
    COMMON_CONSTRAINTS,
    POSITIVE,
    Choice,
    Iterative,
    check_number,
    choose,
    fit_context,
    predicting,
    warn,
)
from maxmargin.edge.explain import Pick, explain_rows, place_of
from maxmargin.edge.groups import Groups, SequenceLabels, read_groups, stack_labels
from maxmargin.edge.labels import check_same
from maxmargin.structured.atoms import on_atoms
from maxmargin.structured.block_solver import Solution, chunks
from maxmargin.structured.chain_loops import (
    Chain,
    ChainWeights,
    Messages,
    decode,
    kbest,
    node_marginals,
    unary_scores,
)
from maxmargin.structured.chain_paper import exponentiated_gradient, frank_wolfe, partial_linearisation
from maxmargin.structured.chain_problem import ChainProblem

# Of a score, where it came from and its answer, for every position, label and labeling.
KBEST_BYTES = 32

SOLVERS: dict[str, Choice] = {
    "pairwise": Choice(
        on_atoms,
        "Viterbi finds the best labeling of a sequence; weight moves between the labelings found so far",
    ),
    "bcfw": Choice(frank_wolfe, "Frank-Wolfe towards the best labeling, block by block"),
    "bcpl": Choice(
        partial_linearisation,
        "towards a softened labeling of the given temperature, in the space of edge marginals",
        ("temperature", "safeguard"),
    ),
    "oeg": Choice(exponentiated_gradient, "exponentiated gradient, one sequence at a time", ("temperature",)),
}


def _check_names(state: Mapping[str, Any], sizes: Sizes) -> None:
    """A rule: the labels have one set of names."""
    if "_labels" in state:
        check_same(state["classes_"], state["_labels"].classes)


@dataclass(eq=False, repr=False)
class ChainSVC(ClassifierMixin, Iterative):
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
    tol : float, default=1e-3
        Relative duality gap at which training stops.
    max_iter : int, default=1000
        Most epochs (visits of every sequence).
    time_limit : float or None, default=None
        Seconds after which training stops.
    random_state : int, RandomState instance or None, default=0
        Order of the visits; None is another one in every fit.
    verbose : int, default=0
    solver : {"pairwise", "bcfw", "bcpl", "oeg"}, default="pairwise"
        All solvers reach the same optimum: pairwise Frank-Wolfe steps on stored labelings (followed, if
        weights are few, by cutting planes, which are faster at a large C), block-coordinate Frank-Wolfe,
        block-coordinate partial linearisation, or online exponentiated gradient.
    temperature : float or "auto", default="auto"
        Softness of the target of a step, for "bcpl" and "oeg". "auto" is 0.1 of the largest loss of a
        sequence for "bcpl", and for "oeg" the smallest temperature at which no step can lower the dual.
    safeguard : bool, default=True
        For "bcpl": take the Frank-Wolfe step if its gain is larger. Without it small temperatures can stall.
    normalize_loss : bool, default=True
        Divide the number of wrong labels of a sequence by its length, so that a sequence
        costs at most 1; False counts the wrong labels, so that a letter counts the same in short
        and long sequences (the margin is not divided by the length).
    intercept_scaling : float, default=1.0
        Value of the constant features whose weights are transitions_, intercept_, first_ and last_;
        the larger, the less these are regularised beside coef_. From 1e-6 to 1e6; other values
        than 1 copy X, in double precision.
    warm_start : bool, default=False
        Start from the dual solution of the last fit if it had the same sequences, labels, solver,
        normalize_loss and intercept_scaling; C and weights may change. Otherwise warn and start from zero.
    n_jobs : int or None, default=None
        Threads for evaluating the objective and for prediction.

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
    solver_ : str
        The solver that ran, or several in turn ("pairwise, then planes").
    history_ : list of dict
        One record per epoch: epoch, seconds, primal, dual, gap, active (sequences visited). Primal and
        dual are the best bounds so far, and the model returned has the primal objective of the last
        record; before the first evaluation of the primal objective it is infinite.
    n_features_in_ : int

    Notes
    -----
    X is a list of (length x features) matrices, dense or CSR, or one stacked matrix with
    `lengths`. A matrix without `lengths` is read as sequences of length one, for which the
    model is a multi-class SVM with a constant column of sqrt(3) intercept_scaling; a model that
    was fitted on longer sequences refuses it.

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

    C: float = 1.0
    _: KW_ONLY
    solver: str = "pairwise"
    temperature: float | str = "auto"
    safeguard: bool = True
    normalize_loss: bool = True
    intercept_scaling: float = 1.0
    warm_start: bool = False
    n_jobs: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Iterative._parameter_constraints,
        "C": POSITIVE,
        "solver": [StrOptions(SOLVERS.keys())],
        "temperature": [*POSITIVE, StrOptions({"auto"})],
        "safeguard": ["boolean"],
        "normalize_loss": ["boolean"],
        # Beyond these, squares of the rows or of the constants overflow or vanish beside each other.
        "intercept_scaling": [Interval(Real, 1e-6, 1e6, closed="both")],
        "warm_start": ["boolean"],
        "n_jobs": COMMON_CONSTRAINTS["n_jobs"],
    }

    STATE: ClassVar[State] = State(
        {
            **INPUT,
            **OUTCOME,
            "_groups_of_one": Flag(),
            "_labels": part("SequenceLabels"),
            "classes_": LabelNames("n_classes"),
            "coef_": floats("n_classes", "n_features", dtypes=DOUBLE),
            "transitions_": floats("n_classes", "n_classes", dtypes=DOUBLE),
            "intercept_": floats("n_classes", dtypes=DOUBLE),
            "first_": floats("n_classes", dtypes=DOUBLE),
            "last_": floats("n_classes", dtypes=DOUBLE),
        },
        _check_names,
    )

    @fit_context(prefer_skip_nested_validation=True)
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
        interpret(*groups.X.shape, self.classes_.size)
        rows = Rows.of(groups.X)
        total = len(groups) if weights is None else float(weights.sum())
        rows.check_digits(float(self.intercept_scaling), self.C * total * int(groups.lengths.max()))
        problem = ChainProblem(
            rows,
            groups.offsets,
            codes,
            self.classes_.size,
            self.C,
            weights,
            self.normalize_loss,
            self.intercept_scaling,
            count_threads(self.n_jobs),
        )
        solver = self._solver(problem)
        outcome = run(
            solver,
            self._stopping(),
            self._observer(X, y, lambda: self._named(problem, solver.solution())),
            self.solver,
        )
        solution = solver.solution()
        self.__dict__.update(self._named(problem, solution))
        self._remember((*self._data(problem), solution.dual), _shape(problem))
        self._store_outcome(outcome, groups.X)
        return self

    def _solver(self, problem: ChainProblem) -> Solver:
        """The chosen solver, at its start or where the last fit ended."""
        chosen = choose(self, SOLVERS)
        rng = check_random_state(self.random_state)
        options = {name: getattr(self, name) for name in chosen.reads}
        if isinstance(options.get("temperature"), Real):
            options["temperature"] /= problem.scaling  # as the losses
        return chosen.build(problem, rng, self.tol, self._start(problem), **options)

    def _start(self, problem: ChainProblem) -> Any:
        """Dual solution of the last fit, if that had the same sequences, labels, losses and solver."""
        last = self._recall(_shape(problem))
        if last is None:
            return None
        solver, offsets, y, loss, probe, dual = last[0]
        same = (
            solver == self.solver
            and np.array_equal(offsets, problem.offsets)
            and np.array_equal(y, problem.y)
            and np.array_equal(loss, problem.loss)
            and np.allclose(probe, _probe(problem.rows), rtol=1e-6)
        )
        if not same:
            warn(
                "warm_start: the last fit had other sequences, labels, losses or solver; starting from zero."
            )
        return dual if same else None

    def _data(self, problem: ChainProblem) -> tuple[Any, ...]:
        """What must be the same for a warm start."""
        return self.solver, problem.offsets, problem.y, problem.loss, _probe(problem.rows)

    def _named(self, problem: ChainProblem, solution: Solution) -> dict[str, np.ndarray]:
        """The weights under their public names."""
        return named(problem.shaped(solution.vector), problem.scaling)

    def __getstate__(self) -> Any:
        # The dual solution serves warm starts only and can be far larger than the model.
        return {name: value for name, value in super().__getstate__().items() if name != "_warm"}

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
        check_number("temperature", temperature)
        groups = self._read(X, lengths)
        rows, weights, K = Rows.of(groups.X).flat, self._weights(), self.classes_.size
        longest = int(groups.lengths.max())
        out = np.empty((groups.offsets[-1], K))

        def part(bounds: tuple[int, int]) -> None:
            un, messages = np.empty((longest, K)), Messages.empty(longest, K)
            node_marginals(
                rows, readonly(groups.offsets), *bounds, weights, 1.0 / temperature, un, messages, out
            )

        self._in_threads(part, groups)
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
        return [
            [
                (self._labels.pack(self.classes_[z]), float(value))
                for z, value in zip(labels, values, strict=True)
            ]
            for labels, values in self._best_labelings(groups, int(k))
        ]

    def explain(
        self,
        X: Any,
        label: Any = None,
        top: int = 10,
        names: Sequence[str] | None = None,
        lengths: Any = None,
    ) -> Any:
        """Explain the label of every position by its features and the neighbouring labels.

        The score of a label at a position is the part of the labeling's score that depends on it: its
        features, and the transitions from the predicted previous label and to the predicted next label.

        Parameters
        ----------
        X : list of matrices of shape (length, n_features), or one stacked matrix with `lengths`
        label : name of a label, default=None
            None explains the predicted label of every position.
        top : int, default=10
            Number of parts to name; the others are summed up.
        names : sequence of str, default=None
            Names of the features; those seen in `fit` by default, otherwise x0, x1, ...
        lengths : array-like of int, default=None

        Returns
        -------
        list of lists of Explanation, or one list with `lengths`
            For each position; parts, rest and bias add up to the score. Transitions are called "after 'a'",
            "before 'b'", "first" and "last".
        """
        groups = self._read(X, lengths)
        explanations = explain_rows(self, groups.X, self._picks(groups, label), top, names)
        return (
            explanations
            if groups.kind == "stacked"
            else [explanations[a:b] for a, b in pairwise(groups.offsets)]
        )

    def _picks(self, groups: Groups, label: Any) -> Iterator[Pick]:
        """Every position, with the steps between its label and the predicted ones beside it."""
        codes = self._decode(groups)
        given = None if label is None else place_of(label, self.classes_)
        for start, stop in pairwise(groups.offsets.tolist()):
            for row in range(start, stop):
                k = int(codes[row]) if given is None else given
                steps = self._steps(codes[start:stop], row - start, k)
                yield Pick(row, k, f"position {row - start}", steps)

    def _steps(self, codes: np.ndarray, t: int, k: int) -> list[tuple[str, float]]:
        """Transitions into and out of label k at position t of a labeling."""
        names = self.classes_.tolist()
        before, after = ("first", self.first_[k]), ("last", self.last_[k])
        if t > 0:
            before = f"after {names[codes[t - 1]]!r}", self.transitions_[codes[t - 1], k]
        if t < len(codes) - 1:
            after = f"before {names[codes[t + 1]]!r}", self.transitions_[k, codes[t + 1]]
        return [(name, float(value)) for name, value in (before, after)]

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

    def _weights(self) -> ChainWeights:
        """The weights in the form of the compiled loops: writable, as in a fit."""
        U, R = (np.require(part, requirements=("C", "W")) for part in (self.coef_.T, self.transitions_))
        return ChainWeights(U, R, np.stack([self.intercept_, self.first_, self.last_]))

    def _in_threads(self, part: Any, groups: Groups) -> None:
        """Call `part` with the bounds of runs of sequences."""
        n_threads = count_threads(self.n_jobs)
        with predicting(*groups.X.shape, self.classes_.size):
            run_threads(part, chunks(groups.offsets, n_threads), n_threads)

    def _decode(self, groups: Groups) -> np.ndarray:
        """Code of every row's label in the best labeling of its sequence."""
        rows, offsets, weights = Rows.of(groups.X).flat, readonly(groups.offsets), self._weights()
        n, labels = groups.lengths.size, np.empty(groups.offsets[-1], np.int64)
        # Zero losses: this reuses the compiled loop of a fit.
        none, values = readonly(np.zeros(n)), np.empty(n)
        chain = Chain(rows, offsets, readonly(np.zeros_like(labels)), none, none)

        def part(bounds: tuple[int, int]) -> None:
            un, forward = np.empty((2, int(groups.lengths.max()), self.classes_.size))
            decode(chain, *bounds, weights, un, forward, labels, values)

        self._in_threads(part, groups)
        return labels

    def _best_labelings(self, groups: Groups, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each sequence the codes of its best labelings, at most `most`, and their scores."""
        rows, weights, K = Rows.of(groups.X).flat, self._weights(), self.classes_.size
        longest = int(groups.lengths.max())
        if KBEST_BYTES * longest * K * count_labelings(K, longest, most) > memory():
            raise ValueError(
                f"k={most} labelings of a sequence of {longest} rows do not fit into the "
                f"{memory() / 2**30:.3g} GiB of memory; take a smaller k."
            )
        for start, length in zip(groups.offsets[:-1], groups.lengths, strict=True):
            k = count_labelings(K, int(length), most)
            un, scores = np.empty((length, K)), np.empty((length, K, k))
            came, rank = np.empty((2, length, K, k), np.int64)
            labels, values = np.empty((k, length), np.int64), np.empty(k)
            unary_scores(rows, start, length, weights.U, weights.B, un)
            found = kbest(un, weights.R, length, k, scores, came, rank, np.empty(K, np.int64), labels, values)
            yield labels[:found], values[:found]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def count_labelings(n_labels: int, length: int, most: int) -> int:
    """Number of labelings of a sequence, or `most` if there are more."""
    # Two to this power is above `most`.
    return min(n_labels ** min(length, most.bit_length()), most)


def named(weights: ChainWeights, scaling: float) -> dict[str, np.ndarray]:
    """The weights under their public names, those of constant features times their size."""
    bias, first, last = scaling * weights.B
    return {
        "coef_": weights.U.T.copy(order="F"),
        "transitions_": scaling * weights.R,
        "intercept_": bias,
        "first_": first,
        "last_": last,
    }


def _probe(rows: Rows) -> np.ndarray:
    """A random projection of every row, to recognise the training set."""
    return rows.matrix @ np.random.RandomState(0).standard_normal(rows.shape[1])


def _shape(problem: ChainProblem) -> tuple[int, ...]:
    """Rows, features and labels."""
    return *problem.rows.shape, problem.n_labels

"""Online label ranking: `LabelRanker`.

The functions at the end are shared with `stream.StreamRanker`. They skip the checks of X, which would cost
more than a single row does; their rows must be CSR or C-contiguous floats of an admissible width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Literal, cast

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.jit import interpret, interpreted
from maxmargin.core.loop import Solver, run
from maxmargin.core.rows import Rows
from maxmargin.core.sparse_format import check_format
from maxmargin.core.state import (
    DOUBLE,
    MEASURED,
    OUTCOME,
    Flag,
    LabelNames,
    Names,
    Number,
    Several,
    Sizes,
    State,
    Whole,
    floats,
    part,
)
from maxmargin.edge.estimator import (
    COMMON_CONSTRAINTS,
    POSITIVE,
    Choice,
    Iterative,
    Row,
    choose,
    first_that_holds,
    fit_context,
    predicting,
    warn,
    warn_if_single,
)
from maxmargin.edge.estimator import (
    ROWS as FEW_ROWS,
)
from maxmargin.edge.explain import Explained, Terms, linear_terms
from maxmargin.edge.labels import LabelClassifier, check_same
from maxmargin.ranking.entropy import EntropyState
from maxmargin.ranking.labels import GrowingLabels
from maxmargin.ranking.problem import (
    UPDATES,
    OnlineRanking,
    RankingProblem,
    RankingState,
    SquaredState,
    reorder,
)

# How steps are found, chosen by the update and the kind of the rows alone; the first row that holds applies.
ROWS = (
    Row(
        "pair steps",
        lambda update, general: update != "all_pairs",
        OnlineRanking,
        "Updates I and II: only the worst pair of labels moves.",
    ),
    Row(
        "pdip",
        lambda update, general: general,
        OnlineRanking,
        "Update III under the entropy, on rows of more than two values: the step has no closed form.",
        "benchmarks/results/ranking_race.csv",
    ),
    Row(
        "water-filling",
        lambda update, general: True,
        OnlineRanking,
        "Update III under the squared norm, or on rows of two values.",
        "benchmarks/results/ranking_race.csv",
    ),
)


def rounds(*given: Any, update: str, interior_point: bool = False, **options: Any) -> Solver:
    """Return `OnlineRanking` with steps by the first row that holds, or by interior points if requested."""
    *_, shapes = given
    row = first_that_holds(ROWS, update, interior_point or shapes.has_general_rows)
    solver: Solver = row.build(*given, name=row.name, update=update, interior_point=interior_point, **options)
    return solver


SOLVERS: dict[str, Choice] = {
    "auto": Choice(rounds, "Water filling where it applies, the paper's interior point method elsewhere."),
    "pdip": Choice(partial(rounds, interior_point=True), "The paper's interior point method for every step."),
}
# A step of update III with a larger gap, relative to the loss and scores of its round, causes a warning.
STEP_TOLERANCE = 1e-7
# An online learner with at most this many passes does not warn that it has not converged.
FEW_PASSES = 5
DEFAULT_MARGIN = {"squared": 1.0, "entropy": 0.01}
# How each weighting multiplies the entries of a row (`SquaredState`).
WEIGHTINGS: dict[str, dict[str, Any]] = {
    "idf": {"rarity": True, "damped": False, "smooth": False},
    "sqrt-idf": {"rarity": True, "damped": True, "smooth": False},
    "smooth-idf": {"rarity": True, "damped": True, "smooth": True},
}
# The weighting of "auto" for rows of zeros and ones; experiments/ranking_weighting.py compares them.
OF_PRESENCE = "smooth-idf"
# Largest n_features of a stored ranker that has learnt nothing; otherwise the file has an array of this size.
WIDEST_UNSEEN = 2**24
# Attributes of `fit` that `partial_fit` deletes.
OF_FIT = ("primal_objective_", "duality_gap_", "history_", "n_iter_", "solver_")


def _check_learner(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check that the weights have the regulariser, labels and width of the parameters."""
    width = state["n_features"]
    if "_state" not in state:
        if isinstance(width, Integral) and int(width) > WIDEST_UNSEEN:
            raise ValueError(f"n_features is {width}, which is too many for a ranker that has learnt nothing")
        return
    entropy = isinstance(state["_state"], EntropyState)
    if entropy != (state["regulariser"] == "entropy"):
        raise ValueError("it was learnt with another regulariser")
    if isinstance(width, Integral) and width != sizes["n_features"]:
        raise ValueError(f"n_features is {width}, but {sizes['n_features']} columns were learnt")
    if entropy and width == "grow":
        raise ValueError("the entropy does not grow")
    check_same(state["classes_"], state["_labels"].space.classes)
    if not sizes["n_classes"] and state["_labels"].family != "sets":
        raise ValueError("it has no labels")


@dataclass(eq=False, repr=False)
class LabelRanker(Explained, LabelClassifier, Iterative):
    """Rank labels by relevance, learning from one example at a time.

    Each round scores all labels, reads which of them are relevant, and moves the weights so that relevant
    labels score higher than the others by a margin. Three updates and two regularisers make six algorithms;
    each of them ascends the dual of one optimisation problem. The objective of *any* fixed competitor
    therefore bounds the number of ranking mistakes.

    Parameters
    ----------
    update : {"fixed", "worst_pair", "all_pairs"}, default="all_pairs"
        How the weights move (updates I, II, III of the paper). "fixed": a step of size C for the worst pair
        of labels, after a mistake only; with the squared norm this is the ranking perceptron, with the
        entropy exponentiated gradient. "worst_pair": the best step for that pair, whenever it violates the
        margin; with the squared norm this is PA-I. "all_pairs": the best step over all pairs at once.
    regulariser : {"squared", "entropy"}, default="squared"
        Half the squared norm, or relative entropy to the uniform weights. The entropy keeps the weights of
        each label on the simplex: nonnegative, sum one. It suits many features of which few matter. Use (x,
        -x) as features if effects may be negative.
    tol : float, default=1e-3
        With more than one pass, `fit` stops at this relative duality gap (P - D) / |P|.
    max_iter : int, default=5
        Passes of `fit`. One is the online algorithm. More are block-coordinate ascent on the dual of the
        whole sample and store the step of every row (rows x labels floats). `fit` warns that it has not
        converged only if more than five passes were allowed.
    time_limit : float, default=None
        Seconds after which `fit` stops.
    random_state : int, RandomState instance or None, default=0
        Order of the rows in `fit`; None means a different order in every fit.
    verbose : bool, default=False
        Print a line per pass.
    C : float, default=1.0
        Largest step of a round, and weight of the sum of losses in the objective (C of the paper and C of
        scikit-learn agree).
    margin : float, default=None
        Difference between the scores of relevant labels and of others. None means 1 for "squared" and 0.01
        for "entropy". Under the entropy a score is an average of x, so a margin as large as the range of x
        cannot be met, and every round takes the full step. Averages over the presence of thousands of words
        are small; there, margins of 0.001 to 0.01 work well.
    solver : {"auto", "pdip"}, default="auto"
        Solver of "all_pairs". "auto" is water filling for the squared norm and, under the entropy, for rows
        of two values (word presence, for example); for other rows it is "pdip", the paper's interior point
        method.
    weighting : {"auto", "idf", "sqrt-idf", "smooth-idf"} or None, default="auto"
        With "idf" each entry is weighted by the rarity of its column in the rounds before, and each row is
        scaled to length one: in round t, entry j is multiplied by r_j = log((2 + t) / (1 + c_j)), where c_j
        of the t rounds before had a nonzero there ("squared" only). "sqrt-idf" uses the square root of r_j,
        "smooth-idf" the square root of 1 + r_j, which keeps more of frequent columns. "auto" is "smooth-idf"
        if the rows of `fit`, or the first rows of `partial_fit` that are not all zero, contain only zeros and
        ones, such as the presence of words; else None. None uses the rows as they are, which is the paper's
        algorithm. `predict` uses the present counts and does not change them; `mistake_bound` is that of the
        weighted rows. Each call needs memory for a second array of values.
    average : bool, default=False
        Predict with the average of the weights over all rounds ("squared" only).
    shuffle : bool, default=True
        Whether `fit` visits the rows in random order. Files are often sorted by class, and one pass over such
        a file forgets the first classes. False keeps the order of the rows in the first pass, as
        `partial_fit` always does. Needs memory for a second X during `fit`.
    n_features : int or "grow", default=None
        Size of the feature space. None: the number of columns of the first X. An integer: X may have up to
        this many columns, for example those of a hashed space; only columns with entries take memory. "grow":
        each X may be wider than the one before ("squared" only).
    n_predicted : int, default=None
        For sets of labels, how many labels `predict` returns. None: all labels that score above a threshold
        learnt online (see Notes).
    trace : bool, default=False
        Keep mistake, loss and gain of every round in `trace_`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        The labels: sorted after `fit`, in order of first occurrence after `partial_fit`.
    n_rounds_, n_mistakes_ : int
        Rounds of the online pass, and how many of them ranked an irrelevant label at or above a relevant one.
    n_first_occurrences_, n_first_mistakes_ : int
        Rounds with a label that had not occurred before, and the mistakes among them, which no learner can
        avoid. A new label starts with the initial weights.
    dual_objective_ : float
        Dual objective reached; at most the primal objective of any competitor.
    primal_objective_, duality_gap_, history_, n_iter_, solver_
        After `fit` only: primal objective of the weights, relative gap, one record per pass, number of
        passes, and how the steps were found ("water-filling").
    curvature_ : float
        Largest kappa(x) of all rounds: |x|^2, or a quarter of the squared range of x under the entropy.
    step_gap_ : float
        Largest certified gap of a step of "all_pairs", relative to the loss and scores of its round.
    threshold_ : float
        Score above which `predict` returns a label.
    trace_ : structured array of shape (n_rounds_,)
        Fields mistake, loss, gain; with ``trace=True``.
    coef_ : ndarray of shape (n_labels, n_features)
        Weights that predict; computed on every access.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    A round costs O(nonzeros x labels) for the scores and O(nonzeros) for every label that moves. There is no
    intercept; add a column of ones if you need one. Rows with an empty or a complete label set change nothing
    and are no mistakes. Ties are mistakes, and go to the label that comes first in `classes_`.

    The threshold is the running average, over all rounds, of the midpoint between the lowest relevant and the
    highest irrelevant score before the update. Recent rounds have more weight (weights grow linearly, or are
    equal when averaging).

    References
    ----------
    S. Shalev-Shwartz and Y. Singer, A unified algorithmic approach for efficient online label
    ranking, AISTATS 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin import LabelRanker
    >>> X = np.array([[1., 0., 1.], [0., 1., 1.], [1., 0., 0.]])
    >>> ranker = LabelRanker().partial_fit(X, ["sports", "travel", "sports"])
    >>> ranker.predict(X)
    array(['sports', 'travel', 'sports'], dtype='<U6')
    >>> ranker.partial_fit([[0., 0., 1.]], ["music"]).classes_
    array(['sports', 'travel', 'music'], dtype='<U6')
    >>> ranker.n_mistakes_, ranker.n_first_occurrences_
    (3, 3)
    """

    update: str = "all_pairs"
    regulariser: str = "squared"
    _: KW_ONLY
    C: float = 1.0
    margin: float | None = None
    solver: str = "auto"
    max_iter: int = FEW_PASSES
    weighting: str | None = "auto"
    average: bool = False
    shuffle: bool = True
    n_features: int | Literal["grow"] | None = None
    n_predicted: int | None = None
    trace: bool = False
    verbose: int = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Iterative._parameter_constraints,
        "C": COMMON_CONSTRAINTS["C"],
        "update": [StrOptions(set(UPDATES))],
        "regulariser": [StrOptions(set(DEFAULT_MARGIN))],
        "margin": [*POSITIVE, None],
        "solver": [StrOptions(SOLVERS.keys())],
        "weighting": [StrOptions({"auto", *WEIGHTINGS}), None],
        "average": ["boolean"],
        "shuffle": ["boolean"],
        "n_features": [Interval(Integral, 1, None, closed="left"), StrOptions({"grow"}), None],
        "n_predicted": [Interval(Integral, 1, None, closed="left"), None],
        "trace": ["boolean"],
    }

    STATE: ClassVar[State] = State(
        {
            **{name: field for name, field in OUTCOME.items() if name in OF_FIT},
            "_state": part("SquaredState", "EntropyState"),
            "_labels": part("GrowingLabels"),
            "_shuffled": Flag(group="order"),
            "_trace": Several(floats(None, 3, dtypes=DOUBLE, finite=False)),
            "n_features_in_": Whole(size="n_features"),
            "feature_names_in_": Names("n_names", group="names"),
            "_table": part("NamedColumns", group="table", own_sizes=True),
            "classes_": LabelNames("n_classes", least=0),
            **dict.fromkeys(
                ("n_rounds_", "n_mistakes_", "n_first_occurrences_", "n_first_mistakes_"), Whole()
            ),
            **dict.fromkeys(("dual_objective_", "curvature_", "step_gap_"), MEASURED),
            "threshold_": Number(),
        },
        _check_learner,
        removed={"solver": {"exact": "auto"}},
    )

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y):
        """Learn from all rows from scratch, in random order, `max_iter` times.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : one class per row, or sets of labels, indicators, a frame of indicators

        Returns
        -------
        self
        """
        matrix = self._read_stream(X, reset=True)
        self._start(matrix, GrowingLabels(y, declare=True), bool(self.shuffle))
        check_consistent_length(matrix, y)
        if self._labels.single_label:
            warn_if_single(self._labels.classes)
        rng = check_random_state(self.random_state)
        order = rng.permutation(matrix.shape[0]) if self.shuffle else None
        solver = self._solver(matrix, y, order, remember=self.max_iter > 1, random_state=rng)
        observer = self._observer(X, y, lambda: self._attributes(solver.solution()))
        outcome = run(solver, self._stopping(), observer, self.solver)
        self._store(solver.solution(), solver.records)
        self._store_outcome(outcome, matrix, warn_user=self.max_iter > FEW_PASSES)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, classes=None):
        """Predict and update for each row in turn; new labels may occur at any time.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : one class per row, or sets of labels, indicators, a frame of indicators
        classes : array-like, default=None
            Labels known from the start, on the first call; never required.

        Returns
        -------
        self
        """
        first = not hasattr(self, "_state")
        matrix = self._read_stream(X, reset=first)
        if first:
            self._start(matrix, GrowingLabels(y, classes))
        check_consistent_length(matrix, y)
        learn_rows(self, matrix, y)
        return self

    # Whether `fit` shuffled the rows; files of earlier versions lack this attribute.
    _shuffled = False

    def _start(self, matrix: Any, labels: GrowingLabels, shuffled: bool = False) -> None:
        """Initialise the weights for the labels that are known in advance."""
        if self.regulariser == "entropy" and (self.average or self.n_features == "grow"):
            wrong = "average=True" if self.average else 'n_features="grow"'
            raise ValueError(
                f'{wrong} needs regulariser="squared": under the entropy, weights start at 1/n_features and '
                "all of them change in every step."
            )
        if self.regulariser == "entropy" and self.weighting in WEIGHTINGS:
            raise ValueError(
                f'weighting="{self.weighting}" needs regulariser="squared": weighted rows have many values, '
                "and the entropy is fast on rows of two values only."
            )
        self._state: RankingState
        if self.regulariser == "entropy":
            self._state = EntropyState(self.n_features_in_, matrix.dtype)
        else:
            weighting = WEIGHTINGS.get(self.weighting or "", {})
            self._state = SquaredState(
                self.n_features_in_, matrix.dtype, average=bool(self.average), **weighting
            )
        self._state.declare(len(labels.classes))
        self._labels = labels
        self._shuffled = shuffled
        self._trace: list[np.ndarray] = []

    def _solver(self, matrix: Any, y: Any, order: np.ndarray | None = None, **options: Any) -> OnlineRanking:
        """Build the solver for the rows and labels of one call; `order` is the order of the rounds."""
        problem, state = self._problem(), self._state
        state.own()
        rows = Rows.of(matrix if order is None else matrix[order])
        if self.n_features == "grow":
            state.widen(rows.shape[1])
        # "auto" is decided by the first rows with entries.
        undecided = self.weighting == "auto" and not state.used
        if undecided and isinstance(state, SquaredState) and holds_presence(matrix):
            state.start_weighting(**WEIGHTINGS[OF_PRESENCE])
        shapes = state.inspect(rows)
        bounded = self.regulariser == "entropy" and self.update != "fixed"
        if bounded and 0 < shapes.largest_range <= problem.gamma:
            warn(
                f"margin={problem.gamma:g} is at least the range of every row of X "
                f"({shapes.largest_range:g}): no round can meet it, and each takes the full step C; "
                "use a smaller margin."
            )
        relevant = self._labels.read(y)
        if order is not None:
            relevant = reorder(relevant, order)
        interpret(max(matrix.shape[0], FEW_ROWS), matrix.shape[1], len(self._labels.classes))
        build = choose(self, SOLVERS).build
        weighted = state.weight_rows(rows, count=True)
        return cast(
            OnlineRanking, build(problem, state, weighted, relevant, shapes, update=self.update, **options)
        )

    def _problem(self) -> RankingProblem:
        margin = DEFAULT_MARGIN[self.regulariser] if self.margin is None else self.margin
        return RankingProblem(float(margin), float(self.C))

    def _read_stream(self, X: Any, *, reset: bool) -> Any:
        """Validate X; if `n_features` is set, its width may vary."""
        if reset or self.n_features is None:
            matrix = self._read_rows(X, reset=reset)
        else:
            matrix = check_array(
                check_format(self._by_name(X), "X"), accept_sparse="csr", accept_large_sparse=True,
                dtype=[np.float64, np.float32], order="C", estimator=self,
            )  # fmt: skip
        width = matrix.shape[1]
        if isinstance(self.n_features, Integral):
            if width > self.n_features:
                raise ValueError(f"X has {width} columns, more than n_features={self.n_features} allows.")
            self.n_features_in_: int = int(self.n_features)
        return matrix

    def _attributes(self, state: RankingState) -> dict[str, Any]:
        """Return the fitted attributes of a state."""
        return {
            "_state": state,
            "_labels": self._labels,
            "classes_": self._labels.classes,
            "n_features_in_": state.n_features,
            "n_rounds_": state.n_rounds,
            "n_mistakes_": state.n_mistakes,
            "n_first_occurrences_": state.n_first,
            "n_first_mistakes_": state.n_first_mistakes,
            "dual_objective_": state.dual,
            "curvature_": state.kappa,
            "step_gap_": state.worst_gap,
            "threshold_": float(state.threshold[0]),
        }

    def _store(self, state: RankingState, records: list[np.ndarray]) -> None:
        """Store the attributes of a state, and warn if one of its steps was not optimal."""
        self.__dict__.update(self._attributes(state))
        if self.trace:
            self._trace += records
        if state.worst_gap > STEP_TOLERANCE:
            warn(
                f"The certified relative gap of a step of 'all_pairs' is {state.worst_gap:.1e}. The model "
                "and its bound are valid, but that step was not the best one. Scale X or lower C.",
                ConvergenceWarning,
            )

    @property
    def trace_(self) -> np.ndarray:
        """Mistake, loss and dual gain of every round; needs ``trace=True``."""
        check_is_fitted(self, "classes_")
        if not self.trace:
            raise AttributeError("trace_ is stored with trace=True only; fit again with it.")
        rounds = np.concatenate([np.empty((0, 3)), *self._trace])
        out = np.empty(len(rounds), [("mistake", bool), ("loss", float), ("gain", float)])
        out["mistake"], out["loss"], out["gain"] = rounds.T
        return out

    @property
    def coef_(self) -> np.ndarray:
        """Weights that predict, labels x features; computed on every access."""
        check_is_fitted(self, "classes_")
        return self._state.weights()

    def label_scores(self, X):
        """Return the score of every label for every row, for any number of labels.

        Returns
        -------
        ndarray of shape (n_samples, n_labels), columns in the order of `classes_`
        """
        check_is_fitted(self, "classes_")
        return score_rows(self, self._read_stream(X, reset=False))

    def _terms(self, X: Any) -> Terms:
        check_is_fitted(self, "classes_")
        rows = self._state.weight_rows(Rows.of(self._read_stream(X, reset=False))).matrix
        weights = self.coef_[:, : rows.shape[1]]
        terms = linear_terms(self, rows, weights, np.zeros(len(weights)))
        two = self._labels.single_label and len(self.classes_) == 2
        return terms.contrasted() if two else terms

    def decision_function(self, X):
        """Return the scores of the labels; for two classes, the second score minus the first.

        Returns
        -------
        ndarray of shape (n_samples, n_labels) or (n_samples,)
        """
        scores = self.label_scores(X)
        if self._labels.single_label and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def rank(self, X):
        """Return the labels of every row from the most to the least relevant.

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
        """
        return self.classes_[descending(self.label_scores(X))]

    def predict(self, X):
        """Predict the most relevant label; for sets, the top `n_predicted` or all above `threshold_`.

        Returns
        -------
        labels in the kind given to `fit` or `partial_fit`
        """
        return choose_labels(self, self.label_scores(X), X)

    def mistake_bound(self, W, X, y):
        """Return the largest number of mistakes that the competitor W allows on the stream (X, y).

        The bound is P(W) / (margin C - curvature_ C^2), where P(W) is the regulariser of W plus C times its
        losses over the labels known in each round. It is infinite if C >= margin / curvature_.

        Parameters
        ----------
        W : array-like of shape (n_labels, n_features)
            Weights of the competitor, rows in the order of `classes_`; on the simplex for "entropy".
        X, y
            All rounds of the learner; with a `weighting`, in their order.

        Returns
        -------
        float
        """
        check_is_fitted(self, "classes_")
        W = check_array(W, dtype=np.float64)
        state, problem = self._state, self._problem()
        if W.shape != (len(self.classes_), state.n_features):
            raise ValueError(f"W must have shape {(len(self.classes_), state.n_features)}; got {W.shape}.")
        if self.regulariser == "entropy" and ((W < 0).any() or not np.allclose(W.sum(axis=1), 1)):
            raise ValueError("Each row of W must be nonnegative and sum to one under the entropy.")
        if self._shuffled and isinstance(state, SquaredState) and state.rarity:
            raise ValueError(
                "With a weighting the bound depends on the order of the rounds, which shuffle=True does not "
                "keep; fit with shuffle=False or weighting=None."
            )
        matrix = self._read_stream(X, reset=False)
        if matrix.shape[0] != state.n_rounds:
            raise ValueError(
                f"X has {matrix.shape[0]} rows, but the learner has trained for {state.n_rounds} rounds."
            )
        relevant = self._labels.read(y, grow=False)
        weighted = state.replay(Rows.of(matrix)).matrix
        scores = np.ascontiguousarray(weighted @ W[:, : matrix.shape[1]].T, dtype=np.float64)
        primal = problem.primal(state.complexity_of(W), scores, relevant, np.array(state.born, np.int64))
        return problem.mistake_bound(primal, state.kappa)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        # Weights on the simplex cannot be negative.
        tags.classifier_tags.poor_score = self.regulariser == "entropy"
        return tags


def holds_presence(matrix: Any, block: int = 1 << 16) -> bool:
    """Return whether all entries are zero or one, and some are one."""
    values = matrix.data if sp.issparse(matrix) else matrix.reshape(-1)
    pieces = (values[start : start + block] for start in range(0, values.size, block))
    return all(((piece == 0) | (piece == 1)).all() for piece in pieces) and bool(values.any())


def learn_rows(ranker: LabelRanker, matrix: Any, y: Any) -> None:
    """Run the online pass of a started ranker over validated rows."""
    with interpreted(max(matrix.shape[0], FEW_ROWS), matrix.shape[1], len(ranker._labels.classes)):
        solver = ranker._solver(matrix, y)
        solver.learn()
    ranker._store(solver.state, solver.records)
    for name in OF_FIT:
        ranker.__dict__.pop(name, None)


def score_rows(ranker: LabelRanker, matrix: Any) -> np.ndarray:
    """Return the scores of validated rows, columns as in `classes_`."""
    with predicting(*matrix.shape, len(ranker.classes_)):
        return ranker._state.scores(ranker._state.weight_rows(Rows.of(matrix)))


def choose_labels(ranker: LabelRanker, scores: np.ndarray, like: Any = None) -> Any:
    """Return the labels chosen by the scores, in the kind given to the ranker; `like` is their X."""
    labels = ranker._labels
    if labels.single_label:
        return ranker.classes_[np.argmax(scores, axis=1)]
    if ranker.n_predicted is None:
        return labels.space.answer(scores > ranker.threshold_, like=like)
    on = np.zeros(scores.shape, bool)
    np.put_along_axis(on, descending(scores)[:, : ranker.n_predicted], True, axis=1)
    return labels.space.answer(on, like=like)


def descending(scores: np.ndarray) -> np.ndarray:
    """Return label indices by decreasing score; ties in the order of the labels."""
    return np.argsort(-scores, axis=1, kind="stable")

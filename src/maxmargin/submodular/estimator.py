"""`SubmodularSVC`: sets of labels predicted by one minimum cut, trained for the example F1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from maxmargin.core.jit import interpret
from maxmargin.core.linalg import product
from maxmargin.core.loop import run
from maxmargin.core.rows import Rows, without_zeros
from maxmargin.core.state import (
    DOUBLE,
    OUTCOME,
    ROWS,
    LabelNames,
    Sizes,
    State,
    flags,
    floats,
    indices,
    part,
)
from maxmargin.edge.estimator import (
    COMMON_CONSTRAINTS,
    Choice,
    Iterative,
    check_columns,
    choose,
    fit_context,
    predicting,
    warn,
)
from maxmargin.edge.explain import Explained, Terms, linear_terms
from maxmargin.edge.labels import (
    LabelClassifier,
    LabelSpace,
    check_answers,
    constant_labels,
    warn_of_constants,
)
from maxmargin.submodular import choice
from maxmargin.submodular.bcfw import BlockSolution
from maxmargin.submodular.bundle import BundleSolution
from maxmargin.submodular.cut_loops import Arcs
from maxmargin.submodular.interior import InteriorSolution
from maxmargin.submodular.problem import (
    LabelPairs,
    SubmodularF1,
    attractive_pairs,
    best_sets,
    fixed_points,
    label_margins,
    weighted_graph,
)

S = TypeVar("S", BundleSolution, BlockSolution, InteriorSolution)
SOLVERS = {
    "auto": Choice(
        choice.default, "interior for few weights, otherwise bcfw, with interior where that stalls"
    ),
    "interior": Choice(
        choice.interior, "interior point method on remembered sets, inference after every step"
    ),
    "bcfw": Choice(choice.bcfw, "block-coordinate Frank-Wolfe, with a memory of sets and flips of labels"),
    "bundle": Choice(
        choice.bundle, "cutting planes with a nonnegative block: the paper's method", ("line_search",)
    ),
}


def _check_labels(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check that the names of the labels fit their kind."""
    if "_labels" in state:
        check_answers(state["_labels"], state["classes_"])


@dataclass(eq=False, repr=False)
class SubmodularSVC(Explained, LabelClassifier, Iterative):
    """Multi-label classifier with attractive pairs of labels, trained for the example F1.

    A set y of labels scores ``sum_i y_i (coef_[i] . x + intercept_[i]) + sum_{i<j} y_i y_j interaction_[i,
    j]`` with nonnegative interactions; one minimum cut finds the best set exactly. Training minimises, over
    unary weights Z (bias included) and pair weights t >= 0,

        1/2 (|Z|^2 + |t|^2) + C sum_n max_y [ 1 - F1(y, y_n) + score(x_n, y) - score(x_n, y_n) ]

    with F1 = 1 between two empty sets. The interaction of a pair is its weight t times its strength,
    `interaction_scale` times the normalised number of samples with both labels. Without pairs
    (``pair_fraction=0``) this is RML. lambda of the paper is 1 / (C n_samples), its c is `interaction_scale`.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the sum of losses.
    tol : float, default=1e-3
        Relative duality gap at which training stops.
    max_iter : int, default=1000
        Passes over the samples with inference ("bcfw"), steps ("interior") or planes ("bundle").
    time_limit : float or None, default=None
        Seconds after which training stops.
    random_state : int, RandomState instance or None, default=0
        Order of the samples in "bcfw"; None means a different order in every fit. The other solvers are
        deterministic.
    verbose : int, default=0
    interaction_scale : float, default=1.0
        Scale of the strengths of pairs; 0 leaves pairs out.
    pair_fraction : float in [0, 1], default=0.5
        Fraction of all pairs to keep, the most frequent ones; pairs that never occur are dropped.
    cooccurrence : {"count", "jaccard"}, default="count"
        Strength of a pair: samples with both labels, relative to the most frequent pair, or to the samples
        with either label.
    inference : {"exact", "fixed_point"}, default="exact"
        How the most violating set of a sample is found: exactly (branch and bound over majorants of the
        loss), or by Algorithm 2 of the paper, whose set is often but not always optimal. The gap is proven in
        both cases, but may stay above `tol` with "fixed_point".
    max_nodes : int, default=1000
        Most branching nodes per sample in exact inference. After that, the best set found and a proven bound
        are used, so the gap is still proven.
    solver : {"auto", "interior", "bcfw", "bundle"}, default="auto"
        An interior point method, block-coordinate Frank-Wolfe, or cutting planes with a nonnegative block
        (the paper's method). All reach the same optimum. "interior" solves a system in all weights in every
        step, by conjugate gradients if they are many; it does not depend on the scale of the features.
        "bundle" uses threads throughout. "auto" is "interior" up to 2,000 weights (labels x features and
        pairs) and 200 pairs, else "bcfw"; "interior" continues if that is far from the optimum after five
        passes, with fewer features than samples, up to 40,000 labels of all samples together and 1,000 pairs.
    line_search : bool, default=True
        Used by "bundle" only: add the next plane near the best point between the best weights so far and the
        minimiser of the model. False is the paper's method.
    plane_cache : int, default=20
        How many sets each sample remembers, at n_samples * n_labels bytes for each. "bcfw" remembers twice as
        many and moves weight among them and to sets that differ in a few labels; with 1 it is the method
        without memory. The line search of "bundle" evaluates them instead of running inference. "interior"
        needs at least two; "auto" gives it at least one per label.
    fit_intercept : bool, default=True
        Add a constant feature, regularised like the others.
    intercept_scaling : float, default=1.0
        Value of the constant feature.
    warm_start : bool, default=False
        Start from the dual solution of the last fit with the same solver, if it had as many samples and
        labels ("interior", "bundle"), or the same y and pairs ("bcfw"); C, weights and features may differ.
        Otherwise the fit starts from scratch, with a warning.
    n_jobs : int or None, default=None
        Threads for inference over samples (the steps of "bcfw" use one); None means one, -1 all cores.

    Attributes
    ----------
    coef_ : array of shape (n_labels, n_features)
    intercept_ : array of shape (n_labels,)
    interaction_ : array of shape (n_labels, n_labels)
        Symmetric, nonnegative, zero on the diagonal.
    pairs_ : array of shape (n_pairs, 2)
        The pairs, most frequent first; `pair_strength_` are their strengths.
    pair_strength_ : array of shape (n_pairs,)
    classes_ : array of shape (n_labels,)
    constant_labels_ : array of bool of shape (n_labels,)
        Labels that were constant in training; the model predicts their constant.
    primal_objective_, dual_objective_, duality_gap_ : float
        The objective (or a proven bound of it if inference was cut short), a lower bound on the optimum, and
        their relative distance, recomputed from the stored solution.
    n_iter_ : int
    solver_ : str
        The name of the solver, or of several in order ("bcfw, then interior").
    history_ : list of dict
        One record per iteration: epoch, seconds, primal (of the best weights so far), dual, gap, and active,
        the number of samples visited.
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features,)

    Notes ----- One iteration costs a pass over X and, per sample, a few cuts of graphs with one node per
    label. "bcfw" stores n_samples * (n_labels + n_pairs) floats besides the remembered sets, twice; "bundle"
    stores n_labels * (n_features + 1) floats per plane in use. A cut needs n_labels^2 floats.

    References
    ----------
    J. Petterson, T. Caetano, "Submodular multi-label learning", NIPS 2011.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from maxmargin import SubmodularSVC
    >>> X, Y = make_multilabel_classification(60, n_classes=4, random_state=0)
    >>> model = SubmodularSVC(C=0.1, tol=1e-2).fit(X, Y)
    >>> model.predict(X[:2]).shape
    (2, 4)
    >>> bool((model.interaction_ >= 0).all() and model.duality_gap_ <= 1e-2)
    True
    """

    C: float = 1.0
    _: KW_ONLY
    interaction_scale: float = 1.0
    pair_fraction: float = 0.5
    cooccurrence: str = "count"
    inference: str = "exact"
    max_nodes: int = 1000
    solver: str = "auto"
    line_search: bool = True
    plane_cache: int = 20
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    warm_start: bool = False
    n_jobs: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **COMMON_CONSTRAINTS,
        "interaction_scale": [Interval(Real, 0, None, closed="left")],
        "pair_fraction": [Interval(Real, 0, 1, closed="both")],
        "cooccurrence": [StrOptions({"count", "jaccard"})],
        "inference": [StrOptions({"exact", "fixed_point"})],
        "max_nodes": [Interval(Integral, 1, None, closed="left")],
        "solver": [StrOptions(SOLVERS.keys())],
        "line_search": ["boolean"],
        "plane_cache": [Interval(Integral, 1, None, closed="left")],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
    }

    STATE: ClassVar[State] = State(
        {
            **ROWS,
            **OUTCOME,
            "_labels": part("LabelSpace"),
            "classes_": LabelNames("n_classes"),
            "coef_": floats("n_columns", "n_features", dtypes=DOUBLE),
            "intercept_": floats("n_columns", dtypes=DOUBLE),
            "interaction_": floats("n_columns", "n_columns", dtypes=DOUBLE, low=0.0),
            "pairs_": indices("n_pairs", 2, below="n_columns"),
            "pair_strength_": floats("n_pairs"),
            "constant_labels_": flags("n_columns"),
            "_always": flags("n_columns"),
        },
        _check_labels,
    )

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SubmodularSVC:
        """Learn unary weights and interactions.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like, sparse matrix, frame or list of sets
            The labels of every sample, complete; see `maxmargin.edge.labels`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights on the losses and in the label counts; equal to repeating samples.
        """
        X = self._read_rows(X, reset=True)
        labels, signs = LabelSpace.read(y)
        truth = complete(X, signs)
        if sp.issparse(X):
            check_columns(X.shape[1], n_weights=truth.shape[1])
        weights = self._read_weights(sample_weight, X)
        self._note_constants(labels, truth, weights)
        interpret(*X.shape, truth.shape[1])
        problem = self._problem(X, truth, weights)
        self._warn_of_inference(problem.pairs)
        problem.rows.check_digits(problem.bias, float(problem.cost.sum()))
        solver = choose(self, SOLVERS).build(self, problem)
        observer = self._observer(X, y, lambda: self._attributes(problem, labels, solver.solution().theta))
        outcome = run(solver, self._stopping(), observer, self.solver)
        solution = solver.solution()
        for name, value in self._attributes(problem, labels, solution.theta).items():
            setattr(self, name, value)
        self._remember(solution, truth.shape)
        self._store_outcome(outcome, X)
        return self

    def _note_constants(self, labels: LabelSpace, truth: np.ndarray, weights: np.ndarray | None) -> None:
        """Find the constant labels, and warn of them."""
        weight = np.ones((len(truth), 1)) if weights is None else weights[:, None]
        self.constant_labels_, on = constant_labels(2 * truth.astype(np.int8) - 1, weight)
        self._always = self.constant_labels_ & on
        warn_of_constants(labels.names, self.constant_labels_)

    def _warn_of_inference(self, pairs: LabelPairs) -> None:
        """Warn if the gap may never close; without pairs all inference is exact."""
        if self.inference == "fixed_point" and len(pairs):
            warn(
                "inference='fixed_point' can miss the most violating set of labels, and the duality gap may "
                "then never reach tol; use inference='exact', which does not miss it."
            )

    def _problem(self, X: Any, truth: np.ndarray, weights: np.ndarray | None) -> SubmodularF1:
        cost = np.full(len(truth), float(self.C)) if weights is None else self.C * weights
        pairs = attractive_pairs(
            truth, self.pair_fraction, self.interaction_scale, self.cooccurrence, weights
        )
        return SubmodularF1(
            Rows.of(without_zeros(X)),
            truth,
            cost,
            pairs,
            bias=float(self.intercept_scaling) if self.fit_intercept else 0.0,
            exact=self.inference == "exact",
            max_nodes=self.max_nodes,
            n_jobs=self.n_jobs,
        )

    def _start(self, problem: SubmodularF1, kind: type[S]) -> S | None:
        """Return the solution of the last fit if this one can start from it, else None."""
        recalled = self._recall(problem.truth.shape)
        solution = None if recalled is None else recalled[0]
        if not isinstance(solution, kind):
            return None
        if not solution.fits(problem):
            warn("warm_start ignored: y or the label pairs differ from the previous fit.")
            return None
        return solution

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the dual solution for warm starts, which contains sets of labels for all samples."""
        return {name: value for name, value in super().__getstate__().items() if name != "_warm"}

    def _attributes(self, problem: SubmodularF1, labels: LabelSpace, theta: np.ndarray) -> dict[str, Any]:
        """Return the fitted attributes that prediction needs."""
        Z, t = problem.split(theta)
        V = Z.shape[1]
        interaction = np.zeros((V, V))
        i, j = problem.pairs.index.T
        interaction[i, j] = interaction[j, i] = problem.pairs.strength * t
        return {
            "_labels": labels,
            "classes_": labels.classes,
            "coef_": Z[:-1].T.copy(order="F"),
            "intercept_": problem.bias * Z[-1],
            "interaction_": interaction,
            "pairs_": problem.pairs.index,
            "pair_strength_": problem.pairs.strength,
            "constant_labels_": self.constant_labels_,
            "_always": self._always,
        }

    def _unary(self, X: Any) -> tuple[np.ndarray, Arcs]:
        """Return unary scores of every sample, and the graph of the interactions."""
        scores = product(X, self.coef_.T) + self.intercept_
        i, j = np.nonzero(np.triu(self.interaction_, 1))
        index = np.column_stack([i, j])
        return scores, weighted_graph(len(self.intercept_), index, self.interaction_[i, j])

    def _unary_with_constants(self, X: Any) -> tuple[np.ndarray, Arcs]:
        """Like `_unary` for prediction: constant labels get scores that give their constant."""
        check_is_fitted(self)
        scores, graph = self._unary(self._read_rows(X, reset=False))
        # A score above zero switches a label on, one below minus its interactions switches it off.
        off = -1.0 - self.interaction_.sum(axis=1)
        constant = self.constant_labels_
        scores[:, constant] = np.where(self._always, 1.0, off)[constant]
        return scores, graph

    def _terms(self, X: Any) -> Terms:
        # Of the unary scores only; `interaction_` is not part of the explanation.
        check_is_fitted(self)
        W, b, fixed = self.coef_.copy(), self.intercept_.copy(), self.constant_labels_
        W[fixed], b[fixed] = 0.0, np.where(self._always, 1.0, -1.0 - self.interaction_.sum(axis=1))[fixed]
        return linear_terms(self, self._read_rows(X, reset=False), W, b)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the margin of every label: the best score of a set with it minus that of a set without it.

        It is positive exactly for the labels that `predict` returns; without interactions it is the unary
        score. Costs one cut for each label with interactions.
        """
        scores, graph = self._unary_with_constants(X)
        with predicting(len(scores), *self.interaction_.shape):
            margins = label_margins(scores, graph, self.n_jobs)
        return self._labels.scores(margins)

    def predict(self, X: Any) -> Any:
        """Return the smallest best set of labels of every sample, in the kind given to `fit`.

        For one class per sample it is the class with the largest margin. A cut finds the set, so it is always
        optimal; `certify_inference` tests the sets that Algorithm 2 finds in training.
        """
        chosen = self._choose(X)
        return self._labels.answer(chosen, like=X)

    def _choose(self, X: Any) -> np.ndarray:
        scores, graph = self._unary_with_constants(X)
        with predicting(len(scores), *self.interaction_.shape):
            if self._labels.kind == "multiclass":
                return self._labels.choose(label_margins(scores, graph, self.n_jobs))
            return best_sets(scores, graph, self.n_jobs).astype(bool)

    def certify_inference(self, X: Any, y: Any, return_sets: bool = False) -> Any:
        """Return for which samples the set of ``inference="fixed_point"`` is proven optimal.

        The test of the paper (its Algorithm 3 and Theorem 2) at the fitted weights, for any inference in
        training. It is sufficient, not necessary: False proves nothing. Inference is exact for samples
        without labels, and for all samples of a model without interactions. Costs up to n_labels cuts per
        sample.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like, sparse matrix, frame or list of sets
            The labels of every sample, in the kind given to `fit`.
        return_sets : bool, default=False
            Also return the tested sets, first.

        Returns
        -------
        sets : array of bool of shape (n_samples, n_labels)
            With `return_sets`: the sets of Algorithm 2, one row per sample.
        proven : array of bool of shape (n_samples,)
        """
        check_is_fitted(self)
        X = self._read_rows(X, reset=False)
        truth = complete(X, self._labels.signs(y))
        scores, graph = self._unary(X)
        found = fixed_points(scores, truth, graph, self.n_jobs)
        proven = found.proven.astype(bool) if len(graph.head) else np.ones(len(truth), bool)
        return (found.sets.astype(bool), proven) if return_sets else proven

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags


def complete(X: Any, signs: np.ndarray) -> np.ndarray:
    """Return the true sets as 0/1, one per row of X; raise an error if an entry is unknown."""
    check_consistent_length(X, signs)
    if not signs.all():
        raise ValueError(
            "y has unknown (NaN) entries, but the F1 of a sample needs all of its labels; drop such samples, "
            "fill the entries, or use MultiLabelSVC (for F1 in baselines.ThresholdTuner), which accepts them."
        )
    return (signs > 0).astype(np.uint8)

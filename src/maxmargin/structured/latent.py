"""Classification of bags of candidates by a latent multi-class SVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.jit import interpret
from maxmargin.core.loop import Clock, Outcome, Solver, Stopping, run
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.state import DOUBLE, INPUT, OUTCOME, Flag, LabelNames, State, floats, indices
from maxmargin.core.threads import count_threads, run_threads
from maxmargin.edge.estimator import (
    COMMON_CONSTRAINTS,
    POSITIVE,
    Choice,
    Iterative,
    choose,
    fit_context,
    predicting,
)
from maxmargin.edge.explain import Explanation, Pick, explain_rows, place_of
from maxmargin.edge.groups import read_groups
from maxmargin.structured.block_solver import chunks
from maxmargin.structured.latent_loops import bag_scores
from maxmargin.structured.latent_rounds import (
    LatentProblem,
    LatentSolution,
    exponentiated_gradient,
    frank_wolfe,
    pairwise,
    partial_linearisation,
)

# How well the model of mean candidates, which only chooses where to start, is solved.
ROUGHLY = Stopping(tol=1e-2, max_iter=100)

SOLVERS: dict[str, Choice] = {
    "pairwise": Choice(pairwise, "weight moves between the few pairs of candidate and class that have some"),
    "bcpl": Choice(
        partial_linearisation,
        "towards a softened pair of the given temperature, over all pairs of a bag",
        ("temperature", "safeguard"),
    ),
    "bcfw": Choice(frank_wolfe, "Frank-Wolfe towards the best pair, bag by bag"),
    "oeg": Choice(
        exponentiated_gradient,
        "online exponentiated gradient, the same target and no line search",
        ("temperature",),
    ),
}


@dataclass(eq=False, repr=False)
class LatentSVC(ClassifierMixin, Iterative):
    """Classify bags of candidate vectors of which one, unknown, shows the class.

    Class k scores max_h coef_[k] . x_h + intercept_[k] over the candidates x_h of a bag.
    Training lowers

        1/2 |W|^2 + C sum_i { max_{h,k} [ [k != y_i] + W_k . x_h ] - max_h W_{y_i} . x_h },

    an upper bound on the training errors that is not convex. Each round (CCCP) chooses the best
    candidate of every true class and lowers the convex majoriser that this gives; the
    objective never rises, and the limit is a stationary point that depends on the start. With
    one candidate per bag the model is the multi-class SVM of Crammer and Singer. In the
    scaling of the partial-linearization paper lambda = 1 / (C n).

    An epoch costs O(nonzeros n_classes); memory beyond the data is a few pairs of candidate
    and class per bag (solvers "pairwise" and "bcfw") or all of them ("bcpl", "oeg").

    Parameters
    ----------
    C : float, default=1.0
        Weight of the sum of the losses of all bags.
    tol : float, default=1e-3
        Training stops when another round provably cannot lower the objective by more than
        this fraction. It is no bound on the distance to the global optimum.
    max_iter : int, default=1000
        Most epochs (visits of every bag) of one start.
    time_limit : float or None, default=None
        Seconds after which training stops, over all starts.
    random_state : int, RandomState instance or None, default=0
        Order of the visits, and random choices of candidates; None draws others in every fit.
    verbose : int, default=0
    solver : {"pairwise", "bcpl", "bcfw", "oeg"}, default="pairwise"
        How to minimise the convex majorisers: pairwise Frank-Wolfe steps (followed, if weights are few, by
        cutting planes, which are faster at a large C), block-coordinate partial linearisation,
        block-coordinate Frank-Wolfe, or online exponentiated gradient.
    init : {"mean", "first", "middle", "random"} or array-like of shape (n_bags,), default="mean"
        First choice of candidates: the best ones under a model of the bags' means, the first
        or middle one, a random one, or as given.
    n_init : int, default=1
        Starts, of which the one with the lowest objective is kept. All but the first choose at
        random.
    temperature : float or "auto", default="auto"
        For "bcpl" and "oeg": how much the target of a step is softened. "auto" is 0.1 C_i max_h |x_h|^2
        for "bcpl", and half of C_i max_h |x_h|^2 for "oeg", below which the dual may fall.
    safeguard : bool, default=True
        For "bcpl": take the Frank-Wolfe step where it promises more.
    fit_intercept : bool, default=True
        Add a constant feature, regularised like the others.
    intercept_scaling : float, default=1.0
        The value of this feature.
    n_jobs : int or None, default=None
        Threads for evaluating the objective and for prediction.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (n_classes, n_features)
    intercept_ : array of shape (n_classes,)
    latent_ : array of shape (n_bags,)
        Candidate chosen for the true class of every training bag.
    primal_objective_ : float
        The objective above.
    dual_objective_ : float
        Lower bound on the last majoriser: another round cannot get below it.
    duality_gap_ : float
        Relative distance of the two.
    objectives_ : array
        Objective after every round; it never rises.
    n_iter_ : int
        Epochs.
    solver_ : str
        The solver that ran, or several in turn ("pairwise, then planes").
    history_ : list of dict
        One record per epoch: epoch, seconds, primal, dual, gap, active (bags visited). Primal is the
        lowest objective so far, infinite before the first round has ended; dual is the best bound of
        the present round, and is reset by the next.
    n_features_in_ : int

    Notes
    -----
    X is a list of (candidates x features) matrices, dense or CSR, or one stacked matrix with
    `lengths`. A matrix without `lengths` is read as bags of one candidate; a model that was
    fitted on larger bags refuses it.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin import LatentSVC
    >>> X = [np.array([[0.0, 0.1], [1, 0]]), np.array([[0, 1.0], [0.1, 0.1]]), np.array([[0.9, 0.0]])]
    >>> model = LatentSVC(C=10, random_state=0).fit(X, ["right", "up", "right"])
    >>> model.predict(X).tolist(), model.predict_latent(X).tolist()
    (['right', 'up', 'right'], [1, 0, 0])
    """

    C: float = 1.0
    _: KW_ONLY
    solver: str = "pairwise"
    init: Any = "mean"
    n_init: int = 1
    temperature: float | str = "auto"
    safeguard: bool = True
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    n_jobs: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Iterative._parameter_constraints,
        "C": POSITIVE,
        "solver": [StrOptions(SOLVERS.keys())],
        "init": [StrOptions({"mean", "first", "middle", "random"}), "array-like"],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "temperature": [*POSITIVE, StrOptions({"auto"})],
        "safeguard": ["boolean"],
        "fit_intercept": ["boolean"],
        "intercept_scaling": POSITIVE,
        "n_jobs": COMMON_CONSTRAINTS["n_jobs"],
    }

    STATE: ClassVar[State] = State(
        {
            **INPUT,
            **OUTCOME,
            "_groups_of_one": Flag(),
            "classes_": LabelNames("n_classes"),
            "coef_": floats("n_classes", "n_features", dtypes=DOUBLE),
            "intercept_": floats("n_classes", dtypes=DOUBLE),
            "latent_": indices("n_bags", group="fit"),
            "objectives_": floats(None, finite=False, group="fit"),
        }
    )

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, lengths: Any = None) -> LatentSVC:
        """Train on bags.

        Parameters
        ----------
        X : list of matrices of shape (n_candidates, n_features), or one stacked matrix with `lengths`
        y : array-like of shape (n_bags,)
            Class of every bag.
        sample_weight : array-like of shape (n_bags,), default=None
            Multiplies C for each bag.
        lengths : array-like of int, default=None
            Candidates of each bag in a stacked X.
        """
        groups = read_groups(self, X, lengths, reset=True)
        codes = self._read_classes(y, len(groups), "bags")
        weights = self._read_weights(sample_weight, groups.lengths)
        interpret(*groups.X.shape, self.classes_.size)
        rows, bias, threads = Rows.of(groups.X), self._bias(), count_threads(self.n_jobs)
        rows.check_digits(bias, self.C * (len(groups) if weights is None else float(weights.sum())))
        problem = LatentProblem(
            rows, groups.offsets, codes, self.classes_.size, self.C, weights, bias, threads
        )
        self._store(*self._best_of_starts(problem, X, y), groups.X)
        return self

    def _best_of_starts(self, problem: LatentProblem, X: Any, y: Any) -> tuple[LatentSolution, Outcome]:
        """Solution and outcome of the start with the lowest objective."""
        chosen = choose(self, SOLVERS)
        options = {name: getattr(self, name) for name in chosen.reads}
        rng = check_random_state(self.random_state)
        stopping = self._stopping()
        runs: list[tuple[LatentSolution, Outcome]] = []
        clock = Clock(self.time_limit)
        solver: Solver

        def attributes() -> dict[str, np.ndarray]:
            return self._named(solver.solution())

        observer = self._observer(X, y, attributes, self.n_init * self.max_iter)
        for start in range(self.n_init):
            choice = self._choice(problem, rng, start, clock)
            solver = chosen.build(problem, rng, self.tol, choice, **options)
            outcome = run(solver, replace(stopping, time_limit=clock.left()), observer, self.solver)
            runs.append((solver.solution(), outcome))
            if outcome.reason in ("interrupted", "callback") or clock.expired():
                break
        solution, best = min(runs, key=lambda each: each[1].certificate.primal)
        return solution, replace(best, interrupted=runs[-1][1].interrupted)

    def _store(self, solution: LatentSolution, outcome: Outcome, X: Any) -> None:
        self.__dict__.update(self._named(solution))
        self.latent_ = solution.chosen
        self.objectives_ = solution.objectives
        if outcome.interrupted:
            outcome.remedy = "fit again with init=latent_ to continue"
        self._store_outcome(outcome, X)

    def _named(self, solution: LatentSolution) -> dict[str, np.ndarray]:
        """The weights under their public names."""
        W = solution.vector.reshape(-1, self.classes_.size)
        return {"coef_": W[:-1].T.copy(order="F"), "intercept_": self._bias() * W[-1]}

    def _bias(self) -> float:
        return float(self.intercept_scaling) if self.fit_intercept else 0.0

    def _choice(
        self, problem: LatentProblem, rng: np.random.RandomState, start: int, clock: Clock
    ) -> np.ndarray:
        """First candidates of a start."""
        sizes = problem.sizes
        if start > 0 or (isinstance(self.init, str) and self.init == "random"):
            return rng.randint(0, sizes)
        if not isinstance(self.init, str):
            chosen = np.asarray(self.init)
            if chosen.shape != sizes.shape or chosen.dtype.kind not in "iu":
                raise ValueError(f"init must be a word or {sizes.size} whole numbers, one candidate per bag.")
            if (chosen < 0).any() or (chosen >= sizes).any():
                i = int(np.flatnonzero((chosen < 0) | (chosen >= sizes))[0])
                raise ValueError(f"init[{i}] is {chosen[i]}, but X[{i}] has {sizes[i]} candidates.")
            return chosen.astype(np.int64)
        if self.init == "middle":
            return sizes // 2
        first = np.zeros(sizes.size, np.int64)
        if self.init == "first" or problem.largest == 1:
            return first
        solver = pairwise(problem.means(), rng, ROUGHLY.tol, first)
        if run(solver, replace(ROUGHLY, time_limit=clock.left())).interrupted:
            raise KeyboardInterrupt
        # The weights of alpha: the best ones may be W = 0, which chooses nothing.
        return problem.values(solver.blocks.recompute()[0], first).best

    def decision_function(self, X: Any, lengths: Any = None) -> np.ndarray:
        """Score of every class: the largest over the candidates of a bag.

        Parameters
        ----------
        X : list of matrices of shape (n_candidates, n_features), or one stacked matrix with `lengths`
        lengths : array-like of int, default=None

        Returns
        -------
        scores : array of shape (n_bags, n_classes), or of shape (n_bags,) for two classes (second
            minus first)
        """
        scores, _ = self._evaluate(X, lengths)
        return scores[:, 1] - scores[:, 0] if self.classes_.size == 2 else scores

    def predict(self, X: Any, lengths: Any = None) -> np.ndarray:
        """The class with the largest score.

        Parameters
        ----------
        X : list of matrices of shape (n_candidates, n_features), or one stacked matrix with `lengths`
        lengths : array-like of int, default=None
        """
        scores, _ = self._evaluate(X, lengths)
        return self.classes_[scores.argmax(axis=1)]

    def predict_latent(self, X: Any, lengths: Any = None) -> np.ndarray:
        """The candidate of each bag that scores highest for its predicted class.

        Parameters
        ----------
        X : list of matrices of shape (n_candidates, n_features), or one stacked matrix with `lengths`
        lengths : array-like of int, default=None

        Returns
        -------
        candidates : array of int, of shape (n_bags,)
        """
        scores, candidates = self._evaluate(X, lengths)
        return candidates[np.arange(len(scores)), scores.argmax(axis=1)]

    def explain(
        self,
        X: Any,
        label: Any = None,
        top: int = 10,
        names: Sequence[str] | None = None,
        lengths: Any = None,
    ) -> list[Explanation]:
        """Explain the score of a class by the features of its best candidate.

        Parameters
        ----------
        X : list of matrices of shape (n_candidates, n_features), or one stacked matrix with `lengths`
        label : name of a class, default=None
            None explains the predicted class of every bag.
        top : int, default=10
            Number of parts to name; the others are summed up.
        names : sequence of str, default=None
            Names of the features; those seen in `fit` by default, otherwise x0, x1, ...
        lengths : array-like of int, default=None

        Returns
        -------
        list of Explanation
            For each bag; parts, rest and bias add up to the score of the class (also of two), and `where`
            names its candidate.
        """
        scores, candidates = self._evaluate(X, lengths)
        groups = read_groups(self, X, lengths, reset=False)
        codes = scores.argmax(axis=1)
        if label is not None:
            codes = np.full(len(scores), place_of(label, self.classes_))
        best = candidates[np.arange(len(codes)), codes]
        picks = (
            Pick(start + candidate, k, f"candidate {candidate}")
            for start, candidate, k in zip(
                groups.offsets[:-1].tolist(), best.tolist(), codes.tolist(), strict=True
            )
        )
        return explain_rows(self, groups.X, picks, top, names)

    def score(self, X: Any, y: Any, sample_weight: Any = None, lengths: Any = None) -> float:
        """Accuracy.

        Parameters
        ----------
        X : list of matrices of shape (n_candidates, n_features), or one stacked matrix with `lengths`
        y : array-like of shape (n_bags,)
        sample_weight : array-like of shape (n_bags,), default=None
        lengths : array-like of int, default=None
        """
        return accuracy_score(y, self.predict(X, lengths), sample_weight=sample_weight)

    def _evaluate(self, X: Any, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
        """Largest score of every class over the candidates of each bag, and the candidate that has it."""
        check_is_fitted(self)
        groups = read_groups(self, X, lengths, reset=False)
        rows, offsets = Rows.of(groups.X).flat, readonly(groups.offsets)
        W = np.vstack([self.coef_.T, self.intercept_])
        shape = len(groups), self.classes_.size
        scores, candidates = np.empty(shape), np.empty(shape, np.int64)

        def part(bounds: tuple[int, int]) -> None:
            bag_scores(rows, offsets, *bounds, 1.0, W, np.empty(W.shape[1]), scores, candidates)

        n_threads = count_threads(self.n_jobs)
        with predicting(*groups.X.shape, self.classes_.size):
            run_threads(part, chunks(offsets, n_threads), n_threads)
        return scores, candidates

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

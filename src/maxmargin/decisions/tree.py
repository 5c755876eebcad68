"""Sets of labels that agree with a tree: a child implies its parent.

Among the sets S that contain the ancestors of all their labels, find the one with the largest sum of scores.
From the leaves upwards, compute the gain of a label together with the best labels below it,

    gain(l) = score(l) + sum over children c of max(0, gain(c)) .

A label is in S if its parent is in S and its gain is positive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.state import Array, LabelNames, Sizes, State, part
from maxmargin.decisions.calibrated import check_width
from maxmargin.edge.estimator import fit_context
from maxmargin.edge.labels import LabelClassifier, LabelSpace, check_answers, check_same
from maxmargin.edge.wrappers import (
    INNER,
    WIDTH,
    Wrapper,
    copy_input_tags,
    log_odds,
    method_of,
    score_columns,
)
from maxmargin.priors import ancestors


def consistent_labels(scores: Any, edges: Any, labels: Any = None) -> np.ndarray:
    """Return the consistent set of labels with the largest sum of scores, for every sample.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_labels)
        The output of `decision_function`, or log-odds; a positive score favours a label.
    edges : sequence of (parent, child)
        Pairs of labels; every label has at most one parent.
    labels : sequence, default=None
        Names of the columns, if `edges` contains names. By default labels are column numbers.

    Returns
    -------
    bool array of shape (n_samples, n_labels)
        Among the sets in which a child implies its parent, the smallest with the largest sum of scores.

    Examples
    --------
    >>> from maxmargin.decisions import consistent_labels
    >>> edges = [("animal", "cat"), ("animal", "dog")]
    >>> consistent_labels([[-1.0, 3.0, -2.0], [-1.0, 0.5, 0.2]], edges, ["animal", "cat", "dog"])
    array([[ True,  True, False],
           [False, False, False]])
    """
    scores = np.array(scores, dtype=np.float64)
    if scores.ndim != 2 or np.isnan(scores).any():
        raise ValueError("scores must be a matrix of numbers, one column per label.")
    names = list(range(scores.shape[1])) if labels is None else list(labels)
    if len(names) != scores.shape[1]:
        raise ValueError(f"labels has {len(names)} names, but scores has {scores.shape[1]} columns.")
    return best_sets(scores, parents_of(edges, names))


def parents_of(edges: Any, names: list[Any]) -> np.ndarray:
    """Return the column of every label's parent, -1 for a label without a parent."""
    column = {name: k for k, name in enumerate(names)}
    parents = np.full(len(names), -1)
    for above, below in edges:
        for name in (above, below):
            if name not in column:
                raise ValueError(f"an edge names {name!r}, which is not among the labels.")
        if parents[column[below]] not in (-1, column[above]):
            raise ValueError(f"{below!r} has two parents; edges must form a tree.")
        parents[column[below]] = column[above]
    ancestors(edges, names)  # raises an error for a cycle
    return parents


def levels(parents: np.ndarray) -> list[np.ndarray]:
    """Return the labels of each depth of the tree, roots first."""
    found = [np.flatnonzero(parents < 0)]
    while found[-1].size:
        found.append(np.flatnonzero(np.isin(parents, found[-1])))
    return found[:-1]


def best_sets(scores: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Return the consistent sets with the largest sums of scores."""
    gain = scores.copy()
    below = levels(parents)[1:]
    for level in reversed(below):
        np.add.at(gain.T, parents[level], np.maximum(gain[:, level], 0.0).T)
    on = gain > 0
    for level in below:
        on[:, level] &= on[:, parents[level]]
    return on


def _check_tree(state: Mapping[str, Any], sizes: Sizes) -> None:
    """Check a stored tree: labels and width agree with the estimator, and there is no cycle."""
    if "estimator_" not in state:
        return
    check_width(state)
    check_same(state["classes_"], state["estimator_"].classes_)
    check_answers(state["_labels"], state["classes_"])
    if sum(map(len, levels(state["parents_"]))) < len(state["classes_"]):
        raise ValueError("its parents contain a cycle")


class TreeLabels(Wrapper, LabelClassifier, BaseEstimator):
    """Predictions that agree with a tree of labels: a child implies its parent.

    Among all sets of labels that contain the ancestors of their labels, `predict` returns the one with
    the largest sum of scores, or of log-odds if the estimator has probabilities. A large score of a child
    can add its parent, and a very negative score of a parent can remove its children.

    Parameters
    ----------
    estimator : multi-label classifier with `decision_function` or `predict_proba`
        With `Calibrated` the set is the most probable one for independent labels.
    edges : sequence of (parent, child)
        Pairs of labels of y, by name, or by column if y is a 0/1 matrix. A label has at most one parent.

    Attributes
    ----------
    estimator_ : the fitted estimator
    parents_ : int array of shape (n_labels,)
        Column of each label's parent, -1 for a label without a parent.
    classes_ : array of shape (n_labels,)

    See Also
    --------
    maxmargin.decisions.consistent_labels : The same for any matrix of scores.
    maxmargin.priors.from_tree : A prior for training with the same edges.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin import MultiLabelSVC, TreeLabels
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> y = [[], ["animal"], ["animal", "cat"], ["animal", "cat"]]
    >>> model = TreeLabels(MultiLabelSVC(C=10.0, random_state=0), [("animal", "cat")]).fit(X, y)
    >>> [sorted(labels) for labels in model.predict([[0.0, 2.0], [0.0, 0.0]])]
    [['animal', 'cat'], []]
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "decision_function"]), HasMethods(["fit", "predict_proba"])],
        "edges": ["array-like"],
    }

    _splitter = None
    # Sample weights are used by the estimator only, so the wrapper itself does not request them.
    __metadata_request__fit: ClassVar[dict[str, str]] = {"sample_weight": UNUSED}

    STATE: ClassVar[State] = State(
        {
            **WIDTH,
            "_labels": part("LabelSpace", own_sizes=True),
            "classes_": LabelNames("n_names"),
            "parents_": Array(("n_names",), ("i8",), -1, "n_names"),
            "estimator_": part(*INNER, "Calibrated", own_sizes=True),
        },
        _check_tree,
        {"estimator": part(*INNER, "Calibrated")},
    )

    def __init__(self, estimator: Any, edges: Any) -> None:
        self.estimator = estimator
        self.edges = edges

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> TreeLabels:
        """Fit the estimator.

        Parameters
        ----------
        X : array-like, sparse matrix or frame
        y : several labels per sample, of any kind that the estimator takes
        sample_weight : array-like of shape (n_samples,), default=None
            Passed to the estimator, in a Pipeline to its last step.
        **fit_params
            Passed to the `fit` of the estimator; with scikit-learn's metadata routing, those it requests.
        """
        self._labels = LabelSpace.recognise(y)
        if self._labels.single_label:
            raise ValueError("y has one class per sample; TreeLabels needs sets of labels or a 0/1 matrix.")
        self.classes_ = self._labels.classes
        self.parents_ = parents_of(self.edges, self.classes_.tolist())
        X = self._read_input(X, reset=True)
        given, _ = self._routed({"sample_weight": sample_weight, **fit_params})
        self.estimator_ = clone(self.estimator).fit(X, y, **given)
        self._copy_width(self.estimator_)
        return self

    def predict(self, X: Any) -> Any:
        """Return the best consistent set of every sample, in the kind passed to `fit`."""
        check_is_fitted(self)
        scores = score_columns(self.estimator_, self._read_input(X), self._labels)
        if method_of(self.estimator_) == "predict_proba":
            scores = log_odds(scores)
        return self._labels.answer(best_sets(np.asarray(scores, np.float64), self.parents_), like=X)

    @available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), "predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the estimator; they are not changed by the tree."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(self._read_input(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return copy_input_tags(tags, self.estimator)

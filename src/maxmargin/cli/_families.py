"""The model families of the command line, one entry each.

A family says which estimator it is, what a sample's labels look like (its task), which
scikit-learn estimator stands beside it, and which parameters the demo and the warm-up use.
Nothing heavy is imported before `build` or `baseline` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Family:
    """One model family.

    Attributes
    ----------
    name : str
        What `--model` calls it.
    estimator : str
        Its class, a public name of the package.
    task : {"multilabel", "multiclass", "chain", "ranking"}
        Kind of labels, which decides the measures.
    summary : str
        One line for `--help`.
    baseline_name, baseline : str, callable
        The scikit-learn estimator to stand beside it.
    demo_data, demo_params : str, mapping
        Data set (see `maxmargin.cli._demo_data`) and parameters of the demo.
    variants : tuple of mappings
        Parameters that between them reach every compiled loop.
    headline : str
        The measure to compare by; empty for the first one of the task.
    """

    name: str
    estimator: str
    task: str
    summary: str
    baseline_name: str
    baseline: Callable[[], Any]
    demo_data: str
    demo_params: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[Mapping[str, Any], ...] = ({},)
    headline: str = ""

    def build(self, **params: Any) -> Any:
        """The estimator, not fitted."""
        import maxmargin

        return getattr(maxmargin, self.estimator)(**params)


def _one_vs_rest() -> Any:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    return OneVsRestClassifier(LinearSVC())


def _linear_svc() -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC()


def _svc() -> Any:
    from sklearn.svm import SVC

    return SVC()


def _one_vs_rest_svc() -> Any:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVC

    return OneVsRestClassifier(SVC())


def _online_pass() -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(loss="hinge", max_iter=1, tol=None, shuffle=False, random_state=0)


_ENTRIES = (
    Family(
        "multilabel",
        "MultiLabelSVC",
        "multilabel",
        "several labels per sample, with a prior on how labels go together",
        "OvR LinearSVC",
        _one_vs_rest,
        "yeast",
        {"prior": "labels", "C": 0.1},
        (
            {},
            {"prior": "labels"},
            {"solver": "dca"},
            {"kernel": "rbf"},
            {"kernel": "rbf", "prior": "labels"},
        ),
    ),
    Family(
        "multiclass",
        "MultiClassSVC",
        "multiclass",
        "one class per sample",
        "LinearSVC",
        _linear_svc,
        "digits",
        {},
        (
            *(
                {"solver": solver}
                for solver in ("exact", "bcpl", "bcfw", "pairwise", "oeg", "fw", "pl", "eg")
            ),
            {"kernel": "rbf"},
        ),
    ),
    Family(
        "ranking",
        "LabelRanker",
        "ranking",
        "streams: learns from one sample at a time, new labels may appear",
        "SGD, one pass",
        _online_pass,
        "mail-stream",
        {},
        (
            {"update": "fixed"},
            {"update": "worst_pair"},
            {"update": "all_pairs"},
            {"update": "all_pairs", "solver": "pdip"},
            {"regulariser": "entropy", "update": "worst_pair"},
            {"regulariser": "entropy", "update": "all_pairs"},
        ),
    ),
    Family(
        "sparse-multiclass",
        "SparseMultiClassSVC",
        "multiclass",
        "one class per sample, with a small number of basis vectors",
        "SVC",
        _svc,
        "digits",
        {"max_basis": 30, "n_candidates": 10, "C": 10.0, "random_state": 0},
    ),
    Family(
        "sparse-multilabel",
        "SparseMultiLabelSVC",
        "multilabel",
        "several labels per sample, with a small number of basis vectors",
        "OvR SVC",
        _one_vs_rest_svc,
        "emotions",
        {"max_basis": 25, "n_candidates": 10, "fit_intercept": True, "random_state": 0},
    ),
    Family(
        "submodular",
        "SubmodularSVC",
        "multilabel",
        "several labels per sample, trained for the F1 of each sample, with attractive label pairs",
        "OvR LinearSVC",
        _one_vs_rest,
        "emotions",
        {"C": 0.1, "tol": 1e-2, "solver": "bcfw"},
        ({"solver": "bundle"}, {"solver": "bcfw"}),
        headline="example F1",
    ),
    Family(
        "chain",
        "ChainSVC",
        "chain",
        "sequences, all positions labelled jointly",
        "LinearSVC",
        _linear_svc,
        "digit-words",
        {"C": 10.0},
        tuple({"solver": solver} for solver in ("pairwise", "bcfw", "bcpl", "oeg")),
    ),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _ENTRIES}


def build(family: Family, params: Mapping[str, Any]) -> Any:
    """The estimator with parameters as words: `prior` may name a builder of `maxmargin.priors`."""
    given = dict(params)
    if given.get("prior") == "labels":
        from maxmargin import priors

        given["prior"] = priors.from_labels
    return family.build(**given)

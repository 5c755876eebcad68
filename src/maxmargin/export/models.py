"""The scores and predictions of every estimator as a graph.

`columns` adds the scores as the estimator computes them: one column per label, or a single one if the
estimator has one for two classes. `decision` and `chosen` add the outputs of `decision_function` and
`predict`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

from maxmargin.baselines import ThresholdTuner
from maxmargin.decisions.calibrated import Calibrated, absent_scores, fold_shares
from maxmargin.decisions.curves import IsotonicCurves, Sigmoids, Temperature
from maxmargin.decisions.sets import LabelSets
from maxmargin.decisions.tree import TreeLabels, levels
from maxmargin.edge.labels import LabelSpace
from maxmargin.edge.wrappers import CLIP, method_of
from maxmargin.export.columns import is_table, prepared
from maxmargin.export.graph import Graph
from maxmargin.io.named import NamedColumns
from maxmargin.multilabel.estimator import MultiLabelSVC
from maxmargin.ranking.estimator import LabelRanker
from maxmargin.sparse.basis_machine import BasisMachine, ClassMachine
from maxmargin.structured.chain import ChainSVC
from maxmargin.structured.latent import LatentSVC
from maxmargin.structured.multiclass import MultiClassSVC
from maxmargin.submodular.estimator import SubmodularSVC


@dataclass(frozen=True)
class Answers:
    """Names of the outputs of `predict`, `decision_function` and `predict_proba`."""

    labels: str
    scores: str | None = None
    probabilities: str | None = None


@singledispatch
def answers(model: Any, graph: Graph, x: str) -> Answers:
    """Add the outputs of a fitted model for the rows x."""
    found = columns(model, graph, x)
    return Answers(chosen(model, graph, found), decision(model, graph, found))


@singledispatch
def columns(model: Any, graph: Graph, x: str) -> str:
    """Add the scores of a fitted model for the rows x."""
    raise TypeError(f"A {type(model).__name__} cannot be exported to ONNX.")


@columns.register
def _(model: MultiLabelSVC, graph: Graph, x: str) -> str:
    if hasattr(model, "coef_"):
        return graph.affine(x, model.coef_, model.intercept_)
    basis = model.support_ if model._kernel.name == "precomputed" else model.support_vectors_
    scores = graph.kernel_scores(model._kernel, x, basis, model.dual_coef_.T)
    return graph.add("Add", scores, graph.numbers(model.intercept_))


@columns.register
def _(model: MultiClassSVC, graph: Graph, x: str) -> str:
    if hasattr(model, "coef_"):
        return graph.affine(x, model.coef_, model.intercept_)
    basis = model.support_ if model._kernel.name == "precomputed" else model.support_vectors_
    return graph.kernel_scores(model._kernel, x, basis, model.dual_coef_.T)


@columns.register
def _(model: BasisMachine, graph: Graph, x: str) -> str:
    scores = graph.kernel_scores(model._kernel, x, model._basis(model.n_basis_), model.coef_.T)
    return graph.add("Add", scores, graph.numbers(model.intercept_))


@columns.register
def _(model: LabelRanker, graph: Graph, x: str) -> str:
    state: Any = model._state
    if model.regulariser == "squared" and state.rarity:
        x = graph.add("Mul", x, graph.numbers(state.rarities()))
        x = graph.unit(x, graph.add("Sqrt", graph.sums(graph.add("Mul", x, x))))
    return graph.add("MatMul", x, graph.numbers(model.coef_.T))


@columns.register
def _(model: LatentSVC, graph: Graph, x: str) -> str:
    """x is one bag."""
    scores = graph.affine(x, model.coef_, model.intercept_)
    return graph.add("ReduceMax", scores, axes=[0], keepdims=1)


@columns.register
def _(model: SubmodularSVC, graph: Graph, x: str) -> str:
    if model.interaction_.any():
        raise ValueError(
            "A SubmodularSVC with interactions predicts by minimum cuts, which ONNX has no operator for; fit "
            "it with pair_fraction=0, or export a MultiLabelSVC with tuned thresholds."
        )
    W, b, fixed = model.coef_.copy(), model.intercept_.copy(), model.constant_labels_
    W[fixed], b[fixed] = 0.0, np.where(model._always, 1.0, -1.0)[fixed]
    return graph.affine(x, W, b)


@columns.register
def _(model: Pipeline, graph: Graph, x: str) -> str:
    return columns(model.steps[-1][1], graph, through(model, graph, x))


@columns.register
def _(model: ThresholdTuner, graph: Graph, x: str) -> str:
    inner, space = model.estimator_, model._labels
    scores = columns(inner, graph, x)
    # Multi-class models have two columns for two classes, but the tuner has one threshold.
    if space.kind == "binary" and _width(inner) == 2:
        scores = _lead(graph, scores)
    return graph.add("Sub", scores, graph.numbers(model.thresholds_))


@answers.register
def _(model: Pipeline, graph: Graph, x: str) -> Answers:
    return answers(model.steps[-1][1], graph, through(model, graph, x))


@answers.register
def _(model: Calibrated, graph: Graph, x: str) -> Answers:
    if not hasattr(model, "_labels"):
        return answers(model.estimator_, graph, x)
    plain = columns(model.estimator_, graph, x)
    lone = model._labels.kind == "binary"
    if hasattr(model, "estimators_"):
        found = mean_of_folds(model, graph, x)
    else:
        scores = _lead(graph, plain) if lone and _width(model.estimator_) == 2 else plain
        found = curved(model.curves_, graph, scores, lone)
    if model._labels.kind == "multiclass":
        found = graph.add("Div", found, graph.sums(found))
    half = graph.add("Sub", found, graph.numbers(0.5))
    labels = of_space(model._labels, graph, half)
    if lone:
        other = graph.add("Sub", graph.numbers(1.0), found)
        found = graph.add("Concat", other, found, axis=1)
    return Answers(labels, decision(model.estimator_, graph, plain), found)


def mean_of_folds(model: Calibrated, graph: Graph, x: str) -> str:
    """Add the mean of the probabilities of the folds."""
    parts = []
    taken = getattr(model, "_fitted_on", [None] * len(model.estimators_))
    folds = zip(model.estimators_, model._met, fold_shares(model._met), taken, strict=True)
    for fold, present, share, fitted in folds:
        scores = graph.add(
            "Where",
            graph.constant(present),
            placed(fold, model._labels, graph, columns(fold, graph, some_columns(graph, x, fitted))),
            graph.numbers(absent_scores(model._met)),
        )
        found = curved(model.curves_, graph, scores, model._labels.kind == "binary")
        parts.append(graph.add("Mul", found, graph.numbers(share)))
    return graph.add("Sum", *parts)


def some_columns(graph: Graph, x: str, fitted: np.ndarray | None) -> str:
    """Add the columns of a kernel matrix that a model takes; None means all."""
    return x if fitted is None else graph.add("Gather", x, graph.constant(fitted), axis=1)


def placed(fold: Any, space: LabelSpace, graph: Graph, scores: str) -> str:
    """Add the scores of a fold in the columns of a space, some of which it may lack."""
    names, known = space.names.tolist(), fold.classes_.tolist()
    if space.kind == "binary" and len(known) == 2:
        return _lead(graph, scores) if _width(fold) == 2 else scores
    if known == names and _width(fold) == len(names):
        return scores
    if len(known) == 2 and _width(fold) == 1:
        scores = graph.add("Concat", graph.add("Neg", scores), scores, axis=1)
    selection = np.zeros((len(known), len(names)))
    for k, name in enumerate(known):
        if name in names:
            selection[k, names.index(name)] = 1.0
    return graph.add("MatMul", scores, graph.numbers(selection))


@answers.register
def _(model: LabelSets, graph: Graph, x: str) -> Answers:
    inner = model.estimator_
    x = some_columns(graph, x, getattr(model, "_fitted_on", None))
    if list(inner.classes_) != list(model.classes_):
        raise ValueError(
            "A LabelSets whose estimator lacks some labels cannot be exported; fit it with more samples."
        )
    if method_of(inner) == "predict_proba":
        scores = answers(inner, graph, x).probabilities
        assert scores is not None
    else:
        scores = columns(inner, graph, x)
        if model._labels.kind == "binary":
            lead = _lead(graph, scores) if _width(inner) == 2 else scores
            scores = graph.add("Concat", graph.add("Neg", lead), lead, axis=1)
    on = graph.add("Greater", scores, graph.numbers(model.thresholds_))
    on = graph.add("Or", on, graph.constant(np.isneginf(model.thresholds_)))
    if model._labels.single_label:
        return Answers(graph.cast(on, np.int64), scores)
    return Answers(signed(model._labels, graph, on), scores)


@answers.register
def _(model: TreeLabels, graph: Graph, x: str) -> Answers:
    inner, parents = model.estimator_, model.parents_
    found = answers(inner, graph, x)
    gain = columns(inner, graph, x) if found.probabilities is None else _log_odds(graph, found.probabilities)
    below = levels(parents)[1:]
    for level in reversed(below):
        upward = np.zeros((len(parents), len(parents)))
        upward[level, parents[level]] = 1.0
        gain = graph.add("Add", gain, graph.add("MatMul", graph.add("Relu", gain), graph.numbers(upward)))
    on = graph.add("Greater", gain, graph.numbers(0.0))
    above = graph.constant(np.where(parents < 0, np.arange(len(parents)), parents))
    for _level in below:
        on = graph.add("And", on, graph.add("Gather", on, above, axis=1))
    return Answers(signed(model._labels, graph, on), found.scores, found.probabilities)


def _log_odds(graph: Graph, probabilities: str) -> str:
    p = graph.add("Clip", probabilities, graph.numbers(CLIP), graph.numbers(1 - CLIP))
    return graph.add("Log", graph.add("Div", p, graph.add("Sub", graph.numbers(1.0), p)))


@answers.register
def _(model: ChainSVC, graph: Graph, x: str) -> Answers:
    """Add the Viterbi algorithm; x is one sequence.

    The forward loop adds the transitions to the best scores so far and stores the best previous labels; the
    backward loop follows these from the best last label.
    """
    number, whole = graph.element, 7  # onnx.TensorProto.INT64
    start, end = graph.constant(np.array([0])), graph.constant(np.array([1]))
    begin = np.append(np.full(len(model.classes_), -np.inf), 0.0)
    step = graph.inner("step")
    before, row = f"{step.prefix}before", f"{step.prefix}row"
    arrows_in = step.numbers(np.vstack([model.transitions_, model.first_]))
    paths = step.add("Add", step.add("Unsqueeze", before, end), arrows_in)
    best = step.add("Add", step.add("ReduceMax", paths, axes=[0], keepdims=0), row)
    after = step.add("Concat", best, step.numbers([-np.inf]), axis=0)
    came = step.add("ArgMax", paths, axis=0, keepdims=0)
    last, arrows = graph.scan(
        step,
        [(before, number), (row, number)],
        [(after, number), (came, whole)],
        [graph.numbers(begin), graph.affine(x, model.coef_, model.intercept_)],
        num_scan_inputs=1,
    )
    ending = graph.add("Add", last, graph.numbers(np.append(model.last_, 0.0)))
    final = graph.add("ArgMax", ending, axis=0, keepdims=1)
    back = graph.inner("back")
    label, arrow = f"{back.prefix}label", f"{back.prefix}arrow"
    earlier = back.add("Gather", arrow, label)
    output = back.add("Identity", earlier)
    _, path = graph.scan(
        back,
        [(label, whole), (arrow, whole)],
        [(earlier, whole), (output, whole)],
        [final, arrows],
        num_scan_inputs=1,
        scan_input_directions=[1],
        scan_output_directions=[1],
    )
    flat = graph.add("Reshape", path, graph.constant(np.array([-1])))
    most = graph.constant(np.array([np.iinfo(np.int64).max]))
    codes = graph.add("Concat", graph.add("Slice", flat, end, most, start), final, axis=0)
    return Answers(graph.add("Gather", graph.constant(_names(model.classes_)), codes))


@singledispatch
def decision(model: Any, graph: Graph, found: str) -> str:
    """Add the output of `decision_function`: a vector for two classes."""
    space = space_of(model)
    if space.kind != "binary":
        return found
    if _width(model) == 2:
        found = _lead(graph, found)
    return graph.add("Squeeze", found, graph.constant(np.array([1])))


@decision.register
def _(model: Pipeline, graph: Graph, found: str) -> str:
    return decision(model.steps[-1][1], graph, found)


@singledispatch
def chosen(model: Any, graph: Graph, found: str) -> str:
    """Add the output of `predict`."""
    return of_space(space_of(model), graph, found, _width(model))


@chosen.register
def _(model: LabelRanker, graph: Graph, found: str) -> str:
    space = model._labels.space
    if model._labels.single_label:
        return _best(space, graph, found)
    if model.n_predicted is None:
        on = graph.add("Greater", found, graph.numbers(model.threshold_))
    else:
        count = graph.constant(np.array([model.n_predicted]))
        _, best = graph.add("TopK", found, count, outputs=2, axis=1, largest=1, sorted=1)
        bounds = graph.constant(np.array([0, 1], np.int64))
        hot = graph.add("OneHot", best, graph.constant(np.array(len(space.classes))), bounds, axis=1)
        on = graph.cast(graph.add("ReduceMax", hot, axes=[2], keepdims=0), bool)
    return signed(space, graph, on)


def of_space(space: LabelSpace, graph: Graph, found: str, width: int | None = None) -> str:
    """Add the positive labels, or the best class."""
    if space.kind == "binary" and width != 2:
        flat = graph.add(
            "Squeeze", graph.add("Greater", found, graph.numbers(0.0)), graph.constant(np.array([1]))
        )
        return graph.add("Gather", graph.constant(_names(space.classes)), graph.cast(flat, np.int64))
    if space.single_label:
        return _best(space, graph, found)
    return signed(space, graph, graph.add("Greater", found, graph.numbers(0.0)))


def _best(space: LabelSpace, graph: Graph, found: str) -> str:
    codes = graph.add("ArgMax", found, axis=1, keepdims=0)
    return graph.add("Gather", graph.constant(_names(space.classes)), codes)


def signed(space: LabelSpace, graph: Graph, on: str) -> str:
    """Add 0/1 labels, or -1/+1 labels if y had this form."""
    found = graph.cast(on, np.int64)
    if space.kind != "sign" and not (space.kind == "frame" and space.dtype == "sign"):
        return found
    return graph.add("Sub", graph.add("Add", found, found), graph.constant(np.array(1, np.int64)))


def curved(curves: Any, graph: Graph, scores: str, lone: bool) -> str:
    """Add the probabilities of scores by calibration curves; `lone` means a single column."""
    if isinstance(curves, Sigmoids):
        scaled = graph.add("Mul", scores, graph.numbers(curves.slope))
        return graph.add("Sigmoid", graph.add("Add", scaled, graph.numbers(curves.intercept)))
    if isinstance(curves, Temperature):
        scaled = graph.add("Div", scores, graph.numbers(curves.value))
        return graph.add("Sigmoid", scaled) if lone else graph.add("Softmax", scaled, axis=1)
    assert isinstance(curves, IsotonicCurves)
    found = []
    for l, (a, b) in enumerate(zip(curves.start[:-1], curves.start[1:], strict=True)):
        column = graph.add("Gather", scores, graph.constant(np.array([l])), axis=1)
        found.append(graph.interpolated(column, curves.x[a:b], curves.y[a:b]))
    return graph.add("Concat", *found, axis=1)


def through(model: Pipeline, graph: Graph, x: str) -> str:
    """Add the steps of a pipeline before the last."""
    for _, step in model.steps[:-1]:
        if step not in (None, "passthrough") and not isinstance(step, NamedColumns):
            x = prepared(step, graph, through) if is_table(step) else scaled(step, graph, x)
    return x


def scaled(step: Any, graph: Graph, x: str) -> str:
    """Add a scaler or imputer of scikit-learn."""
    if isinstance(step, SimpleImputer) and step.missing_values != step.missing_values:
        return graph.add("Where", graph.add("IsNaN", x), graph.numbers(step.statistics_), x)
    if isinstance(step, Normalizer):
        size = graph.add("Abs", x)
        if step.norm == "l2":
            norm = graph.add("Sqrt", graph.sums(graph.add("Mul", x, x)))
        elif step.norm == "l1":
            norm = graph.sums(size)
        else:
            norm = graph.add("ReduceMax", size, axes=[1], keepdims=1)
        return graph.unit(x, norm)
    if isinstance(step, MinMaxScaler):
        x = graph.add("Add", graph.add("Mul", x, graph.numbers(step.scale_)), graph.numbers(step.min_))
        low, high = map(graph.numbers, step.feature_range)
        return graph.add("Clip", x, low, high) if step.clip else x
    if not isinstance(step, (StandardScaler, MaxAbsScaler, RobustScaler)):
        raise TypeError(
            f"A {type(step).__name__} inside a wrapper cannot be exported; use a scaler of scikit-learn."
        )
    centre = (
        getattr(step, "mean_", None) if isinstance(step, StandardScaler) else getattr(step, "center_", None)
    )
    if centre is not None and getattr(step, "with_mean", True):
        x = graph.add("Sub", x, graph.numbers(centre))
    return x if step.scale_ is None else graph.add("Div", x, graph.numbers(step.scale_))


def space_of(model: Any) -> LabelSpace:
    """Return the label space of a fitted model."""
    if isinstance(model, Pipeline):
        return space_of(model.steps[-1][1])
    for name in ("_space", "_labels"):
        found = getattr(model, name, None)
        if isinstance(found, LabelSpace):
            return found
    if isinstance(model, LabelRanker):
        # The ranker has one column per class for any number of classes.
        kind = model._labels.space.kind
        if model._labels.single_label:
            kind = "binary" if len(model.classes_) == 2 else "multiclass"
        return LabelSpace(kind, model.classes_, None, model._labels.space.dtype)
    return LabelSpace("binary" if len(model.classes_) == 2 else "multiclass", model.classes_)


def _width(model: Any) -> int:
    """Return the number of columns of scores of a model."""
    if isinstance(model, Pipeline):
        return _width(model.steps[-1][1])
    if isinstance(model, (ClassMachine, LabelRanker, LatentSVC)):
        return len(model.classes_)
    return space_of(model).n_columns


def _lead(graph: Graph, scores: str) -> str:
    """Add the second of two columns minus the first."""
    first, second = (graph.add("Gather", scores, graph.constant(np.array([k])), axis=1) for k in (0, 1))
    return graph.add("Sub", second, first)


def _names(classes: np.ndarray) -> np.ndarray:
    """Return classes as a tensor of integers, floats or strings."""
    if classes.dtype.kind in "biu":
        return classes.astype(np.int64)
    if classes.dtype.kind == "f":
        return classes.astype(np.float64)
    return np.array([str(name) for name in classes.tolist()], dtype=object)

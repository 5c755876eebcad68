"""How large the numbers can be that the steps of a pipeline hand on, from what the steps hold.

Each number of a scaler may be sound and several of them together not: a mean of 1e60 over a scale of 1e-60.
A sound chain hands on numbers near 1 whatever the units of X are, for its first scaler has seen X. So
entries are measured in the units of the first scaler, and those of a chain without one in units of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxmargin.io.dates import LAST

VECTORISERS = ("CountVectorizer", "TfidfVectorizer", "TextColumn")
# Scalers that take off an attribute where a parameter is on, and divide by `scale_` where another is.
CENTRED = {
    "StandardScaler": ("with_mean", "mean_", "with_std"),
    "RobustScaler": ("with_centering", "center_", "with_scaling"),
}
PROJECTIONS = ("PCA", "TruncatedSVD")
# Far below what an estimator refuses, for rows that are some digits larger than those of the fit.
FARTHEST = 1e30


def flatten(steps: Sequence[Any]) -> list[Any]:
    """Steps with those of inner pipelines."""
    inner = (
        [pair[1] for pair in step.steps] if type(step).__name__ == "Pipeline" else None for step in steps
    )
    pieces = [[step] if part is None else flatten(part) for step, part in zip(steps, inner, strict=True)]
    return [step for piece in pieces for step in piece if step not in (None, "passthrough", "drop")]


def scaling(step: Any) -> tuple[Any, Any] | None:
    """What a fitted scaler takes off and then divides by, for each column; None of another step."""
    state, kind = vars(step), type(step).__name__
    if kind == "MaxAbsScaler":
        return 0.0, state["scale_"]
    if kind == "MinMaxScaler":
        return -state["min_"] / state["scale_"], 1 / state["scale_"]
    if kind not in CENTRED:
        return None
    centres, centre, scales = CENTRED[kind]
    return state[centre] if state[centres] else 0.0, state["scale_"] if state[scales] else 1.0


def projected(step: Any, size: Any, own: Any) -> tuple[Any, Any]:
    """The largest components of rows whose entries are that large."""
    turns = np.abs(np.asarray(step.components_, np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        size = turns @ np.broadcast_to(size + np.abs(getattr(step, "mean_", 0.0)), turns.shape[1:])
        own = turns @ np.broadcast_to(np.asarray(own, np.float64), turns.shape[1:])
    if vars(step).get("whiten"):
        deviations = np.sqrt(step.explained_variance_)
        unit = np.maximum(deviations, np.finfo(deviations.dtype).eps)
        size, own = size / unit, own / unit
    return size, own


def reach(steps: Sequence[Any]) -> float:
    """How large an entry is at most after fitted steps, the pipelines among them taken apart."""
    size: Any = 0.0  # of what the steps themselves have put in, for each column
    own: Any = 1.0  # what an entry of 1 has become, 0 once a scaler has seen the units of X
    largest = 1.0
    for step in steps:
        kind, scaled = type(step).__name__, scaling(step)
        if scaled is not None:
            shift, unit = (np.asarray(number, np.float64) for number in scaled)
            size = (size + np.abs(shift)) / unit + np.any(own)
            own = 0.0
        elif kind == "SimpleImputer" and step.statistics_.dtype.kind != "O":
            size = np.maximum(size, np.abs(step.statistics_))
        elif kind == "ColumnTransformer":
            size = max(reach(flatten([one])) for _, one, _ in step.transformers_)
            own = 0.0
        elif kind == "DateColumns":
            size, own = float(LAST), 0.0
        elif kind in PROJECTIONS:
            size, own = projected(step, size, own)
        elif kind == "SelectKBest":
            size, own = (each[step.get_support()] if np.ndim(each) else each for each in (size, own))
        elif kind in VECTORISERS or kind in ("OneHotEncoder", "Normalizer"):
            size, own = 1.0, 0.0
        idf = vars(vars(step).get("_tfidf", step)).get("idf_")
        if idf is not None:
            size = (size + np.max(own)) * np.max(idf, initial=0.0)
        if not np.any(own) or step is steps[-1]:
            sizes = [float(np.max(each, initial=0.0)) for each in (size, own)]
            # Of numbers that overflow, some become NaN.
            largest = max(largest, *(np.inf if np.isnan(each) else each for each in sizes))
    return largest

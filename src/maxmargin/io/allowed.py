"""What a model file may name: classes, functions and types, each in one table."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin._names import ESTIMATORS, WRAPPERS
from maxmargin.io.steps import SCORES, STEPS


class ModelFileError(ValueError):
    """A file is not a model that can be loaded, or a model cannot be put into a file."""


# Parts of fitted estimators: plain carriers of values.
_PARTS = {
    "DateColumns": "maxmargin.io.dates",
    "EntropyState": "maxmargin.ranking.entropy",
    "GrowingLabels": "maxmargin.ranking.labels",
    "IsotonicCurves": "maxmargin.decisions.curves",
    "Kernel": "maxmargin.core.kernels",
    "LabelSpace": "maxmargin.edge.labels",
    "NamedColumns": "maxmargin.io.named",
    "SequenceLabels": "maxmargin.edge.groups",
    "Sigmoids": "maxmargin.decisions.curves",
    "SquaredState": "maxmargin.ranking.problem",
    "Temperature": "maxmargin.decisions.curves",
}
_WRAPPERS = {"ThresholdTuner": "maxmargin.baselines"}
_STEPS = {"TextColumn": "maxmargin.tables"}
_SCIKIT_LEARN = {name: module for name, (module, _) in STEPS.items()}
_TABLES = {
    "": ESTIMATORS,
    "part": _PARTS,
    "decisions": WRAPPERS,
    "baselines": _WRAPPERS,
    "sklearn": _SCIKIT_LEARN,
    "tables": _STEPS,
}
# Functions by the parameter that may hold them.
FUNCTIONS = {
    "prior": dict.fromkeys(("from_labels", "identity"), "maxmargin.priors"),
    "score_func": dict.fromkeys(SCORES, "sklearn.feature_selection"),
}
_FUNCTIONS = FUNCTIONS["prior"] | FUNCTIONS["score_func"]
_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (set, frozenset, list, tuple, str, int, float, bool, np.ndarray, sp.csr_array, sp.csr_matrix)
} | {f"numpy.{kind.__name__}": kind for kind in (np.float32, np.float64, np.int32, np.int64)}
# What skops has to be told to trust, for models of this package.
SKOPS_TRUSTED = sorted(
    [
        f"{module}.{name}"
        for table in (ESTIMATORS, WRAPPERS, _PARTS, _WRAPPERS, FUNCTIONS["prior"])
        for name, module in table.items()
    ]
    + [f"{kind.__module__}.{kind.__qualname__}" for kind in (*_TYPES.values(), np.dtype, sp.csc_array)]
)


def class_name(cls: type) -> str | None:
    """The name under which a file refers to a class, None if it may not."""
    for prefix, table in _TABLES.items():
        if cls.__name__ in table and _find(table[cls.__name__], cls.__name__) is cls:
            return f"{prefix}.{cls.__name__}" if prefix else cls.__name__
    return None


def find_class(name: str) -> Any:
    """The class that a file names."""
    prefix, _, last = name.rpartition(".")
    table = _TABLES.get(prefix, {})
    if last not in table:
        raise ModelFileError(f"it names the class {name[:80]!r}, which a model file may not hold")
    return _find(table[last], last)


def function_name(function: Any) -> str | None:
    """The name under which a file refers to a function, None if it may not."""
    name = getattr(function, "__name__", "")
    if name in _FUNCTIONS and _find(_FUNCTIONS[name], name) is function:
        return name
    return None


def find_function(name: str) -> Any:
    """The function that a file names."""
    if name not in _FUNCTIONS:
        raise ModelFileError(f"it names the function {name[:80]!r}, which a model file may not hold")
    return _find(_FUNCTIONS[name], name)


def type_name(kind: type) -> str | None:
    """The name under which a file refers to a plain type, None if it may not."""
    return next((name for name, known in _TYPES.items() if known is kind), None)


def find_type(name: str) -> type:
    """The plain type that a file names."""
    if name not in _TYPES:
        raise ModelFileError(f"it names the type {name[:80]!r}, which a model file may not hold")
    return _TYPES[name]


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)

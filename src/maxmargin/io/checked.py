"""What a model file may hold: classes and functions by name, and the declared state of each class.

A model is checked before it is written and after it was read, because compiled loops trust the shapes and
indices of a fitted model. The declarations are `STATE` of each class (`core.state` has their vocabulary)
and, for the steps of scikit-learn, `io.steps`. Parameters are checked against the constraints of their
estimator and against `LIMITS`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, singledispatch
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import validate_parameter_constraints

from maxmargin._names import ESTIMATORS, WRAPPERS
from maxmargin.core import state as declared
from maxmargin.core.state import LONGEST_NAME, MOST, Field, Sizes, State
from maxmargin.io.steps import SCORES, STEPS, ColumnParts, Steps, check_kinds, essential

# Parts of fitted estimators.
_PARTS = {
    "DateColumns": "maxmargin.io.named",
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
_BASELINES = {"ThresholdTuner": "maxmargin.baselines"}
# Modules of the allowed classes, by the prefix of their names in a file.
CLASSES = {
    "": ESTIMATORS,
    "part": _PARTS,
    "decisions": WRAPPERS,
    "baselines": _BASELINES,
    "sklearn": {name: module for name, (module, _) in STEPS.items()},
    "tables": {"TextColumn": "maxmargin.tables"},
}
# Modules of the allowed functions, by the parameter that may hold them.
FUNCTIONS = {
    "prior": dict.fromkeys(("from_labels", "identity"), "maxmargin.priors"),
    "score_func": dict.fromkeys(SCORES, "sklearn.feature_selection"),
}
_FUNCTIONS = FUNCTIONS["prior"] | FUNCTIONS["score_func"]
_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (set, frozenset, list, tuple, str, int, float, bool, np.ndarray, sp.csr_array, sp.csr_matrix)
} | {f"numpy.{kind.__name__}": kind for kind in (np.float32, np.float64, np.int32, np.int64)}
# Types that skops must trust to load models of this package.
SKOPS_TRUSTED = sorted(
    [
        f"{module}.{name}"
        for table in (ESTIMATORS, WRAPPERS, _PARTS, _BASELINES, FUNCTIONS["prior"])
        for name, module in table.items()
    ]
    + [f"{kind.__module__}.{kind.__qualname__}" for kind in (*_TYPES.values(), np.dtype, sp.csc_array)]
)
# Bounds on parameters that limit the time and memory that a file can ask for.
LIMITS: dict[str, tuple[int, int]] = {
    "degree": (0, 100),
    "max_nodes": (1, 10**9),
    "n_init": (1, 10**6),
    "n_jobs": (-1024, 1024),
    "plane_cache": (1, 10**4),
}
# Hashes of tuples can be made to collide, so that a dict of many tuples takes quadratic time.
MOST_TUPLES = 10_000
# Attributes that files leave out: dual solutions, which serve warm starts only and can be far larger than
# the model, and callbacks of a fit.
LEFT_OUT = frozenset(
    {
        "_callback_fit_ctx",
        "_dual",
        "_dual_solution",
        "_skl_callbacks",
        "_skl_callbacks_to_teardown",
        "_sklearn_version",
        "_stop_words_id",
        "_warm",
    }
)


class ModelFileError(ValueError):
    """A file is not a loadable model, or a model cannot be saved."""


def class_name(cls: type) -> str | None:
    """Return the name of a class in a file, None if it is not allowed."""
    for prefix, table in CLASSES.items():
        if cls.__name__ in table and _find(table[cls.__name__], cls.__name__) is cls:
            return f"{prefix}.{cls.__name__}" if prefix else cls.__name__
    return None


def find_class(name: str) -> Any:
    """Return the class with a name in a file."""
    prefix, _, last = name.rpartition(".")
    return _find(_allowed(CLASSES.get(prefix, {}), last, "class", name), last)


def function_name(function: Any) -> str | None:
    """Return the name of a function in a file, None if it is not allowed."""
    name = getattr(function, "__name__", "")
    if name in _FUNCTIONS and _find(_FUNCTIONS[name], name) is function:
        return name
    return None


def find_function(name: str) -> Any:
    """Return the function with a name in a file."""
    return _find(_allowed(_FUNCTIONS, name, "function", name), name)


def type_name(kind: type) -> str | None:
    """Return the name of a plain type in a file, None if it is not allowed."""
    return next((name for name, known in _TYPES.items() if known is kind), None)


def find_type(name: str) -> type:
    """Return the plain type with a name in a file."""
    return _allowed(_TYPES, name, "type", name)


def _allowed(table: Mapping[str, Any], key: str, kind: str, name: str) -> Any:
    if key not in table:
        raise ModelFileError(f"it names the {kind} {name[:80]!r}, which a model file may not hold")
    return table[key]


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def state_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that a file stores."""
    state = value.__getstate__() if hasattr(value, "get_params") else vars(value)
    return essential(value, {name: item for name, item in state.items() if name not in LEFT_OUT})


def check_model(model: Any, where: str) -> None:
    """Raise ModelFileError, naming the attribute, if a model does not match the declaration of its class."""
    check_object(model, where, Sizes())


def check_object(value: Any, where: str, sizes: Sizes) -> None:
    """Check the parameters, the declared attributes and the rule of one object."""
    cls: type = type(value)
    state = state_of(value)
    table = declaration(cls)
    names = parameters_of(cls)
    undeclared = sorted(set(state) - set(table.fields) - set(names))
    if undeclared:
        raise ModelFileError(f"{where}.{undeclared[0][:80]} is not declared, so a model file cannot hold it")
    _check_parameters(cls, {name: state[name] for name in names if name in state}, where)
    for name, field in table.parameters.items():
        _check_field(field, state.get(name), f"{where}.{name}", Sizes(), state)
    if any(name in state for name in table.fields):
        _check_attributes(table, state, where, sizes)
    elif not names and not hasattr(value, "get_params"):
        raise ModelFileError(f"{where} is empty")
    with _located(where):
        if table.rule is not None:
            table.rule(state, sizes)
        if "_table" in state:
            check_kinds(list(state["_table"].kinds.values()), value)


def _check_attributes(table: State, state: Mapping[str, Any], where: str, sizes: Sizes) -> None:
    """Check the declared attributes; those of one group must be all present or all absent."""
    groups: dict[str, bool] = {}
    for name, field in table.fields.items():
        there = name in state
        if not there and (not field.group or groups.get(field.group)):
            raise ModelFileError(f"{where}.{name} is missing")
        if there and groups.get(field.group) is False:
            raise ModelFileError(f"{where}.{name} is present, but other attributes of its group are missing")
        if field.group:
            groups[field.group] = there
        if there:
            _check_field(field, state[name], f"{where}.{name}", sizes, state)


def _check_field(field: Field, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if value is not None or not field.none:
        with _located(where):
            _check(field, value, where, sizes, state)


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Turn a ValueError into a ModelFileError that names the attribute."""
    try:
        yield
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"{where}: {error}") from error


def declaration(cls: type) -> State:
    """Return the declaration of a class that a file may hold."""
    foreign = cls.__module__.startswith("sklearn.") and cls.__name__ in STEPS
    table = STEPS[cls.__name__][1] if foreign else vars(cls).get("STATE")
    if not isinstance(table, State):
        raise ModelFileError(f"{cls.__name__} does not declare what it holds")
    return table


@cache
def parameters_of(cls: type) -> tuple[str, ...]:
    """Return the parameter names of an estimator; other objects have none."""
    return tuple(cls._get_param_names()) if hasattr(cls, "_get_param_names") else ()


def _check_parameters(cls: Any, values: dict[str, Any], where: str) -> None:
    for name, value in values.items():
        if callable(value) and not isinstance(value, type) and not hasattr(value, "get_params"):
            if function_name(value) not in FUNCTIONS.get(name, ()):
                raise ModelFileError(
                    f"{where}.{name} is a function of your own, and a model file holds no code: replace it "
                    "by a name or by its result before saving"
                )
        elif not _is_plain(value) and name not in declaration(cls).parameters:
            raise ModelFileError(f"{where}.{name} is a {type(value).__name__}, not a plain value")
        low, high = LIMITS.get(name, (-MOST, MOST))
        if isinstance(value, (int, np.integer)) and not low <= int(value) <= high:
            raise ModelFileError(f"{where}.{name} is {_shown(value)}, not from {low} to {high}")
    if values.get("n_jobs") == 0:
        raise ModelFileError(f"{where}.n_jobs is 0")
    if hasattr(cls, "_parameter_constraints"):
        try:
            validate_parameter_constraints(cls._parameter_constraints, values, cls.__name__)
        except (ValueError, TypeError) as error:
            raise ModelFileError(str(error).rstrip(".")[:400]) from error


def _is_plain(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufU" or all(map(_is_plain, value.ravel().tolist()))
    if sp.issparse(value):
        return value.dtype.kind in "biuf"
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, str, int, float, np.generic, np.random.RandomState))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@singledispatch
def _check(field: Any, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    """Raise ValueError if a value does not match its declaration; `sizes` collects the named sizes."""
    raise TypeError(f"a {type(field).__name__} cannot be checked")


@_check.register
def _(field: declared.Array, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if not isinstance(value, np.ndarray) or f"{value.dtype.kind}{value.dtype.itemsize}" not in field.dtypes:
        found = value.dtype.str if isinstance(value, np.ndarray) else type(value).__name__
        raise ValueError(f"expected an array of {' or '.join(field.dtypes)}, found {_shown(found)}")
    if value.ndim != len(field.shape):
        raise ValueError(f"it has {value.ndim} dimensions, not {len(field.shape)}")
    if field.packed and not value.flags.c_contiguous:
        raise ValueError("its rows are not contiguous")
    if field.when and not state.get(field.when):
        if any(value.shape):
            raise ValueError(f"it is not empty although {field.when} is off")
        return
    for name, size in zip(field.shape, value.shape, strict=True):
        if isinstance(name, str):
            sizes.fix(name, size)
        elif name is not None and name != size:
            raise ValueError(f"it has shape {value.shape}, not {field.shape}")
    high = sizes[field.high] - 1 if isinstance(field.high, str) else field.high
    if value.size and field.finite and not (value.min().item() >= field.low and value.max().item() <= high):
        raise ValueError(f"it holds NaN or numbers that are not from {field.low:g} to {high:g}")


@_check.register
def _(field: declared.Weights, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if not sp.issparse(value):
        _check(declared.floats(*field.shape), value, where, sizes, state)
        return
    if value.format != "csc" or value.ndim != 2:
        raise ValueError("expected sparse weights in the format CSC")
    _check(declared.floats(None), value.data, where, sizes, state)
    for name, size in zip(field.shape, value.shape, strict=True):
        sizes.fix(name, size)


@_check.register
def _(field: declared.Ruled, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    """Do nothing; the rule of the class checks the value after all attributes."""


@_check.register
def _(field: declared.Samples, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    sparse = sp.issparse(value)
    if not sparse and not isinstance(value, np.ndarray):
        raise ValueError("expected a matrix")
    numbers = value.data if sparse else value
    if value.ndim != 2 or numbers.dtype not in (np.float32, np.float64) or not np.isfinite(numbers).all():
        raise ValueError("expected a matrix of finite numbers")


@_check.register
def _(field: declared.LabelNames, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "biufUO":
        raise ValueError("expected a vector of names")
    if len(value) < field.least:
        raise ValueError("it is empty")
    if value.dtype.kind == "O" and not all(map(_is_name, value.tolist())):
        raise ValueError("it holds something that is not a name")
    if len(value) > MOST_TUPLES and any(isinstance(name, tuple) for name in value.tolist()):
        raise ValueError(f"it holds more than {MOST_TUPLES} names that are tuples")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ValueError("it holds NaN or infinity")
    sizes.fix(field.size, len(value))


def _is_name(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_name, value))
    if isinstance(value, (float, np.floating)):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, str, int, np.integer, np.bool_))


@_check.register
def _(field: declared.Names, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype != object:
        raise ValueError("expected a vector of texts")
    if not all(isinstance(name, str) for name in value.tolist()):
        raise ValueError("it holds something that is not a text")
    sizes.fix(field.size, len(value))


@_check.register
def _(field: declared.Whole, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"expected an integer, found {_shown(value)}")
    if not field.low <= int(value) <= field.high:
        raise ValueError(f"it is {_shown(value)}, not from {field.low} to {field.high}")
    if field.size:
        sizes.fix(field.size, int(value))


@_check.register
def _(field: declared.Number, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not real or (field.finite and not field.low <= value <= field.high):
        raise ValueError(f"expected a number from {field.low:g} to {field.high:g}, found {_shown(value)}")


@_check.register
def _(field: declared.Flag, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"expected True or False, found {_shown(value)}")


@_check.register
def _(field: declared.Chosen, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if not any(type(value) is type(one) and value == one for one in field.values):
        raise ValueError(f"{_shown(value)} is not among {_shown(list(field.values))}")


@_check.register
def _(field: declared.Checked, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    complaint = field.complaint(value)
    if complaint is not None:
        raise ValueError(complaint)


@_check.register
def _(field: declared.Numbered, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if type(value) is not dict:
        raise ValueError("expected a dict of names to numbers")
    if not all(isinstance(key, str) if field.texts else _is_name(key) for key in value):
        raise ValueError("it holds something that is not a name")
    numbers = list(value.values())
    whole = all(type(k) is int or isinstance(k, np.integer) for k in numbers)
    if not whole or set(numbers) != set(range(len(value))):
        raise ValueError("its names are not numbered 0, 1, 2, ...")
    if field.size:
        sizes.fix(field.size, len(value))


@_check.register
def _(field: declared.Several, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if type(value) is not list:
        raise ValueError("expected a list")
    for k, item in enumerate(value):
        _check_field(field.item, item, f"{where}[{k}]", sizes, state)
    if field.size:
        sizes.fix(field.size, len(value))


@_check.register
def _(field: declared.History, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if type(value) is not list or not all(type(record) is dict for record in value):
        raise ValueError("expected a list of records")
    for record in value:
        for word, found in record.items():
            plain = isinstance(found, (int, float, np.integer, np.floating)) or found is None
            plain = plain or (word == "solver" and type(found) is str and len(found) <= LONGEST_NAME)
            if not isinstance(word, str) or not plain:
                raise ValueError("its records hold something other than numbers and names of solvers")


@_check.register
def _(field: declared.Part, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if type(value).__name__ not in field.classes or class_name(type(value)) is None:
        raise ValueError(f"expected a {' or '.join(field.classes)}, found a {type(value).__name__[:80]}")
    check_object(value, where, Sizes() if field.own_sizes else sizes)


@_check.register
def _(field: Steps, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    _check_entries(value, ("name", "step"))
    for k, (name, step) in enumerate(value):
        last = k == len(value) - 1
        if last or (step is not None and step != "passthrough"):
            classes = declared.Part(field.last if last else field.inner)
            _check(classes, step, f"{where}[{_shown(name)}]", Sizes(), state)


@_check.register
def _(field: ColumnParts, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    _check_entries(value, ("name", "step", "columns"))
    for name, step, columns in value:
        own = columns if type(columns) is list else [columns]
        plain = own and all(type(column) in (str, int) for column in own) and len(set(map(type, own))) == 1
        if name == "remainder" or not plain:
            raise ValueError(
                f"the columns of its part {_shown(name)} are {_shown(columns)}: a model file holds names or "
                "positions of columns, not a remainder, slices, masks or functions"
            )
        _check(declared.Part(field.kinds), step, f"{where}[{_shown(name)}]", Sizes(), state)


def _check_entries(value: Any, names: tuple[str, ...]) -> None:
    """Check a list of tuples, each of which begins with a name of its own."""
    whole = type(value) is list and all(type(entry) is tuple and len(entry) == len(names) for entry in value)
    if not whole or not value:
        raise ValueError(f"expected a list of ({', '.join(names)})")
    words = [entry[0] for entry in value]
    if not all(isinstance(word, str) and word and "__" not in word for word in words):
        raise ValueError("expected a name for each step")
    if len(set(words)) < len(words):
        raise ValueError("two of its steps have the same name")

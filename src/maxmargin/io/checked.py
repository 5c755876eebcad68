"""Hold a model to what its classes declare, before it is written and after it was read.

The tables are `STATE` of each class (`core.state` has their words) and, for scikit-learn's steps,
`io.steps`. Compiled loops trust the shapes and indices of a fitted model; this is where they are
looked at, once. A parameter is held to the constraints of its estimator and to `LIMITS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, singledispatch
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import validate_parameter_constraints

from maxmargin.core import state as declared
from maxmargin.core.state import LONGEST_NAME, MOST, Field, Sizes, State
from maxmargin.io import allowed
from maxmargin.io.allowed import ModelFileError
from maxmargin.io.steps import STEPS, ColumnParts, Steps, check_kinds, essential

# Bounds on parameters beyond what is meaningful: on time and memory that a file could ask for.
LIMITS: dict[str, tuple[int, int]] = {
    "degree": (0, 100),
    "max_nodes": (1, 10**9),
    "n_init": (1, 10**6),
    "n_jobs": (-1024, 1024),
    "plane_cache": (1, 10**4),
}
# Hashes of tuples can be made to collide, so that a dict of many of them takes quadratic time.
MOST_TUPLES = 10_000
# Dual solutions serve warm starts only and can be far larger than the model; callbacks watch a fit.
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


def state_of(value: Any) -> dict[str, Any]:
    """The attributes of an object that belong into a file."""
    state = value.__getstate__() if hasattr(value, "get_params") else vars(value)
    return essential(value, {name: item for name, item in state.items() if name not in LEFT_OUT})


def check_model(model: Any, where: str) -> None:
    """Refuse a model that is not as its class declares it, naming the attribute."""
    check_object(model, where, Sizes())


def check_object(value: Any, where: str, sizes: Sizes) -> None:
    """Parameters, declared attributes and rule of one object."""
    cls: type = type(value)
    state = state_of(value)
    table = declaration(cls)
    names = parameters_of(cls)
    strange = sorted(set(state) - set(table.fields) - set(names))
    if strange:
        raise ModelFileError(f"{where}.{strange[0][:80]} is nothing that a model file holds")
    _check_parameters(cls, {name: state[name] for name in names if name in state}, where)
    for name, field in table.parameters.items():
        _check_field(field, state.get(name), f"{where}.{name}", Sizes(), state)
    if any(name in state for name in table.fields):
        _check_attributes(table, state, where, sizes)
    elif not names and not hasattr(value, "get_params"):
        raise ModelFileError(f"{where} is empty")
    if table.rule is not None:
        _obey(table.rule, state, where, sizes)
    if "_table" in state:
        _obey(lambda own, _: check_kinds(list(own["_table"].kinds.values()), value), state, where, sizes)


def _check_attributes(table: State, state: Mapping[str, Any], where: str, sizes: Sizes) -> None:
    groups: dict[str, bool] = {}
    for name, field in table.fields.items():
        there = name in state
        if not there and (not field.group or groups.get(field.group)):
            raise ModelFileError(f"{where}.{name} is missing")
        if there and groups.get(field.group) is False:
            raise ModelFileError(f"{where}.{name} is there without its like")
        if field.group:
            groups[field.group] = there
        if there:
            _check_field(field, state[name], f"{where}.{name}", sizes, state)


def _check_field(field: Field, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if value is None and field.none:
        return
    try:
        _check(field, value, where, sizes, state)
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"{where}: {error}") from error


def _obey(rule: declared.Rule, state: Mapping[str, Any], where: str, sizes: Sizes) -> None:
    try:
        rule(state, sizes)
    except ValueError as error:
        raise ModelFileError(f"{where}: {error}") from error


def declaration(cls: type) -> State:
    """The table of a class that a file may hold."""
    foreign = cls.__module__.startswith("sklearn.") and cls.__name__ in STEPS
    table = STEPS[cls.__name__][1] if foreign else vars(cls).get("STATE")
    if not isinstance(table, State):
        raise ModelFileError(f"{cls.__name__} does not declare what it holds")
    return table


@cache
def parameters_of(cls: type) -> tuple[str, ...]:
    """Names of the parameters of an estimator; other objects have none."""
    return tuple(cls._get_param_names()) if hasattr(cls, "_get_param_names") else ()


def _check_parameters(cls: Any, values: dict[str, Any], where: str) -> None:
    for name, value in values.items():
        if callable(value) and not isinstance(value, type) and not hasattr(value, "get_params"):
            if allowed.function_name(value) not in allowed.FUNCTIONS.get(name, ()):
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
    raise TypeError(f"nobody knows how to check a {type(field).__name__}")


@_check.register
def _(field: declared.Array, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if not isinstance(value, np.ndarray) or f"{value.dtype.kind}{value.dtype.itemsize}" not in field.dtypes:
        found = value.dtype.str if isinstance(value, np.ndarray) else type(value).__name__
        raise ValueError(f"an array of {' or '.join(field.dtypes)} was expected, not {_shown(found)}")
    if value.ndim != len(field.shape):
        raise ValueError(f"it has {value.ndim} dimensions, not {len(field.shape)}")
    if field.packed and not value.flags.c_contiguous:
        raise ValueError("its rows do not follow one another")
    if field.when and not state.get(field.when):
        if any(value.shape):
            raise ValueError(f"it has room for numbers although {field.when} is off")
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
        raise ValueError("sparse weights were expected in the format CSC")
    _check(declared.floats(None), value.data, where, sizes, state)
    for name, size in zip(field.shape, value.shape, strict=True):
        sizes.fix(name, size)


@_check.register
def _(field: declared.Ruled, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    """Nothing; the rule of the class comes after all its attributes."""


@_check.register
def _(field: declared.Samples, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    sparse = sp.issparse(value)
    if not sparse and not isinstance(value, np.ndarray):
        raise ValueError("a matrix was expected")
    numbers = value.data if sparse else value
    if value.ndim != 2 or numbers.dtype not in (np.float32, np.float64) or not np.isfinite(numbers).all():
        raise ValueError("a matrix of finite numbers was expected")


@_check.register
def _(field: declared.LabelNames, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "biufUO":
        raise ValueError("a vector of names was expected")
    if len(value) < field.least:
        raise ValueError("it is empty")
    if value.dtype.kind == "O" and not all(map(_is_name, value.tolist())):
        raise ValueError("it holds something that is no name")
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
        raise ValueError("a vector of texts was expected")
    if not all(isinstance(name, str) for name in value.tolist()):
        raise ValueError("it holds something that is no text")
    sizes.fix(field.size, len(value))


@_check.register
def _(field: declared.Whole, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"a whole number was expected, not {_shown(value)}")
    if not field.low <= int(value) <= field.high:
        raise ValueError(f"it is {_shown(value)}, not from {field.low} to {field.high}")
    if field.size:
        sizes.fix(field.size, int(value))


@_check.register
def _(field: declared.Number, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not real or (field.finite and not field.low <= value <= field.high):
        raise ValueError(f"a number from {field.low:g} to {field.high:g} was expected, not {_shown(value)}")


@_check.register
def _(field: declared.Flag, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"True or False was expected, not {_shown(value)}")


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
        raise ValueError("a dict of names to numbers was expected")
    if not all(isinstance(key, str) if field.texts else _is_name(key) for key in value):
        raise ValueError("it holds something that is no name")
    numbers = list(value.values())
    if not all(type(k) is int or isinstance(k, np.integer) for k in numbers) or set(numbers) != set(
        range(len(value))
    ):
        raise ValueError("its names are not numbered from 0 on")
    if field.size:
        sizes.fix(field.size, len(value))


@_check.register
def _(field: declared.Several, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if type(value) is not list:
        raise ValueError("a list was expected")
    for k, item in enumerate(value):
        _check_field(field.item, item, f"{where}[{k}]", sizes, state)
    if field.size:
        sizes.fix(field.size, len(value))


@_check.register
def _(field: declared.History, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if type(value) is not list or not all(type(record) is dict for record in value):
        raise ValueError("a list of records was expected")
    for record in value:
        for word, found in record.items():
            plain = isinstance(found, (int, float, np.integer, np.floating)) or found is None
            plain = plain or (word == "solver" and type(found) is str and len(found) <= LONGEST_NAME)
            if not isinstance(word, str) or not plain:
                raise ValueError("its records hold something else than numbers and names under words")


@_check.register
def _(field: declared.Part, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    if type(value).__name__ not in field.classes or allowed.class_name(type(value)) is None:
        raise ValueError(f"a {' or '.join(field.classes)} was expected, not a {type(value).__name__[:80]}")
    check_object(value, where, Sizes() if field.own_sizes else sizes)


@_check.register
def _(field: Steps, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    named = type(value) is list and all(type(entry) is tuple and len(entry) == 2 for entry in value)
    if not named or not value:
        raise ValueError("a list of named steps was expected")
    names = [name for name, _ in value]
    if not all(isinstance(name, str) and name and "__" not in name for name in names):
        raise ValueError("a name of a step was expected")
    if len(set(names)) < len(names):
        raise ValueError("two of its steps have one name")
    for k, (name, step) in enumerate(value):
        last = k == len(value) - 1
        if not last and (step is None or step == "passthrough"):
            continue
        kinds = field.last if last else field.inner
        _check(declared.Part(kinds), step, f"{where}[{_shown(name)}]", Sizes(), state)


@_check.register
def _(field: ColumnParts, value: Any, where: str, sizes: Sizes, state: Mapping[str, Any]) -> None:
    whole = type(value) is list and all(type(entry) is tuple and len(entry) == 3 for entry in value)
    if not whole or not value:
        raise ValueError("a list of parts was expected, each with its name, its step and its columns")
    names = [name for name, _, _ in value]
    if not all(isinstance(name, str) and name and "__" not in name for name in names):
        raise ValueError("a name of a part was expected")
    if len(set(names)) < len(names) or "remainder" in names:
        raise ValueError("two of its parts have one name")
    for name, step, columns in value:
        place = f"{where}[{_shown(name)}]"
        own = columns if type(columns) is list else [columns]
        if not own or not all(type(column) in (str, int) for column in own) or len(set(map(type, own))) > 1:
            raise ValueError(
                f"the columns of its part {_shown(name)} are {_shown(columns)}: a model file holds names or "
                "places of columns, no slices, masks or functions"
            )
        _check(declared.Part(field.kinds), step, place, Sizes(), state)

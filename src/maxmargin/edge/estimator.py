"""The base of all estimators: parameters, input validation, callbacks, and the record of a fit.

An estimator is a dataclass whose fields are its parameters, so that constructor, signature and types are
written once. `Iterative` and `Kernelised` are the parameters, with their constraints, that have the same
meaning in every estimator.
"""

from __future__ import annotations

import functools
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import BaseEstimator, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite, check_array, compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_n_features, _check_sample_weight, column_or_1d, validate_data

from maxmargin.core.jit import interpreted
from maxmargin.core.kernels import NAMES
from maxmargin.core.loop import (
    REMEDIES,
    USABLE,
    Outcome,
    Record,
    Solver,
    Stopping,
    squared_norm,
    stop_message,
)
from maxmargin.core.sparse_format import check_format
from maxmargin.core.state import State
from maxmargin.core.threads import memory, one_blas_thread

# Larger entries of X are refused: products of their squares overflow. Above the second number sums of
# squares exceed the range of float32, and X is converted to float64.
LARGEST, LARGEST_SINGLE = 1e60, 1e9
# Parameters without a lower limit: they are thresholds, and are not multiplied with other numbers.
TINY = {"tol", "rel_tol", "floor", "truncation", "time_limit"}
# Training is slow if the sizes of the columns of X differ by this factor.
UNEVEN = 100.0
# Bytes of a weight, and of the other arrays with one entry per column in a fit on sparse rows.
PER_WEIGHT, PER_COLUMN = 8, 24
# Fewer rows count as this many in the choice of plain Python or compiled loops for predictions, because a
# model often predicts few rows many times.
ROWS = 40

POSITIVE = [Interval(Real, 0, None, closed="neither")]
# Parameters with the same meaning in every iterative estimator.
COMMON_CONSTRAINTS: dict[str, list[Any]] = {
    "C": POSITIVE,
    "tol": [Interval(Real, 0, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "time_limit": [*POSITIVE, None],
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


class _NoCallbacks:
    """The callback context of a fit before scikit-learn 1.9, which introduced callbacks."""

    def subcontext(self, **kwargs: Any) -> _NoCallbacks:
        return self

    def call_on_fit_task_begin(self, **kwargs: Any) -> None:
        """Do nothing."""

    def call_on_fit_task_end(self, **kwargs: Any) -> bool:
        """Do not stop the fit."""
        return False


class WithoutCallbacks:
    """The part of scikit-learn's callback mixin that estimators use, for versions without it."""

    _callback_fit_ctx: Any = _NoCallbacks()

    def _init_callback_context(self, **kwargs: Any) -> Any:
        return self._callback_fit_ctx


if TYPE_CHECKING:
    CallbackSupportMixin = WithoutCallbacks
else:
    try:
        from sklearn.callback import CallbackSupportMixin
    except ModuleNotFoundError:
        CallbackSupportMixin = WithoutCallbacks


class FitInterrupted(KeyboardInterrupt):
    """Ctrl-C during a fit; `estimator` is fitted with the model reached."""

    estimator: Any = None


def fit_context(*, prefer_skip_nested_validation: bool) -> Callable[[Callable[..., Any]], Any]:
    """Decorate `fit`: scikit-learn's fit context, and a fit that raises leaves the estimator unchanged.

    Only Ctrl-C may leave the model reached so far. BLAS has one thread during the fit of an estimator, so
    that the result depends neither on the number of threads nor on other fits. A wrapper does not limit
    BLAS, because its estimator may be of another package.
    """
    limit = one_blas_thread if prefer_skip_nested_validation else nullcontext

    def decorate(method: Callable[..., Any]) -> Any:
        fit = _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)(method)

        @functools.wraps(method)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            before = dict(vars(self))
            try:
                with limit(), interpreted(math.inf):
                    return fit(self, *args, **kwargs)
            except BaseException as error:
                if not isinstance(error, FitInterrupted) or error.estimator is not self:
                    vars(self).clear()
                    vars(self).update(before)
                raise

        return wrapper

    return decorate


def predicting(n_rows: int, *sizes: int) -> AbstractContextManager[None]:
    """Run loops as plain Python within the block if the model (of these sizes) and X are small."""
    return interpreted(max(n_rows, ROWS), *sizes)


# A regular expression for the warnings that fits of the current context leave out.
_ignored: ContextVar[str | None] = ContextVar("ignored", default=None)


@contextmanager
def ignoring(message: str) -> Iterator[None]:
    """Leave out matching `UserWarning`s of this package, in the current context only.

    Python's warning filters belong to the process, so threads that change and restore them conflict.
    """
    token = _ignored.set(message)
    try:
        yield
    finally:
        _ignored.reset(token)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the calling line outside of this package and scikit-learn."""
    ignored = _ignored.get()
    if ignored is not None and category is UserWarning and re.match(ignored, message):
        return
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("maxmargin", "sklearn"):
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_given(y: Any, what: str) -> None:
    """Raise an error if y is None."""
    if y is None:
        raise ValueError(f"This estimator requires y to be passed, but the target y is None; pass {what}.")


def check_size(X: Any, name: str) -> Any:
    """Refuse NaN, infinity and entries whose squares overflow; return X, in float64 if float32 overflows.

    `name` is that of the estimator. A single pass, the sum of squares, suffices for valid data.
    """
    values = X.data if sp.issparse(X) else X.ravel()
    if squared_norm(values) <= LARGEST_SINGLE**2:
        return X
    assert_all_finite(X, estimator_name=name, input_name="X")
    largest = float(np.abs(values).max())
    if largest > LARGEST:
        rows, columns = (abs(X) > LARGEST).nonzero()
        i, j = int(rows[0]), int(columns[0])
        raise ValueError(
            f"X[{i}, {j}] is {X[i, j]:.3g}, and entries above {LARGEST:g} overflow when squared; scale the "
            "features (MaxAbsScaler) or correct the entry."
        )
    return X.astype(np.float64) if X.dtype == np.float32 and largest > LARGEST_SINGLE else X


def check_number(name: str, value: Any, *, tiny: bool = False) -> None:
    """Refuse a number whose products overflow or (unless `tiny`) underflow."""
    if abs(value) > LARGEST:
        raise ValueError(f"{name}={value!r} is too large to compute with; use at most {LARGEST:g}.")
    if 0 < abs(value) < 1 / LARGEST and not tiny:
        raise ValueError(f"{name}={value!r} is too small to compute with; use at least {1 / LARGEST:g}.")


def check_columns(n_columns: int, what: str = "X", n_weights: int = 0) -> None:
    """Refuse sparse rows with more columns than fit into memory; `n_weights` are stored per column."""
    needed, there = (PER_COLUMN + PER_WEIGHT * n_weights) * n_columns, memory()
    if needed > there:
        raise ValueError(
            f"{what} has {n_columns:,} columns, which need {needed / 2**30:.3g} GiB of memory, but there are "
            f"{there / 2**30:.3g}; number the features without gaps, or hash them into fewer (FeatureHasher)."
        )


def unevenness(X: Any, *, at_once: int = 1 << 18) -> float:
    """Return the ratio of the largest to the smallest nonzero column of X, by absolute maximum.

    Rows are read in chunks of about `at_once` entries, so that the temporaries are small beside X.
    """
    stored = X.nnz if sp.issparse(X) else X.size
    some = max(at_once * X.shape[0] // max(stored, 1), 1)
    sizes = np.zeros(X.shape[1])
    for first in range(0, X.shape[0], some):
        found = abs(X[first : first + some]).max(axis=0)
        np.maximum(sizes, found.toarray().ravel() if sp.issparse(found) else found, out=sizes)
    sizes = sizes[sizes > 0]
    return float(sizes.max() / sizes.min()) if sizes.size else 1.0


def balance(class_weight: Any, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sample weights multiplied by those of their classes."""
    totals = np.bincount(codes, weights=weights, minlength=len(classes))
    present = np.flatnonzero(totals > 0)
    factors = np.ones(len(classes))
    if isinstance(class_weight, str):
        factors[present] = totals.sum() / (len(present) * totals[present])
    else:
        factors = compute_class_weight(class_weight, classes=classes, y=classes[codes])
        if not np.isfinite(factors).all() or (factors < 0).any():
            raise ValueError("class_weight must hold finite nonnegative numbers.")
    return weights * factors[codes]


def is_foreign(X: Any) -> bool:
    """Whether X is an array of PyTorch or CuPy, and array API dispatch is on in scikit-learn."""
    library = type(X).__module__.partition(".")[0]
    return library in ("torch", "cupy") and bool(get_config()["array_api_dispatch"])


def to_numpy(X: Any) -> np.ndarray:
    """Copy an array of PyTorch or CuPy to the host."""
    return np.asarray(X.detach().cpu()) if hasattr(X, "detach") else np.asarray(X.get())


def is_missing(label: Any) -> bool:
    """Whether a label is None, NaN, or the NA of pandas."""
    return label is None or (isinstance(label, float) and label != label) or type(label).__name__ == "NAType"


def class_vector(y: np.ndarray, *, warn: bool = False) -> np.ndarray:
    """Return a vector of classes, checked to be complete; with `warn`, warn about a column."""
    y = column_or_1d(y, warn=warn)
    if y.dtype == object and any(isinstance(label, (set, frozenset, list, tuple)) for label in y[:1]):
        raise ValueError(
            f"y holds sets or lists of labels (y[0] is {y[0]!r}), but this estimator takes one class per "
            "sample; use MultiLabelSVC for several labels per sample."
        )
    if y.dtype == object and any(map(is_missing, y)):
        i = next(i for i, label in enumerate(y) if is_missing(label))
        raise ValueError(
            f"y[{i}] is {y[i]!r}, but every sample needs a class; give the sample a class, or leave it out."
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity; every sample needs a class.")
    check_classification_targets(y)
    return y


def summed(X: Any) -> Any:
    """Return CSR rows with sorted entries and without duplicates; no copy if X already is so."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def warn_if_single(classes: np.ndarray) -> None:
    """Warn if there is only one class."""
    if len(classes) == 1:
        warn(f"y contains a single class ({str(classes[0])!r}); the model will always predict it.")


@dataclass(frozen=True)
class Choice:
    """One value of `solver`: how it is built, a description, and the parameters that only it reads.

    The constraint of `solver` is a view of the keys of its table, so a fit accepts entries added later.
    """

    build: Callable[..., Solver]
    about: str
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One row of the table for solver="auto": the first row that holds for a problem is chosen.

    `name` is the value of `solver_`, `because` the reason of the choice, and `measured` the file with the
    measurements behind the thresholds.
    """

    name: str
    holds: Callable[..., bool]
    build: Callable[..., Any]
    because: str
    measured: str = "not measured"


def first_that_holds(rows: Sequence[Row], *what: Any) -> Row:
    """Return the row that "auto" chooses for a problem."""
    return next(row for row in rows if row.holds(*what))


def automatic(rows: Sequence[Row]) -> Callable[..., Solver]:
    """Return a function that builds the solver of the first row that holds for a problem."""

    def build(problem: Any, *args: Any, **options: Any) -> Solver:
        row = first_that_holds(rows, problem)
        solver = row.build(problem, *args, **options)
        if not hasattr(solver, "name"):
            solver.name = row.name
        return solver

    return build


def choose(estimator: Any, solvers: Mapping[str, Choice], name: str | None = None) -> Choice:
    """Return the chosen solver; raise an error if a parameter that it does not read is not the default."""
    name = estimator.solver if name is None else name
    chosen = solvers[name]
    fields = type(estimator).__dataclass_fields__
    # A solver registered by a user may read a parameter of a subclass.
    for parameter in sorted({word for entry in solvers.values() for word in entry.reads} & fields.keys()):
        value, default = getattr(estimator, parameter), fields[parameter].default
        if parameter not in chosen.reads and value is not default and value != default:
            readers = ", ".join(repr(key) for key, entry in solvers.items() if parameter in entry.reads)
            raise ValueError(
                f"{parameter}={value!r} is read by solver {readers} only; with solver={name!r} leave it at "
                f"{default!r}."
            )
    return chosen


class FitObserver:
    """Pass the epochs of one fit to scikit-learn's callbacks and, if verbose, print them."""

    def __init__(self, estimator: Any, context: Any, attributes: Any, X: Any, y: Any) -> None:
        self.estimator, self.context, self.attributes = estimator, context, attributes
        self.X, self.y = X, y
        self.task: Any = None

    def before(self) -> None:
        self.task = self.context.subcontext(task_name="epoch")
        self.task.call_on_fit_task_begin(estimator=self.estimator, X=self.X, y=self.y)

    def after(self, record: Record) -> bool:
        if self.estimator.verbose:
            print(
                f"epoch {record.epoch:4d}  {record.seconds:8.2f} s  primal {record.primal:.6g}  "
                f"dual {record.dual:.6g}  gap {record.gap:.2e}  active {record.active}  {record.solver}"
            )
        # Callbacks read the record from their context; scikit-learn passes its `metadata` to scorers.
        self.task.record = record
        return self.task.call_on_fit_task_end(
            estimator=self.estimator, X=self.X, y=self.y, reconstruction_attributes=self.attributes
        )


class MaxMarginEstimator(CallbackSupportMixin, BaseEstimator):
    """Base of the iterative estimators: input validation, stopping, callbacks, attributes of a fit."""

    C: float
    tol: float
    max_iter: int
    time_limit: float | None
    warm_start: bool
    verbose: int
    # The named columns (`maxmargin.io.named.NamedColumns`) of a model that was fitted to a table.
    _table: Any
    # Set during a fit whose dual solution starts other fits.
    _keep_dual: bool = False

    @classmethod
    @functools.cache
    def _get_param_names(cls):
        """Cache scikit-learn's list of parameters; reading the signature takes a tenth of a small fit."""
        return super()._get_param_names()

    def _validate_params(self) -> None:
        """Validate parameters; also refuse removed values, and numbers that overflow or underflow."""
        table = getattr(type(self), "STATE", State({}))
        for name in table.removed.keys() & self._parameter_constraints.keys():
            value, instead = getattr(self, name), table.removed[name] or {}
            if isinstance(value, str) and value in instead:
                raise ValueError(f"{name}={value!r} was removed; use {name}={instead[value]!r} instead.")
        super()._validate_params()
        self._warn_of_old_names(table)
        for name, constraints in self._parameter_constraints.items():
            if not any(isinstance(each, Interval) and each.type is Real for each in constraints):
                continue
            value = getattr(self, name)
            if isinstance(value, Real):
                check_number(name, value, tiny=name in TINY)

    def _warn_of_old_names(self, table: State) -> None:
        """Warn of deprecated parameters and values."""
        for name, new in table.renamed.items():
            value = getattr(self, name, None)
            if isinstance(new, str):
                if value is not None:
                    warn(f"The parameter {name} is deprecated; use {new}={value!r}.", FutureWarning)
            elif isinstance(value, str) and value in new:
                warn(f"{name}={value!r} is deprecated; use {name}={new[value]!r}.", FutureWarning)

    def _parameter(self, name: str) -> Any:
        """The value of a parameter, or the value that a deprecated name or value of it stands for."""
        value = getattr(self, name)
        for old, new in getattr(type(self), "STATE", State({})).renamed.items():
            if new == name and getattr(self, old, None) is not None:
                return getattr(self, old)
            if old == name and not isinstance(new, str):
                return new.get(value, value)
        return value

    def _stopping(self) -> Stopping:
        return Stopping(self.tol, self.max_iter, self.time_limit)

    def _observer(self, X: Any, y: Any, attributes: Any = None, max_epochs: int | None = None) -> FitObserver:
        """Open the callback context of this fit; call it once, inside `fit`."""
        context = self._init_callback_context(max_subtasks=max_epochs or self.max_iter)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        return FitObserver(self, context, attributes, X, y)

    def _read_rows(self, X: Any, *, reset: bool) -> Any:
        """Validate X as C-contiguous dense or CSR floats; copy only if necessary."""
        # `check_size` refuses NaN and infinity, except in a kernel matrix, which is checked here.
        precomputed = getattr(self, "kernel", None) == "precomputed"
        if is_foreign(X):
            X = to_numpy(X)
        if sp.issparse(X):
            X = check_format(X, "X")
            if reset:
                check_columns(X.shape[1])
        options = {
            "accept_sparse": False if precomputed else "csr",
            "accept_large_sparse": True,
            "dtype": [np.float64, np.float32],
            "order": "C",
            "ensure_all_finite": precomputed,
        }
        if reset:
            self.__dict__.pop("_table", None)
        if hasattr(self, "_table"):
            X = check_array(self._by_name(X), **options, estimator=self)
            _check_n_features(self, X, reset=False)
        else:
            X = validate_data(self, X, reset=reset, **options)
        return check_size(summed(X) if sp.issparse(X) else X, type(self).__name__)

    def _by_name(self, X: Any) -> Any:
        """Select the named columns of a frame, if the model was fitted to a table."""
        return self._table.select(X) if hasattr(self, "_table") else X

    def _read_classes(self, y: Any, n_samples: int, samples: str = "samples") -> np.ndarray:
        """Set `classes_`, return the code of every sample's class, and warn about a single class."""
        check_given(y, "one class per sample")
        y = class_vector(np.asarray(y), warn=True)
        if len(y) != n_samples:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {n_samples} {samples}, "
                f"but y has {len(y)} classes."
            )
        self.classes_, codes = np.unique(y, return_inverse=True)
        warn_if_single(self.classes_)
        return codes

    def _read_weights(self, sample_weight: Any, X: Any) -> np.ndarray | None:
        """Validate sample weights as finite and nonnegative; None means all ones."""
        if sample_weight is None:
            return None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight is zero for all samples; at least one needs a positive weight.")
        for value in (weights.max(), weights[weights > 0].min()):
            check_number("sample_weight", float(value))
        return weights

    def _recall(self, shape: tuple[int, ...]) -> tuple[Any, float] | None:
        """Return dual solution and C of the last fit for a warm start, or None; warn if shapes differ."""
        if not self.warm_start or not hasattr(self, "_warm"):
            return None
        dual, C, *rest = self._warm
        before = tuple(rest[0]) if rest else np.shape(dual)
        if before != shape:
            warn(f"warm_start ignored: the last fit had data of shape {before}, this one has {shape}.")
            return None
        return dual, C

    def _remember(self, dual: Any, shape: tuple[int, ...]) -> None:
        """Store the dual solution if a warm start may need it."""
        if self.warm_start or self._keep_dual:
            self._warm = dual, self.C, shape
        elif hasattr(self, "_warm"):
            del self._warm

    def _store_outcome(self, outcome: Outcome, X: Any = None, *, warn_user: bool = True) -> None:
        """Store the certificate of a run; warn if it did not reach `tol`, unless `warn_user` is False.

        If X is passed, the warning may advise to scale its columns.
        """
        self.primal_objective_ = outcome.certificate.primal
        self.dual_objective_ = outcome.certificate.dual
        self.duality_gap_ = outcome.certificate.gap
        self.n_iter_ = max(outcome.n_iter, 1)
        self.history_, self.solver_ = outcome.history, outcome.solver
        if warn_user and not outcome.converged and not outcome.interrupted:
            outcome.remedy = self._remedy(outcome, X)
            warn(f"{type(self).__name__}: {stop_message(outcome, self.tol)}", ConvergenceWarning)
        self._callback_fit_ctx.call_on_fit_task_end(estimator=self)
        warm = "with warm_start=True the next fit continues from it"
        self._go_on_with_interrupt(outcome, warm if hasattr(self, "warm_start") else outcome.remedy)

    def _remedy(self, outcome: Outcome, X: Any) -> str:
        """Return what to change after a run that did not converge; empty if only the limit matters."""
        if outcome.reason not in ("max_iter", "time_limit"):
            return outcome.remedy
        factor = 1.0 if X is None else unevenness(X)
        if factor > UNEVEN:
            differ = f"as columns of X differ in size by a factor of {factor:.2g}"
            return f"scale the features (StandardScaler), {differ},"
        chosen = type(self).__dataclass_fields__.get("solver")
        if chosen is not None and self.solver != chosen.default and outcome.certificate.gap > USABLE:
            return f'use solver="{chosen.default}", {REMEDIES[outcome.reason]}'
        return outcome.remedy

    def _go_on_with_interrupt(self, outcome: Outcome, remedy: str) -> None:
        """Raise the Ctrl-C that ended a run, after the model is stored.

        The caller of the fit stops as well, so a search does not use an unfinished fit. The estimator can
        be used and saved.
        """
        if outcome.interrupted:
            reached = f"{outcome.n_iter} epochs at a relative duality gap of {outcome.certificate.gap:.3g}"
            then = f"; {remedy}" if remedy else ""
            error = FitInterrupted(
                f"{type(self).__name__}: stopped after {reached}. The estimator stores this model{then}."
            )
            error.estimator = self
            raise error


@dataclass(eq=False, repr=False, kw_only=True)
class Iterative(MaxMarginEstimator):
    """Parameters of every iterative estimator."""

    tol: float = 1e-3
    max_iter: int = 1000
    time_limit: float | None = None
    random_state: Any = 0
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: COMMON_CONSTRAINTS[name]
        for name in ("tol", "max_iter", "time_limit", "random_state", "verbose")
    }


@dataclass(eq=False, repr=False, kw_only=True)
class Kernelised:
    """Parameters of an estimator with a kernel."""

    kernel: Any = "linear"
    gamma: Any = "scale"
    degree: int = 3
    coef0: float = 0.0

    kernel_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [StrOptions(set(NAMES)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
        "degree": [Interval(Integral, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
    }

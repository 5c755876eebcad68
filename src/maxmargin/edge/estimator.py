"""What all estimators share: parameters, the input edge, callbacks, and the record of a fit.

An estimator is a dataclass: its fields are its parameters, so the constructor, its signature and
its types are written once. `Iterative` and `Kernelised` are the parameters that mean the same in
every estimator; constraints stand beside them.
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
from typing import Any, ClassVar

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
from maxmargin.edge.callbacks import CallbackSupportMixin

# Larger entries of X are refused: products of their squares overflow. Above the second number float32
# is too narrow for sums of squares, and X is taken as float64.
LARGEST, LARGEST_SINGLE = 1e60, 1e9
# Parameters that may be as small as one likes: numbers next to which something else is negligible.
TINY = {"tol", "rel_tol", "floor", "truncation", "time_limit"}
# Columns of X whose sizes differ by this factor slow training down.
UNEVEN = 100.0

# Bytes of a weight, and of what a fit on sparse rows keeps for every column besides, empty or not.
PER_WEIGHT, PER_COLUMN = 8, 24

POSITIVE = [Interval(Real, 0, None, closed="neither")]
# Parameters that mean the same in every iterative estimator.
COMMON_CONSTRAINTS: dict[str, list[Any]] = {
    "C": POSITIVE,
    "tol": [Interval(Real, 0, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "time_limit": [*POSITIVE, None],
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


class FitInterrupted(KeyboardInterrupt):
    """Ctrl-C during a fit; `estimator` holds the model that the fit reached."""

    estimator: Any = None


def fit_context(*, prefer_skip_nested_validation: bool) -> Callable[[Callable[..., Any]], Any]:
    """scikit-learn's context of a fit; an estimator whose fit raises stays as it was before.

    It is not fitted, or has the model of an earlier fit. Only Ctrl-C may leave the model reached so far.
    BLAS has one thread during a fit, so that neither their number nor other fits change the answer; a
    wrapper leaves that to the fits of its estimators, which may be of other packages.
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


# A small model is asked for the answers to few rows again and again: compiled loops pay from this many.
ROWS = 40


def predicting(n_rows: int, *sizes: int) -> AbstractContextManager[None]:
    """Run loops as plain Python within the block where a model of these sizes and its rows are small."""
    return interpreted(max(n_rows, ROWS), *sizes)


# Warnings that the fits of this context leave out: a regular expression.
_ignored: ContextVar[str | None] = ContextVar("ignored", default=None)


@contextmanager
def ignoring(message: str) -> Iterator[None]:
    """Leave out the `UserWarning`s of this package that match, in this context alone.

    The filters of Python's `warnings` belong to the process: threads that change them and restore them
    leave each other's behind.
    """
    token = _ignored.set(message)
    try:
        yield
    finally:
        _ignored.reset(token)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that led here, past this package and scikit-learn."""
    ignored = _ignored.get()
    if ignored is not None and category is UserWarning and re.match(ignored, message):
        return
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and _is_inside(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_inside(module: str) -> bool:
    return module.partition(".")[0] in ("maxmargin", "sklearn")


def check_given(y: Any, what: str) -> None:
    """Refuse a y that is None."""
    if y is None:
        raise ValueError(f"This estimator requires y to be passed, but the target y is None; pass {what}.")


def check_size(X: Any, name: str) -> Any:
    """Refuse NaN, infinity and entries whose squares overflow; X as float64 where they do in float32.

    `name` is the estimator's. One pass over the entries tells that all is well: their sum of squares.
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
            "features (MaxAbsScaler) or mend the entry."
        )
    return X.astype(np.float64) if X.dtype == np.float32 and largest > LARGEST_SINGLE else X


def check_number(name: str, value: Any, *, tiny: bool = False) -> None:
    """Refuse a number whose products leave floating point; `tiny` ones may be as small as they like."""
    if abs(value) > LARGEST:
        raise ValueError(f"{name}={value!r} is too large to compute with; take at most {LARGEST:g}.")
    if 0 < abs(value) < 1 / LARGEST and not tiny:
        raise ValueError(f"{name}={value!r} is too small to compute with; take at least {1 / LARGEST:g}.")


def check_columns(n_columns: int, what: str = "X", n_weights: int = 0) -> None:
    """Refuse sparse rows that are too wide for memory, before the system ends the process.

    `n_weights` is the number of weights of a column, where all of them are kept.
    """
    needed, there = (PER_COLUMN + PER_WEIGHT * n_weights) * n_columns, memory()
    if needed > there:
        raise ValueError(
            f"{what} has {n_columns:,} columns, which take {needed / 2**30:.3g} GiB of memory, and there are "
            f"{there / 2**30:.3g}; number the features without gaps, or hash them into fewer (FeatureHasher)."
        )


def unevenness(X: Any, *, at_once: int = 1 << 18) -> float:
    """How many times the largest column of X is larger than the smallest that is not zero.

    X is read some rows at a time, with about `at_once` entries, as copies of all would take its memory again.
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
    """Sample weights multiplied by those of their classes; a class of no weight keeps none."""
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
    """Whether X is an array of PyTorch or CuPy, and scikit-learn is told to take it as it is."""
    library = type(X).__module__.partition(".")[0]
    return library in ("torch", "cupy") and bool(get_config()["array_api_dispatch"])


def to_numpy(X: Any) -> np.ndarray:
    """An array of PyTorch or CuPy on the host."""
    return np.asarray(X.detach().cpu()) if hasattr(X, "detach") else np.asarray(X.get())


def is_missing(label: Any) -> bool:
    """None, NaN, or the NA of pandas."""
    return label is None or (isinstance(label, float) and label != label) or type(label).__name__ == "NAType"


def class_vector(y: np.ndarray, *, warn: bool = False) -> np.ndarray:
    """A complete vector of classes, checked; with `warn`, a column of them is taken and said."""
    y = column_or_1d(y, warn=warn)
    if y.dtype == object and any(isinstance(label, (set, frozenset, list, tuple)) for label in y[:1]):
        raise ValueError(
            f"y holds sets or lists of labels (y[0] is {y[0]!r}), and this estimator takes one class per "
            "sample; MultiLabelSVC and its like take several."
        )
    if y.dtype == object and any(map(is_missing, y)):
        i = next(i for i, label in enumerate(y) if is_missing(label))
        raise ValueError(
            f"y[{i}] is {y[i]!r}, and a vector of classes must be complete; give the sample a class, or "
            "leave it out."
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity; a vector of classes must be complete.")
    check_classification_targets(y)
    return y


def summed(X: Any) -> Any:
    """CSR rows whose entries are sorted, each column once; not a copy when they are."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def warn_if_single(classes: np.ndarray) -> None:
    """One class only leaves nothing to learn; it is predicted."""
    if len(classes) == 1:
        warn(f"y holds one class only, {str(classes[0])!r}; it is predicted always.")


@dataclass(frozen=True)
class Choice:
    """One selectable solver: how it is built, what it is, and which parameters only such solvers read.

    The constraint of `solver` holds a view of the keys of its table, so a fit takes entries added later.
    """

    build: Callable[..., Solver]
    about: str
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One row of the table by which "auto" chooses: the first one that holds for a problem is taken.

    `name` is that of the solver in `solver_`, `because` why it is chosen, and `measured` the file with the
    figures behind the thresholds.
    """

    name: str
    holds: Callable[..., bool]
    build: Callable[..., Any]
    because: str
    measured: str = "not measured"


def first_that_holds(rows: Sequence[Row], *what: Any) -> Row:
    """The row that "auto" takes for a problem."""
    return next(row for row in rows if row.holds(*what))


def automatic(rows: Sequence[Row]) -> Callable[..., Solver]:
    """What builds the solver of the first row that holds for a problem, under the name of the row."""

    def build(problem: Any, *args: Any, **options: Any) -> Solver:
        row = first_that_holds(rows, problem)
        solver = row.build(problem, *args, **options)
        if not hasattr(solver, "name"):
            solver.name = row.name
        return solver

    return build


def choose(estimator: Any, solvers: Mapping[str, Choice], name: str | None = None) -> Choice:
    """The chosen solver; a parameter that it does not read must stand at its default."""
    name = estimator.solver if name is None else name
    chosen = solvers[name]
    fields = type(estimator).__dataclass_fields__
    # A solver from outside may read a parameter that only a subclass has.
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
    """Carries one fit to scikit-learn's callbacks and, when verbose, to the terminal."""

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
        # Callbacks find the line of `history_` on their context; scikit-learn's `metadata` goes to scorers.
        self.task.record = record
        return self.task.call_on_fit_task_end(
            estimator=self.estimator, X=self.X, y=self.y, reconstruction_attributes=self.attributes
        )


class MaxMarginEstimator(CallbackSupportMixin, BaseEstimator):
    """Base of the iterative estimators: input edge, stopping, callbacks, attributes of a fit."""

    C: float
    tol: float
    max_iter: int
    time_limit: float | None
    warm_start: bool
    verbose: int
    # The columns by name (`maxmargin.io.named.NamedColumns`), where the model is one of a table.
    _table: Any
    # Set for the time of a fit by those who start others from its dual solution.
    _keep_dual: bool = False

    @classmethod
    @functools.cache
    def _get_param_names(cls):
        """As scikit-learn, which reads the signature anew for every fit: a tenth of a small one."""
        return super()._get_param_names()

    def _validate_params(self) -> None:
        """As scikit-learn; refuses numbers whose products leave floating point, and what is no more."""
        table = getattr(type(self), "STATE", State({}))
        for name in table.removed.keys() & self._parameter_constraints.keys():
            value, instead = getattr(self, name), table.removed[name] or {}
            if isinstance(value, str) and value in instead:
                raise ValueError(f"{name}={value!r} is no more; use {name}={instead[value]!r} instead.")
        super()._validate_params()
        for name, constraints in self._parameter_constraints.items():
            if not any(isinstance(each, Interval) and each.type is Real for each in constraints):
                continue
            value = getattr(self, name)
            if isinstance(value, Real):
                check_number(name, value, tiny=name in TINY)

    def _stopping(self) -> Stopping:
        """When to stop."""
        return Stopping(self.tol, self.max_iter, self.time_limit)

    def _observer(self, X: Any, y: Any, attributes: Any = None, max_epochs: int | None = None) -> FitObserver:
        """Open the callback context of this fit; call it once, inside `fit`."""
        context = self._init_callback_context(max_subtasks=max_epochs or self.max_iter)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        return FitObserver(self, context, attributes, X, y)

    def _read_rows(self, X: Any, *, reset: bool) -> Any:
        """Validate X as C-contiguous dense or CSR floats without copying what is already so."""
        # `check_size` looks at all entries anyway; of a kernel's it must be known before their shape is.
        precomputed = getattr(self, "kernel", None) == "precomputed"
        if is_foreign(X):
            X = to_numpy(X)
        if sp.issparse(X):
            X = check_format(X, "X")
            if reset:
                check_columns(X.shape[1])
        how = {
            "accept_sparse": False if precomputed else "csr",
            "accept_large_sparse": True,
            "dtype": [np.float64, np.float32],
            "order": "C",
            "ensure_all_finite": precomputed,
        }
        if reset:
            self.__dict__.pop("_table", None)
        if hasattr(self, "_table"):
            X = check_array(self._by_name(X), **how, estimator=self)
            _check_n_features(self, X, reset=False)
        else:
            X = validate_data(self, X, reset=reset, **how)
        return check_size(summed(X) if sp.issparse(X) else X, type(self).__name__)

    def _by_name(self, X: Any) -> Any:
        """The columns of a frame that a model of a table knows by name; anything else as it is."""
        return self._table.select(X) if hasattr(self, "_table") else X

    def _read_classes(self, y: Any, n_samples: int, samples: str = "samples") -> np.ndarray:
        """Learn `classes_` and return the code of every sample's class; one class only is said."""
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
        """Validate sample weights as finite and nonnegative; None stands for all ones."""
        if sample_weight is None:
            return None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight is zero everywhere; at least one sample needs a positive weight.")
        for value in (weights.max(), weights[weights > 0].min()):
            check_number("sample_weight", float(value))
        return weights

    def _recall(self, shape: tuple[int, ...]) -> tuple[Any, float] | None:
        """Dual solution and C of the last fit, for a warm start on data of the same shape.

        None without `warm_start`, on the first fit, and, with a warning, after other data.
        """
        if not self.warm_start or not hasattr(self, "_warm"):
            return None
        dual, C, *rest = self._warm
        before = tuple(rest[0]) if rest else np.shape(dual)
        if before != shape:
            warn(f"warm_start: the last fit had data of shape {before}, now it is {shape}; starting anew.")
            return None
        return dual, C

    def _remember(self, dual: Any, shape: tuple[int, ...]) -> None:
        """Keep the dual solution where a warm start may ask for it."""
        if self.warm_start or self._keep_dual:
            self._warm = dual, self.C, shape
        elif hasattr(self, "_warm"):
            del self._warm

    def _store_outcome(self, outcome: Outcome, X: Any = None, *, warn_user: bool = True) -> None:
        """Keep what the run proved, and say so (unless told otherwise) when it stopped short of `tol`.

        X, if given, are the rows, whose columns may be the reason.
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
        warm = "with warm_start=True the next fit goes on from there"
        self._go_on_with_interrupt(outcome, warm if hasattr(self, "warm_start") else outcome.remedy)

    def _remedy(self, outcome: Outcome, X: Any) -> str:
        """What to change after a run that a limit ended; empty where a higher limit says it all."""
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
        """Raise the Ctrl-C that ended a run; call it when everything reached is stored.

        Whoever called the fit stops, too (a search does not take half a fit for a whole one), and the
        estimator can be used and saved as it is.
        """
        if outcome.interrupted:
            reached = f"{outcome.n_iter} epochs at a relative duality gap of {outcome.certificate.gap:.3g}"
            then = f"; {remedy}" if remedy else ""
            error = FitInterrupted(
                f"{type(self).__name__}: stopped after {reached}. This estimator holds the model{then}."
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

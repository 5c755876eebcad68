"""What all estimators share: the input edge, callbacks, and the record of a fit."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_sample_weight, validate_data

from maxmargin.core.loop import Outcome, Record, Stopping, shortfall

# Up to this many dual variables a fit takes milliseconds whatever its precision.
TINY = 2000
TINY_GAP = 1e-12

# Parameters that mean the same in every iterative estimator.
COMMON_CONSTRAINTS: dict[str, list[Any]] = {
    "C": [Interval(Real, 0, None, closed="neither")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "time_limit": [Interval(Real, 0, None, closed="neither"), None],
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


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
                f"dual {record.dual:.6g}  gap {record.gap:.2e}  active {record.active}"
            )
        # Callbacks find the line of `history_` on their context; scikit-learn's `metadata` goes to scorers.
        self.task.record = record
        return self.task.call_on_fit_task_end(
            estimator=self.estimator, X=self.X, y=self.y, reconstruction_attributes=self.attributes
        )


class MaxMarginEstimator(CallbackSupportMixin, BaseEstimator):
    """Base of the iterative estimators: input edge, stopping, callbacks, attributes of a fit."""

    def _stopping(self, size: int | None = None) -> Stopping:
        """When to stop; a problem of few variables (`size`, if told) is solved to the last digits."""
        goal = TINY_GAP if size is not None and size <= TINY else None
        return Stopping(self.tol, self.max_iter, self.time_limit, goal)

    def _observer(self, X: Any, y: Any, attributes: Any = None, max_epochs: int | None = None) -> FitObserver:
        """Open the callback context of this fit; call it once, inside `fit`."""
        context = self._init_callback_context(max_subtasks=max_epochs or self.max_iter)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        return FitObserver(self, context, attributes, X, y)

    def _read_rows(self, X: Any, *, reset: bool) -> Any:
        """Validate X as C-contiguous dense or CSR floats without copying what is already so."""
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            accept_large_sparse=True,
            dtype=[np.float64, np.float32],
            order="C",
        )

    def _read_weights(self, sample_weight: Any, X: Any) -> np.ndarray | None:
        """Validate sample weights as finite and nonnegative; None stands for all ones."""
        if sample_weight is None:
            return None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight is zero everywhere; at least one sample needs a positive weight.")
        return weights

    def _store_outcome(self, outcome: Outcome, *, warn: bool = True) -> None:
        """Keep what the run proved, and say so (unless told otherwise) when it stopped short of `tol`."""
        self.primal_objective_ = outcome.certificate.primal
        self.dual_objective_ = outcome.certificate.dual
        self.duality_gap_ = outcome.certificate.gap
        self.n_iter_ = max(outcome.n_iter, 1)
        self.history_ = outcome.history
        message = shortfall(outcome, self.tol)
        if message is not None and warn:
            warnings.warn(f"{type(self).__name__}: {message}", ConvergenceWarning, stacklevel=3)
        self._callback_fit_ctx.call_on_fit_task_end(estimator=self)

"""One fit as people watch it: progress with gap and time, Ctrl-C, warnings in one line each."""

from __future__ import annotations

import math
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from maxmargin.cli._console import progress_bar, say
from maxmargin.cli._samples import Samples

SCALERS = ("none", "standard", "maxabs")


@dataclass(frozen=True)
class Fitted:
    """A fitted model and how it came about."""

    model: Any
    seconds: float
    interrupted: bool

    @property
    def last(self) -> Any:
        """The estimator itself, without the scaling before it."""
        return last_step(self.model)


def last_step(model: Any) -> Any:
    """The estimator at the end of a pipeline, or the model itself."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def scaled(estimator: Any, scale: str, X: Any) -> Any:
    """The estimator behind a scaler; sparse columns are not centred."""
    if scale == "none":
        return estimator
    from scipy.sparse import issparse
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    scaler = MaxAbsScaler() if scale == "maxabs" else StandardScaler(with_mean=not issparse(X))
    return Pipeline([("scale", scaler), ("model", estimator)])


def fit(model: Any, data: Samples, name: str = "fitting") -> Fitted:
    """Fit a model; what it warns about is said in one line each."""
    inner = last_step(model)
    prefix = "model__" if inner is not model else ""
    arguments = {prefix + key: value for key, value in data.cut.items()}
    start = time.perf_counter()
    with _said_warnings(), _interrupts() as interrupted, _watched(inner, name):
        model.fit(data.X, data.y, **arguments)
    return Fitted(model, time.perf_counter() - start, bool(interrupted))


@contextmanager
def _said_warnings() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(
        str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)
    ):
        say(f"Warning: {' '.join(text.split())}")


@contextmanager
def _interrupts() -> Iterator[list[bool]]:
    """A list that is filled by the first Ctrl-C, which the estimator answers by stopping in good order."""
    seen: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def note(number: int, frame: Any) -> None:
        seen.append(True)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


class _Bar:
    """A callback of scikit-learn that moves a progress bar towards the gap asked for."""

    def __init__(self, bar: Any, task: Any, tol: float) -> None:
        self.bar, self.task, self.tol = bar, task, tol
        self.first: float | None = None

    def setup(self, estimator: Any, context: Any) -> None:
        pass

    def teardown(self, estimator: Any, context: Any) -> None:
        pass

    def on_fit_task_begin(self, estimator: Any, context: Any, **told: Any) -> None:
        pass

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        record = getattr(context, "record", None)
        if record is not None:
            gap, tol = record.gap, max(self.tol, 1e-14)
            if 0 < gap < math.inf:
                self.first = max(self.first or gap, gap, 2 * tol)
                done = math.log(self.first / max(gap, tol)) / math.log(self.first / tol)
                self.bar.update(self.task, completed=done, gap=f"epoch {record.epoch}  gap {gap:.1e}")
        return False


@contextmanager
def _watched(estimator: Any, name: str) -> Iterator[None]:
    """Show progress where a person watches and the estimator can tell it."""
    from rich.progress import TextColumn

    with progress_bar(TextColumn("{task.fields[gap]}")) as bar:
        if bar.disable:
            yield
            return
        if not hasattr(estimator, "set_callbacks") or "tol" not in estimator.get_params():
            bar.add_task(name, total=None, gap="")
            yield
            return
        task = bar.add_task(name, total=1.0, gap="")
        estimator.set_callbacks(_Bar(bar, task, estimator.tol))
        try:
            yield
        finally:
            estimator.set_callbacks()

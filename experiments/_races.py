"""Races of training methods: dual objective against passes and CPU seconds."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np


class CpuClock:
    """A callback that keeps the CPU seconds at the end of every epoch and stops a fit after `limit`."""

    def __init__(self, limit: float) -> None:
        self.limit, self.seconds = limit, []

    def setup(self, estimator: Any, context: Any) -> None:
        self.start = time.process_time()

    def teardown(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        if context.task_name == "epoch":
            self.seconds.append(time.process_time() - self.start)
        return bool(self.seconds) and self.seconds[-1] >= self.limit


class Curve(NamedTuple):
    """Dual objective and CPU seconds after every pass, and the relative gap at the end."""

    dual: np.ndarray
    seconds: np.ndarray
    gap: float

    @property
    def passes(self) -> int:
        return len(self.dual)

    def reach(self, dual: float) -> tuple[float, float]:
        """Passes and seconds until the dual objective is reached; NaN where it is not."""
        there = np.flatnonzero(self.dual >= dual)
        return (float(there[0] + 1), float(self.seconds[there[0]])) if there.size else (np.nan, np.nan)


def trace(model: Any, limit: float, *data: Any, **fit: Any) -> Curve:
    """Fit a model for at most `limit` CPU seconds."""
    clock = CpuClock(limit)
    model.set_callbacks(clock).fit(*data, **fit)
    dual = np.array([record["dual"] for record in model.history_])
    return Curve(dual, np.array(clock.seconds[: len(dual)]), model.duality_gap_)


def common(first: list[Curve], second: list[Curve]) -> float:
    """The highest dual objective that all runs of both methods reach."""
    return min(float(np.nanmax(curve.dual)) for curve in [*first, *second])


def mean_and_spread(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation (of the sample; 0 for one value)."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def thin(n: int, most: int = 40) -> list[int]:
    """At most about `most` of the positions 0 ... n - 1, closer at the beginning; the last is kept."""
    return np.unique(np.geomspace(1, n, min(n, most)).round().astype(int) - 1).tolist() if n else []

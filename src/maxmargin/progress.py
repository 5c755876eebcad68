"""A progress bar for fits, on terminals and in notebooks: `ProgressBar`."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["ProgressBar"]

# Gaps below cannot be told from rounding.
SMALLEST = 1e-14


class ProgressBar:
    """A callback that shows epoch, gap and time of a fit, and how far it is on the way to `tol`.

    The way is measured on the logarithm of the gap. Callbacks need scikit-learn 1.9 or later. In a search
    every fit has a bar of its own, one after the other.

    Parameters
    ----------
    description : str, default=None
        What the bar is called; None takes the name of the estimator.
    bar : rich.progress.Progress, default=None
        A display to take part in, with a column for the field `gap`; None makes one for every fit.

    Examples
    --------
    >>> from maxmargin import MultiLabelSVC, datasets
    >>> from maxmargin.progress import ProgressBar
    >>> data = datasets.load("flags")
    >>> model = MultiLabelSVC(C=0.01).set_callbacks(ProgressBar())
    >>> _ = model.fit(data.X, data.Y)                             # doctest: +SKIP
    MultiLabelSVC ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ epoch 3  gap 3.5e-04 0:00:00
    """

    def __init__(self, description: str | None = None, bar: Any = None) -> None:
        self.description, self.bar = description, bar
        self._own: Any = None
        self._task: Any = None
        self._tol = SMALLEST
        self._first: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Displays stay behind when a search sends its fits to other processes.
        return {**vars(self), "_own": None, "_task": None, "bar": None}

    def setup(self, estimator: Any, context: Any) -> None:
        """Show a bar; called when a fit begins."""
        shown = self.bar
        if shown is None:
            shown = self._own = _display()
            self._own.start()
        self._tol = max(getattr(estimator, "tol", SMALLEST), SMALLEST)
        self._first = None
        self._task = shown.add_task(self.description or type(estimator).__name__, total=1.0, gap="")

    def teardown(self, estimator: Any, context: Any) -> None:
        """Leave the bar as it is; called when a fit ends."""
        if self._own is not None:
            self._own.stop()
            self._own = None

    def on_fit_task_begin(self, estimator: Any, context: Any, **told: Any) -> None:
        """Called before every epoch."""

    def on_fit_task_end(self, estimator: Any, context: Any, **told: Any) -> bool:
        """Move the bar; called after every epoch."""
        record, shown = getattr(context, "record", None), self.bar or self._own
        if record is not None and shown is not None and 0 <= record.gap < math.inf:
            gap = max(record.gap, self._tol)
            self._first = max(self._first or gap, gap, 2 * self._tol)
            done = math.log(self._first / gap) / math.log(self._first / self._tol)
            shown.update(self._task, completed=done, gap=f"epoch {record.epoch}  gap {record.gap:.1e}")
        return False


def _display() -> Any:
    """A display that finds out itself whether it is on a terminal or in a notebook."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[gap]}"),
        TimeElapsedColumn(),
    )

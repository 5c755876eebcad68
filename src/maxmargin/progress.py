"""A progress bar for fits, on terminals and in notebooks: `ProgressBar`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

__all__ = ["ProgressBar"]

# Smaller gaps are rounding errors.
SMALLEST = 1e-14
# Width of a bar in characters.
BAR = 30


class ProgressBar:
    """A callback that shows epoch, gap and time of a fit, and a bar that is full if the gap is `tol`.

    The bar is linear in the logarithm of the gap. Callbacks need scikit-learn 1.9 or later. In a search
    every fit has its own bar, one after the other.

    Parameters
    ----------
    description : str, default=None
        Title of the bar; None means the name of the estimator.
    bar : rich.progress.Progress, default=None
        A display to add the bar to, with a column for the field `gap`; None creates one for every fit.

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
        # Displays are not sent to the worker processes of a search.
        return {**vars(self), "_own": None, "_task": None, "bar": None}

    def setup(self, estimator: Any, context: Any) -> None:
        """Show a bar; called at the start of a fit."""
        shown = self.bar
        if shown is None:
            shown = self._own = _display()
            self._own.start()
        self._tol = max(getattr(estimator, "tol", SMALLEST), SMALLEST)
        self._first = None
        self._task = shown.add_task(self.description or type(estimator).__name__, total=1.0, gap="")

    def teardown(self, estimator: Any, context: Any) -> None:
        """Stop the bar; called at the end of a fit."""
        if self._own is not None:
            self._own.stop()
            self._own = None

    def on_fit_task_begin(self, estimator: Any, context: Any, **kwargs: Any) -> None:
        """Do nothing; called before every epoch."""

    def on_fit_task_end(self, estimator: Any, context: Any, **kwargs: Any) -> bool:
        """Update the bar; called after every epoch."""
        record, shown = getattr(context, "record", None), self.bar or self._own
        if record is not None and shown is not None and 0 <= record.gap < math.inf:
            gap = max(record.gap, self._tol)
            self._first = max(self._first or gap, gap, 2 * self._tol)
            done = math.log(self._first / gap) / math.log(self._first / self._tol)
            shown.update(self._task, completed=done, gap=f"epoch {record.epoch}  gap {record.gap:.1e}")
        return False


class _Notebook:
    """The methods of rich's display that a bar needs, as one line of text that a notebook updates.

    `display` is that of IPython. rich itself shows nothing in notebooks without ipywidgets.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._line: Any = None
        self._name = ""
        self._start = 0.0

    def start(self) -> None:
        self._start = time.perf_counter()

    def stop(self) -> None:
        """Do nothing; the line stays."""

    def add_task(self, description: str, total: float, gap: str) -> int:
        self._name = description
        self._line = self._display(self._text(0.0, gap), raw=True, display_id=True)
        return 0

    def update(self, task: int, completed: float, gap: str) -> None:
        self._line.update(self._text(completed, gap), raw=True)

    def _text(self, done: float, gap: str) -> dict[str, str]:
        full = round(BAR * min(max(done, 0.0), 1.0))
        took = timedelta(seconds=int(time.perf_counter() - self._start))
        return {"text/plain": f"{self._name} {'━' * full}{'─' * (BAR - full)} {gap} {took}"}


def _display() -> Any:
    """Return a display for a notebook or a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    if Console().is_jupyter:
        from IPython.display import display

        return _Notebook(display)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=BAR),
        TextColumn("{task.fields[gap]}"),
        TimeElapsedColumn(),
    )

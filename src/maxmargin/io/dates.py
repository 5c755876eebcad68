"""Days: what a cell of a table means as a date, and the numbers that a model makes of it."""

from __future__ import annotations

import re
from datetime import date
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from maxmargin.core.state import INPUT, Array, State

# 2024-01-31, also with slashes or points, and 31.01.2024; a time of day may follow.
_DAY = re.compile(r"(?:(\d{4})([-/.])(\d{1,2})\2(\d{1,2})|(\d{1,2})\.(\d{1,2})\.(\d{4}))(?:[T ]\d{1,2}:.*)?")
# What a day is taken apart into.
PARTS = ("year", "month", "weekday", "days since the first")
LAST = date.max.toordinal()


def day_of(value: Any) -> date | None:
    """The day of a cell, None for an empty one.

    Examples
    --------
    >>> day_of("2024-01-31 10:30"), day_of("31.1.2024"), day_of("")
    (datetime.date(2024, 1, 31), datetime.date(2024, 1, 31), None)
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return None
    if hasattr(value, "isoformat") and hasattr(value, "toordinal"):
        return date.fromordinal(value.toordinal())
    found = _DAY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a date; write it as 2024-01-31 or 31.01.2024")
    year, _, month, day, own_day, own_month, own_year = found.groups()
    try:
        return date(int(year or own_year), int(month or own_month), int(day or own_day))
    except ValueError as error:
        raise ValueError(f"{value!r} is not a date ({error})") from None


class DateColumns(TransformerMixin, BaseEstimator):
    """Columns of dates as numbers: year, month, weekday (Monday is 1) and days since the first in training.

    A missing date is NaN in all four.

    Examples
    --------
    >>> from maxmargin.tables import DateColumns
    >>> DateColumns().fit_transform([["2024-01-31"], ["2024-02-05"]]).tolist()
    [[2024.0, 1.0, 3.0, 0.0], [2024.0, 2.0, 1.0, 5.0]]
    """

    STATE: ClassVar[State] = State({**INPUT, "first_": Array(("n_features",), ("i8",), 1, LAST)})

    def fit(self, X: Any, y: Any = None) -> DateColumns:
        """Find the first day of every column."""
        days = _days(X)
        self.n_features_in_ = days.shape[1]
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        self.first_ = np.where(np.isnan(days), LAST, days).min(axis=0, initial=LAST).astype(np.int64)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Four numbers for each date."""
        check_is_fitted(self)
        days = _days(X)
        if days.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {days.shape[1]} columns, but DateColumns was fitted on {self.n_features_in_}."
            )
        found = np.full((*days.shape, len(PARTS)), np.nan)
        for i, j in np.argwhere(~np.isnan(days)):
            day = date.fromordinal(int(days[i, j]))
            found[i, j] = day.year, day.month, day.isoweekday(), days[i, j] - self.first_[j]
        return found.reshape(len(days), -1)

    def names(self, columns: list[str]) -> list[str]:
        """What the numbers are called: "created: month", "created: days since 2024-01-31"."""
        firsts = [f"days since {date.fromordinal(int(first))}" for first in self.first_]
        return [
            f"{name}: {part}"
            for name, since in zip(columns, firsts, strict=True)
            for part in (*PARTS[:-1], since)
        ]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the numbers."""
        known = getattr(self, "feature_names_in_", None) if input_features is None else input_features
        columns = [f"x{j}" for j in range(self.n_features_in_)] if known is None else list(known)
        return np.array(self.names(columns), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags


def _days(X: Any) -> np.ndarray:
    """The number of each day, NaN for a missing one."""
    rows = np.asarray(X, dtype=object)
    if rows.ndim != 2:
        raise ValueError(f"X must have rows and columns. Got shape {rows.shape} instead.")
    found = np.full(rows.shape, np.nan)
    for place, value in np.ndenumerate(rows):
        day = day_of(value)
        if day is not None:
            found[place] = day.toordinal()
    return found

"""Parameters chosen by cross-validation from a grid that grows where the best value stands at an end."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from sklearn.model_selection import GridSearchCV


class Axis(NamedTuple):
    """Values of one parameter to begin with, how far it may go at either end, and the factor of a step."""

    values: tuple[float, ...]
    farthest: tuple[float, float]
    factor: float

    def scaled(self, by: float) -> Axis:
        """The same for another unit."""
        low, high = self.farthest
        return Axis(tuple(value * by for value in self.values), (low * by, high * by), self.factor)

    def next(self, best: float, tried: list[float]) -> list[float]:
        """The value to try next if the best one is at an end, as far as one may go."""
        low, high = self.farthest
        if best == min(tried) and best > low * (1 + 1e-9):
            return [best / self.factor]
        return [best * self.factor] if best == max(tried) and best < high * (1 - 1e-9) else []


def searched(machine: Any, X: Any, y: Any, axes: dict[str, Axis], cv: Any) -> dict[str, float]:
    """The parameters with the best mean score over the folds; of equals those that were tried first."""
    tried = [list(axis.values) for axis in axes.values()]
    found: dict[tuple[float, ...], float] = {}
    while True:
        new = [point for point in product(*tried) if point not in found]
        grid = [{name: [value] for name, value in zip(axes, point, strict=True)} for point in new]
        search = GridSearchCV(machine, grid, cv=cv, refit=False).fit(X, y)
        found |= dict(zip(new, search.cv_results_["mean_test_score"].tolist(), strict=True))
        best = max(found, key=found.__getitem__)
        further = [axis.next(*place) for axis, *place in zip(axes.values(), best, tried, strict=True)]
        if not any(further):
            return dict(zip(axes, best, strict=True))
        for values, more in zip(tried, further, strict=True):
            values += more

"""Structured problems whose samples lie in several parts: inference there, cutting planes here.

Planes and gap as in `submodular.bundle`: the loss part of P is a sum over samples, and so is a plane of it.
Every part infers the most violating answers of its samples at theta (sets of labels, or labelings of
sequences) and answers with its share of the plane; the bundle method does the rest and does not know that the
problem is in parts. The answers, here called sets, stay in the workers, for the line search; where they are
lost they are inferred again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from maxmargin.dask.rounds import Workers
from maxmargin.submodular.problem import SubmodularF1

# Where the line search looks, from the best weights (0) to the minimiser of the model (1).
PLACES = np.concatenate([[0.0], np.logspace(-4, 0, 60)])


class PartWithPlanes(Protocol):
    """Some samples of a problem; `submodular.problem` says what each method does."""

    def guesses(self) -> np.ndarray: ...

    def risk(self, theta: np.ndarray, hints: np.ndarray | None = None) -> tuple[np.ndarray, float]: ...

    def plane(self, sets: np.ndarray) -> tuple[np.ndarray, float]: ...

    def along(
        self, start: np.ndarray, end: np.ndarray, memory: list[np.ndarray]
    ) -> Callable[[float], float]: ...


class Inferred(NamedTuple):
    """The most violating sets of a part, a bound of its losses, and where the searches ended."""

    sets: np.ndarray
    risk: float
    hints: np.ndarray


class Share(NamedTuple):
    """A part's share of a plane, without the sets."""

    gradient: np.ndarray
    offset: float
    risk: float
    hints: np.ndarray


def inferred(part: PartWithPlanes, theta: np.ndarray, hints: np.ndarray | None) -> Inferred:
    """Infer the most violating set of every sample of a part."""
    hints = part.guesses() if hints is None else hints.copy()
    sets, risk = part.risk(theta, hints)
    return Inferred(sets, risk, hints)


def share(part: PartWithPlanes, found: Inferred) -> Share:
    """What the sets of a part add to the plane."""
    return Share(*part.plane(found.sets), found.risk, found.hints)


def losses_along(part: PartWithPlanes, start: np.ndarray, end: np.ndarray, *found: Inferred) -> np.ndarray:
    """The losses of a part at all `PLACES` of the line search."""
    risk = part.along(start, end, [one.sets for one in found])
    return np.array([risk(place) for place in PLACES])


@dataclass(eq=False)
class Sets:
    """Sets of all samples, which the workers hold; what they were inferred from, and their plane."""

    theta: np.ndarray
    hints: list[Any]
    answers: list[Any] | None = None
    plane: tuple[np.ndarray, float] = field(default_factory=lambda: (np.empty(0), 0.0))


@dataclass(frozen=True)
class InParts:
    """Planes of a problem over parts, of `size` samples in all."""

    workers: Workers = field(kw_only=True)
    parts: list[Any] = field(kw_only=True)
    size: int = field(kw_only=True)

    @property
    def n_samples(self) -> int:
        return self.size

    def guesses(self) -> Any:
        """Of every part where its searches start; None leaves that to the part."""
        return [None] * len(self.parts)

    def risk(self, theta: np.ndarray, hints: Any = None) -> Any:
        """The sets that inference found, and a proven upper bound of the loss part of P."""
        hints = self.guesses() if hints is None else hints
        sets = Sets(theta, list(hints))

        def work() -> list[Share]:
            answers = self._answers(sets)
            pairs = zip(self.parts, answers, strict=True)
            return self.workers.gather([self.workers.submit(share, part, one) for part, one in pairs])

        shares = self.workers.steadily(work, lambda: _forget([sets]))
        hints[:] = [one.hints for one in shares]
        sets.plane = sum(one.gradient for one in shares), sum(one.offset for one in shares)
        return sets, sum(one.risk for one in shares)

    def plane(self, sets: Any) -> tuple[np.ndarray, float]:
        return sets.plane

    def along(self, start: np.ndarray, end: np.ndarray, memory: Any) -> Callable[[float], float]:
        """The loss part of P between two points, as far as sets know it; linear between `PLACES`."""

        def work() -> list[np.ndarray]:
            first, last = self.workers.share(start), self.workers.share(end)
            answers = zip(*(self._answers(sets) for sets in memory), strict=True)
            return self.workers.gather(
                [
                    self.workers.submit(losses_along, part, first, last, *found)
                    for part, found in zip(self.parts, answers, strict=True)
                ]
            )

        losses = sum(self.workers.steadily(work, lambda: _forget(memory)))
        return lambda beta: float(np.interp(beta, PLACES, losses))

    def _answers(self, sets: Sets) -> list[Any]:
        """The sets as tasks take them."""
        if sets.answers is None:
            theta = self.workers.share(sets.theta)
            sets.answers = [
                self.workers.submit(inferred, part, theta, hints)
                for part, hints in zip(self.parts, sets.hints, strict=True)
            ]
        return sets.answers


@dataclass(frozen=True)
class ScatteredF1(InParts, SubmodularF1):
    """Submodular learning over parts; `rows`, `truth` and `cost` are those of no sample."""


def _forget(memory: list[Sets]) -> None:
    for sets in memory:
        sets.answers = None

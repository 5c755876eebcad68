"""Cross-validation on the training data: how good a model is, and which C is best."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from maxmargin.cli.console import RESULT, said_warnings, say
from maxmargin.cli.data import Samples
from maxmargin.cli.families import Family, estimator, value_of
from maxmargin.cli.models import MEASURES, evaluate, fit, last_step

# The values of C that `--C auto` chooses from, and the folds that it is chosen by.
CS = (0.01, 0.1, 1.0, 10.0)
FOLDS = 3


def values_of_c(given: dict[str, str]) -> tuple[float, ...]:
    """Take several values of C, or auto, out of the parameters; none where C is one value or not given."""
    word = given.get("C", "")
    if word != "auto" and "," not in word:
        return ()
    del given["C"]
    if word == "auto":
        return CS
    values = [value_of(one) for one in word.split(",")]
    if not all(isinstance(value, (int, float)) for value in values):
        raise click.UsageError(f"--C takes numbers, or auto alone. Got {word} instead.")
    return tuple(sorted({float(value) for value in values}))


def check_parameters(families: Iterable[Family], given: Mapping[str, str], Cs: Sequence[float]) -> None:
    """Report a mistake in the parameters before a long reading."""
    for family in families:
        for one in [{"C": str(C)} for C in Cs] or [{}]:
            estimator(family, {**given, **one})


@dataclass(frozen=True)
class Validated:
    """What cross-validation found: for every C and fold all measures, and the constant answer beside them.

    `Cs` is (None,) where C was not chosen.
    """

    Cs: Sequence[float | None]
    measures: Sequence[Sequence[dict[str, float]]]
    constants: Sequence[float | None]

    @property
    def measure(self) -> str:
        """The measure by which C is chosen."""
        return next(iter(self.measures[0][0]))

    def mean(self, place: int, measure: str) -> float:
        return float(sum(fold[measure] for fold in self.measures[place]) / len(self.measures[place]))

    @property
    def best(self) -> int:
        """The place of the best C; of the smaller one among equals."""
        means = [self.mean(place, self.measure) for place in range(len(self.Cs))]
        return means.index(max(means))

    @property
    def C(self) -> float | None:
        return self.Cs[self.best]

    @property
    def constant(self) -> float | None:
        """The main measure of the constant answer that is best on each training part."""
        known = [value for value in self.constants if value is not None]
        return sum(known) / len(known) if known else None

    def found(self) -> dict[str, Any]:
        """The means of all measures with the best C."""
        means = {key: self.mean(self.best, key) for key in self.measures[0][0]}
        chosen = {} if self.C is None else {"C": self.C}
        return {**chosen, "folds": len(self.constants), **means, "constant answer": self.constant}

    def tell(self) -> None:
        """Print which C is best, and how good the model is with it."""
        from maxmargin.report.page import number

        folds, measure = f"{len(self.constants)}-fold cross-validation", self.measure
        if self.C is not None:
            tried = [f"{number(self.mean(k, measure))} with {C:g}" for k, C in enumerate(self.Cs)]
            say(f"C {self.C:g} has the best {measure} in {folds}: {', '.join(tried)}.", RESULT)
            if self.Cs[-1] == self.C and len(self.Cs) > 1:
                say(f"It is the largest C tried; --C {self.C:g},{10 * self.C:g},{100 * self.C:g} goes on.")
        beside = "" if self.constant is None else f" (best constant answer {number(self.constant)})"
        means = {key: number(self.mean(self.best, key)) for key in self.measures[0][0]}
        means[measure] += beside
        words = ", ".join(f"{key} {value}" for key, value in means.items())
        note = " The same folds chose C, so this is slightly optimistic." if self.C else ""
        say(f"{folds.capitalize()}: {words}.{note}", RESULT)


def cross_validated(
    model: Any, family: Family, data: Samples, folds: int, Cs: Sequence[float], *, told: bool = False
) -> Validated:
    """Measure a model, with every C where there are several, in folds of the training data.

    Whatever stands before the estimator is fitted anew in each fold. If it is to be `told`, the number of
    fits is printed first, and after the first fit the time that all will take.
    """
    from sklearn.base import clone

    from maxmargin.report.verdict import constant_measure

    values: list[float | None] = [*Cs] or [None]
    rows: list[list[dict[str, float]]] = [[] for _ in values]
    constants: list[float | None] = []
    count = folds * len(values) + 1
    if told:
        among = f", C among {', '.join(f'{C:g}' for C in Cs)}" if Cs else ""
        say(f"{folds}-fold cross-validation{among}: {count} fits.")
    for train, test in splits(family, data, folds):
        known, judged = data.take(train), data.take(test)
        start = time.perf_counter()
        inner = model
        if hasattr(model, "steps"):
            with said_warnings():
                before = clone(model[:-1])
                known = replace(known, X=before.fit_transform(known.X, known.y))
                judged = replace(judged, X=before.transform(judged.X))
            inner = last_step(model)
        # The largest C first: it takes longest, and no less time is foretold.
        for place in reversed(range(len(values))):
            one = clone(inner)
            if Cs:
                one.set_params(**{names_of_c(one)[0]: values[place]})
            fitted = fit(one, known, f"fold {len(constants) + 1} of {folds}")
            if fitted.interrupted:
                raise KeyboardInterrupt
            rows[place].append(evaluate(fitted.model, family, judged))
            if told:
                seconds = time.perf_counter() - start
                whole = duration(count * seconds)
                say(f"All fits will take about {whole}, by the time of the first.")
                told = False
        constants.append(constant_measure(judged.y, known.y, next(iter(MEASURES[family.task]))))
    return Validated(values, rows, constants)


def names_of_c(model: Any) -> list[str]:
    """The parameter C of a model, behind whatever steps."""
    return [name for name in model.get_params() if name == "C" or name.endswith("__C")]


def duration(seconds: float) -> str:
    if seconds < 1.5:
        return "a second"
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def splits(family: Family, data: Samples, folds: int) -> Iterator[Any]:
    """Rows of training and test parts; sequences are kept whole, labels in their shares."""
    import numpy as np
    from sklearn.model_selection import KFold, StratifiedKFold

    from maxmargin.model_selection import IterativeStratifiedKFold

    blank = np.zeros(len(data))
    if family.task == "chain":
        return iter(KFold(folds, shuffle=True, random_state=0).split(blank))
    if data.y.ndim == 2:
        return IterativeStratifiedKFold(folds, shuffle=True, random_state=0).split(blank, data.y)
    counts = np.unique(data.y, return_counts=True)[1]
    if counts.min() < folds:
        say(f"a class has only {counts.min()} samples; folds are not stratified.", logging.WARNING)
        return iter(KFold(folds, shuffle=True, random_state=0).split(blank))
    return iter(StratifiedKFold(folds, shuffle=True, random_state=0).split(blank, data.y))

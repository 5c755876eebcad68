"""What a report says of one fitted model, in its order.

The verdict comes first, then measures, labels, training, what the model holds, and errors with examples.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from maxmargin.report import pictures
from maxmargin.report.errors import mistakes
from maxmargin.report.inside import inside_sections
from maxmargin.report.labels import label_sections
from maxmargin.report.page import Figure, Section, folded, number, picture, shown, table, text, verdict
from maxmargin.report.probabilities import probabilities
from maxmargin.report.promise import promise
from maxmargin.report.subject import Subject
from maxmargin.report.verdict import judgement

# Certified epochs from which on a curve says more than their figures.
CURVE = 6


def sections(subject: Subject) -> Iterator[Section]:
    """All sections that apply to a model; the first is of level 2."""
    yield Section(f"{subject.name} on {subject.data}", _summary(subject))
    yield from label_sections(subject)
    if subject.probabilities is not None:
        yield Section("Probabilities", probabilities(subject), 3)
    if subject.promise is not None:
        yield Section("Promise", promise(subject, subject.promise), 3)
    history = getattr(subject.model, "history_", None)
    # The gaps of a growing basis are those of different problems; its section shows the growth. A stream
    # has no optimum.
    if history and not hasattr(subject.model, "basis_vectors_") and not hasattr(subject.model, "n_mistakes_"):
        yield Section("Training", _training(subject, history), 3)
    yield from inside_sections(subject)
    yield Section("Errors", mistakes(subject), 3)


def _training(subject: Subject, history: Sequence[Mapping[str, float]]) -> str:
    """A curve, or, where there are too few epochs for one, their figures."""
    certified = [
        record for record in history if np.isfinite(record["dual"]) and np.isfinite(record["primal"])
    ]
    if len(certified) >= CURVE:
        words = "How far each objective can still be from the optimum, against training time."
        return picture(pictures.training(certified, getattr(subject.model, "tol", None)), words)
    rows = [
        [k + 1, *(float(record[key]) for key in ("seconds", "primal", "dual", "gap"))]
        for k, record in enumerate(history[:CURVE])
    ]
    return table(["epoch", "seconds", "primal objective", "dual objective", "relative gap"], rows)


def versions() -> Section:
    """What everything ran on."""
    packages = ("maxmargin", "numpy", "scipy", "scikit-learn", "numba")
    rows = [[name, metadata.version(name)] for name in packages]
    rows += [
        ["Python", platform.python_version()],
        ["machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"],
    ]
    return Section("Versions", table(["what", "version"], rows))


def _summary(subject: Subject) -> str:
    model = subject.model
    words = f"{subject.training} Judged on {subject.size} of {subject.X.shape[1]} features and "
    words += f"{len(subject.names)} {'labels' if np.ndim(subject.truth) == 2 else 'classes'}. "
    words += f"Preprocessing: {subject.preprocessing or 'none'}."
    if subject.baseline:
        words += f" {subject.baseline} has its default parameters and the same preprocessing."
    beside = subject.baseline_measures
    columns = ["measure", "maxmargin"] + ([subject.baseline] if beside else [])
    rows: list[list[Any]] = []
    for key, value in subject.measures.items():
        rows.append([key, *_judged(value, beside.get(key), subject.better.get(key, True))])
    rows.append(["seconds to fit", subject.seconds, *([subject.baseline_seconds] if beside else [])])
    rows.append(["seconds to predict", subject.predict_seconds, *([None] if beside else [])])
    for title, value in _figures(model):
        rows.append([title, value, *([None] if beside else [])])
    opening = verdict(*judgement(subject))
    return opening + text(words.strip()) + _call(model) + table(columns, rows)


def _judged(ours: float, theirs: float | None, more: bool) -> list[Any]:
    """Two figures, the better one marked."""
    if theirs is None:
        return [ours]
    found = [Figure(number(ours)), Figure(number(theirs))]
    if ours != theirs:
        winner = 0 if (ours > theirs) == more else 1
        found[winner] = Figure(f'<b class="best">{found[winner]}</b>')
    return found


def _figures(model: Any) -> Iterator[tuple[str, Any]]:
    shown = [
        ("ran", "solver_"),
        ("epochs", "n_iter_"),
        ("objective", "primal_objective_"),
        ("relative duality gap", "duality_gap_"),
        ("basis vectors", "n_basis_"),
    ]
    if hasattr(model, "n_mistakes_"):  # one pass over a stream does not aim at an optimum
        shown = [("rounds", "n_rounds_"), ("mistakes while learning", "n_mistakes_")]
    for title, attribute in shown:
        if hasattr(model, attribute):
            yield title, getattr(model, attribute)
    if hasattr(model, "support_"):
        yield "support vectors", len(model.support_)


def _call(model: Any) -> str:
    """The estimator with what differs from its defaults, and all parameters to open."""
    params = model.get_params(deep=False)
    default = type(model)().get_params(deep=False)
    said = ", ".join(
        f"{key}={_word(value)}" for key, value in params.items() if _word(value) != _word(default.get(key))
    )
    every = table(["parameter", "value"], [[key, _word(value)] for key, value in sorted(params.items())])
    return f"<p><code>{shown(type(model).__name__)}({shown(said)})</code></p>" + folded(
        "all parameters", every
    )


def _word(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return getattr(value, "__name__", None) or repr(value)

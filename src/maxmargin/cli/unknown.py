"""Labels and categories that a model has not met in training: counted, and reported in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

# Names that a line shows.
SHOWN = 5


def category_counts(model: Any, X: Any, names: Sequence[str]) -> dict[str, Counter[str]]:
    """For each column of categories, how often each value occurs that training did not have."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder

    found: dict[str, Counter[str]] = {}
    for _, step in getattr(model, "steps", ()):
        for _, part, places in step.transformers_ if isinstance(step, ColumnTransformer) else ():
            if not isinstance(part, OneHotEncoder):
                continue
            for j, known in zip(places, part.categories_, strict=True):
                met = set(known.tolist())
                new = Counter(_shown(value) for value in X[:, j].tolist() if value not in met)
                if new:
                    found[names[j]] = new
    return found


def _shown(value: Any) -> str:
    return "(missing)" if value is None or value != value else str(value)


def label_counts(data: Any, classes: Iterable[Any]) -> Counter[str]:
    """How often each label of the samples occurs that the model does not know."""
    if data.y.ndim == 1:
        known = {str(name) for name in classes}
        return Counter(name for name in map(str, data.y.tolist()) if name not in known)
    if data.unknown is None:
        return Counter()
    return Counter(dict(zip(data.unknown_names, data.unknown.sum(axis=0).tolist(), strict=True)))


def label_words(counts: Counter[str]) -> list[str]:
    """A line on labels that the model does not know, none without any."""
    if not counts:
        return []
    return [
        f"{_times(counts.total(), 'label')} of the data {'is' if counts.total() == 1 else 'are'} unknown to "
        f"the model and counted as missed: {_listed(counts)}."
    ]


def category_words(found: dict[str, Counter[str]]) -> list[str]:
    """A line for each column with categories that the model does not know."""
    return [
        f"Column {name!r}: {_times(counts.total(), 'value')} unknown to the model, encoded as none of its "
        f"categories: {_listed(counts)}."
        for name, counts in found.items()
    ]


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _listed(counts: Counter[str]) -> str:
    shown = ", ".join(f"{name} ({count})" for name, count in counts.most_common(SHOWN))
    return f"{shown} and {len(counts) - SHOWN} others" if len(counts) > SHOWN else shown

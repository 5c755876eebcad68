"""A model file as the command line uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxmargin.cli._families import FAMILIES, Family
from maxmargin.cli._fitting import last_step
from maxmargin.cli._measures import label_scores, measure
from maxmargin.cli._samples import Samples, samples
from maxmargin.cli._source import LABEL_COLUMNS, REMEMBERED, ReadOptions, read

if TYPE_CHECKING:
    from maxmargin.datasets import Dataset


@dataclass(frozen=True)
class Stored:
    """A loaded model with what `maxmargin fit` noted beside it."""

    model: Any
    family: Family
    about: dict[str, Any]

    @property
    def label_names(self) -> list[str]:
        return self.about["label_names"]

    @property
    def feature_names(self) -> list[str]:
        return self.about["feature_names"]

    @property
    def n_features(self) -> int:
        return int(last_step(self.model).n_features_in_)

    @property
    def label_ids(self) -> list[int]:
        """The numbers that stand for the labels in SVMlight files: the names, or their places."""
        names = self.label_names
        whole = all(name.removeprefix("-").isdigit() for name in names)
        return [int(name) for name in names] if whole else list(range(len(names)))

    def reading(self, asked: ReadOptions) -> ReadOptions:
        """How to read further data: as told, otherwise as the training data was read."""
        told = asked.given | (LABEL_COLUMNS if asked.says_labels else frozenset())
        known = self.about["reading"]
        return replace(asked, **{key: known[key] for key in known if key in REMEMBERED and key not in told})

    def read(self, source: str, asked: ReadOptions, split: str) -> Samples:
        """Read labelled data in the columns and labels of the model."""
        reading = self.reading(asked)
        known = {"labels": self.label_ids, "n_features": self.n_features}
        single = self.family.task == "multiclass"
        data = self.aligned(read(source, reading, single=single, split=split, known=known), source)
        if data.multilabel:
            data = self._label_columns(data, source)
        found = samples(data, self.family)
        return replace(found, X=self.like_training(found.X))

    def aligned(self, data: Dataset, source: str) -> Dataset:
        """The data with the columns of the model, found by name where both sides have names."""
        names, found = self.feature_names, data.feature_names
        if list(found) == names:
            return data
        if not names or not found or _numbered(names) or _numbered(found):
            if data.X.shape[1] != self.n_features:
                raise ValueError(
                    f"{source} has {data.X.shape[1]} features, but the model was fitted on {self.n_features}."
                )
            return data
        position = {name: j for j, name in enumerate(found)}
        absent = [name for name in names if name not in position]
        if "file" in data.per_row:  # mail: every mailbox has words of its own
            return replace(data, X=_words(data.X, position, names), feature_names=tuple(names))
        if absent:
            raise ValueError(
                f"{source} has {len(found)} features, but the model was fitted on {self.n_features}, and "
                f"{absent[0]!r} is not among them."
            )
        return replace(data, X=data.X[:, [position[name] for name in names]], feature_names=tuple(names))

    def _label_columns(self, data: Dataset, source: str) -> Dataset:
        """The data with its labels in the order of the model."""
        names, found = self.label_names, list(data.label_names)
        if found == names or found == [str(label) for label in self.label_ids]:
            return data
        if sorted(found) != sorted(names):
            other = sorted(set(found) ^ set(names))
            raise ValueError(
                f"{source} has other labels than the model: {other[0]!r} is on one side only "
                f"({len(other)} such labels)."
            )
        order = [found.index(name) for name in names]
        return replace(data, Y=data.Y[:, order], label_names=tuple(names))

    def like_training(self, X: Any) -> Any:
        """Dense rows for a model that was fitted on dense ones."""
        return X.toarray() if hasattr(X, "toarray") and not self.about["sparse"] else X

    def measures(self, data: Samples) -> dict[str, float]:
        """All measures of the model on labelled data."""
        return evaluate(self.model, self.family, data)


def _numbered(names: Sequence[str]) -> bool:
    """Whether the names say no more than the place of each feature, as in SVMlight."""
    return all(name == f"x{j}" for j, name in enumerate(names))


def _words(X: Any, position: dict[str, int], names: Sequence[str]) -> Any:
    """The columns of the named words; a word that never occurs is a column of zeros."""
    import scipy.sparse as sp

    kept = [(position[name], k) for k, name in enumerate(names) if name in position]
    rows, columns = zip(*kept, strict=True) if kept else ((), ())
    chooser = sp.csr_array(([1.0] * len(kept), (rows, columns)), shape=(X.shape[1], len(names)))
    return sp.csr_array(X @ chooser)


def evaluate(model: Any, family: Family, data: Samples) -> dict[str, float]:
    """All measures of a fitted model on labelled data."""
    ranked = family.task == "ranking"
    return measure(
        family.task,
        data.y,
        model.predict(data.X, **data.cut),
        lengths=data.lengths,
        scores=label_scores(model, data.X) if ranked else None,
        classes=model.classes_ if ranked else None,
    )


def open_model(path: Path) -> Stored:
    """Load a model file that `maxmargin fit` wrote."""
    from maxmargin.persistence import ModelFileError, describe, load

    if not path.exists():
        raise ModelFileError(
            f"There is no model file {path}; `maxmargin fit DATA -m ... -o {path}` makes one."
        )
    about = describe(path)["metadata"]
    if about.get("family") not in FAMILIES:
        raise ModelFileError(
            f"{path} was not written by `maxmargin fit`; load it with maxmargin.load in Python."
        )
    return Stored(load(path), FAMILIES[about["family"]], about)

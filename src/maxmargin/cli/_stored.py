"""A model file as the command line uses it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maxmargin.cli._families import FAMILIES, Family
from maxmargin.cli._fitting import last_step
from maxmargin.cli._measures import label_scores, measure
from maxmargin.cli._samples import Samples, samples
from maxmargin.cli._source import ReadOptions, read


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
    def n_features(self) -> int:
        return int(last_step(self.model).n_features_in_)

    def reading(self, asked: ReadOptions) -> ReadOptions:
        """How to read further data: as told, otherwise as the training data was read."""
        if asked.says_labels:
            return asked
        known = self.about["reading"]
        same = {key: known[key] for key in known if getattr(asked, key) in (None, False, True)}
        return replace(asked, **same)

    def read(self, source: str, asked: ReadOptions, split: str) -> Samples:
        """Read labelled data in the columns and labels of the model."""
        reading = self.reading(asked)
        known = {"labels": self._ids(), "n_features": self.n_features}
        single = self.family.task == "multiclass"
        data = samples(read(source, reading, single=single, split=split, known=known), self.family)
        if data.X.shape[1] != self.n_features:
            raise ValueError(
                f"{source} has {data.X.shape[1]} features, but the model was fitted on {self.n_features}."
            )
        numbered = [str(label) for label in self._ids()]
        if data.y.ndim == 2 and list(data.label_names) not in (self.label_names, numbered):
            raise ValueError(
                f"{source} has other labels than the model: {', '.join(data.label_names[:5])} ..."
            )
        return replace(data, X=self.like_training(data.X))

    def like_training(self, X: Any) -> Any:
        """Dense rows for a model that was fitted on dense ones."""
        return X.toarray() if hasattr(X, "toarray") and not self.about["sparse"] else X

    def _ids(self) -> list[int]:
        """The numbers that stand for the labels in SVMlight files: the names, or their places."""
        names = self.label_names
        whole = all(name.removeprefix("-").isdigit() for name in names)
        return [int(name) for name in names] if whole else list(range(len(names)))

    def measures(self, data: Samples) -> dict[str, float]:
        """All measures of the model on labelled data."""
        return evaluate(self.model, self.family, data)


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

    about = describe(path)["metadata"]
    if about.get("family") not in FAMILIES:
        raise ModelFileError(
            f"{path} was not written by `maxmargin fit`; load it with maxmargin.load in Python."
        )
    return Stored(load(path), FAMILIES[about["family"]], about)

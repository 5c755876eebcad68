"""Models of the command line: fits with a progress bar, and model files."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maxmargin.cli.console import echoed_warnings, log, progress_bar
from maxmargin.cli.data import COLUMN_KINDS, LABEL_COLUMNS, REMEMBERED, ReadOptions, Samples, read, samples
from maxmargin.cli.families import FAMILIES, Family

if TYPE_CHECKING:
    from maxmargin.datasets import Dataset

# `--scale auto` scales columns if their sizes differ by more than this factor.
UNEVEN = 10.0

scale_option = click.option(
    "--scale",
    type=click.Choice(["auto", "none", "standard", "maxabs"]),
    default="auto",
    show_default=True,
    help="How to scale the columns. auto: standardise dense columns if their sizes differ tenfold, and "
    "numbers in tables with words.",
)
text_option = click.option(
    "--text-as",
    type=click.Choice(["word", "character"]),
    default="word",
    show_default=True,
    help="Tables: how to split texts. Characters suit short texts and misspellings.",
)


@dataclass(frozen=True)
class Fitted:
    """A fitted model, the seconds of its fit, and whether Ctrl-C stopped it."""

    model: Any
    seconds: float
    interrupted: bool

    @property
    def last(self) -> Any:
        """The estimator without preprocessing and wrappers."""
        return last_step(bare(self.model))


def bare(model: Any) -> Any:
    """Return the estimator or pipeline inside the wrappers that decide on its scores."""
    while hasattr(model, "estimator_"):
        model = model.estimator_
    return model


def decided(
    model: Any,
    probabilities: str | None,
    promised: Mapping[str, float],
    edges: Sequence[tuple[int, int]] = (),
    ensemble: bool = False,
) -> Any:
    """Wrap a model to return probabilities, sets with a promised recall or precision, or sets on a tree."""
    from maxmargin.decisions.calibrated import Calibrated
    from maxmargin.decisions.sets import LabelSets
    from maxmargin.decisions.tree import TreeLabels

    if probabilities is not None:
        model = Calibrated(model, method=probabilities, ensemble=ensemble)
    if edges:
        return TreeLabels(model, list(edges))
    if not promised:
        return model
    return LabelSets(model, recall=promised.get("recall"), precision=promised.get("precision"))


def preprocessing(model: Any) -> Any:
    """Return the steps before the estimator, or None."""
    model = bare(model)
    return model[:-1] if hasattr(model, "steps") else None


def last_step(model: Any) -> Any:
    """Return the estimator at the end of a pipeline, or the model itself."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def certificate(estimator: Any) -> dict[str, Any]:
    """Return the solvers, epochs, objective and gap of a fit."""
    attributes = {
        "ran": "solver_",
        "epochs": "n_iter_",
        "objective": "primal_objective_",
        "gap": "duality_gap_",
        "basis vectors": "n_basis_",
    }
    return {key: getattr(estimator, name) for key, name in attributes.items() if hasattr(estimator, name)}


def lengths_for(model: Any, data: Samples) -> dict[str, Any]:
    """Return the argument `lengths` for an estimator of sequences; a baseline takes single rows."""
    takes = "lengths" in inspect.signature(last_step(model).fit).parameters
    return {"lengths": data.lengths} if takes and data.lengths is not None else {}


def label_scores(model: Any, X: Any) -> Any:
    """Return one score per label, also for two classes, where scikit-learn returns one per sample."""
    import numpy as np

    while not hasattr(model, "label_scores") and not hasattr(model, "decision_function"):
        model = model.estimator_
    scores = model.label_scores(X) if hasattr(model, "label_scores") else model.decision_function(X)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


def prepared(estimator: Any, scale: str, data: Samples, text_as: str = "word") -> Any:
    """Put the preprocessing that the data needs before an estimator.

    Parameters
    ----------
    estimator : estimator
    scale : {"auto", "none", "standard", "maxabs"}
        "auto" standardises dense columns whose sizes differ, and no sparse ones.
    data : Samples
    text_as : {"word", "character"}
        Parts of a text whose tf-idf are its features.
    """
    from sklearn.pipeline import Pipeline

    steps = _column_steps(scale, data, text_as) if data.X.dtype == object else _number_steps(scale, data.X)
    model = Pipeline([*steps, ("model", estimator)]) if steps else estimator
    log.debug("%d features of %d samples to %s", data.X.shape[1], len(data), " ".join(str(model).split()))
    return model


def _column_steps(scale: str, data: Samples, text_as: str) -> list[tuple[str, Any]]:
    """Return the steps for a table with words."""
    from maxmargin.tables import assemble

    assert data.columns is not None
    if scale == "maxabs":
        raise click.UsageError("--scale maxabs is for numbers only; use auto, standard or none.")
    kinds = {data.feature_names.index(name): kind for name, kind in data.columns.items()}
    return [("prepare", assemble(kinds, scale=scale != "none", analyzer=text_as))]


def _number_steps(scale: str, X: Any) -> list[tuple[str, Any]]:
    """Return the steps for a table of numbers: fill missing ones, scale."""
    import numpy as np
    from scipy.sparse import issparse
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    from maxmargin.edge.estimator import unevenness

    steps: list[tuple[str, Any]] = []
    dense = not issparse(X)
    if dense and np.isnan(X).any():
        steps.append(("fill", SimpleImputer(strategy="median", keep_empty_features=True)))
    if scale == "auto":
        scale = "standard" if dense and unevenness(np.nan_to_num(X)) > UNEVEN else "none"
    if scale == "maxabs":
        steps.append(("scale", MaxAbsScaler()))
    elif scale == "standard":
        steps.append(("scale", StandardScaler(with_mean=dense)))
    return steps


def check_missing(model: Any, X: Any, source: str) -> None:
    """Raise an error for missing numbers that the preprocessing of the model does not fill."""
    import numpy as np

    steps = [type(step).__name__ for _, step in getattr(bare(model), "steps", ())]
    if X.dtype == object or hasattr(X, "toarray") or {"SimpleImputer", "ColumnTransformer"} & set(steps):
        return
    rows = np.flatnonzero(np.isnan(X).any(axis=1))
    if len(rows):
        raise ValueError(
            f"{source}: row {rows[0] + 1} has missing values, but the training data had none, so the model "
            "does not fill them; fill them in."
        )


def fit(model: Any, data: Samples, name: str = "fitting") -> Fitted:
    """Fit a model; show its progress and print its warnings."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    inner = last_step(model)
    prefix = "model__" if inner is not model else ""
    arguments = {prefix + key: value for key, value in lengths_for(model, data).items()}
    start, interrupted = time.perf_counter(), False
    with echoed_warnings(), _watched(inner, name):
        try:
            model.fit(data.X, data.y, **arguments)
        except KeyboardInterrupt as stop:
            # An interrupted estimator keeps the model reached, if there is one.
            try:
                check_is_fitted(last_step(model), "duality_gap_")
            except NotFittedError:
                raise stop from None
            interrupted = True
    return Fitted(model, time.perf_counter() - start, interrupted)


@contextmanager
def _watched(estimator: Any, name: str) -> Iterator[None]:
    """Show the progress of a fit on a terminal."""
    from rich.progress import TextColumn

    from maxmargin.progress import ProgressBar

    with progress_bar(TextColumn("{task.fields[gap]}")) as bar:
        if bar.disable:
            yield
            return
        if not hasattr(estimator, "set_callbacks") or "tol" not in estimator.get_params():
            bar.add_task(name, total=None, gap="")
            yield
            return
        estimator.set_callbacks(ProgressBar(name, bar))
        try:
            yield
        finally:
            estimator.set_callbacks()


@dataclass(frozen=True)
class Stored:
    """A loaded model and `about`: the notes of `maxmargin fit`, or what a model saved in Python declares."""

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
        return int(self.model.n_features_in_)

    @property
    def label_ids(self) -> list[int]:
        """The integers that stand for the labels in SVMlight files: their names, or their positions."""
        names = self.label_names
        whole = all(name.removeprefix("-").isdigit() for name in names)
        return [int(name) for name in names] if whole else list(range(len(names)))

    @property
    def columns(self) -> dict[str, str] | None:
        """The kinds of the columns, if the training data was a table with words."""
        return self.about.get("columns")

    @property
    def has_words(self) -> bool:
        """Whether some columns are not numbers."""
        return any(kind != "number" for kind in (self.columns or {}).values())

    @property
    def target(self) -> str:
        """The name of the column with the class in the training data."""
        target = self.about["reading"].get("target")
        is_name = target is not None and not target.lstrip("-").isdigit()
        return self.about.get("target") or (target if is_name else "class")

    @property
    def tags(self) -> str | None:
        """The name of the column with the tags, None if the labels have another form."""
        column = self.about["reading"].get("labels")
        is_name = column is not None and "," not in column and not column.lstrip("-").isdigit()
        return column if is_name and column != "meka" and self.label_names != [column] else None

    def reading(self, asked: ReadOptions) -> ReadOptions:
        """Return how to read further data: as asked, otherwise like the training data."""
        if self.feature_names and (given := sorted(asked.given & COLUMN_KINDS)):
            raise click.UsageError(
                f"--{given[0]} is for fit; the model file stores the kinds of its columns."
            )
        given_here = asked.given | (LABEL_COLUMNS if asked.names_labels else frozenset())
        noted = self.about["reading"]
        more = {key: noted[key] for key in noted if key in REMEMBERED and key not in given_here}
        return replace(asked, **more)

    def read(self, source: str, asked: ReadOptions, split: str) -> Samples:
        """Read labelled data, with the columns and labels of the model."""
        known: dict[str, Any] = {"labels": self.label_ids, "n_features": self.n_features}
        if self.columns is not None:
            known |= {"columns": self.columns, "label_names": self.label_names}
        single = self.family.task == "multiclass"
        data = read(source, self.reading(asked), single=single, split=split, known=known)
        data = self.aligned(data, source)
        if data.multilabel:
            data = self._label_columns(data, source)
        found = samples(data, self.family)
        check_missing(self.model, found.X, source)
        found = replace(found, X=self.like_training(found.X))
        n_known = len(self.label_names)
        if not data.extras.get("tagged") or found.y.shape[1] == n_known:
            return found
        return replace(
            found,
            y=found.y[:, :n_known],
            label_names=found.label_names[:n_known],
            unknown=found.y[:, n_known:],
            unknown_names=found.label_names[n_known:],
        )

    def aligned(self, data: Dataset, source: str) -> Dataset:
        """Return the data with the columns of the model, matched by name if both sides have names."""
        from maxmargin.io.named import numbered

        names, found = self.feature_names, list(data.feature_names)
        if found == names:
            return data
        if self.has_words:
            raise ValueError(
                f"{source} holds numbers only, but the model was fitted on a table with words; give CSV, "
                "JSON lines or Parquet."
            )
        if not names or not found or numbered(names) or numbered(found):
            if data.X.dtype == object:
                raise ValueError(
                    f"{source} has columns of words, but the model takes {self.n_features} columns of "
                    "numbers by position; --drop the others."
                )
            if data.X.shape[1] != self.n_features:
                raise ValueError(
                    f"{source} has {data.X.shape[1]} features, but the model was fitted on {self.n_features}."
                )
            return data
        position = {name: j for j, name in enumerate(found)}
        if "file" in data.per_row:  # mail: every mailbox has its own words
            return replace(data, X=_words(data.X, position, names), feature_names=tuple(names))
        absent = [name for name in names if name not in position]
        if absent:
            raise ValueError(
                f"{source} has {len(found)} features, but the model was fitted on {self.n_features}, and "
                f"{absent[0]!r} is not among them."
            )
        return replace(data, X=data.X[:, [position[name] for name in names]], feature_names=tuple(names))

    def _label_columns(self, data: Dataset, source: str) -> Dataset:
        """Return the data with its labels in the order of the model."""
        names, found = self.label_names, list(data.label_names)
        if not self.about.get("labelled", True):
            # The model was fitted on a 0/1 array, so its labels have no names.
            if data.extras.get("tagged") or data.Y.shape[1] != len(names):
                raise ValueError(
                    f"{source} must have {len(names)} 0/1 columns of labels, because the model was fitted on "
                    "an array without names of labels; fit it on a frame or on sets of names."
                )
            return replace(data, label_names=tuple(names))
        if data.extras.get("tagged") or found == names or found == [str(label) for label in self.label_ids]:
            return data
        if sorted(found) != sorted(names):
            other = sorted(set(found) ^ set(names))
            raise ValueError(
                f"{source} and the model have different labels: {other[0]!r} is in one of them only "
                f"({len(other)} such labels)."
            )
        order = [found.index(name) for name in names]
        return replace(data, Y=data.Y[:, order], label_names=tuple(names))

    def like_training(self, X: Any) -> Any:
        """Return dense rows if the model was fitted on dense rows."""
        return X.toarray() if hasattr(X, "toarray") and not self.about["sparse"] else X


def _words(X: Any, position: dict[str, int], names: Sequence[str]) -> Any:
    """Return the columns of the given words, with zeros for a word that does not occur."""
    import scipy.sparse as sp

    kept = [(position[name], k) for k, name in enumerate(names) if name in position]
    rows, columns = zip(*kept, strict=True) if kept else ((), ())
    chooser = sp.csr_array(([1.0] * len(kept), (rows, columns)), shape=(X.shape[1], len(names)))
    return sp.csr_array(X @ chooser)


def open_model(path: Path) -> Stored:
    """Load a model file of `maxmargin fit` or of `maxmargin.save`."""
    from maxmargin.io.named import is_noted
    from maxmargin.persistence import ModelFileError, describe, load

    if not path.exists():
        raise ModelFileError(
            f"There is no model file {path}; create one with `maxmargin fit DATA -m ... -o {path}`."
        )
    about = describe(path)["metadata"]
    if is_noted(about) and about["family"] in FAMILIES:
        return Stored(load(path), FAMILIES[about["family"]], about)
    if "family" in about:
        raise ModelFileError(f"{path} names a model family, but was not written by `maxmargin fit`.")
    return _of_python(load(path), path)


def _of_python(model: Any, path: Path) -> Stored:
    """Return a model that was saved in Python, with what it declares about its data."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    from maxmargin.io.named import by_position
    from maxmargin.io.steps import takes_sparse
    from maxmargin.persistence import ModelFileError

    inner = last_step(bare(model))
    family = next((one for one in FAMILIES.values() if one.estimator == type(inner).__name__), None)
    if family is None:
        raise ModelFileError(
            f"{path} holds a {type(inner).__name__}, which does not take tables; use it in Python."
        )
    try:
        check_is_fitted(inner)
        names = by_position(model)
    except (NotFittedError, ModelFileError) as error:
        raise ModelFileError(f"{path} cannot be used on the command line: {error}.") from error
    if family.task in ("multilabel", "multiclass"):
        family = replace(family, task="multilabel" if names.several else "multiclass")
    about = {
        "label_names": list(names.labels),
        "labelled": names.labelled,
        "feature_names": list(names.columns),
        "sparse": takes_sparse(bare(model)),
        "reading": {},
        **({} if names.kinds is None else {"columns": names.kinds}),
    }
    return Stored(model, family, about)

"""Models as the command line uses them: a fit as people watch it, measures, and model files.

A fit shows its gap and time, stops in good order at Ctrl-C, and says each warning in one line.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maxmargin.cli.console import log, progress_bar, said_warnings, say
from maxmargin.cli.data import COLUMN_KINDS, LABEL_COLUMNS, REMEMBERED, ReadOptions, Samples, read, samples
from maxmargin.cli.families import FAMILIES, Family
from maxmargin.cli.unknown import category_counts, label_counts

if TYPE_CHECKING:
    from maxmargin.cli.search import Validated
    from maxmargin.datasets import Dataset
    from maxmargin.report import Promise

SCALERS = ("auto", "none", "standard", "maxabs")
# Columns whose sizes differ by more are scaled by `--scale auto`.
UNEVEN = 10.0


scale_option = click.option(
    "--scale",
    type=click.Choice(SCALERS),
    default="auto",
    show_default=True,
    help="Scale the columns first; auto: dense ones whose sizes differ tenfold, and numbers beside words.",
)
text_option = click.option(
    "--text-as",
    type=click.Choice(["word", "character"]),
    default="word",
    show_default=True,
    help="Tables: what texts are cut into; characters suit short texts and misspellings.",
)


@dataclass(frozen=True)
class Fitted:
    """A fitted model and how it came about; `seconds` are those of fitting.

    `judged` is how good it was in cross-validation, if that was asked for.
    """

    model: Any
    seconds: float
    interrupted: bool
    judged: Validated | None = None

    @property
    def last(self) -> Any:
        """The estimator itself, without the scaling before it."""
        return last_step(bare(self.model))


def bare(model: Any) -> Any:
    """The estimator or pipeline inside what makes probabilities and sets of its scores."""
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
    """The model inside what makes decisions of its scores.

    That is probabilities, sets with the recall or precision asked for, or sets that agree with a tree.
    """
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
    """The steps before the estimator, None without any."""
    model = bare(model)
    return model[:-1] if hasattr(model, "steps") else None


def last_step(model: Any) -> Any:
    """The estimator at the end of a pipeline, or the model itself."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def certificate(estimator: Any) -> dict[str, Any]:
    """What the fit of an estimator proved, the solvers that ran, and the epochs it took."""
    attributes = {
        "ran": "solver_",
        "epochs": "n_iter_",
        "objective": "primal_objective_",
        "gap": "duality_gap_",
        "basis vectors": "n_basis_",
    }
    return {key: getattr(estimator, name) for key, name in attributes.items() if hasattr(estimator, name)}


def cut_of(model: Any, data: Samples) -> dict[str, Any]:
    """How rows are cut into sequences, for an estimator of sequences; a baseline sees single rows."""
    takes = "lengths" in inspect.signature(last_step(model).fit).parameters
    return {"lengths": data.lengths} if takes and data.lengths is not None else {}


def prepared(estimator: Any, scale: str, data: Samples, text_as: str = "word") -> Any:
    """The estimator behind what its data needs: kinds of columns, missing values, scale.

    Parameters
    ----------
    estimator : estimator
    scale : {"auto", "none", "standard", "maxabs"}
        "auto" standardises dense columns of different size; sparse ones are left as they are.
    data : Samples
    text_as : {"word", "character"}
        What texts are cut into.
    """
    steps = _column_steps(scale, data, text_as) if data.X.dtype == object else _number_steps(scale, data.X)
    from sklearn.pipeline import Pipeline

    model = Pipeline([*steps, ("model", estimator)]) if steps else estimator
    log.debug("%d features of %d samples to %s", data.X.shape[1], len(data), " ".join(str(model).split()))
    return model


def _column_steps(scale: str, data: Samples, text_as: str) -> list[tuple[str, Any]]:
    from maxmargin.tables import assemble

    assert data.columns is not None
    if scale == "maxabs":
        raise click.UsageError("--scale maxabs is for numbers alone; take auto, standard or none.")
    places = {data.feature_names.index(name): kind for name, kind in data.columns.items()}
    return [("prepare", assemble(places, scale=scale != "none", analyzer=text_as))]


def _number_steps(scale: str, X: Any) -> list[tuple[str, Any]]:
    import numpy as np
    from scipy.sparse import issparse
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    from maxmargin.edge.estimator import unevenness

    steps: list[tuple[str, Any]] = []
    if not issparse(X) and np.isnan(X).any():
        steps.append(("fill", SimpleImputer(strategy="median", keep_empty_features=True)))
    if scale == "maxabs":
        steps.append(("scale", MaxAbsScaler()))
    elif scale == "standard" or (
        scale == "auto" and not issparse(X) and unevenness(np.nan_to_num(X)) > UNEVEN
    ):
        steps.append(("scale", StandardScaler(with_mean=not issparse(X))))
    return steps


def check_missing(model: Any, X: Any, source: str) -> None:
    """Refuse missing numbers where the model has not learnt what to put in their place."""
    import numpy as np

    steps = [type(step).__name__ for _, step in getattr(bare(model), "steps", ())]
    if X.dtype == object or hasattr(X, "toarray") or {"SimpleImputer", "ColumnTransformer"} & set(steps):
        return
    rows = np.flatnonzero(np.isnan(X).any(axis=1))
    if len(rows):
        raise ValueError(
            f"{source}: row {rows[0] + 1} has missing values, and the training data had none to learn from; "
            "fill them in."
        )


def fit(model: Any, data: Samples, name: str = "fitting") -> Fitted:
    """Fit a model; what it warns about is said in one line each."""
    inner = last_step(model)
    prefix = "model__" if inner is not model else ""
    arguments = {prefix + key: value for key, value in cut_of(model, data).items()}
    start, interrupted = time.perf_counter(), False
    with said_warnings(), _watched(inner, name):
        try:
            model.fit(data.X, data.y, **arguments)
        except KeyboardInterrupt:
            # The estimators keep the model reached; without one there is nothing to go on with.
            if not _has_model(model):
                raise
            interrupted = True
    return Fitted(model, time.perf_counter() - start, interrupted)


def _has_model(model: Any) -> bool:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(last_step(model), "duality_gap_")
    except NotFittedError:
        return False
    return True


@contextmanager
def _watched(estimator: Any, name: str) -> Iterator[None]:
    """Show progress where a person watches and the estimator can tell it."""
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


# For each task: name of the measure -> whether more is better.
MEASURES: dict[str, dict[str, bool]] = {
    "multilabel": {
        "micro F1": True,
        "macro F1": True,
        "example F1": True,
        "Hamming loss": False,
        "exact match": True,
    },
    "multiclass": {"accuracy": True, "macro F1": True},
    "ranking": {"top label right": True, "ranking loss": False, "average precision": True},
    "chain": {"letter accuracy": True, "word accuracy": True},
}


def measure(
    task: str, truth: Any, predicted: Any, *, lengths: Any = None, scores: Any = None, classes: Any = None
) -> dict[str, float]:
    """All measures of a task.

    Parameters
    ----------
    task : str
    truth, predicted : labels in the same kind; for chains one stacked vector with `lengths`
    lengths : array of int
        For chains: positions of each sequence.
    scores, classes : array of shape (n_samples, n_labels), array of shape (n_labels,)
        For rankings: the score of every label.
    """
    if task == "chain":
        return _chain(truth, predicted, lengths)
    if task == "ranking":
        return _ranking(truth, scores, classes)
    return _multilabel(truth, predicted) if task == "multilabel" else _multiclass(truth, predicted)


def predicted_by(model: Any, data: Samples) -> Any:
    """The labels that a model predicts for samples."""
    return model.predict(data.X, **cut_of(model, data))


def evaluate(model: Any, family: Family, data: Samples, predicted: Any = None) -> dict[str, float]:
    """All measures of a fitted model on labelled data, which may be predicted already.

    Labels that the model does not know count as missed in every one.
    """
    import numpy as np

    if predicted is None:
        predicted = predicted_by(model, data)
    truth, predicted = with_unknown(data, data.y), with_unknown(data, predicted, missed=True)
    if family.task == "ranking":
        scores = label_scores(model, data.X)
        if data.unknown is not None:
            # Below every label that the model knows.
            lowest = np.repeat(scores.min(axis=1, keepdims=True) - 1, data.unknown.shape[1], axis=1)
            scores = np.hstack([scores, lowest])
        return measure(family.task, truth, predicted, scores=scores, classes=model.classes_)
    if hasattr(getattr(last_step(model), "coef_", None), "tocsc"):
        return measure(family.task, truth, predicted) | _at_k(model, data, truth)
    return measure(family.task, truth, predicted, lengths=data.lengths)


def has_all_labels(data: Samples) -> bool:
    """Whether every label entry is known, as scikit-learn's models need it; prints that they do."""
    import numpy as np

    if hasattr(data.y, "tocsr") or data.y.dtype.kind != "f" or not np.isnan(data.y).any():
        return True
    say("Some label entries are missing: scikit-learn's models, which need all of them, are left out.")
    return False


def with_unknown(data: Samples, labels: Any, *, missed: bool = False) -> Any:
    """0/1 labels of the samples with columns for those that the model does not know, zeros if `missed`."""
    if data.unknown is None:
        return labels
    import numpy as np
    import scipy.sparse as sp

    more = np.zeros_like(data.unknown) if missed else data.unknown
    if sp.issparse(labels):
        return sp.hstack([labels, sp.csr_array(more)], format="csr")
    return np.hstack([labels, more])


def promise_of(model: Any, data: Samples, predicted: Any) -> Promise | None:
    """What a model of sets with a promise promised, and what its answers hold; None for any other.

    True labels that the model does not know count as missed.
    """
    import numpy as np

    from maxmargin.decisions.sets import LabelSets
    from maxmargin.report import Promise

    if not isinstance(model, LabelSets):
        return None
    truth, on = (
        labels.toarray() if hasattr(labels, "toarray") else np.asarray(labels)
        for labels in (with_unknown(data, data.y), with_unknown(data, predicted, missed=True))
    )
    kind, share = ("precision", model.precision) if model.recall is None else ("recall", model.recall)
    assert share is not None
    hits, counted = (truth == 1) & (on > 0), truth == 1 if kind == "recall" else (on > 0) & (truth == truth)
    sizes = counted.sum(axis=1)
    found = np.where(sizes > 0, hits.sum(axis=1) / np.maximum(sizes, 1), 1.0).mean()
    return Promise(kind, share, float(found), model.n_calibration_)


def label_scores(model: Any, X: Any) -> Any:
    """One score per label, also for two classes, where scikit-learn gives one per sample."""
    import numpy as np

    while not hasattr(model, "label_scores") and not hasattr(model, "decision_function"):
        model = model.estimator_
    scores = model.label_scores(X) if hasattr(model, "label_scores") else model.decision_function(X)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


def _multilabel(truth: Any, predicted: Any) -> dict[str, float]:
    """Measures of the entries that are known, and of the samples that have one."""
    import numpy as np
    from sklearn.metrics import accuracy_score, f1_score, hamming_loss

    from maxmargin.metrics import example_f1

    share = 1.0
    if not hasattr(truth, "tocsr") and np.asarray(truth).dtype.kind == "f":
        # Neither a hit nor a mistake: an unknown entry is 0 on both sides, and Hamming's mean leaves it out.
        known = truth == truth
        rows = known.any(axis=1)
        truth, predicted, known = np.asarray(truth)[rows], np.asarray(predicted)[rows], known[rows]
        truth, predicted, share = np.nan_to_num(truth), np.where(known, predicted, 0), known.mean()
    return {
        "micro F1": float(f1_score(truth, predicted, average="micro", zero_division=0)),
        "macro F1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
        "example F1": float(example_f1(truth, predicted)),
        "Hamming loss": float(hamming_loss(truth, predicted) / share),
        "exact match": float(accuracy_score(truth, predicted)),
    }


def _at_k(model: Any, data: Samples, truth: Any) -> dict[str, float]:
    """What counts where labels are many: the labels with the highest scores."""
    from maxmargin.metrics import from_top, ndcg_at_k, precision_at_k

    X, last = data.X, last_step(model)
    for step in getattr(model, "steps", [])[:-1]:
        X = step[1].transform(X)
    most = min(5, len(last.classes_))
    labels, scores = last.predict_top(X, most)
    ranked = from_top(labels, scores, last.classes_)
    ranked.resize(truth.shape)
    places = [k for k in (1, 3, 5) if k <= most]
    found = {f"P@{k}": precision_at_k(truth, ranked, k) for k in places}
    return found | {f"nDCG@{most}": ndcg_at_k(truth, ranked, most)}


def _multiclass(truth: Any, predicted: Any) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, f1_score

    return {
        "accuracy": float(accuracy_score(truth, predicted)),
        "macro F1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
    }


def _chain(truth: Any, predicted: Any, lengths: Any) -> dict[str, float]:
    import numpy as np

    from maxmargin.metrics import letter_accuracy, word_accuracy

    words = [np.split(np.asarray(labels), np.cumsum(lengths)[:-1]) for labels in (truth, predicted)]
    return {"letter accuracy": letter_accuracy(*words), "word accuracy": word_accuracy(*words)}


def _ranking(truth: Any, scores: Any, classes: Any) -> dict[str, float]:
    """Samples whose label the model has never met count as wrong in every respect.

    Samples that have all labels say nothing about an order and are left out.
    """
    import numpy as np
    import scipy.sparse as sp
    from sklearn.metrics import label_ranking_average_precision_score, label_ranking_loss

    from maxmargin.metrics import one_error

    truth = truth.toarray() if sp.issparse(truth) else np.asarray(truth)
    relevant = truth[:, None] == np.asarray(classes)[None, :] if truth.ndim == 1 else truth > 0
    told = ~relevant.all(axis=1)
    relevant, scores = relevant[told], np.asarray(scores)[told]
    known = relevant.any(axis=1)
    if not known.any():
        return {"top label right": 0.0, "ranking loss": 1.0, "average precision": 0.0}
    met, answered, share = relevant[known], scores[known], float(known.mean())
    return {
        "top label right": share * (1 - one_error(met, answered)),
        "ranking loss": share * float(label_ranking_loss(met, answered)) + (1 - share),
        "average precision": share * float(label_ranking_average_precision_score(met, answered)),
    }


@dataclass(frozen=True)
class Stored:
    """A loaded model with what `maxmargin fit` noted beside it, or what a model of Python says itself."""

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
        """The numbers that stand for the labels in SVMlight files: the names, or their places."""
        names = self.label_names
        whole = all(name.removeprefix("-").isdigit() for name in names)
        return [int(name) for name in names] if whole else list(range(len(names)))

    def reading(self, asked: ReadOptions) -> ReadOptions:
        """How to read further data: as told, otherwise as the training data was read."""
        if self.feature_names and (given := sorted(asked.given & COLUMN_KINDS)):
            raise click.UsageError(f"--{given[0]} is for fit; the model knows the kinds of its columns.")
        told = asked.given | (LABEL_COLUMNS if asked.says_labels else frozenset())
        known = self.about["reading"]
        return replace(asked, **{key: known[key] for key in known if key in REMEMBERED and key not in told})

    def read(self, source: str, asked: ReadOptions, split: str) -> Samples:
        """Read labelled data in the columns and labels of the model."""
        reading = self.reading(asked)
        single = self.family.task == "multiclass"
        data = self.aligned(read(source, reading, single=single, split=split, known=self.known), source)
        if data.multilabel:
            data = self._label_columns(data, source)
        found = samples(data, self.family)
        check_missing(self.model, found.X, source)
        found = replace(found, X=self.like_training(found.X))
        known = len(self.label_names)
        if not data.extras.get("tagged") or found.y.shape[1] == known:
            return found
        more = {"unknown": found.y[:, known:], "unknown_names": found.label_names[known:]}
        return replace(found, y=found.y[:, :known], label_names=found.label_names[:known], **more)

    @property
    def columns(self) -> dict[str, str] | None:
        """The kinds of the columns, where the training data was a table that was read for them."""
        return self.about.get("columns")

    @property
    def target(self) -> str:
        """The column with the class, as the table of the training data called it."""
        told = self.about["reading"].get("target")
        named = told is not None and not told.lstrip("-").isdigit()
        return self.about.get("target") or (told if named else "class")

    @property
    def tags(self) -> str | None:
        """The column with the tags, None where the labels are in another form."""
        column = self.about["reading"].get("labels")
        plain = column is not None and "," not in column and not column.lstrip("-").isdigit()
        return column if plain and column != "meka" and self.label_names != [column] else None

    @property
    def known(self) -> dict[str, Any]:
        """What the model knows of files with further data."""
        table = {} if self.columns is None else {"columns": self.columns, "label_names": self.label_names}
        return {"labels": self.label_ids, "n_features": self.n_features, **table}

    @property
    def has_words(self) -> bool:
        """Whether some of the columns are no numbers."""
        return any(kind != "number" for kind in (self.columns or {}).values())

    def aligned(self, data: Dataset, source: str) -> Dataset:
        """The data with the columns of the model, found by name where both sides have names."""
        from maxmargin.io.named import numbered

        names, found = self.feature_names, data.feature_names
        if list(found) == names:
            return data
        if self.has_words:
            raise ValueError(
                f"{source} holds numbers alone, and the model was fitted on a table with words; give CSV, "
                "JSON lines or Parquet."
            )
        if not names or not found or numbered(names) or numbered(found):
            if data.X.dtype == object:
                raise ValueError(
                    f"{source} has columns of words, and the model takes {self.n_features} columns of "
                    "numbers by place; --drop the others."
                )
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

    def unknown(self, data: Samples) -> tuple[Counter[str], dict[str, Counter[str]]]:
        """How often each label, and each category of every column, occurs that the model does not know."""
        counts = label_counts(data, self.model.classes_)
        return counts, category_counts(bare(self.model), data.X, self.feature_names)

    def _label_columns(self, data: Dataset, source: str) -> Dataset:
        """The data with its labels in the order of the model."""
        names, found = self.label_names, list(data.label_names)
        if not self.about.get("labelled", True):
            return self._unnamed_labels(data, source)
        if data.extras.get("tagged") or found == names or found == [str(label) for label in self.label_ids]:
            return data
        if sorted(found) != sorted(names):
            other = sorted(set(found) ^ set(names))
            raise ValueError(
                f"{source} has other labels than the model: {other[0]!r} is on one side only "
                f"({len(other)} such labels)."
            )
        order = [found.index(name) for name in names]
        return replace(data, Y=data.Y[:, order], label_names=tuple(names))

    def _unnamed_labels(self, data: Dataset, source: str) -> Dataset:
        """The data with its labels by place, for a model that was fitted on a 0/1 array."""
        count = len(self.label_names)
        if data.extras.get("tagged") or data.Y.shape[1] != count:
            raise ValueError(
                f"{source} must have {count} 0/1 columns of labels: the model was fitted on an array and "
                "knows no names of labels; fit it on a frame or on sets of names."
            )
        return replace(data, label_names=tuple(self.label_names))

    def like_training(self, X: Any) -> Any:
        """Dense rows for a model that was fitted on dense ones."""
        return X.toarray() if hasattr(X, "toarray") and not self.about["sparse"] else X


def _words(X: Any, position: dict[str, int], names: Sequence[str]) -> Any:
    """The columns of the named words; a word that never occurs is a column of zeros."""
    import scipy.sparse as sp

    kept = [(position[name], k) for k, name in enumerate(names) if name in position]
    rows, columns = zip(*kept, strict=True) if kept else ((), ())
    chooser = sp.csr_array(([1.0] * len(kept), (rows, columns)), shape=(X.shape[1], len(names)))
    return sp.csr_array(X @ chooser)


def open_model(path: Path) -> Stored:
    """Load a model file, of `maxmargin fit` or of `maxmargin.save`."""
    from maxmargin.io.named import is_noted
    from maxmargin.persistence import ModelFileError, describe, load

    if not path.exists():
        raise ModelFileError(
            f"There is no model file {path}; `maxmargin fit DATA -m ... -o {path}` makes one."
        )
    about = describe(path)["metadata"]
    if is_noted(about) and about["family"] in FAMILIES:
        return Stored(load(path), FAMILIES[about["family"]], about)
    if "family" in about:
        raise ModelFileError(f"{path} names a model family, but was not written by `maxmargin fit`.")
    return _of_python(load(path), path)


def _of_python(model: Any, path: Path) -> Stored:
    """A model that was saved in Python, with what it says of its data itself."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    from maxmargin.io.named import by_position
    from maxmargin.io.steps import takes_sparse
    from maxmargin.persistence import ModelFileError

    inner = last_step(bare(model))
    family = next((one for one in FAMILIES.values() if one.estimator == type(inner).__name__), None)
    if family is None:
        raise ModelFileError(
            f"{path} holds a {type(inner).__name__}, which takes no tables; use it in Python."
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

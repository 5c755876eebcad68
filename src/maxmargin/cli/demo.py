"""`maxmargin demo`: tasks that these models suit, beside scikit-learn's models.

The parameters of every model have the best mean over three folds of the training part;
`python -m experiments.demo_parameters` chooses them again.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.console import FILE, Command, echo, json_option, print_table, progress_bar
from maxmargin.cli.data import Samples
from maxmargin.cli.evaluate import NEEDS_PLOTS, subject, write_page
from maxmargin.cli.families import FAMILIES
from maxmargin.cli.models import lengths_for

Split = tuple[Samples, Samples]
COLUMNS = ["model", "score", "fit s", "predict s", "KB"]
OWN_DATA = """On your own table (the column "kind" holds the class; for several 0/1 columns: --labels a,b,c):
  maxmargin fit table.csv --target kind -m multiclass --scale standard -o kind.mm
  maxmargin report kind.mm other.csv -o kind.html
  maxmargin predict kind.mm new.csv"""
# Messages of a stream that are predicted before any of them is learned.
BATCH = 20
# Measurements of fewer seconds are repeated.
SHORT = 0.1
# Attributes that a model needs to predict.
PARTS = (
    "coef_", "intercept_", "dual_coef_", "support_vectors_", "basis_vectors_", "components_",
    "normalization_", "interaction_", "transitions_", "start_", "end_", "thresholds_",
)  # fmt: skip


@click.command("demo", cls=Command, short_help="Compare with scikit-learn on example tasks.")
@json_option("Print one JSON object per model instead of tables.")
@click.option(
    "--directory",
    type=FILE,
    default=Path("maxmargin-demo"),
    show_default=True,
    help="Directory for report.html.",
)
def demo_command(as_json: bool, directory: Path) -> None:
    """Fit models on tasks that suit them, beside the usual scikit-learn models.

    The data comes with the package or with scikit-learn. All parameters were chosen by cross-validation on
    the training part. Prints a table and a conclusion per task, and writes a page with pictures.
    """
    results = []
    with progress_bar() as bar:
        line = bar.add_task("", total=len(TASKS))
        for task in TASKS:
            bar.update(line, description=task.title)
            train, test = task.load()
            found = [task.run(entrant.build(**entrant.params), train, test) for entrant in task.entrants]
            results.append((task, train, test, found))
            bar.advance(line)
    for task, _, _, outcomes in results:
        rows = task.rows(outcomes)
        if as_json:
            about = {"task": task.title, "data": task.data, "measure": task.measure}
            for k, row in enumerate(rows):
                print(json.dumps(about | {"ours": k == 0} | dict(zip(COLUMNS, row, strict=True))))
        else:
            print_table(f"{task.title}\n  {task.data}", task.columns, rows)
            print(f"{lesson(task, outcomes)}\n")
    if not as_json:
        print("Parameters were chosen by cross-validation on the training parts.")
    _write_report(directory, results)
    if not as_json:
        print(OWN_DATA)


@dataclass(frozen=True)
class Entrant:
    """A model of a task: its name, a function that builds it from parameters, and the parameters."""

    name: str
    build: Callable[..., Any]
    params: Mapping[str, Any]

    @property
    def shown(self) -> str:
        """The name with the parameters."""
        return f"{self.name}, " + ", ".join(f"{key}={value}" for key, value in self.params.items())


@dataclass(frozen=True)
class Outcome:
    """The result of an entrant."""

    model: Any
    score: float
    fit_seconds: float
    predict_seconds: float
    converged: bool = True

    @property
    def kilobytes(self) -> float:
        """Size of the arrays that the model predicts with, to at least two digits."""
        exact = size(self.model) / 1000
        return round(exact, 1) if exact < 10 else round(exact)


@dataclass(frozen=True)
class Task:
    """One task of the demo.

    Attributes
    ----------
    title, data, measure, lesson : str
        Its name, its data, the name of the score (higher is better), and the conclusion, with the ratios
        {fit} and {predict} of times.
    load : callable
        Returns the training and the test part.
    entrants : tuple of Entrant
        Ours comes first.
    scorer : callable
        Returns the score from the truth and the answers.
    family : str
        The family whose report is included; empty for none.
    answer : str
        The method that returns the answers.
    stream : bool
        Whether the test part is a stream: each batch is predicted, then learned.
    """

    title: str
    data: str
    measure: str
    lesson: str
    load: Callable[[], Split]
    entrants: tuple[Entrant, ...]
    scorer: Callable[[Any, Any], float]
    family: str = ""
    answer: str = "predict"
    stream: bool = False

    @property
    def columns(self) -> list[str]:
        return [self.measure if column == "score" else column for column in COLUMNS]

    def rows(self, outcomes: Sequence[Outcome]) -> list[list[Any]]:
        """Return one row per entrant, in the order of COLUMNS."""
        names = [
            entrant.shown if found.converged else f"{entrant.shown} (not converged)"
            for entrant, found in zip(self.entrants, outcomes, strict=True)
        ]
        return [
            [name, found.score, found.fit_seconds, found.predict_seconds, found.kilobytes]
            for name, found in zip(names, outcomes, strict=True)
        ]

    def run(self, model: Any, train: Samples, test: Samples) -> Outcome:
        """Fit on the training part, and score on the test part."""
        from sklearn.base import clone
        from sklearn.exceptions import ConvergenceWarning

        if self.stream:
            return timed(lambda: follow(clone(model), train, test))[0]
        # The first fit of our models may compile loops.
        least = 2 if type(model).__module__.startswith("maxmargin.") else 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lengths = lengths_for(model, train)
            fitted, fit_seconds = timed(lambda: clone(model).fit(train.X, train.y, **lengths), least)
        lengths = lengths_for(model, test)
        answers, predict_seconds = timed(lambda: getattr(fitted, self.answer)(test.X, **lengths), least)
        converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
        return Outcome(fitted, self.scorer(test.y, answers), fit_seconds, predict_seconds, converged)


def _write_report(directory: Path, results: Sequence[tuple[Task, Samples, Samples, list[Outcome]]]) -> None:
    if find_spec("matplotlib") is None:
        echo(f"No report: {NEEDS_PLOTS}")
        return
    from maxmargin.report import Section, page, sections, table, text, versions

    parts = []
    for task, train, test, outcomes in results:
        words = text(f"{task.data}.") + table(task.columns, task.rows(outcomes))
        parts.append(Section(task.title, words + text(lesson(task, outcomes))))
        if task.family:
            family, ours = FAMILIES[task.family], outcomes[0]
            labels = {"training_labels": train.y}
            _, *more = sections(subject(ours.model, family, test, task.title, ours.fit_seconds, **labels))
            parts += [replace(section, folded=True) for section in more]
    directory.mkdir(parents=True, exist_ok=True)
    lead = (
        "Tasks that these models suit, beside the usual scikit-learn models. Parameters were chosen by "
        "cross-validation on the training parts; times do not include compilation."
    )
    write_page(directory / "report.html", page("maxmargin demo", lead, [*parts, versions()]))


def size(model: Any) -> int:
    """Return the bytes of the arrays that a model predicts with."""
    inner = [*getattr(model, "estimators_", ()), *(step for _, step in getattr(model, "steps", ()))]
    inner += [model.estimator_] if hasattr(model, "estimator_") else []
    if inner:
        return sum(map(size, inner))
    arrays = [getattr(model, part, None) for part in PARTS]
    return sum(
        (array.data if hasattr(array, "tocsr") else array).nbytes for array in arrays if array is not None
    )


def timed(call: Callable[[], Any], least: int = 2) -> tuple[Any, float]:
    """Return the result of a call and the fewest seconds of `least` calls, or of three if it is short."""
    seconds: list[float] = []
    while len(seconds) < least or (len(seconds) < 3 and min(seconds) < SHORT):
        start = time.perf_counter()
        answer = call()
        seconds.append(time.perf_counter() - start)
    return answer, min(seconds)


def follow(model: Any, train: Samples, test: Samples) -> Outcome:
    """Learn a stream; the score is the share of test messages predicted correctly before they are learned."""
    import numpy as np

    # scikit-learn needs all labels in advance.
    known = {} if hasattr(model, "rank") else {"classes": np.unique(np.concatenate([train.y, test.y]))}
    learning = predicting = 0.0
    right = 0
    for part, is_test in ((train, False), (test, True)):
        for first in range(0, len(part), BATCH):
            rows = slice(first, first + BATCH)
            start = time.perf_counter()
            if is_test:
                right += int(np.sum(np.asarray(model.predict(part.X[rows])) == part.y[rows]))
            middle = time.perf_counter()
            model.partial_fit(part.X[rows], part.y[rows], **known)
            predicting += middle - start
            learning += time.perf_counter() - middle
    return Outcome(model, right / len(test), learning, predicting)


def lesson(task: Task, outcomes: Sequence[Outcome]) -> str:
    """Return the conclusion of a task, after the name of a model with a better score if there is one."""
    ours, first = outcomes[0], outcomes[1]
    words = task.lesson.format(
        fit=_ratio(ours.fit_seconds, first.fit_seconds),
        predict=_ratio(ours.predict_seconds, first.predict_seconds),
    )
    best = max(range(len(outcomes)), key=lambda k: outcomes[k].score)
    lead = outcomes[best].score - ours.score
    return f"{task.entrants[best].name} is ahead by {lead:.3f}. {words}" if lead >= 0.0005 else words


def _ratio(ours: float, other: float) -> str:
    faster = other / max(ours, 1e-9)
    if 0.8 <= faster <= 1.25:
        return "as fast"
    return f"{faster:.3g} times faster" if faster > 1 else f"{1 / faster:.3g} times slower"


def accuracy(truth: Any, answers: Any) -> float:
    return float((truth == answers).mean())


def micro_f1(truth: Any, answers: Any) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(truth, answers, average="micro", zero_division=0))


def sample_f1(truth: Any, answers: Any) -> float:
    from maxmargin.metrics import example_f1

    return float(example_f1(truth, answers))


def first_right(truth: Any, scores: Any) -> float:
    from maxmargin.metrics import precision_at_k

    return float(precision_at_k(truth, scores, 1))


def recognised(truth: Any, scores: Any) -> float:
    """Return the share of samples whose category has the labels that fit their scores best."""
    import numpy as np

    categories, numbered = np.unique(truth, axis=0, return_inverse=True)
    best = np.argmax(scores @ (2 * categories - 1).T, axis=1)
    return float((best == numbered.ravel()).mean())


def standardised(name: str) -> Split:
    """Return the parts of a shipped data set, with columns of mean 0 and variance 1."""
    from sklearn.preprocessing import StandardScaler

    from maxmargin.datasets import load

    data = load(name)
    scaler = StandardScaler().fit(data.part("train").X)
    train, test = (
        Samples(scaler.transform(part.X), part.Y, data.label_names, data.feature_names)
        for part in (data.part("train"), data.part("test"))
    )
    return train, test


def titles(n_train: int = 2000) -> Split:
    """Return titles of books and articles with those subjects that occur in the training part."""
    import numpy as np
    import scipy.sparse as sp

    from maxmargin.datasets import load

    train, test = (load("yso-sample").part(side) for side in ("train", "test"))
    known = np.flatnonzero(train.Y[:n_train].any(axis=0))
    names = tuple(train.label_names[k] for k in known), train.feature_names
    few = slice(0, n_train)
    return (
        Samples(sp.csr_matrix(train.X[few]), train.Y[few, known], *names, texts=train.per_row["text"][few]),
        Samples(sp.csr_matrix(test.X), test.Y[:, known], *names, texts=test.per_row["text"]),
    )


def mail() -> Split:
    """Return the first 500 messages of the shipped stream of mail, and the others."""
    import scipy.sparse as sp

    from maxmargin.datasets import load

    data = load("mail-stream")
    X, names = sp.csr_matrix(data.X), (data.label_names, data.feature_names)
    return Samples(X[:500], data.Y[:500], *names), Samples(X[500:], data.Y[500:], *names)


def digits() -> Split:
    """Return scikit-learn's 1797 images of digits; every second one is for testing."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    X, y = bunch.data / 16.0, bunch.target
    names = tuple(str(digit) for digit in bunch.target_names), tuple(bunch.feature_names)
    return Samples(X[::2], y[::2], *names), Samples(X[1::2], y[1::2], *names)


def _pools(images: Samples) -> list[Any]:
    """Return the rows of each digit."""
    import numpy as np

    return [np.flatnonzero(images.y == digit) for digit in range(10)]


def digit_words(length: int = 10, noise: float = 0.3, hidden: float = 0.3, seed: int = 0) -> Split:
    """Return sequences of noisy digits that mostly count upwards, 100 to train and 100 to test.

    A digit is followed by the next higher one with probability 0.9, and by a random digit otherwise. The
    share `hidden` of the images is pure noise.
    """
    import numpy as np

    rng = np.random.default_rng(seed)

    def words(images: Samples, n_words: int = 100) -> Samples:
        pools, rows = _pools(images), []
        for _ in range(n_words):
            digit = rng.integers(10)
            for _ in range(length):
                rows.append(rng.choice(pools[digit]))
                digit = (digit + 1) % 10 if rng.random() < 0.9 else rng.integers(10)
        visible = images.X[rows] * (rng.random((len(rows), 1)) >= hidden)
        X = visible + noise * rng.standard_normal((len(rows), images.X.shape[1]))
        lengths = np.full(n_words, length)
        return Samples(X, images.y[rows], images.label_names, images.feature_names, lengths)

    train, test = digits()
    return words(train), words(test)


def numbers(noise: float = 0.3, seed: int = 0) -> Split:
    """Return noisy pairs of digits: 90 of the 100 numbers to train, the other ten to test.

    A number has two of 20 labels, "first 0" to "first 9" and "second 0" to "second 9".
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    unseen = 10 * np.arange(10) + rng.permutation(10)
    seen = np.setdiff1d(np.arange(100), unseen)
    names = tuple(f"{place} {digit}" for place in ("first", "second") for digit in range(10))

    def images(of: Samples, categories: Any, n: int) -> Samples:
        pools, drawn = _pools(of), rng.choice(categories, n)
        sides = [of.X[[rng.choice(pools[digit]) for digit in place]] for place in (drawn // 10, drawn % 10)]
        X = np.hstack(sides) + noise * rng.standard_normal((n, 2 * of.X.shape[1]))
        Y = np.hstack([np.eye(10, dtype=int)[drawn // 10], np.eye(10, dtype=int)[drawn % 10]])
        return Samples(X, Y, names, ())

    train, test = digits()
    return images(train, seen, 400), images(test, unseen, 1000)


def _builder(path: str, **fixed: Any) -> Callable[..., Any]:
    """Return a function that imports an estimator and builds it from parameters."""
    module, _, name = path.rpartition(".")
    return lambda **params: getattr(import_module(module), name)(**fixed, **params)


def _ours(name: str, **fixed: Any) -> Callable[..., Any]:
    return _builder(f"maxmargin.{name}", random_state=0, **fixed)


def _per_label(build: Callable[..., Any]) -> Callable[..., Any]:
    """Return a builder of one model per label."""
    wrapper = _builder("sklearn.multiclass.OneVsRestClassifier")
    return lambda **params: wrapper(estimator=build(**params))


def _tuned_thresholds(**params: Any) -> Any:
    from maxmargin.baselines import ThresholdTuner

    return ThresholdTuner(_per_label(linear_svc)(**params))


def _nystroem(**params: Any) -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline

    # gamma="scale" of the other models, as a number.
    X = digits()[0].X
    gamma = 1 / (X.shape[1] * X.var())
    return make_pipeline(Nystroem(n_components=100, gamma=gamma, random_state=0), linear_svc(**params))


def _with_neighbours(**params: Any) -> Any:
    """Build an SVC of single positions whose features include the positions before and after."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    return make_pipeline(FunctionTransformer(_neighbours), svc(**params))


def _neighbours(X: Any, length: int = 10) -> Any:
    """Stack each row of words of equal length with the rows before and after it; zeros beyond the ends."""
    import numpy as np

    words = np.pad(X.reshape(-1, length, X.shape[1]), ((0, 0), (1, 1), (0, 0)))
    return np.concatenate([words[:, :-2], words[:, 1:-1], words[:, 2:]], axis=2).reshape(len(X), -1)


svc = _builder("sklearn.svm.SVC")
linear_svc = _builder("sklearn.svm.LinearSVC", random_state=0)
# The objective of MultiLabelSVC, solved to the same accuracy on titles: a relative gap of 1e-3.
hinge_svc = _builder("sklearn.svm.LinearSVC", random_state=0, loss="hinge", tol=0.01)
crammer_singer = _builder("sklearn.svm.LinearSVC", random_state=0, multi_class="crammer_singer")
passive_aggressive = _builder(
    "sklearn.linear_model.SGDClassifier", loss="hinge", learning_rate="pa1", penalty=None, random_state=0
)
TASKS = (
    Task(
        "Several labels, RBF kernel",
        "yeast: 1500 genes to train, 917 to test, 14 labels; columns standardised",
        "micro F1",
        "The same classifiers as one SVC per label, from one shared kernel matrix: {fit} to fit, {predict} "
        "to predict.",
        lambda: standardised("yeast"),
        (
            Entrant("MultiLabelSVC rbf", _ours("MultiLabelSVC", kernel="rbf"), {"C": 1.0}),
            Entrant("SVC per label", _per_label(svc), {"C": 1.0}),
        ),
        micro_f1,
        "multilabel",
    ),
    Task(
        "Text with a thousand labels",
        "yso-sample: 2000 titles to train, 1498 to test, 1006 subjects; tf-idf of words",
        "first subject right",
        "All labels share one pass over the rows: {fit} to fit than one LinearSVC per label with the same "
        "objective.",
        titles,
        (
            Entrant("MultiLabelSVC", _ours("MultiLabelSVC"), {"C": 0.1}),
            Entrant("LinearSVC (hinge) per label", _per_label(hinge_svc), {"C": 0.1}),
        ),
        first_right,
        "multilabel",
        "decision_function",
    ),
    Task(
        "One of ten classes, linear",
        "digits: 899 images to train, 898 to test; pixels between 0 and 1",
        "accuracy",
        "Both solve the problem of Crammer and Singer: {fit} to fit. MultiClassSVC also reports its distance "
        "from the optimum.",
        digits,
        (
            Entrant("MultiClassSVC", _ours("MultiClassSVC"), {"C": 1.0}),
            Entrant("LinearSVC crammer_singer", crammer_singer, {"C": 1.0}),
        ),
        accuracy,
    ),
    Task(
        "A small model",
        "digits, as above",
        "accuracy",
        "At most 100 vectors, shared by all classes: {predict} to predict, but {fit} to fit.",
        digits,
        (
            Entrant("SparseMultiClassSVC", _ours("SparseMultiClassSVC"), {"C": 1.0}),
            Entrant("SVC", svc, {"C": 10.0}),
            Entrant("Nystroem 100 + LinearSVC", _nystroem, {"C": 10.0}),
        ),
        accuracy,
    ),
    Task(
        "Categories that were never seen (zero-shot)",
        "pairs of digits with noise: 90 numbers to train (400 images), ten others to test (1000 images)",
        "recognised",
        "A number is recognised by its 2 of 20 labels, so it need not occur in training; a classifier of "
        "whole numbers would recognise none. {fit} to fit.",
        numbers,
        (
            Entrant("MultiLabelSVC rbf", _ours("MultiLabelSVC", kernel="rbf"), {"C": 10.0}),
            Entrant("SVC per label", _per_label(svc), {"C": 10.0}),
        ),
        recognised,
        answer="decision_function",
    ),
    Task(
        "Sets of labels, trained for F1",
        "emotions: 391 songs to train, 202 to test, 6 labels; columns standardised",
        "example F1",
        "SubmodularSVC is trained for the measure itself, and labels may attract each other. Thresholds "
        "tuned around any other model (baselines.ThresholdTuner) are a simpler way to a high F1: try both.",
        lambda: standardised("emotions"),
        (
            Entrant("SubmodularSVC", _ours("SubmodularSVC", tol=1e-2), {"C": 0.01}),
            Entrant("LinearSVC per label", _per_label(linear_svc), {"C": 0.001}),
            Entrant("the same with tuned thresholds", _tuned_thresholds, {"C": 0.01}),
        ),
        sample_f1,
    ),
    Task(
        "A stream of mail",
        "mail-stream: 500 messages to begin with, 1864 to file before they are learned, 11 folders; words",
        "filed right",
        "New folders and new words may appear at any time, and learning is {fit}; SGDClassifier needs all "
        "folders in advance.",
        mail,
        (
            Entrant("LabelRanker idf", _ours("LabelRanker", weighting="idf"), {"C": 1.0}),
            Entrant("SGDClassifier pa1", passive_aggressive, {"eta0": 0.01}),
        ),
        accuracy,
        stream=True,
    ),
    Task(
        "Sequences",
        "digit-words: 100 words of ten noisy digits to train, 100 to test, 30 % of the images hidden",
        "digits right",
        "Readable digits tell the hidden ones, at any distance; a window of three covers one neighbour on "
        "each side.",
        digit_words,
        (
            Entrant("ChainSVC", _ours("ChainSVC"), {"C": 0.01}),
            Entrant("SVC on windows of three", _with_neighbours, {"C": 1.0}),
            Entrant("LinearSVC, one by one", linear_svc, {"C": 0.01}),
        ),
        accuracy,
        "chain",
    ),
)

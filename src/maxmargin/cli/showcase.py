"""The tasks of `maxmargin demo`: data that ships or is made up, who takes part, what to learn from it.

Every entrant has its parameters from the best mean of three folds of the training part, over the grid beside
them; `python -m experiments.demo_parameters` chooses them again.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from maxmargin.cli.data import Samples
from maxmargin.cli.families import build
from maxmargin.cli.models import cut_of
from maxmargin.cli.showcase_data import Split, digit_words, digits, mail, numbers, standardised, titles

C = (0.01, 0.1, 1.0, 10.0)
# Few samples of many standardised columns want less.
SMALL_C = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
# Messages that are answered before any of them is learnt.
BATCH = 20
# Seconds under which a measurement is repeated.
SHORT = 0.1
# What a model needs to predict.
PARTS = (
    "coef_", "intercept_", "dual_coef_", "support_vectors_", "basis_vectors_", "components_",
    "normalization_", "interaction_", "transitions_", "start_", "end_", "thresholds_",
)  # fmt: skip


@dataclass(frozen=True)
class Entrant:
    """Who takes part: name, how it is built from parameters, those chosen, and those to choose from."""

    name: str
    build: Callable[..., Any]
    params: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The name with the parameters."""
        return f"{self.name}, " + ", ".join(f"{key}={value}" for key, value in self.params.items())


@dataclass(frozen=True)
class Outcome:
    """What became of an entrant."""

    model: Any
    score: float
    fit_seconds: float
    predict_seconds: float
    converged: bool = True

    @property
    def kilobytes(self) -> float:
        """Size of the arrays that the model predicts with, to two digits at least."""
        exact = size(self.model) / 1000
        return round(exact, 1) if exact < 10 else round(exact)


def size(model: Any) -> int:
    """Bytes of the arrays that a model predicts with."""
    inner = [*getattr(model, "estimators_", ()), *(step for _, step in getattr(model, "steps", ()))]
    inner += [model.estimator_] if hasattr(model, "estimator_") else []
    if inner:
        return sum(map(size, inner))
    arrays = [getattr(model, part, None) for part in PARTS]
    return sum(
        (array.data if hasattr(array, "tocsr") else array).nbytes for array in arrays if array is not None
    )


@dataclass(frozen=True)
class Task:
    """One task of the demo.

    Attributes
    ----------
    title, data, measure, lesson : str
        What it is, on what (with its preprocessing), what is measured (more is better), and what to learn.
    load : callable
        Training and test part.
    entrants : tuple of Entrant
        Ours first.
    family : str
        The family whose report is shown; empty for none.
    answer : str
        The method that answers.
    judge : callable
        The measure of answers, given the truth.
    stream : bool
        Whether the test part is a stream: answered batch by batch, each learnt before the next.
    folds : callable
        Cuts of the training part into two.
    """

    title: str
    data: str
    measure: str
    lesson: str
    load: Callable[[], Split]
    entrants: tuple[Entrant, ...]
    family: str = ""
    answer: str = "predict"
    judge: Callable[[Any, Any], float] = field(default=lambda truth, answers: accuracy(truth, answers))
    stream: bool = False
    folds: Callable[[Samples], Iterator[Split]] = field(default=lambda train: thirds(train))

    def run(self, model: Any, train: Samples, test: Samples) -> Outcome:
        """Fit on one part and judge on the other."""
        from sklearn.base import clone
        from sklearn.exceptions import ConvergenceWarning

        if self.stream:
            return timed(lambda: follow(clone(model), train, test))[0]
        # Our models may have loops to compile.
        least = 2 if type(model).__module__.startswith("maxmargin.") else 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cut = cut_of(model, train)
            fitted, fit_seconds = timed(lambda: clone(model).fit(train.X, train.y, **cut), least)
        cut = cut_of(model, test)
        answers, predict_seconds = timed(lambda: getattr(fitted, self.answer)(test.X, **cut), least)
        converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
        return Outcome(fitted, self.judge(test.y, answers), fit_seconds, predict_seconds, converged)


def timed(call: Callable[[], Any], least: int = 2) -> tuple[Any, float]:
    """What a call answers and its seconds: of so many calls at least, of three where seconds are few.

    The fewest seconds count: the first of two calls may have loops to compile.
    """
    seconds: list[float] = []
    while len(seconds) < least or (len(seconds) < 3 and min(seconds) < SHORT):
        start = time.perf_counter()
        answer = call()
        seconds.append(time.perf_counter() - start)
    return answer, min(seconds)


def follow(model: Any, train: Samples, test: Samples) -> Outcome:
    """Learn a stream; of its second part, the share of messages that are answered right beforehand."""
    import numpy as np

    # Only scikit-learn has to be told all labels in advance.
    known = {} if hasattr(model, "rank") else {"classes": np.unique(np.concatenate([train.y, test.y]))}
    learning = answering = 0.0
    right = 0
    for part, judged in ((train, False), (test, True)):
        for first in range(0, len(part), BATCH):
            rows = slice(first, first + BATCH)
            start = time.perf_counter()
            if judged:
                right += int(np.sum(np.asarray(model.predict(part.X[rows])) == part.y[rows]))
            middle = time.perf_counter()
            model.partial_fit(part.X[rows], part.y[rows], **known)
            answering += middle - start
            learning += time.perf_counter() - middle
    return Outcome(model, right / len(test), learning, answering)


def accuracy(truth: Any, answers: Any) -> float:
    """Share of samples, or of positions, that are answered right."""
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
    """Share of samples whose category, among those present, has the labels that fit their scores best."""
    import numpy as np

    categories, numbered = np.unique(truth, axis=0, return_inverse=True)
    best = np.argmax(scores @ (2 * categories - 1).T, axis=1)
    return float((best == numbered.ravel()).mean())


def thirds(train: Samples) -> Iterator[Split]:
    """Three folds of samples in random order."""
    from sklearn.model_selection import KFold

    for known, held_out in KFold(3, shuffle=True, random_state=0).split(range(len(train))):
        yield train.take(known), train.take(held_out)


def new_categories(train: Samples) -> Iterator[Split]:
    """Three folds, each judged on categories that the others do not have."""
    import numpy as np
    from sklearn.model_selection import GroupKFold

    category = np.unique(train.y, axis=0, return_inverse=True)[1].ravel()
    for known, held_out in GroupKFold(3).split(train.X, groups=category):
        yield train.take(known), train.take(held_out)


def known_labels(train: Samples) -> Iterator[Split]:
    """Three folds with the labels that occur in what is learnt; others have no score of their own."""
    for known, held_out in thirds(train):
        occur = known.y.any(axis=0)
        yield replace(known, y=known.y[:, occur]), replace(held_out, y=held_out.y[:, occur])


def halves(train: Samples) -> Iterator[Split]:
    """The start of a stream and what follows."""
    middle = len(train) // 2
    yield train.take(slice(0, middle)), train.take(slice(middle, None))


def per_label(model: Callable[..., Any]) -> Callable[..., Any]:
    """One machine per label."""

    def made(**params: Any) -> Any:
        from sklearn.multiclass import OneVsRestClassifier

        return OneVsRestClassifier(model(**params))

    return made


def svc(**params: Any) -> Any:
    from sklearn.svm import SVC

    return SVC(**params)


def linear_svc(**params: Any) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(random_state=0, **params)


def hinge_svc(**params: Any) -> Any:
    """The objective of MultiLabelSVC, to the same accuracy on titles: a relative gap of 1e-3."""
    return linear_svc(loss="hinge", tol=0.01, **params)


def crammer_singer(**params: Any) -> Any:
    return linear_svc(multi_class="crammer_singer", **params)


def nystroem(**params: Any) -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline

    # gamma="scale" of the others, as a number.
    gamma = 1 / (digits()[0].X.shape[1] * digits()[0].X.var())
    return make_pipeline(Nystroem(n_components=100, gamma=gamma, random_state=0), linear_svc(**params))


def tuned_thresholds(**params: Any) -> Any:
    from maxmargin.baselines import ThresholdTuner

    return ThresholdTuner(per_label(linear_svc)(**params))


def passive_aggressive(**params: Any) -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(loss="hinge", learning_rate="pa1", penalty=None, random_state=0, **params)


def with_neighbours(model: Callable[..., Any]) -> Callable[..., Any]:
    """A classifier of single positions that sees the pixels of the positions before and after."""

    def made(**params: Any) -> Any:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer

        return make_pipeline(FunctionTransformer(_neighbours), model(**params))

    return made


def _neighbours(X: Any, length: int = 10) -> Any:
    """Rows of words of equal length beside the rows before and after them; zeros beyond the ends."""
    import numpy as np

    words = np.pad(X.reshape(-1, length, X.shape[1]), ((0, 0), (1, 1), (0, 0)))
    return np.concatenate([words[:, :-2], words[:, 1:-1], words[:, 2:]], axis=2).reshape(len(X), -1)


def ours(
    name: str, estimator: str, grid: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any], **params: Any
) -> Entrant:
    return Entrant(name, lambda **chosen: build(estimator, random_state=0, **fixed, **chosen), params, grid)


TASKS = (
    Task(
        "Several labels, RBF kernel",
        "yeast: 1500 genes to train, 917 to test, 14 labels; columns standardised",
        "micro F1",
        "The same machines as one SVC per label, all from one kernel matrix: {fit} to fit, {predict} to "
        "predict.",
        lambda: standardised("yeast"),
        (
            ours("MultiLabelSVC rbf", "MultiLabelSVC", {"C": C}, {"kernel": "rbf"}, C=1.0),
            Entrant("SVC per label", per_label(svc), {"C": 1.0}, {"C": C}),
        ),
        "multilabel",
        judge=micro_f1,
    ),
    Task(
        "Text with a thousand labels",
        "yso-sample: 2000 titles to train, 1498 to test, 1006 subjects; tf-idf of words",
        "first subject right",
        "All labels read a row once: {fit} to fit than one LinearSVC per label, with the same objective.",
        titles,
        (
            ours("MultiLabelSVC", "MultiLabelSVC", {"C": C}, {}, C=0.1),
            Entrant("LinearSVC (hinge) per label", per_label(hinge_svc), {"C": 0.1}, {"C": C}),
        ),
        "multilabel",
        "decision_function",
        first_right,
        folds=known_labels,
    ),
    Task(
        "One of ten classes, linear",
        "digits: 899 images to train, 898 to test; pixels between 0 and 1",
        "accuracy",
        "Crammer and Singer's machine in both: {fit} to fit. MultiClassSVC also says how far it is from the "
        "optimum.",
        digits,
        (
            ours("MultiClassSVC", "MultiClassSVC", {"C": C[:3]}, {}, C=1.0),
            Entrant("LinearSVC crammer_singer", crammer_singer, {"C": 1.0}, {"C": C[:3]}),
        ),
    ),
    Task(
        "A small model",
        "digits, as above",
        "accuracy",
        "At most 100 vectors, shared by all classes: {predict} to predict, though {fit} to fit.",
        digits,
        (
            ours("SparseMultiClassSVC", "SparseMultiClassSVC", {"C": (0.1, 1.0, 10.0, 100.0)}, {}, C=1.0),
            Entrant("SVC", svc, {"C": 10.0}, {"C": (1.0, 10.0, 100.0)}),
            Entrant("Nystroem 100 + LinearSVC", nystroem, {"C": 10.0}, {"C": (1.0, 10.0, 100.0)}),
        ),
    ),
    Task(
        "Categories that were never seen (zero-shot)",
        "pairs of digits with noise: 90 numbers to train (400 images), ten others to test (1000 images)",
        "recognised",
        "A number is recognised by its 2 of 20 labels, so it need not occur in training, where a classifier "
        "of whole numbers recognises none; {fit} to fit.",
        numbers,
        (
            ours("MultiLabelSVC rbf", "MultiLabelSVC", {"C": C}, {"kernel": "rbf"}, C=10.0),
            Entrant("SVC per label", per_label(svc), {"C": 10.0}, {"C": C}),
        ),
        answer="decision_function",
        judge=recognised,
        folds=new_categories,
    ),
    Task(
        "Sets of labels, trained for F1",
        "emotions: 391 songs to train, 202 to test, 6 labels; columns standardised",
        "example F1",
        "SubmodularSVC is trained for the measure itself, and labels may attract each other; thresholds "
        "tuned around any other model (baselines.ThresholdTuner) are the simpler way to F1: try both.",
        lambda: standardised("emotions"),
        (
            ours("SubmodularSVC", "SubmodularSVC", {"C": SMALL_C}, {"tol": 1e-2}, C=0.01),
            Entrant("LinearSVC per label", per_label(linear_svc), {"C": 0.001}, {"C": SMALL_C}),
            Entrant("the same with tuned thresholds", tuned_thresholds, {"C": 0.01}, {"C": SMALL_C}),
        ),
        judge=sample_f1,
    ),
    Task(
        "A stream of mail",
        "mail-stream: 500 messages to begin with, 1864 to file before they are learnt, 11 folders; 0/1 words",
        "filed right",
        "New folders and new words may turn up at any time, and learning is {fit}; SGDClassifier has to be "
        "told all folders beforehand.",
        mail,
        (
            ours("LabelRanker idf", "LabelRanker", {"C": (0.1, 1.0, 10.0)}, {"weighting": "idf"}, C=1.0),
            Entrant("SGDClassifier pa1", passive_aggressive, {"eta0": 0.01}, {"eta0": (0.01, 0.1, 1.0)}),
        ),
        stream=True,
        folds=halves,
    ),
    Task(
        "Sequences",
        "digit-words: 100 words of ten noisy digits to train, 100 to test, 30 % of the images hidden",
        "digits right",
        "What can be read tells what cannot, over any distance; a window of three sees one neighbour each "
        "side.",
        digit_words,
        (
            ours("ChainSVC", "ChainSVC", {"C": C[:3]}, {}, C=0.01),
            Entrant("SVC on windows of three", with_neighbours(svc), {"C": 1.0}, {"C": C}),
            Entrant("LinearSVC, one by one", linear_svc, {"C": 0.01}, {"C": C}),
        ),
        "chain",
    ),
)


def lesson(task: Task, outcomes: Sequence[Outcome]) -> str:
    """What to learn from a task, with the ratios measured; where somebody else is better, that first."""
    mine, first = outcomes[0], outcomes[1]
    words = task.lesson.format(
        fit=ratio(mine.fit_seconds, first.fit_seconds),
        predict=ratio(mine.predict_seconds, first.predict_seconds),
    )
    best = max(range(len(outcomes)), key=lambda k: outcomes[k].score)
    lead = outcomes[best].score - mine.score
    if lead >= 0.0005:
        return f"{task.entrants[best].name} is ahead by {lead:.3f}. {words}"
    return words


def ratio(mine: float, other: float) -> str:
    """How two times compare, in words."""
    faster = other / max(mine, 1e-9)
    if 0.8 <= faster <= 1.25:
        return "as fast"
    return f"{faster:.3g} times faster" if faster > 1 else f"{1 / faster:.3g} times slower"

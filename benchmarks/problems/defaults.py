"""Every estimator with its default parameters, on raw and standardised tables.

python -m benchmarks defaults                                       # all sets (MAXMARGIN_DATA for most)
python -m benchmarks defaults multiclass -p 'names=["wine"]'        # one of them
python -m benchmarks defaults multilabel -p limit=30                # CPU seconds a fit may take
python -m benchmarks defaults -p resume=true                        # only rows that the file lacks

On two cores, in about a quarter of an hour:

taskset -c 0 python -m benchmarks defaults multiclass & taskset -c 1 python -m benchmarks defaults multilabel

Several runs may write to one file, each on a core of its own. A last run then writes the tables; pass the
number of parallel runs: python -m benchmarks defaults -p resume=true -p at_once=6

Tables are raw, and with columns of mean 0 and variance 1 (sparse tables: raw only), in the split of the
source, or with 30 % of the rows for the test, stratified by class. Each fit runs in its own process after a
small fit that compiles, three times unless it takes long; the median of its CPU seconds counts. ">" marks a
fit that exceeded the limit, with its time. "!" marks a fit that warned of no convergence. Kernel machines get
tables of up to 8,000 rows. Results: defaults.csv after every fit, and tables in defaults.md.
"""

from __future__ import annotations

import csv
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.race import Competitor, Row, Setting, machine, run_alone, save

LIMIT = 10.0
# Fits that take more CPU seconds run once; shorter ones are repeated until so many have passed, because
# the clock of CPU seconds may be coarse.
LONG = 1.0
LEAST = 0.2
KERNEL_ROWS = 8000
WARM_ROWS = 400
MULTICLASS = (
    "iris", "wine", "breast_cancer", "digits", "vehicle", "vowel", "glass", "segment", "dna", "satimage",
    "letter", "shuttle", "mnist", "reuters-r8", "reuters-r52", "20newsgroups",
)  # fmt: skip
MULTILABEL = (
    "flags", "emotions", "yeast", "birds", "cal500", "genbase", "medical", "enron", "corel5k", "bibtex",
    "tmc2007-500", "reuters21578-modapte",
)  # fmt: skip
KEY = ("data", "prep", "model")
Build = Callable[[], Any]


@dataclass(frozen=True)
class Table:
    """A training and a test part."""

    name: str
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    prep: str = "raw"

    def scaled(self) -> Table:
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(self.X)
        return replace(self, X=scaler.transform(self.X), X_test=scaler.transform(self.X_test), prep="std")

    def some(self) -> tuple[Any, np.ndarray]:
        """Return rows for the fit that compiles, with every class or label if possible."""
        rows = np.random.default_rng(0).permutation(self.X.shape[0])[:WARM_ROWS]
        return self.X[rows], self.y[rows]


def multiclass_table(name: str) -> Table:
    from sklearn import datasets as toys
    from sklearn.model_selection import train_test_split

    from maxmargin import datasets

    if name in ("breast_cancer", "digits"):
        X, y = getattr(toys, f"load_{name}")(return_X_y=True)
    else:
        data = datasets.load(name)
        X, y = data.X, np.unique(data.Y, return_inverse=True)[1]
        if data.train is not None and data.test is not None:
            return Table(name, X[data.train], y[data.train], X[data.test], y[data.test])
    parts = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    return Table(name, parts[0], parts[2], parts[1], parts[3])


def multilabel_table(name: str) -> Table:
    from maxmargin import datasets

    data = datasets.load(name)
    train, test = data.train, data.test
    if train is None or test is None:
        order = np.random.default_rng(0).permutation(data.X.shape[0])
        train, test = np.split(order, [len(order) * 7 // 10])
    return Table(name, data.X[train], data.Y[train], data.X[test], data.Y[test])


def toy(several: bool) -> Table:
    """Little made data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = (X[:, :3] > 0).astype(int) if several else X[:, :3].argmax(axis=1)
    return Table("toy", X[:60], y[:60], X[60:], y[60:])


def _sklearn(module: str, name: str, per_label: bool = False, **params: Any) -> Any:
    import importlib

    from sklearn.multiclass import OneVsRestClassifier

    model = getattr(importlib.import_module(f"sklearn.{module}"), name)(**params)
    return OneVsRestClassifier(model) if per_label else model


def _ours(name: str, **params: Any) -> Any:
    import maxmargin

    if params.get("prior") == "labels":
        params["prior"] = maxmargin.priors.from_labels
    return getattr(maxmargin, name)(**params)


class Constant:
    """The same for every row: the most frequent class, or the labels of the best micro F1 in training."""

    def fit(self, X: Any, y: np.ndarray) -> Constant:
        if y.ndim == 1:
            self.answer = np.bincount(y).argmax()
        else:
            counts = y.sum(axis=0)
            order = np.argsort(-counts, kind="stable")
            f1 = 2 * np.cumsum(counts[order]) / (len(y) * np.arange(1, len(order) + 1) + counts.sum())
            self.answer = np.isin(np.arange(len(order)), order[: f1.argmax() + 1]).astype(int)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.array([self.answer] * X.shape[0])


# Name of the column -> how to build it; kernel machines are named apart.
SINGLE: dict[str, Build] = {
    "constant": Constant,
    "LinearSVC": partial(_sklearn, "svm", "LinearSVC"),
    "LinearSVC cs": partial(_sklearn, "svm", "LinearSVC", multi_class="crammer_singer"),
    "LogisticRegression": partial(_sklearn, "linear_model", "LogisticRegression"),
    "MultiClassSVC": partial(_ours, "MultiClassSVC"),
    "LabelRanker": partial(_ours, "LabelRanker"),
    "SVC": partial(_sklearn, "svm", "SVC"),
    "MultiClassSVC rbf": partial(_ours, "MultiClassSVC", kernel="rbf"),
    "SparseMultiClassSVC": partial(_ours, "SparseMultiClassSVC"),
}
SEVERAL: dict[str, Build] = {
    "constant": Constant,
    "LinearSVC": partial(_sklearn, "svm", "LinearSVC", per_label=True),
    "LogisticRegression": partial(_sklearn, "linear_model", "LogisticRegression", per_label=True),
    "MultiLabelSVC": partial(_ours, "MultiLabelSVC"),
    "MultiLabelSVC prior": partial(_ours, "MultiLabelSVC", prior="labels"),
    "SubmodularSVC": partial(_ours, "SubmodularSVC"),
    "LabelRanker": partial(_ours, "LabelRanker"),
    "SVC": partial(_sklearn, "svm", "SVC", per_label=True),
    "MultiLabelSVC rbf": partial(_ours, "MultiLabelSVC", kernel="rbf"),
    "SparseMultiLabelSVC": partial(_ours, "SparseMultiLabelSVC"),
}
KERNELS = {"SVC", "MultiClassSVC rbf", "MultiLabelSVC rbf", "SparseMultiClassSVC", "SparseMultiLabelSVC"}
# Ours, and the peer with which it is compared in the summary.
PAIRS = (
    ("MultiClassSVC", "LinearSVC"),
    ("MultiClassSVC", "LinearSVC cs"),
    ("MultiClassSVC rbf", "SVC"),
    ("MultiLabelSVC", "LinearSVC"),
    ("MultiLabelSVC rbf", "SVC"),
)


def _warm(table: Table, build: Build) -> None:
    X, y = table.some()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build().fit(X, y)


def _fit(table: Table, build: Build) -> tuple[Any, float, bool]:
    """Return the model, its CPU seconds, and whether it converged without a warning."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start, fits, spent = time.process_time(), 0, 0.0
        while spent < LEAST:
            model = build().fit(table.X, table.y)
            fits, spent = fits + 1, time.process_time() - start
    return model, spent / fits, not any(issubclass(each.category, ConvergenceWarning) for each in caught)


def _judge(table: Table, found: tuple[Any, float, bool]) -> Row:
    from sklearn.metrics import accuracy_score, f1_score

    model, seconds, converged = found
    answers = model.predict(table.X_test)
    if table.y.ndim == 2:
        main = f1_score(table.y_test, answers, average="micro", zero_division=0)
    else:
        main = accuracy_score(table.y_test, answers)
    macro = f1_score(table.y_test, answers, average="macro", zero_division=0)
    return {"score": main, "macro_f1": macro, "cpu_seconds": seconds, "converged": converged}


def _limited(limit: float, table: Table) -> Table:
    """The table, in a process that ends when it has used so many CPU seconds."""
    most = int(limit) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
    return table


def measured(table: Table, name: str, build: Build, repeats: int, limit: float) -> Row:
    """One row of the table: figures, or that the limit was passed."""
    competitor = Competitor(
        name,
        partial(_with, _fit, build),
        partial(_with, _warm, build),
        partial(_limited, limit, table),
        _judge,
    )
    found: list[Row] = []
    while len(found) < repeats and not (found and found[-1]["cpu_seconds"] > LONG):
        try:
            found.append(run_alone(competitor).answer)
        except RuntimeError:
            break
    about = {
        "data": table.name,
        "prep": table.prep,
        "model": name,
        "task": "multilabel" if table.y.ndim == 2 else "multiclass",
        "n": table.X.shape[0],
        "features": table.X.shape[1],
        "labels": table.y.shape[1] if table.y.ndim == 2 else len(np.unique(table.y)),
    }
    if not found:
        return about | {"score": "", "macro_f1": "", "cpu_seconds": f">{limit:g}", "converged": ""}
    return about | {
        "score": f"{found[0]['score']:.4f}",
        "macro_f1": f"{found[0]['macro_f1']:.4f}",
        "cpu_seconds": f"{statistics.median(each['cpu_seconds'] for each in found):.4g}",
        "converged": "yes" if found[0]["converged"] else "no",
    }


def _with(function: Callable[..., Any], build: Build, table: Table) -> Any:
    return function(table, build)


def run(
    setting: Setting,
    load: Callable[[str], Table],
    models: Mapping[str, Build],
    names: Sequence[str],
    limit: float = LIMIT,
    resume: bool = False,
    at_once: int = 1,
) -> None:
    """Run all models on the named sets, or with `resume` those without a row in the file."""
    known = {tuple(row[k] for k in KEY) for row in written(setting)} if resume else set()
    for name in names:
        table = load(name)
        for each in [table] if setting.small or sp.issparse(table.X) else [table, table.scaled()]:
            for model, build in models.items():
                too_large = model in KERNELS and len(each.y) > KERNEL_ROWS
                if not too_large and (each.name, each.prep, model) not in known:
                    save(setting, "defaults", [measured(each, model, build, setting.times(3), limit)], KEY)
        if setting.out is not None:
            (setting.out / "defaults.md").write_text(markdown(written(setting), at_once), "utf-8")


def written(setting: Setting) -> list[dict[str, str]]:
    """The rows of the file so far."""
    if setting.out is None or not (setting.out / "defaults.csv").exists():
        return []
    with (setting.out / "defaults.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def multiclass(
    setting: Setting,
    names: Sequence[str] = MULTICLASS,
    limit: float = LIMIT,
    resume: bool = False,
    at_once: int = 1,
) -> None:
    if setting.small:
        few = {name: SINGLE[name] for name in ("LinearSVC", "MultiClassSVC")}
        run(setting, lambda name: toy(False), few, ("toy",), limit)
    else:
        run(setting, multiclass_table, SINGLE, names, limit, resume, at_once)


def multilabel(
    setting: Setting,
    names: Sequence[str] = MULTILABEL,
    limit: float = LIMIT,
    resume: bool = False,
    at_once: int = 1,
) -> None:
    if setting.small:
        few = {name: SEVERAL[name] for name in ("LinearSVC", "MultiLabelSVC")}
        run(setting, lambda name: toy(True), few, ("toy",), limit)
    else:
        run(setting, multilabel_table, SEVERAL, names, limit, resume, at_once)


def markdown(rows: Sequence[Mapping[str, str]], at_once: int = 1) -> str:
    """The tables for people: a summary, then all sets, in one table per task."""
    order = [*MULTICLASS, *MULTILABEL]
    rows = sorted(rows, key=lambda row: order.index(row["data"]) if row["data"] in order else -1)
    many = f", {at_once} sets at once, each on a core of its own" if at_once > 1 else ""
    parts = [
        "# Defaults\n",
        "Default parameters of everybody; written by `python -m benchmarks defaults`, which says how it is "
        f"measured. {machine(at_once if many else 0)}{many}.\n",
        "`raw`: as loaded. `std`: columns of mean 0 and variance 1. !: did not converge.\n",
        summary(rows),
    ]
    for task, score in (("multiclass", "accuracy"), ("multilabel", "micro / macro F1")):
        mine = [row for row in rows if row["task"] == task]
        if mine:
            parts += [f"## {task}: {score}, CPU seconds to fit\n", _grid(mine)]
    return "\n".join(parts)


def _grid(rows: Sequence[Mapping[str, str]]) -> str:
    order = list(SINGLE) + [name for name in SEVERAL if name not in SINGLE]
    models = [name for name in order if any(row["model"] == name for row in rows)]
    cells = {(row["data"], row["prep"], row["model"]): _cell(row) for row in rows}
    sets = dict.fromkeys((row["data"], row["prep"]) for row in rows)
    lines = [["data", "", *models], ["---"] * (len(models) + 2)]
    lines += [[*key, *(cells.get((*key, model), "") for model in models)] for key in sets]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(row: Mapping[str, str]) -> str:
    if not row["score"]:
        return f"{row['cpu_seconds']} s"
    several = row["task"] == "multilabel"
    both = f"{float(row['score']):.3f}" + (f"/{float(row['macro_f1']):.3f}" if several else "")
    return f"{both} {float(row['cpu_seconds']):.3g} s{'!' if row['converged'] == 'no' else ''}"


def summary(rows: Iterable[Mapping[str, str]]) -> str:
    """Count where our models are better, equal (to 0.005) or worse than their peers, and compare times."""
    found = {(row["data"], row["prep"], row["task"], row["model"]): row for row in rows}
    head = [
        "",
        "beside",
        "better",
        "equal",
        "worse",
        "times the peer's seconds (median)",
        "over 1.5 times on",
    ]
    lines = [head, ["---"] * len(head)]
    for mine, peer in PAIRS:
        pairs = [
            (key, row, found[(*key[:3], peer)])
            for key, row in found.items()
            if key[3] == mine and row["score"] and found.get((*key[:3], peer), {}).get("score")
        ]
        if not pairs:
            continue
        leads = np.array([float(row["score"]) - float(other["score"]) for _, row, other in pairs])
        ratios = np.array(
            [float(row["cpu_seconds"]) / float(other["cpu_seconds"]) for _, row, other in pairs]
        )
        slow = [f"{key[0]} {key[1]}" for (key, _, _), ratio in zip(pairs, ratios, strict=True) if ratio > 1.5]
        lines.append(
            [
                mine, peer, str(int((leads > 0.005).sum())), str(int((np.abs(leads) <= 0.005).sum())),
                str(int((leads < -0.005).sum())), f"{np.median(ratios):.2g}", ", ".join(slow),
            ]
        )  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


RACES = {"multiclass": multiclass, "multilabel": multilabel}

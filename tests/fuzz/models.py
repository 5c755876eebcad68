"""Changed model files, and everything a user does with a model.

A sound file gets a few changes of its document or its arrays, and a hash that matches. It is either refused
with the documented error, or it is a model that can be described, predicts, scores and continues to learn
without any other exception.
"""

from __future__ import annotations

import copy
import functools
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

import maxmargin
from maxmargin import priors
from maxmargin.baselines import ThresholdTuner
from maxmargin.io.steps import scaling
from maxmargin.persistence import ModelFileError, describe
from maxmargin.tables import NamedColumns
from tests.fuzz.forge import Forged, duplicate

FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"
WIDEST = 10_000
TEXTS = ["red round ball", "green square box", "red box", "green ball of wool"] * 3
SHOP = pd.DataFrame({"price": [1.0, None, 3.0] * 4, "colour": ["red", "blue"] * 6, "title": TEXTS})
NUMBERS = [0, 1, -1, 2, 3, 4, 5, 7, 100, 10**6, 2**31, 2**32, 2**53, 2**63, -(2**63), 10**30]
NUMBERS += [0.5, -1.0, 1e-300, 1e99, 1e300, -1e300, True, False, None, "", "a", [], [0], [[0, 1]]]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, -1e300, 1e-320, 1e99]
WHOLE = [-1, 0, 1, 2, 3, 5, 10**6, 2**31 - 1, -(2**31), 2**62]
KINDS = ["float", "dict", "tuple", "set", "frozenset", "array", "words", "scalar", "csr", "dtype", "type"]
KEYS = ["items", "value", "tensor", "order", "class", "state", "dtype", "shape", "data", "indices", "indptr"]
KINDS += ["function", "random_state", "frame", "object", "record"]


def made() -> dict[str, Any]:
    """Fit small models of kinds that the fixtures lack."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(24, 4)), (rng.random((24, 3)) < 0.5).astype(int)
    words = np.array(["ant", "bee", "cat"])[np.arange(24) % 3]
    kinds = ["ball", "box", "box", "ball"] * 3
    frame = pd.DataFrame(Y, columns=list("xyz"))
    named = pd.DataFrame(X, columns=list("abcd"))
    Multi, Ranker = maxmargin.MultiLabelSVC, maxmargin.LabelRanker
    return {
        "text": make_pipeline(TfidfVectorizer(), Multi()).fit(TEXTS, kinds),
        "counts": make_pipeline(CountVectorizer(), MaxAbsScaler(), Ranker()).fit(TEXTS, kinds),
        "scaled": make_pipeline(MinMaxScaler(), RobustScaler(), Normalizer(), Multi()).fit(X, Y),
        "frames": make_pipeline(StandardScaler().set_output(transform="pandas"), Multi()).fit(named, frame),
        "components": make_pipeline(SelectKBest(k=3), PCA(2, whiten=True), maxmargin.MultiClassSVC()).fit(
            X, words
        ),
        "parts of texts": make_pipeline(TfidfVectorizer(), TruncatedSVD(2), Ranker()).fit(TEXTS, kinds),
        "named": make_pipeline(NamedColumns(dict.fromkeys("abcd", "number")), Multi()).fit(named, Y),
        "table": make_pipeline(maxmargin.prepare(SHOP), Multi()).fit(SHOP, kinds),
        "tuner": ThresholdTuner(Multi(), cv=2).fit(X, Y),
        "probable": maxmargin.Calibrated(Multi(), cv=2).fit(X, Y),
        "together": maxmargin.Calibrated(Multi(), cv=2, ensemble=True).fit(X, Y),
        "isotonic": maxmargin.Calibrated(Multi(), method="isotonic", cv=2).fit(X, Y),
        "cooled": maxmargin.Calibrated(maxmargin.MultiClassSVC(), method="temperature", cv=2).fit(X, words),
        "promised": maxmargin.LabelSets(Multi(), recall=0.5, random_state=0).fit(X, Y),
        "tree": maxmargin.TreeLabels(Multi(), [(2, 0), (2, 1)]).fit(X, Y),
        "precomputed": Multi(kernel="precomputed").fit(X @ X.T, Y),
        "basis of columns": maxmargin.SparseMultiLabelSVC(kernel="precomputed", max_basis=3).fit(X @ X.T, Y),
        "random": Multi(prior=priors.from_labels, random_state=np.random.RandomState(0)).fit(X, Y),
        "csr": maxmargin.MultiClassSVC(kernel="poly").fit(sp.csr_array(X), words),
        "two": maxmargin.MultiClassSVC(class_weight={"ant": 2.0, "bee": 1.0}).fit(X[:6], words[[0, 1] * 3]),
        "grown": Ranker(n_features="grow", average=True, trace=True).partial_fit(X, list(map(set, words))),
        "hashed": Ranker(n_features=16, update="worst_pair").partial_fit(sp.csr_array(X), words),
        "sparse labels": maxmargin.SubmodularSVC(tol=0.1).fit(X, sp.csr_array(Y)),
        "letters": maxmargin.ChainSVC(max_iter=5).fit(list(X.reshape(6, 4, 4)), ["abca"] * 6),
        "unfitted": Ranker(n_features=8),
    }


@functools.cache
def seeds(folder: Path) -> list[Forged]:
    """Return sound files of all families."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in made().items():
            maxmargin.save(model, folder / f"{name}.mm")
    # Sorted by name, so that a number always makes the same file.
    paths = {path.name: path for path in (*FIXTURES.glob("*.mm"), *folder.glob("*.mm"))}
    files = [Forged.of(paths[name]) for name in sorted(paths)]
    for file in files:
        shorten(file.document["model"])
    return files


def shorten(value: Any) -> None:
    """Keep two records of every history."""
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in entries:
        shorten(item)
    if isinstance(value, dict) and isinstance(value.get("history_"), list):
        del value["history_"][2:]


def at(value: Any, way: tuple[Any, ...]) -> Any:
    return functools.reduce(lambda inner, key: inner[key], way, value)


def junk(rng: random.Random, depth: int) -> Any:
    """Return something that resembles a value of the format."""
    if depth == 0 or rng.random() < 0.3:
        return copy.deepcopy(rng.choice([*NUMBERS, *KINDS, "t0", "t1", "<U3", "O"]))
    if rng.random() < 0.3:
        return [junk(rng, depth - 1) for _ in range(rng.randrange(4))]
    keys = rng.sample(KEYS, rng.randrange(len(KEYS)))
    return {"$": rng.choice(KINDS), **{key: junk(rng, depth - 1) for key in keys}}


def change_document(rng: random.Random, file: Forged, others: list[Forged]) -> None:
    """Replace one value by junk, by a value of a sound file or by a word of the format, or delete it."""
    model, spots = file.document["model"], file.places
    *way, last = rng.choice(spots)
    inner = at(model, tuple(way))
    kind = rng.randrange(7)
    if kind == 0:
        inner[last] = copy.deepcopy(rng.choice(NUMBERS))
    elif kind == 6:
        inner[last] = junk(rng, 3)
    elif kind == 1:
        other = rng.choice(others)
        same = [spot for spot in other.places if spot[-1] == last] or other.places
        inner[last] = duplicate(at(other.document["model"], rng.choice(same)))
    elif kind == 2 and isinstance(inner[last], (int, float)):
        inner[last] = rng.choice([inner[last] + 1, inner[last] - 1, -inner[last], inner[last] * 2, 0])
    elif kind == 3 and isinstance(inner[last], str):
        words = [word for way in spots if isinstance(word := at(model, way), str)]
        inner[last] = rng.choice([*words, *KINDS, inner[last] + "x", inner[last][:-1]])
    elif kind == 4:
        del inner[last]
    else:
        inner[last] = duplicate(at(model, rng.choice(spots)))
    file.changed()


def change_arrays(rng: random.Random, file: Forged) -> None:
    """Change the shape, dtype or content of one array, or replace it by another one."""
    if not file.tensors:
        return
    name = rng.choice(sorted(file.tensors))
    array = file.tensors[name]
    kind = rng.randrange(7)
    if kind == 0 and array.size:
        changed = array.copy().reshape(-1)
        value = rng.choice(SPECIAL if array.dtype.kind == "f" else WHOLE)
        changed[rng.randrange(array.size)] = np.array(value).astype(array.dtype)
        file.tensors[name] = changed.reshape(array.shape)
    elif kind == 1:
        shape = [max(0, size + rng.choice([-1, 0, 1, 3])) for size in array.shape] or [2]
        file.tensors[name] = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    elif kind == 2:
        file.tensors[name] = array.astype(rng.choice(["f4", "f8", "i4", "i8", "u1", "b1", "f2"]))
    elif kind == 3:
        file.tensors[name] = file.tensors[rng.choice(sorted(file.tensors))]
    elif kind == 6 and array.dtype.kind == "f":
        sizes = [rng.choice([1, 1, 1, -1]) * 10.0 ** rng.uniform(-99, 99) for _ in range(array.size)]
        file.tensors[name] = np.array(sizes).astype(array.dtype).reshape(array.shape)
    elif kind == 4:
        file.tensors[name] = rng.choice(
            [array.reshape(-1), array.T, array[None], array[:0] if array.ndim else array]
        )
    else:
        file.tensors[name] = (array.astype(float) * rng.choice([0, -1, 2, 1e50])).astype(array.dtype)


def mutated(rng: random.Random, files: list[Forged]) -> Forged:
    """Return a sound file with one to three changes."""
    file = rng.choice(files).copy()
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if rng.random() < 0.7:
            change_document(rng, file, files)
        else:
            with np.errstate(all="ignore"):
                change_arrays(rng, file)
    return file


def attempt(file: Forged, path: Path) -> str:
    """Write, load and use a file; return "refused" or "used". Any other exception is a finding."""
    file.write(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            describe(path)
            model = maxmargin.load(path)
        except ModelFileError:
            return "refused"
        with np.errstate(all="ignore"):
            use(model)
    return "used"


def use(model: Any) -> None:
    """Predict, score and learn on suitable rows."""
    if isinstance(model, maxmargin.StreamRanker):
        sample = {"f0": 1.0, "f2": 2.0, "unknown": 1.0}
        model.predict_one(sample)
        model.rank_one(sample)
        classes = getattr(model.ranker, "classes_", ["a"])
        if len(classes) and (not hasattr(model.ranker, "_labels") or model.ranker._labels.single_label):
            model.learn_one(sample, classes[0])
            model.learn_one({"new": 1.0}, classes[-1])
            model.predict_one(sample)
        return
    if not hasattr(model, "predict") or not is_fitted(model):
        return
    X = rows_for(model)
    if X is None:
        return
    model.predict(X)
    if hasattr(model, "decision_function"):
        model.decision_function(X)
    for method in (
        "predict_proba",
        "label_scores",
        "rank",
        "predict_marginals",
        "predict_kbest",
        "predict_latent",
    ):
        if hasattr(model, method):
            getattr(model, method)(X)
    if hasattr(model, "path_"):
        list(model.staged_predict(X))
    if hasattr(model, "certify_inference"):
        model.certify_inference(X, model.predict(X))
    if isinstance(model, maxmargin.LabelRanker):
        assert model.coef_.shape == (len(model.classes_), model.n_features_in_)
        assert not model.trace or model.trace_.ndim == 1
    if hasattr(model, "partial_fit"):
        X = X[:3]
        if (model.regulariser, model.solver) == ("entropy", "exact"):
            X = np.round(X / np.abs(X).max(initial=1.0))  # it takes rows of two values only
        classes = model.classes_[np.zeros(3, int)] if len(model.classes_) else None
        if classes is not None and model._labels.single_label:
            model.partial_fit(X, classes)
        elif classes is not None and model._labels.family == "sets":
            model.partial_fit(X, [{name} for name in classes])
        elif model._labels.family == "indicator":
            model.partial_fit(X, np.eye(3, len(model.classes_), dtype=int))
        model.predict(X)


def is_fitted(model: Any) -> bool:
    if hasattr(model, "steps"):
        return is_fitted(model.steps[-1][1])
    return hasattr(model, "classes_")


def rows_for(model: Any) -> Any:
    """Return a few rows or texts for the model; None if it is too wide."""
    first = next(step for step in flat(model) if step not in (None, "passthrough"))
    if hasattr(first, "vocabulary_"):
        return TEXTS[:3]
    if isinstance(first, ColumnTransformer):
        return table_for(first)
    if first.n_features_in_ > WIDEST:
        return None
    X = unit(flat(model)) * np.abs(np.random.default_rng(1).normal(size=(6, first.n_features_in_)))
    return X if getattr(first, "_groups_of_one", True) else [X[:2], X[2:]]


def unit(steps: list[Any]) -> Any:
    """Return the units of the columns: those of the first scaler, or 1."""
    scalings = (scaling(step) for step in steps if hasattr(step, "transform"))
    return next((scale for _, scale in filter(None, scalings)), 1.0)


def table_for(step: ColumnTransformer) -> pd.DataFrame:
    """Return a few rows of the shop, with prices in the units of the scaler, missing if allowed."""
    frame = SHOP.head(3).copy()
    for _, part, columns in step.transformers_:
        if columns == ["price"]:
            steps = flat(part)
            frame["price"] *= np.ravel(unit(steps))[0]
            fills = [one.missing_values for one in steps if isinstance(one, SimpleImputer)]
            if not any(isinstance(missing, float) and np.isnan(missing) for missing in fills):
                frame["price"] = frame["price"].fillna(1.0)
    return frame


def flat(model: Any) -> list[Any]:
    """Return the steps of a model, of its pipelines and of the estimator of a tuner."""
    if isinstance(model, ThresholdTuner):
        return flat(model.estimator_)
    return [one for _, step in model.steps for one in flat(step)] if hasattr(model, "steps") else [model]

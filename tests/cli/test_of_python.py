"""Models that were saved in Python, on the command line."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import maxmargin
from maxmargin.baselines import ThresholdTuner
from maxmargin.datasets import Dataset, write_svmlight
from tests.cli.conftest import write_table

RNG = np.random.default_rng(1)
COLOURS, SHAPES = ["red", "blue", None], ["ball", "box", "cone", "cube"]
TABLE = pd.DataFrame(
    {
        "size": np.round(RNG.normal(size=48), 3),
        "colour": [COLOURS[k % 3] for k in range(48)],
        "title": [f"{SHAPES[k % 4]} number {k % 5}" for k in range(48)],
        "weight": np.round(RNG.normal(size=48), 3),
    }
)
NUMBERS = ["size", "weight"]
KIND = np.where(TABLE["size"] > 0.3, "large", np.where(TABLE["size"] < -0.3, "small", "middle"))
Y = np.column_stack([TABLE["size"] > 0, TABLE["weight"] > 0]).astype(int)
BOTH = {"big": Y[:, 0], "heavy": Y[:, 1]}
TAGS = [{name for name, on in zip(BOTH, row, strict=True) if on} for row in Y]
Multi, Classes = maxmargin.MultiLabelSVC, maxmargin.MultiClassSVC


def usual():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return ColumnTransformer(
        [
            ("text", make_pipeline(TfidfVectorizer(), TruncatedSVD(2, random_state=0)), "title"),
            ("numbers", numbers, NUMBERS),
            ("words", OneHotEncoder(handle_unknown="ignore"), ["colour"]),
        ]
    )


# A model, the columns of the frame (or None for an array) that it is fitted on, and its labels.
MODELS = {
    "classes": (Classes(), NUMBERS, KIND),
    "components": (make_pipeline(StandardScaler(), PCA(2), Classes()), NUMBERS, KIND),
    "best feature": (make_pipeline(SelectKBest(k=1), Classes()), NUMBERS, KIND),
    "array of classes": (make_pipeline(SimpleImputer(), Classes()), None, KIND),
    "two classes": (Multi(), NUMBERS, KIND == "large"),
    "whole numbers": (Multi(), NUMBERS, np.arange(48) % 3),
    "basis": (maxmargin.SparseMultiClassSVC(), NUMBERS, KIND),
    "sets": (make_pipeline(maxmargin.prepare(TABLE), Multi()), list(TABLE), TAGS),
    "usual steps": (make_pipeline(usual(), Multi()), list(TABLE), TAGS),
    "classes of words": (make_pipeline(usual(), Classes()), list(TABLE), KIND),
    "frame": (Multi(), NUMBERS, pd.DataFrame(Y, columns=["big", "heavy"])),
    "signs": (Multi(), NUMBERS, 2 * Y - 1),
    "indicator": (Multi(), None, Y),
    "submodular": (maxmargin.SubmodularSVC(), NUMBERS, TAGS),
    "ranking": (maxmargin.LabelRanker(), NUMBERS, TAGS),
    "probabilities": (maxmargin.Calibrated(make_pipeline(StandardScaler(), Multi()), cv=2), NUMBERS, TAGS),
    "promise": (maxmargin.LabelSets(Multi(), recall=0.5, random_state=0), NUMBERS, TAGS),
    "thresholds": (ThresholdTuner(Multi(), cv=2), NUMBERS, TAGS),
}
KINDS = ("csv", "jsonl", "parquet")


def answers(out):
    """The predictions that the command line printed."""
    names, *rows = csv.reader(out.splitlines())
    if names == ["class"]:
        return [row[0] for row in rows]
    return [{name for name, on in zip(names, row, strict=True) if on == "1"} for row in rows]


def expected(model, X):
    """The same predictions in Python."""
    found = model.predict(X)
    if isinstance(found, pd.DataFrame):
        return [set(found.columns[row > 0]) for row in found.to_numpy()]
    if isinstance(found, list):
        return list(map(set, found))
    if found.ndim == 2:
        return [{str(k) for k in np.flatnonzero(row > 0)} for row in found]
    return [str(label) for label in found]


@pytest.mark.parametrize(("name", "kind"), [(name, KINDS[k % 3]) for k, name in enumerate(MODELS)])
def test_a_model_of_python_predicts_on_the_command_line(run, tmp_path, name, kind):
    model, columns, y = MODELS[name]
    X = TABLE[NUMBERS].to_numpy() if columns is None else TABLE[columns]
    model.fit(X, y)
    maxmargin.save(model, "m.mm")
    # Other columns and another order only matter where columns are matched by position.
    table = TABLE[NUMBERS] if columns is None else TABLE[TABLE.columns[::-1]]
    several = isinstance(y, (list, pd.DataFrame)) or np.ndim(y) == 2
    options = ["--labels", "big,heavy"] if several else ["--target", "y"]
    new = write_table(tmp_path / f"x.{kind}", table)
    labelled = write_table(tmp_path / f"t.{kind}", table.assign(**(BOTH if several else {"y": y})))
    code, out, err = run("predict", "m.mm", new)
    assert code == 0 and not err, err
    predicted = expected(model, X)
    assert answers(out) == predicted
    code, out, err = run("evaluate", "m.mm", labelled, *options, "--json")
    assert code == 0, err
    found = json.loads(out)
    if not several:
        assert found["accuracy"] == pytest.approx(np.mean(np.asarray(model.predict(X)) == np.asarray(y)))
    elif name not in ("ranking", "indicator", "signs"):
        hits = [a == b for a, b in zip(predicted, TAGS, strict=True)]
        assert found["exact match"] == pytest.approx(np.mean(hits))
    assert run("predict", "m.mm", new, "--scores")[0] == 0
    code, out, err = run("explain", "m.mm", labelled, *options, "--rows", 1)
    assert code == 0 and "bias" in out, err


def test_reports_of_models_of_python(run, tmp_path):
    for name, labels, options in (
        ("usual steps", BOTH, ["--labels", "big,heavy"]), ("components", {"y": KIND}, ["--target", "y"]),
    ):  # fmt: skip
        model, columns, y = MODELS[name]
        maxmargin.save(model.fit(TABLE[columns], y), "m.mm")
        write_table(tmp_path / "t.csv", TABLE.assign(**labels))
        code, _, err = run("report", "m.mm", "t.csv", *options, "--train", "t.csv", "-o", "r.html")
        assert code == 0 and (tmp_path / "r.html").exists(), err
        code, out, err = run("explain", "m.mm", "t.csv", *options, "--rows", 1)
        assert code == 0 and ("component 1" in out or "size" in out), err


def test_classes_of_python_and_rows_of_svmlight(run):
    X = TABLE[NUMBERS].to_numpy()
    maxmargin.save(make_pipeline(StandardScaler(), Classes()).fit(X, np.arange(48) % 2), "m.mm")
    write_svmlight(Dataset(X, np.arange(48) % 2, ("x0", "x1"), ("0", "1")), "t.svm")
    assert json.loads(run("evaluate", "m.mm", "t.svm", "--json")[1])["samples"] == 48


ARRAY = TABLE[NUMBERS].to_numpy()
UNUSABLE = [
    (Classes(), ["predict", "t.csv"], 1, "not fitted"),
    (
        make_pipeline(TfidfVectorizer(), Classes()).fit(TABLE["title"], KIND),
        ["predict", "t.csv"], 1, "it takes a list of texts; fit it on a frame",
    ),
    (
        maxmargin.LatentSVC().fit([[[0.0]], [[1.0]]], ["a", "b"]),
        ["predict", "t.csv"], 1, "holds a LatentSVC, which does not take tables",
    ),
    (Classes().fit(TABLE[NUMBERS], KIND), ["predict", "less.csv"], 1, "no column is called 'weight'"),
    (
        Classes().fit(ARRAY, KIND),
        ["predict", "t.csv"], 2, "has 4 columns of features, but the model takes 2 by position",
    ),
    (Classes().fit(ARRAY, KIND), ["predict", "t.csv", "--drop", "colour,title"], 0, ""),
    (
        Classes().fit(ARRAY, KIND), ["evaluate", "t.csv", "--target", "title", "--drop", "size"], 1,
        "has columns of words, but the model takes 2 columns of numbers",
    ),
    (
        Multi().fit(TABLE[NUMBERS], Y),
        ["evaluate", "tags.csv", "--labels", "tags"], 1, "must have 2 0/1 columns of labels",
    ),
]  # fmt: skip


def test_unusable_models_and_data_are_named(run, tmp_path):
    write_table(tmp_path / "t.csv", TABLE)
    write_table(tmp_path / "less.csv", TABLE.drop(columns="weight"))
    write_table(tmp_path / "tags.csv", TABLE.assign(tags=[";".join(row) for row in TAGS]))
    for model, (command, *words), code, message in UNUSABLE:
        maxmargin.save(model, "m.mm")
        found, _, err = run(command, "m.mm", *words)
        assert found == code and message in err, err

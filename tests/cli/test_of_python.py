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
TAGS = [{name for name, on in zip(("big", "heavy"), row, strict=True) if on} for row in Y]
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


# A model, the columns it is fitted on (of a frame, or of an array) and its labels.
MODELS = {
    "classes": (Classes(), NUMBERS, KIND),
    "scaled classes": (make_pipeline(StandardScaler(), Classes()), NUMBERS, KIND),
    "components": (make_pipeline(StandardScaler(), PCA(2), Classes()), NUMBERS, KIND),
    "best feature": (make_pipeline(SelectKBest(k=1), Classes()), NUMBERS, KIND),
    "array of classes": (make_pipeline(SimpleImputer(), Classes()), None, KIND),
    "two classes": (Multi(), NUMBERS, KIND == "large"),
    "whole numbers": (Multi(), NUMBERS, np.arange(48) % 3),
    "basis": (maxmargin.SparseMultiClassSVC(), NUMBERS, KIND),
    "sets": (make_pipeline(maxmargin.prepare(TABLE), Multi()), list(TABLE), TAGS),
    "usual steps": (make_pipeline(usual(), Multi()), list(TABLE), TAGS),
    "classes of words": (make_pipeline(usual(), Classes()), list(TABLE), KIND),
    "sets of numbers": (Multi(), NUMBERS, TAGS),
    "frame": (Multi(), NUMBERS, pd.DataFrame(Y, columns=["big", "heavy"])),
    "signs": (Multi(), NUMBERS, 2 * Y - 1),
    "indicator": (Multi(), None, Y),
    "submodular": (maxmargin.SubmodularSVC(), NUMBERS, TAGS),
    "ranking": (maxmargin.LabelRanker(), NUMBERS, TAGS),
    "probabilities": (maxmargin.Calibrated(make_pipeline(StandardScaler(), Multi()), cv=2), NUMBERS, TAGS),
    "promise": (maxmargin.LabelSets(Multi(), recall=0.5, random_state=0), NUMBERS, TAGS),
    "thresholds": (ThresholdTuner(Multi(), cv=2), NUMBERS, TAGS),
}


def answers(out, model):
    """What `maxmargin predict` printed, as the model answers in Python."""
    names, *rows = csv.reader(out.splitlines())
    if names == ["class"]:
        return [row[0] for row in rows]
    return [{name for name, on in zip(names, row, strict=True) if on == "1"} for row in rows]


def expected(model, X):
    found = model.predict(X)
    if isinstance(found, pd.DataFrame):
        return [set(found.columns[row > 0]) for row in found.to_numpy()]
    if isinstance(found, list):
        return list(map(set, found))
    if found.ndim == 2:
        return [{str(k) for k in np.flatnonzero(row > 0)} for row in found]
    return [str(label) for label in found]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_model_of_python_answers_on_the_command_line(run, tmp_path, name, kind):
    model, columns, y = MODELS[name]
    X = TABLE[NUMBERS].to_numpy() if columns is None else TABLE[columns]
    model.fit(X, y)
    maxmargin.save(model, "m.mm")
    # By name other columns and another order do not matter; by place they do.
    table = TABLE[NUMBERS] if columns is None else TABLE[TABLE.columns[::-1]]
    several = isinstance(y, (list, pd.DataFrame)) or np.ndim(y) == 2
    labels = {"big": Y[:, 0], "heavy": Y[:, 1]} if several else {"y": y}
    told = ["--labels", "big,heavy"] if several else ["--target", "y"]
    for path, frame in ((f"x.{kind}", table), (f"t.{kind}", table.assign(**labels))):
        if kind == "parquet":
            frame.to_parquet(path)
        elif kind == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_csv(path, index=False)
    code, out, err = run("predict", "m.mm", f"x.{kind}")
    assert code == 0 and not err, err
    assert answers(out, model) == expected(model, X)
    code, out, err = run("evaluate", "m.mm", f"t.{kind}", *told, "--json")
    assert code == 0, err
    found = json.loads(out)
    if several and name != "ranking":
        on = np.array([[word in row for word in ("big", "heavy")] for row in expected(model, X)])
        if columns is not None and name != "signs":
            assert found["exact match"] == pytest.approx((on == Y).all(axis=1).mean())
    elif not several:
        assert found["accuracy"] == pytest.approx(np.mean(np.asarray(model.predict(X)) == np.asarray(y)))
    if kind == "csv":
        assert run("predict", "m.mm", "x.csv", "--scores")[0] == 0
        code, out, err = run("explain", "m.mm", "t.csv", *told, "--rows", 1)
        assert code == 0 and "bias" in out, err


def test_reports_of_models_of_python(run, tmp_path):
    for name, labels, told in (("usual steps", {"big": Y[:, 0], "heavy": Y[:, 1]}, ["--labels", "big,heavy"]),
                               ("components", {"y": KIND}, ["--target", "y"])):  # fmt: skip
        model, columns, y = MODELS[name]
        maxmargin.save(model.fit(TABLE[columns], y), "m.mm")
        TABLE.assign(**labels).to_csv("t.csv", index=False)
        code, _, err = run("report", "m.mm", "t.csv", *told, "--train", "t.csv", "-o", "r.html")
        assert code == 0 and (tmp_path / "r.html").exists(), err
        code, out, err = run("explain", "m.mm", "t.csv", *told, "--rows", 1)
        assert code == 0 and ("component 1" in out or "size" in out), err


def test_classes_of_python_and_rows_of_svmlight(run):
    X = TABLE[NUMBERS].to_numpy()
    maxmargin.save(make_pipeline(StandardScaler(), Classes()).fit(X, np.arange(48) % 2), "m.mm")
    write_svmlight(Dataset(X, np.arange(48) % 2, ("x0", "x1"), ("0", "1")), "t.svm")
    assert json.loads(run("evaluate", "m.mm", "t.svm", "--json")[1])["samples"] == 48


def test_what_the_command_line_cannot_use_is_named(run):
    maxmargin.save(Classes(), "m.mm")
    TABLE.to_csv("t.csv", index=False)
    code, _, err = run("predict", "m.mm", "t.csv")
    assert code == 1 and "not fitted" in err
    texts = make_pipeline(TfidfVectorizer(), Classes()).fit(TABLE["title"], KIND)
    maxmargin.save(texts, "m.mm")
    code, _, err = run("predict", "m.mm", "t.csv")
    assert code == 1 and "it takes a list of texts; fit it on a frame" in err
    maxmargin.save(maxmargin.LatentSVC().fit([[[0.0]], [[1.0]]], ["a", "b"]), "m.mm")
    code, _, err = run("predict", "m.mm", "t.csv")
    assert code == 1 and "holds a LatentSVC, which does not take tables" in err
    maxmargin.save(Classes().fit(TABLE[NUMBERS], KIND), "m.mm")
    TABLE.drop(columns="weight").to_csv("less.csv", index=False)
    code, _, err = run("predict", "m.mm", "less.csv")
    assert code == 1 and "no column is called 'weight'" in err
    maxmargin.save(Classes().fit(TABLE[NUMBERS].to_numpy(), KIND), "m.mm")
    code, _, err = run("predict", "m.mm", "t.csv")
    assert code == 2 and "has 4 columns of features, but the model takes 2 by position" in err
    assert run("predict", "m.mm", "t.csv", "--drop", "colour,title")[0] == 0
    code, _, err = run("evaluate", "m.mm", "t.csv", "--target", "title", "--drop", "size")
    assert code == 1 and "has columns of words, but the model takes 2 columns of numbers" in err
    maxmargin.save(Multi().fit(TABLE[NUMBERS], Y), "m.mm")
    TABLE.assign(tags=[";".join(row) for row in TAGS]).to_csv("tags.csv", index=False)
    code, _, err = run("evaluate", "m.mm", "tags.csv", "--labels", "tags")
    assert code == 1 and "must have 2 0/1 columns of labels" in err

"""Models of the command line, loaded in Python: columns and labels by name, as on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin.persistence import ModelFileError, describe
from maxmargin.tables import NamedColumns
from tests.cli.conftest import write_table

FIXTURES = Path(__file__).parents[1] / "fixtures" / "fitted"
RNG = np.random.default_rng(0)
COLOURS, SHAPES = ["red", "blue", None], ["ball", "box", "cone", "cube"]
TABLE = pd.DataFrame(
    {
        "size": np.round(RNG.normal(size=60), 3),
        "colour": [COLOURS[k % 3] for k in range(60)],
        "title": [f"{SHAPES[k % 4]} number {k}" for k in range(60)],
        "note": [f"{SHAPES[(k // 4) % 4]} of lot {k}" for k in range(60)],
        "weight": RNG.integers(1, 9, 60),
    }
)
TABLE["tags"] = [
    ";".join(tag for tag, on in (("round", k % 4 in (0, 2)), ("boxed", (k // 4) % 4 == 1)) if on)
    for k in range(60)
]
TABLE["kind"] = np.where(TABLE["size"] > 0.3, "large", np.where(TABLE["size"] < -0.3, "small", "middle"))
BACK = TABLE[TABLE.columns[::-1]]
WORDS = ["--labels", "tags", "--drop", "kind"]
NUMBERS = ["--target", "kind", "--drop", "tags,colour,title,note"]
PLAIN = [*NUMBERS, "--scale", "none"]


@pytest.fixture
def fitted(run, tmp_path):
    """Fit a model on the table, and return it loaded."""
    write_table(tmp_path / "t.csv", TABLE)

    def fit(*words):
        code, _, err = run("fit", "t.csv", *words, "--random-state", 0, "-o", "m.mm")
        assert code == 0, err
        return maxmargin.load("m.mm")

    return fit


MODELS = {
    "words": WORDS,
    "one class": ["--target", "kind", "--drop", "tags"],
    "folds": [*WORDS, "--probabilities", "sigmoid", "--ensemble"],
    "promise": [*WORDS, "--recall", "0.6"],
    "numbers": PLAIN,
    "scaled numbers": [*NUMBERS, "--scale", "standard"],
    "wide ranking": [*PLAIN, "-m", "ranking", "--n-features", "9"],
    "kernel": [*PLAIN, "--kernel", "rbf"],
    "basis": [*PLAIN, "-m", "sparse-multiclass"],
}


@pytest.mark.parametrize("model", MODELS)
def test_columns_are_found_by_name_in_any_order(run, fitted, model):
    loaded = fitted(*MODELS[model])
    names, *rows = csv.reader(run("predict", "m.mm", "t.csv")[1].splitlines())
    expected = [row[0] if names == ["class"] else list(map(int, row)) for row in rows]
    assert list(loaded.classes_) == describe("m.mm")["metadata"]["label_names"]
    frames = (TABLE, pl.from_pandas(BACK), BACK.convert_dtypes(), BACK.astype({"colour": "category"}))
    for table in frames:
        assert np.asarray(loaded.predict(table)).tolist() == expected
    assert list(loaded.feature_names_in_) == [name for name in TABLE if name in loaded.feature_names_in_]
    maxmargin.save(loaded, "again.mm")
    assert np.asarray(maxmargin.load("again.mm").predict(BACK)).tolist() == expected
    name = loaded.feature_names_in_[-1]
    with pytest.raises(ValueError, match=f"^X: no column is called '{name}'"):
        loaded.predict(BACK.drop(columns=name))


def test_columns_without_names_are_found_by_position(fitted):
    for words, names in ((WORDS, TABLE.columns[:5]), (NUMBERS, ["size", "weight"])):
        loaded, X = fitted(*words), TABLE[names].to_numpy()
        expected = loaded.predict(TABLE).tolist()
        assert loaded.predict(X).tolist() == loaded.predict(pd.DataFrame(X)).tolist() == expected
        with pytest.raises(ValueError, match=r"X has .*columns|X has .*features"):
            loaded.predict(X[:, :-1])
    assert loaded.predict(sp.csr_array(X.astype(float))).tolist() == expected


def test_scores_and_explanations_come_by_name(fitted):
    loaded = fitted(*WORDS)
    on = loaded.predict(BACK) == 1
    assert {name for name, k in zip(loaded.classes_, on.sum(axis=0), strict=True) if k} == {"boxed", "round"}
    np.testing.assert_array_equal(loaded.decision_function(BACK) > 0, on)
    assert loaded.score(BACK, on.astype(int)) == 1
    labels, _ = loaded[-1].predict_top(loaded[:-1].transform(BACK), 1)
    assert set(labels.ravel()) <= {"boxed", "round"}
    numbers = fitted(*PLAIN)
    assert [one.label for one in numbers.explain(BACK)] == numbers.predict(BACK).tolist()
    assert numbers.coef_.shape == (3, 2)


def test_a_new_fit_forgets_the_columns(fitted):
    loaded = fitted(*PLAIN)
    other = TABLE[["weight", "size"]].rename(columns={"weight": "a"})
    loaded.fit(other, TABLE["kind"])
    assert list(loaded.feature_names_in_) == ["a", "size"] and len(loaded.predict(other)) == 60


def test_a_ranker_learns_on_by_name_and_from_wider_rows(fitted):
    loaded, X = fitted(*MODELS["wide ranking"]), TABLE[["size", "weight"]].to_numpy()
    kinds = TABLE["kind"].to_numpy(str)
    loaded.partial_fit(BACK, kinds)
    by_position = maxmargin.load("m.mm").partial_fit(X, kinds)
    np.testing.assert_array_equal(loaded.coef_, by_position.coef_)
    loaded.partial_fit(np.hstack([X, X]), kinds)
    assert loaded.coef_[:, 2:4].any()


@pytest.mark.parametrize("kinds", [{"size": "text", "weight": "number"}, {"size": "number"}])
def test_columns_that_do_not_suit_the_model_are_refused(fitted, kinds):
    loaded = fitted(*PLAIN)
    loaded._table = NamedColumns(kinds).fit(None)
    with pytest.raises(ModelFileError, match=r"kind number but gets others|n_features"):
        maxmargin.save(loaded, "again.mm")


@pytest.mark.parametrize("file", ["csv", "parquet"])
def test_files_of_earlier_versions_store_their_names_and_kinds(run, tmp_path, file):
    table = pd.read_csv(FIXTURES / "tickets.csv", keep_default_na=False, na_values={"plan": ""})
    for name in ("t.csv", "t.jsonl"):
        write_table(tmp_path / name, table)
        found = json.loads(run("evaluate", FIXTURES / f"{file}.mm", name, "--json")[1])
        assert found["exact match"] == 1, name
    tags = [set(cell.split(";")) - {""} for cell in table.pop("tags")]
    loaded = maxmargin.load(FIXTURES / f"{file}.mm")
    assert loaded.classes_.tolist() == ["boots", "soft", "vip"]
    for frame in (table, table[table.columns[::-1]].assign(more=1)):
        assert [set(loaded.classes_[row == 1]) for row in loaded.predict(frame)] == tags


@pytest.mark.parametrize(
    "notes",
    [
        {"feature_names": ["size"]},
        {"feature_names": ["size", "size"]},
        {"label_names": ["one"]},
        {"label_names": ["one", "one"]},
    ],
)
def test_notes_that_do_not_suit_the_model_are_refused(tmp_path, notes):
    X, Y = TABLE[["size", "weight"]].to_numpy(), np.eye(2, dtype=int)[[0, 1] * 30]
    model = maxmargin.MultiLabelSVC().fit(X, Y)
    about = {
        "family": "multilabel", "data": "t.csv", "samples": 60, "label_names": ["a", "b"], "sparse": False,
        "feature_names": ["size", "weight"], "seconds": 1.0, "reading": {},
    }  # fmt: skip
    maxmargin.save(model, tmp_path / "m.mm", about)
    assert maxmargin.load(tmp_path / "m.mm").classes_.tolist() == ["a", "b"]
    maxmargin.save(model, tmp_path / "m.mm", about | notes)
    with pytest.raises(ModelFileError, match="its metadata name"):
        maxmargin.load(tmp_path / "m.mm")


@pytest.mark.parametrize(("fitted_on", "words"), [("upper.csv", True), ("jsonl", False), ("parquet", True)])
def test_booleans_are_numbers_in_every_format(run, tmp_path, fitted_on, words):
    table = TABLE[["title", "colour", "size"] if words else ["size"]].assign(vip=RNG.random(60) > 0.5)
    table["kind"] = np.where(table["vip"], "a", np.where(table["size"] > 0, "b", "c"))
    spelled = {"csv": str, "upper.csv": lambda on: str(on).upper(), "lower.csv": lambda on: str(on).lower()}
    for name in ("jsonl", "parquet"):
        write_table(tmp_path / f"t.{name}", table)
    for name, spell in spelled.items():
        write_table(tmp_path / f"t.{name}", table.assign(vip=table["vip"].map(spell)))
    assert run("fit", f"t.{fitted_on}", "--target", "kind", "-o", "m.mm")[0] == 0
    model = maxmargin.load("m.mm")
    expected = ["class", *model.predict(table)]
    assert describe("m.mm")["metadata"].get("columns", {}).get("vip", "number") == "number"
    for name in ("jsonl", "parquet", *spelled):
        code, out, err = run("predict", "m.mm", f"t.{name}")
        assert code == 0 and out.split() == expected, err
    as_numbers = table.assign(vip=table["vip"].astype(int))
    for other in (as_numbers, table.astype({"vip": object}), pl.from_pandas(table)):
        assert ["class", *model.predict(other)] == expected


def test_true_and_false_beside_other_words_are_words(run, tmp_path):
    vip = ["true", "false"] * 15 + ["true", "unknown"] * 15
    write_table(tmp_path / "t.csv", pd.DataFrame({"vip": vip, "n": range(60), "y": ["a", "b", "b"] * 20}))
    assert run("fit", "t.csv", "--target", "y", "-o", "m.mm")[0] == 0
    assert describe("m.mm")["metadata"]["columns"]["vip"] == "category"

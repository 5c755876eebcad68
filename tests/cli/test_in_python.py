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
WORDS = ["--labels", "tags", "--drop", "kind"]
NUMBERS = ["--target", "kind", "--drop", "tags,colour,title,note"]


def write(path, table=TABLE):
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False)
    return path.name


def answers(path):
    """What `maxmargin predict` wrote, as the model answers in Python."""
    names, *rows = csv.reader(path.read_text().splitlines())
    return [row[0] for row in rows] if names == ["class"] else [list(map(int, row)) for row in rows]


MODELS = {
    "words": WORDS,
    "one class": ["--target", "kind", "--drop", "tags"],
    "probabilities": [*WORDS, "--probabilities", "sigmoid"],
    "folds": [*WORDS, "--probabilities", "sigmoid", "--ensemble"],
    "promise": [*WORDS, "--recall", "0.6"],
    "ranking": [*WORDS, "-m", "ranking"],
    "numbers": [*NUMBERS, "--scale", "none"],
    "scaled numbers": [*NUMBERS, "--scale", "standard"],
    "wide ranking": [*NUMBERS, "-m", "ranking", "--n-features", "9", "--scale", "none"],
    "kernel": [*NUMBERS, "--kernel", "rbf", "--scale", "none"],
    "basis": [*NUMBERS, "-m", "sparse-multiclass", "--scale", "none"],
    "probable numbers": [*NUMBERS, "--probabilities", "temperature", "--scale", "none"],
}


@pytest.mark.parametrize("model", MODELS)
def test_columns_are_found_by_name_in_any_order(run, tmp_path, model):
    write(tmp_path / "t.csv")
    code, _, err = run("fit", "t.csv", *MODELS[model], "--random-state", 0, "-o", "m.mm")
    assert code == 0, err
    assert run("predict", "m.mm", "t.csv", "-o", "p.csv")[0] == 0
    expected, loaded = answers(tmp_path / "p.csv"), maxmargin.load("m.mm")
    assert list(loaded.classes_) == describe("m.mm")["metadata"]["label_names"]
    back = TABLE[TABLE.columns[::-1]]
    for table in (
        TABLE,
        back,
        pl.from_pandas(back),
        back.convert_dtypes(),
        back.astype({"colour": "category"}),
    ):
        assert np.asarray(loaded.predict(table)).tolist() == expected
    assert list(loaded.feature_names_in_) == [name for name in TABLE if name in loaded.feature_names_in_]
    maxmargin.save(loaded, "again.mm")
    assert np.asarray(maxmargin.load("again.mm").predict(back)).tolist() == expected
    name = loaded.feature_names_in_[-1]
    with pytest.raises(ValueError, match=f"^X: no column is called '{name}'"):
        loaded.predict(back.drop(columns=name))


def test_columns_without_names_are_found_by_place(run, tmp_path):
    write(tmp_path / "t.csv")
    for words, names in ((WORDS, TABLE.columns[:5]), (NUMBERS, ["size", "weight"])):
        assert run("fit", "t.csv", *words, "-o", "m.mm")[0] == 0
        loaded = maxmargin.load("m.mm")
        X = TABLE[names].to_numpy()
        expected = loaded.predict(TABLE).tolist()
        assert loaded.predict(X).tolist() == loaded.predict(pd.DataFrame(X)).tolist() == expected
        with pytest.raises(ValueError, match=r"X has .*columns|X has .*features"):
            loaded.predict(X[:, :-1])
    assert loaded.predict(sp.csr_array(X.astype(float))).tolist() == expected


def test_scores_and_explanations_come_by_name(run, tmp_path):
    write(tmp_path / "t.csv")
    assert run("fit", "t.csv", *WORDS, "-o", "m.mm")[0] == 0
    loaded, back = maxmargin.load("m.mm"), TABLE[TABLE.columns[::-1]]
    on = loaded.predict(back) == 1
    assert {name for name, k in zip(loaded.classes_, on.sum(axis=0), strict=True) if k} == {"boxed", "round"}
    np.testing.assert_array_equal(loaded.decision_function(back) > 0, on)
    assert loaded.score(back, on.astype(int)) == 1
    inner = loaded[-1]
    labels, _ = inner.predict_top(loaded[:-1].transform(back), 1)
    assert set(labels.ravel()) <= {"boxed", "round"}
    assert run("fit", "t.csv", *NUMBERS, "--scale", "none", "-o", "n.mm")[0] == 0
    numbers = maxmargin.load("n.mm")
    assert [one.label for one in numbers.explain(back)] == numbers.predict(back).tolist()
    assert numbers.coef_.shape == (3, 2)


def test_a_new_fit_forgets_the_columns(run, tmp_path):
    write(tmp_path / "t.csv")
    assert run("fit", "t.csv", *NUMBERS, "--scale", "none", "-o", "m.mm")[0] == 0
    loaded = maxmargin.load("m.mm")
    other = TABLE[["weight", "size"]].rename(columns={"weight": "a"})
    loaded.fit(other, TABLE["kind"])
    assert list(loaded.feature_names_in_) == ["a", "size"]
    assert len(loaded.predict(other)) == 60


def test_a_ranker_learns_on_by_name_and_from_wider_rows(run, tmp_path):
    write(tmp_path / "t.csv")
    assert run("fit", "t.csv", *MODELS["wide ranking"], "-o", "m.mm")[0] == 0
    kinds = TABLE["kind"].to_numpy(str)
    loaded, X = maxmargin.load("m.mm"), TABLE[["size", "weight"]].to_numpy()
    loaded.partial_fit(TABLE[TABLE.columns[::-1]], kinds)
    by_place = maxmargin.load("m.mm").partial_fit(X, kinds)
    np.testing.assert_array_equal(loaded.coef_, by_place.coef_)
    loaded.partial_fit(np.hstack([X, X]), kinds)
    assert loaded.coef_[:, 2:4].any()


@pytest.mark.parametrize("kinds", [{"size": "text", "weight": "number"}, {"size": "number"}])
def test_columns_that_do_not_suit_the_model_are_refused(run, tmp_path, kinds):
    write(tmp_path / "t.csv")
    assert run("fit", "t.csv", *NUMBERS, "--scale", "none", "-o", "m.mm")[0] == 0
    loaded = maxmargin.load("m.mm")
    loaded._table = NamedColumns(kinds).fit(None)
    with pytest.raises(ModelFileError, match=r"kind number but gets others|n_features"):
        maxmargin.save(loaded, "again.mm")


@pytest.mark.parametrize("file", ["csv", "parquet"])
def test_files_of_earlier_versions_know_their_names(file):
    table = pd.read_csv(FIXTURES / "tickets.csv", keep_default_na=False, na_values={"plan": ""})
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
        {"feature_names": ["size", "weight", "more"]},
        {"label_names": ["one"]},
        {"label_names": ["one", "one"]},
    ],
)
def test_notes_that_do_not_suit_the_model_are_refused(tmp_path, notes):
    model = maxmargin.MultiLabelSVC().fit(
        TABLE[["size", "weight"]].to_numpy(), np.eye(2, dtype=int)[[0, 1] * 30]
    )
    about = {
        "family": "multilabel", "data": "t.csv", "samples": 60, "label_names": ["a", "b"], "sparse": False,
        "feature_names": ["size", "weight"], "seconds": 1.0, "reading": {},
    }  # fmt: skip
    maxmargin.save(model, tmp_path / "m.mm", about)
    assert maxmargin.load(tmp_path / "m.mm").classes_.tolist() == ["a", "b"]
    maxmargin.save(model, tmp_path / "m.mm", about | notes)
    with pytest.raises(ModelFileError, match="its metadata name"):
        maxmargin.load(tmp_path / "m.mm")


SPELLED = {"csv": str, "upper.csv": lambda on: str(on).upper(), "lower.csv": lambda on: str(on).lower()}


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("fitted", ["csv", "upper.csv", "jsonl", "parquet"])
def test_booleans_are_numbers_in_every_format(run, tmp_path, fitted, words):
    table = TABLE[["title", "colour", "size"] if words else ["size"]].assign(vip=RNG.random(60) > 0.5)
    table["kind"] = np.where(table["vip"], "a", np.where(table["size"] > 0, "b", "c"))
    for name in ("jsonl", "parquet"):
        write(tmp_path / f"t.{name}", table)
    for name, spell in SPELLED.items():
        write(tmp_path / f"t.{name}", table.assign(vip=table["vip"].map(spell)))
    code, _, err = run("fit", f"t.{fitted}", "--target", "kind", "-o", "m.mm")
    assert code == 0, err
    expected = ["class", *maxmargin.load("m.mm").predict(table)]
    assert describe("m.mm")["metadata"].get("columns", {}).get("vip", "number") == "number"
    for name in ("jsonl", "parquet", *SPELLED):
        code, out, err = run("predict", "m.mm", f"t.{name}")
        assert code == 0 and out.split() == expected, err
        assert run("evaluate", "m.mm", f"t.{name}", "--json")[0] == 0
    for other in (
        table.assign(vip=table["vip"].astype(int)),
        table.astype({"vip": object}),
        pl.from_pandas(table),
    ):
        assert ["class", *maxmargin.load("m.mm").predict(other)] == expected


def test_true_and_false_beside_other_words_are_words(run, tmp_path):
    table = pd.DataFrame(
        {"vip": ["true", "false", "unknown"] * 20, "n": range(60), "y": ["a", "b", "b"] * 20}
    )
    table.loc[:30, "vip"] = ["true", "false"] * 15 + ["true"]
    for name in ("t.csv", "t.jsonl"):
        write(tmp_path / name, table)
        assert run("fit", name, "--target", "y", "-o", "m.mm")[0] == 0
        assert describe("m.mm")["metadata"]["columns"]["vip"] == "category"


@pytest.mark.parametrize("file", ["csv", "parquet"])
def test_booleans_keep_the_kind_that_an_earlier_version_noted(run, tmp_path, file):
    table = pd.read_csv(FIXTURES / "tickets.csv", keep_default_na=False, na_values={"plan": ""})
    model = FIXTURES / f"{file}.mm"
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        write(tmp_path / name, table)
        assert json.loads(run("evaluate", model, name, "--json")[1])["exact match"] == 1, name

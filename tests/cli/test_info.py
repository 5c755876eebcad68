"""`maxmargin info` describes every model file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import maxmargin
from tests.cli.conftest import write_table
from tests.cli.test_in_python import FIXTURES, TABLE, WORDS


def test_a_model_of_fit_is_described(run, tmp_path):
    write_table(tmp_path / "t.jsonl", TABLE)
    fit = ("fit", "t.jsonl", *WORDS, "--C", 3, "--random-state", 7, "-o", "m.mm")
    assert run(*fit, "--probabilities", "sigmoid")[0] == 0
    code, out, err = run("info", "m.mm", "--json")
    assert code == 0, err
    found, inner = json.loads(out), maxmargin.load("m.mm").estimator_[-1]
    expected = {
        "family": "multilabel",
        "classes": ["Calibrated", "MultiLabelSVC"],
        "parameters": {"method": "sigmoid", "C": 3},
        "random_state": 7,
        "epochs": inner.n_iter_,
        "gap": inner.duality_gap_,
        "objective": inner.primal_objective_,
        "labels": ["boxed", "round"],
        "labels per sample": "several",
        "columns": {
            "size": "number", "colour": "category", "title": "text", "note": "text", "weight": "number",
        },
        "written by": "maxmargin fit",
        "maxmargin": maxmargin.__version__,
        "bytes": (tmp_path / "m.mm").stat().st_size,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected and found["notes"]["samples"] == 60
    table = " ".join(run("info", "m.mm")[1].split())
    for words in ("Calibrated of MultiLabelSVC", "method=sigmoid, C=3", "2, several per sample: boxed, round",
                  "category: colour", "60 samples of t.", "tf-idf of words"):  # fmt: skip
        assert words in table, words


X, Y = TABLE[["size", "weight"]], np.eye(2, dtype=int)[[0, 1] * 30]
TITLES, KINDS = TABLE["title"], TABLE["kind"]
Classes = maxmargin.MultiClassSVC
OF_PYTHON = {
    "scaled": (make_pipeline(StandardScaler(), Classes()).fit(X, KINDS), "multiclass"),
    "array": (maxmargin.MultiLabelSVC(prior=np.eye(2)).fit(X.to_numpy(), Y), "multilabel"),
    "ranking": (maxmargin.LabelRanker().fit(X, KINDS), "ranking"),
    "tree": (maxmargin.TreeLabels(maxmargin.SubmodularSVC(), [(0, 1)]).fit(X, Y), "submodular"),
    "bags": (maxmargin.LatentSVC().fit([[[0.0]], [[1.0]]], ["a", "b"]), None),
    "texts": (make_pipeline(TfidfVectorizer(), Classes()).fit(TITLES, KINDS), "multiclass"),
    "stream": (maxmargin.StreamRanker(), None),
    "unfitted": (maxmargin.SparseMultiClassSVC(max_basis=5), "sparse-multiclass"),
    "unfitted steps": (make_pipeline(maxmargin.prepare(X), Classes()), "multiclass"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_PYTHON)
def test_every_model_of_python_is_described(run, name):
    model, family = OF_PYTHON[name]
    maxmargin.save(model, "m.mm", {"date": "2026-11-19"})
    code, out, err = run("info", "m.mm", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["family"] == family and found["written by"] == "maxmargin.save"
    assert found["notes"] == {"date": "2026-11-19"}
    if name == "scaled":
        assert found["columns"] == {"size": "number", "weight": "number"} and found["parameters"] == {}
    if name == "array":
        assert found["parameters"] == {"prior": "array of shape (2, 2)"} and found["features"] == 2
    code, out, err = run("info", "m.mm")
    assert code == 0 and "2026-11-19" in out, err


def test_files_of_earlier_versions_and_other_files(run, tmp_path):
    found = json.loads(run("info", FIXTURES / "csv.mm", "--json")[1])
    assert found["columns"]["is_vip"] == "category" and found["labels"] == ["boots", "soft", "vip"]
    (tmp_path / "m.mm").write_bytes(b"no model")
    assert run("info", "m.mm")[0] == 1
    code, _, err = run("info", "none.mm")
    assert code == 1 and "There is no model file none.mm" in err

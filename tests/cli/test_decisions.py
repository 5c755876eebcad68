"""Probabilities, promised sets, explanations and exports on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import maxmargin
from maxmargin import datasets


def test_probabilities_from_fit_to_report(run):
    fit = ("fit", "flags", "-m", "multilabel", "--scale", "standard", "--random-state", 0, "-o", "m.mm")
    assert run(*fit, "--probabilities", "sigmoid")[0] == 0
    model, test = maxmargin.load("m.mm"), datasets.load("flags", split="test")
    P = model.predict_proba(test.X)
    code, out, _ = run("predict", "m.mm", "flags", "--probabilities", "--to", "jsonl")
    first = json.loads(out.split("\n")[0])
    assert code == 0 and list(first["probabilities"].values()) == pytest.approx(P[0].tolist())
    code, out, _ = run("predict", "m.mm", "flags", "--probabilities")
    table = np.array([line.split(",") for line in out.strip().split("\n")[1:]], float)
    np.testing.assert_allclose(table, P)
    assert run("evaluate", "m.mm", "flags", "--json")[0] == 0
    assert run("predict", "m.mm", "flags", "--scores")[0] == 0
    assert run("report", "m.mm", "flags", "--train", "flags", "-o", "r.html")[0] == 0
    page = Path("r.html").read_text()
    assert "<h3>Probabilities</h3>" in page and "Brier score" in page
    assert run("predict", "m.mm", "flags", "--probabilities", "--scores")[0] == 2
    assert run(*fit)[0] == 0
    code, _, said = run("predict", "m.mm", "flags", "--probabilities")
    assert code == 2 and "fit it with --probabilities" in said


def test_probabilities_of_classes(run):
    assert run("fit", "iris", "-m", "multiclass", "--probabilities", "temperature", "-o", "m.mm")[0] == 0
    code, out, _ = run("predict", "m.mm", "iris", "--probabilities")
    rows = np.array([line.split(",") for line in out.strip().split("\n")[1:]], float)
    assert code == 0 and rows.shape[1] == 3
    np.testing.assert_allclose(rows.sum(axis=1), 1)
    assert run("report", "m.mm", "iris", "-o", "r.html")[0] == 0


def test_recall_that_is_asked_for(run):
    fit = ("fit", "yeast", "-m", "multilabel", "--scale", "standard", "--tol", 0.1, "-o", "m.mm")
    assert run(*fit, "--recall", 0.8)[0] == 0
    test = datasets.load("yeast", split="test")
    assert 0.75 < maxmargin.load("m.mm").score(test.X, test.Y) < 0.9
    assert run("predict", "m.mm", "yeast")[0] == 0 and run("evaluate", "m.mm", "yeast")[0] == 0
    code, _, said = run("fit", "iris", "-m", "multiclass", "--recall", 0.9, "-o", "m.mm")
    assert code == 2 and "several labels per sample" in said


def test_explain_adds_up(run):
    run("fit", "flags", "-m", "multilabel", "--scale", "standard", "--probabilities", "sigmoid", "-o", "m.mm")
    data = datasets.load("flags", split="test")
    label = data.label_names[2]
    code, out, _ = run("explain", "m.mm", "flags", "--label", label, "--rows", 3, "--top", 4, "--json")
    told = [json.loads(line) for line in out.strip().split("\n")]
    scores = maxmargin.load("m.mm").estimator_.decision_function(data.X)
    assert code == 0 and len(told) == 3
    for i, each in enumerate(told):
        assert each["label"] == label and each["score"] == pytest.approx(scores[i, 2])
        assert sum(each["parts"].values()) + each["rest"] + each["bias"] == pytest.approx(each["score"])
        # Standardised columns are told with their unit, as in the report.
        assert {name.partition(" (per ")[0] for name in each["parts"]} <= set(data.feature_names)
    code, out, _ = run("explain", "m.mm", "flags", "--rows", 1)
    assert code == 0 and "bias" in out
    code, _, said = run("explain", "m.mm", "flags", "--label", "nothing")
    assert code == 2 and "no such label" in said


def test_explain_names_training_rows_of_a_kernel(run):
    run("fit", "iris", "-m", "multiclass", "--kernel", "rbf", "-o", "m.mm")
    code, out, _ = run("explain", "m.mm", "iris", "--rows", 2)
    assert code == 0 and "row " in out and out.startswith("sample 0, ")


def test_export(run):
    pytest.importorskip("onnx", reason='needs "maxmargin[onnx]"')
    runtime = pytest.importorskip("onnxruntime", reason='needs "maxmargin[onnx]"')
    run("fit", "flags", "-m", "multilabel", "--scale", "standard", "--probabilities", "sigmoid", "-o", "m.mm")
    code, _, said = run("export", "m.mm", "m.onnx")
    assert code == 0 and "gives labels, scores, probabilities" in said
    session = runtime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    X = np.ascontiguousarray(datasets.load("flags", split="test").X, dtype=float)
    labels = session.run(["labels"], {"X": X})[0]
    np.testing.assert_array_equal(labels, maxmargin.load("m.mm").predict(X))
    names = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    assert names == list(datasets.load("flags").label_names)
    assert run("export", "m.mm", "nowhere/m.onnx")[0] == 2
    assert run("export", "m.mm", "m.onnx", "--outputs", "margins")[0] == 1

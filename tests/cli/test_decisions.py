"""Probabilities, promised sets, explanations and exports on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import maxmargin
from maxmargin import datasets


def printed(result):
    """The numbers of a CSV table that a command printed."""
    code, out, err = result
    assert code == 0, err
    return np.array([line.split(",") for line in out.split()[1:]], float)


def test_probabilities_from_fit_to_report(run):
    fit = ("fit", "flags", "-m", "multilabel", "--scale", "standard", "--random-state", 0, "-o", "m.mm")
    assert run(*fit, "--probabilities", "sigmoid")[0] == 0
    model, test = maxmargin.load("m.mm"), datasets.load("flags", split="test")
    P = model.predict_proba(test.X)
    code, out, _ = run("predict", "m.mm", "flags", "--probabilities", "--to", "jsonl")
    first = json.loads(out.split("\n")[0])
    assert code == 0 and list(first["probabilities"].values()) == pytest.approx(P[0].tolist())
    np.testing.assert_allclose(printed(run("predict", "m.mm", "flags", "--probabilities")), P)
    assert run("evaluate", "m.mm", "flags", "--json")[0] == 0
    assert run("predict", "m.mm", "flags", "--scores")[0] == 0
    assert run("report", "m.mm", "flags", "--train", "flags", "-o", "r.html")[0] == 0
    page = Path("r.html").read_text()
    assert "<h3>Probabilities</h3>" in page and "Brier score" in page
    assert run("predict", "m.mm", "flags", "--probabilities", "--scores")[0] == 2
    assert run(*fit)[0] == 0
    code, _, err = run("predict", "m.mm", "flags", "--probabilities")
    assert code == 2 and "fit it with --probabilities" in err


def test_an_ensemble_averages_the_folds(run):
    fit = ("fit", "flags", "-m", "multilabel", "--scale", "standard", "--ensemble", "-o", "m.mm")
    code, _, err = run(*fit)
    assert code == 2 and "--ensemble needs --probabilities" in err
    assert run(*fit, "--probabilities", "sigmoid")[0] == 0
    model, test = maxmargin.load("m.mm"), datasets.load("flags", split="test")
    assert len(model.estimators_) == 5
    np.testing.assert_allclose(
        printed(run("predict", "m.mm", "flags", "--probabilities")), model.predict_proba(test.X)
    )
    assert run("explain", "m.mm", "flags", "--rows", 1)[0] == 0


def test_probabilities_of_classes(run):
    assert run("fit", "iris", "-m", "multiclass", "--probabilities", "temperature", "-o", "m.mm")[0] == 0
    rows = printed(run("predict", "m.mm", "iris", "--probabilities"))
    assert rows.shape[1] == 3
    np.testing.assert_allclose(rows.sum(axis=1), 1)
    assert run("report", "m.mm", "iris", "-o", "r.html")[0] == 0


@pytest.mark.parametrize(
    ("option", "kind", "share"), [("--recall", "recall", 0.8), ("--set-precision", "precision", 0.7)]
)
def test_sets_with_a_promise(run, option, kind, share):
    fit = ("fit", "yeast", "-m", "multilabel", "--scale", "standard", "--tol", 0.1, "-o", "m.mm")
    assert run(*fit, option, share, "--precision", "double")[0] == 0
    model, test = maxmargin.load("m.mm"), datasets.load("yeast", split="test")
    assert getattr(model, kind) == share
    assert share - 0.05 < model.score(test.X, test.Y) < share + 0.25
    assert run("predict", "m.mm", "yeast")[0] == 0
    found = json.loads(run("evaluate", "m.mm", "yeast", "--json")[1])
    assert found[f"{kind} promised"] == share
    assert found[f"{kind} found"] == pytest.approx(model.score(test.X, test.Y))
    assert run("report", "m.mm", "yeast", "-o", "r.html")[0] == 0
    section = Path("r.html").read_text().partition("<h3>Guarantee</h3>")[2]
    assert f"{model.score(test.X, test.Y):.3f}"[:4] in section
    code, _, err = run(*fit, "--set-precision", 0.7, "--recall", 0.9)
    assert code == 2 and "a set keeps one promise" in err
    code, _, err = run("fit", "iris", "-m", "multiclass", option, share, "-o", "m.mm")
    assert code == 2 and "several labels" in err


def test_explain_adds_up(run):
    run("fit", "flags", "-m", "multilabel", "--scale", "standard", "--probabilities", "sigmoid", "-o", "m.mm")
    data = datasets.load("flags", split="test")
    label = data.label_names[2]
    code, out, _ = run("explain", "m.mm", "flags", "--label", label, "--rows", 3, "--top", 4, "--json")
    found = [json.loads(line) for line in out.strip().split("\n")]
    scores = maxmargin.load("m.mm").estimator_.decision_function(data.X)
    assert code == 0 and len(found) == 3
    for i, each in enumerate(found):
        assert each["label"] == label and each["score"] == pytest.approx(scores[i, 2])
        assert sum(each["parts"].values()) + each["rest"] + each["bias"] == pytest.approx(each["score"])
        # Standardised columns are found with their unit, as in the report.
        assert {name.partition(" (per ")[0] for name in each["parts"]} <= set(data.feature_names)
    code, out, _ = run("explain", "m.mm", "flags", "--rows", 1)
    assert code == 0 and "bias" in out
    code, _, err = run("explain", "m.mm", "flags", "--label", "nothing")
    assert code == 2 and "no such label" in err


def test_explain_names_training_rows_of_a_kernel(run):
    run("fit", "iris", "-m", "multiclass", "--kernel", "rbf", "-o", "m.mm")
    code, out, _ = run("explain", "m.mm", "iris", "--rows", 2)
    assert code == 0 and "row " in out and out.startswith("sample 0, ")


def test_export(run):
    pytest.importorskip("onnx", reason='needs "maxmargin[onnx]"')
    runtime = pytest.importorskip("onnxruntime", reason='needs "maxmargin[onnx]"')
    run("fit", "flags", "-m", "multilabel", "--scale", "standard", "--probabilities", "sigmoid", "-o", "m.mm")
    code, _, err = run("export", "m.mm", "m.onnx")
    assert code == 0 and "returns labels, scores, probabilities" in err
    session = runtime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    X = np.ascontiguousarray(datasets.load("flags", split="test").X, dtype=float)
    labels = session.run(["labels"], {"X": X})[0]
    np.testing.assert_array_equal(labels, maxmargin.load("m.mm").predict(X))
    names = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    assert names == list(datasets.load("flags").label_names)
    assert run("export", "m.mm", "nowhere/m.onnx")[0] == 2
    assert run("export", "m.mm", "m.onnx", "--outputs", "margins")[0] == 1


def test_a_tree_of_labels(run):
    """Labels that a model by itself does not keep to their tree."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    Y = (X + 0.8 * rng.normal(size=(60, 3)) > 0).astype(int)
    lines = [",".join(map(str, [*x, *y])) for x, y in zip(X.round(3), Y, strict=True)]
    Path("t.csv").write_text("a,b,c,is_animal,is_cat,is_dog\n" + "\n".join(lines) + "\n")
    names = datasets.read_csv("t.csv", label_prefix="is_").label_names
    Path("tree.csv").write_text(f"parent,child\n{names[0]},{names[1]}\n{names[0]},{names[2]}\n")
    fit = ("fit", "t.csv", "--label-prefix", "is_", "--random-state", 0, "-o", "m.mm")

    def answers():
        return printed(run("predict", "m.mm", "t.csv")).astype(int)

    assert run(*fit)[0] == 0
    free = answers()
    assert (free[:, 1:].max(axis=1) > free[:, 0]).any()
    for more in ([], ["--probabilities", "sigmoid"], ["--prior", "tree:tree.csv"]):
        code, _, err = run(*fit, "--tree", "tree.csv", *more)
        assert code == 0, err
        found = answers()
        assert (found[:, 1:].max(axis=1) <= found[:, 0]).all() and (found != free).any()
        assert run("evaluate", "m.mm", "t.csv")[0] == 0
    assert maxmargin.load("m.mm").estimator_.prior_[0, 1] > 0
    assert run("report", "m.mm", "t.csv", "-o", "r.html")[0] == 0
    assert run("explain", "m.mm", "t.csv", "--rows", 1)[0] == 0
    Path("graph.csv").write_text(f"{names[1]},{names[2]},2.5\n")
    assert run(*fit, "--prior", "graph:graph.csv")[0] == 0
    assert maxmargin.load("m.mm").prior_[1, 2] > 0.5
    assert run(*fit, "--prior", "learned", "--scale", "standard")[0] == 0
    pipe, table = maxmargin.load("m.mm"), datasets.read_csv("t.csv", label_prefix="is_")
    base = maxmargin.MultiLabelSVC(random_state=0)
    R = maxmargin.priors.learned(base, StandardScaler().fit_transform(table.X), table.Y)
    np.testing.assert_allclose(pipe[-1].prior_, R, rtol=1e-6)
    code, _, err = run(*fit, "-m", "sparse-multilabel", "--prior", "learned")
    assert code == 2 and "use -m multilabel" in err


@pytest.mark.parametrize(("text", "options", "message"), [
    (None, "--tree none.csv", "there is no file none.csv"),
    ("", "--tree tree.csv", "tree.csv is empty"),
    ("a\n", "--tree tree.csv", "line 1 of tree.csv has 1 entries instead of 2 or 3"),
    ("red,mauve\n", "--tree tree.csv", "names 'mauve'; the labels are red, green"),
    ("a,b\n", "--tree tree.csv", "names none of the labels"),
    ("red,green,1\n", "--tree tree.csv", "three columns"),
    ("red,green,x\n", "--prior graph:tree.csv", "the third column of tree.csv is not a weight"),
    ("red,green\n", "--tree tree.csv --recall 0.9", "one of --recall, --set-precision and --tree"),
    ("red,green\n", "--prior tree:tree.csv -m submodular", "It is a parameter of -m multilabel"),
    ("red,green\ngreen,red\n", "--tree tree.csv", "contain a cycle"),
])  # fmt: skip
def test_wrong_trees_and_graphs_are_reported(run, text, options, message):
    if text is not None:
        Path("tree.csv").write_text(text)
    family = [] if "-m" in options else ["-m", "multilabel"]
    code, _, err = run("fit", "flags", *family, "-o", "m.mm", *options.split())
    assert code in (1, 2) and message in err


def test_positions_of_a_chain_are_explained(run):
    lines = []
    for k, letter in enumerate("abababab"):
        following, word, place = -1 if k % 2 else k + 2, k // 2, k % 2
        pixels = [1, 0] if letter == "a" else [0, 1]
        lines.append("\t".join(map(str, [k + 1, letter, following, word, place, word % 2, *pixels])))
    Path("letter.data").write_text("\n".join(lines) + "\n")
    assert run("fit", "letter.data", "-m", "chain", "-o", "m.mm")[0] == 0
    code, out, err = run("explain", "m.mm", "letter.data", "--rows", 2, "--top", 200, "--json")
    found = [json.loads(line) for line in out.strip().split("\n")]
    assert code == 0, err
    assert [(each["sample"], each["where"]) for each in found] == [
        (sample, f"position {t}") for sample in (0, 1) for t in (0, 1)
    ]
    assert [each["label"] for each in found] == list("abab")
    assert "before 'b'" in found[0]["parts"] and "after 'a'" in found[1]["parts"]
    code, out, _ = run("explain", "m.mm", "letter.data", "--rows", 1)
    assert code == 0 and out.startswith("sample 0, position 0, a: ")

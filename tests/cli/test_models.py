"""`maxmargin fit`, `predict`, `evaluate`, `compare`, `reproduce`."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import maxmargin
from maxmargin import datasets
from maxmargin.persistence import describe


def test_fit_saves_the_model_that_python_would_fit(run):
    words = ["-m", "multilabel", "--scale=none", "--C", 1e-5, "--random-state=0", "-o", "m.mm", "--json"]
    code, out, _ = run("fit", "flags", *words)
    assert code == 0
    result = json.loads(out)
    data = datasets.load("flags", split="train")
    model = maxmargin.MultiLabelSVC(C=1e-5, random_state=0).fit(data.X, data.Y)
    np.testing.assert_array_equal(maxmargin.load("m.mm").coef_, model.coef_)
    assert result["samples"] == 129 and result["gap"] == model.duality_gap_


def test_evaluate_agrees_with_scikit_learn(run):
    from sklearn.metrics import f1_score, hamming_loss

    run("fit", "flags", "-m", "multilabel", "--scale", "standard", "--prior", "labels", "-o", "m.mm")
    code, out, _ = run("evaluate", "m.mm", "flags", "--json")
    found = json.loads(out)
    test = datasets.load("flags", split="test")
    predicted = maxmargin.load("m.mm").predict(test.X)
    assert code == 0 and found["samples"] == 65
    assert found["Hamming loss"] == pytest.approx(hamming_loss(test.Y, predicted))
    assert found["micro F1"] == pytest.approx(f1_score(test.Y, predicted, average="micro"))
    code, out, _ = run("evaluate", "m.mm", "flags")
    assert "micro F1" in out


@pytest.mark.parametrize("source", ["flags.csv", "flags.csv.gz", "flags.svm", "flags.arff"])
def test_predictions_do_not_depend_on_the_format(run, source):
    run("fit", "flags", "-m", "multilabel", "--scale", "standard", "-o", "m.mm")
    run("datasets", "convert", "flags", source, "--split", "test")
    expected = maxmargin.load("m.mm").predict(datasets.load("flags", split="test").X)
    code, out, err = run("predict", "m.mm", source)
    rows = list(csv.reader(io.StringIO(out)))
    assert code == 0, err
    assert rows[0] == list(datasets.load("flags").label_names)
    np.testing.assert_array_equal(np.array(rows[1:], dtype=int), expected)
    options = ["--labels", 7] if "csv" in source else []
    assert json.loads(run("evaluate", "m.mm", source, "--json", *options)[1])["samples"] == 65


def test_predictions_as_json_lines_with_scores(run):
    run("fit", "flags", "-m", "multilabel", "-o", "m.mm")
    code, out, _ = run("predict", "m.mm", "flags", "--to", "jsonl", "--scores", "-o", "p.jsonl")
    assert code == 0 and out == ""
    for line in Path("p.jsonl").read_text().splitlines():
        answer = json.loads(line)
        assert {name for name, score in answer["scores"].items() if score > 0} == set(answer["labels"])


def test_predictions_in_svmlight_can_be_read_back(run):
    run("fit", "iris", "-m", "multiclass", "-o", "m.mm")
    run("datasets", "convert", "iris", "iris.svm")
    code, _, err = run("predict", "m.mm", "iris.svm", "--to", "svmlight", "-o", "p.svm")
    assert code == 0, err
    back = datasets.read_svmlight("p.svm", multilabel=False)
    data = datasets.load("iris")
    np.testing.assert_array_equal(back.X.toarray(), data.X)
    assert (np.array(data.label_names)[back.Y] == maxmargin.load("m.mm").predict(data.X)).all()


def test_csv_without_labels_in_another_order_from_stdin(run, monkeypatch):
    table = "a,b,kind\n0,1,x\n1,0,y\n0,2,x\n2,0,y\n"
    Path("t.csv").write_text(table)
    assert run("fit", "t.csv", "-m", "multiclass", "--target", "kind", "-o", "m.mm")[0] == 0

    class Stdin:
        buffer = io.BytesIO(b"id,b,a\n7,1,0\n8,0,3\n")

    monkeypatch.setattr(sys, "stdin", Stdin)
    code, out, err = run("predict", "m.mm", "-", "--format", "csv")
    assert (code, out) == (0, "class\nx\ny\n"), err


@pytest.mark.parametrize("model", ["multiclass", "sparse-multiclass"])
def test_one_class_per_sample(run, model):
    assert run("fit", "iris", "-m", model, "--random-state", 0, "-o", "m.mm")[0] == 0
    code, out, _ = run("evaluate", "m.mm", "iris", "--json")
    assert code == 0 and json.loads(out)["accuracy"] > 0.9
    code, out, _ = run("predict", "m.mm", "iris")
    assert out.splitlines()[:2] == ["class", "setosa"]


def test_ranking_of_a_stream(run):
    assert run("fit", "mail-stream", "-m", "ranking", "-o", "m.mm")[0] == 0
    code, out, _ = run("evaluate", "m.mm", "mail-stream", "--json")
    assert code == 0 and json.loads(out)["top label right"] > 0.8


def test_sequences(run):
    rng = np.random.default_rng(0)
    lines = []
    for word in range(12):
        for place, letter in enumerate("abc"):
            pixels = [int(rng.random() < 0.1) for _ in range(6)]
            pixels["abc".index(letter)] = 1
            following = -1 if place == 2 else len(lines) + 2
            lines.append(
                "\t".join(map(str, [len(lines) + 1, letter, following, word, place, word % 2, *pixels]))
            )
    Path("letter.data").write_text("\n".join(lines) + "\n")
    code, _, err = run("fit", "letter.data", "-m", "chain", "-o", "m.mm")
    assert code == 0, err
    code, out, _ = run("evaluate", "m.mm", "letter.data", "--json")
    assert json.loads(out)["samples"] == 6 and json.loads(out)["word accuracy"] == 1.0
    code, out, _ = run("predict", "m.mm", "letter.data")
    assert out.split() == ["class", *"abc" * 6]
    code, out, err = run("compare", "letter.data", "-m", "chain", "--json", "--folds", 2)
    assert code == 0 and len(out.splitlines()) == 2, err


def test_compare_lists_models_and_baselines(run):
    code, out, err = run(
        "compare", "iris", "-m", "multiclass", "-m", "sparse-multiclass", "--json", "--folds", 2
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0, err
    assert [row["model"] for row in rows] == [
        "multiclass", "scikit-learn LinearSVC", "sparse-multiclass", "scikit-learn SVC",
    ]  # fmt: skip
    assert all(0.9 < row["accuracy"][0] <= 1 and row["fit s"][0] > 0 for row in rows)
    assert all(set(row["C"].split(", ")) <= {"0.01", "0.1", "1", "10"} for row in rows)
    assert "4 models, 2 folds: about " in err
    code, out, _ = run("compare", "flags", "--no-baseline", "--no-tune")
    assert code == 0 and "±" in out


def test_compare_chooses_no_C_if_one_is_given(run):
    _, out, _ = run("compare", "iris", "-m", "multiclass", "--C", "5", "--json", "--no-baseline")
    assert "C" not in json.loads(out)
    _, out, _ = run("compare", "iris", "-m", "multiclass", "--C", "5", "--tune", "--json", "--no-baseline")
    assert "C" in json.loads(out)


def test_reproduce_lists_and_runs_experiments(run, tmp_path):
    code, _, err = run("reproduce")
    assert code == 2 and "--repository" in err
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "tiny.py").write_text('"""A tiny experiment."""\nimport sys\nsys.exit(len(sys.argv))\n')
    (folder / "minutes.toml").write_text("tiny = 7\n")
    code, out, _ = run("reproduce")
    assert code == 0 and "A tiny experiment." in out and " 7 " in out
    code, _, err = run("reproduce", "tiny", "--some", "option")
    assert code == 3 and "about 7 minutes of one core" in err
    assert "takes seconds" in run("reproduce", "tiny", "--small")[2]
    assert run("reproduce", "huge")[0] == 2


def test_reproduce_names_missing_data(run, tmp_path, monkeypatch):
    monkeypatch.delenv("MAXMARGIN_DATA", raising=False)
    monkeypatch.setenv("MAXMARGIN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "tiny.py").write_text(
        '"""Tiny."""\nimport os, pathlib\n'
        'folder = pathlib.Path("experiments/small")\nfolder.mkdir()\n(folder / "tiny.csv").write_text("a")\n'
    )
    (tmp_path / "experiments" / "data.toml").write_text('tiny = ["yeast", "awa1"]\n')
    _, out, _ = run("reproduce")
    assert "yeast, awa1 (not here)" in " ".join(out.split())
    code, out, err = run("reproduce", "tiny")
    assert code == 1 and not out and len(err.strip().splitlines()) == 1
    assert "not on this machine: awa1." in err and "maxmargin datasets info awa1" in err
    code, out, err = run("reproduce", "tiny", "--small")
    assert code == 0 and (out + err).strip().splitlines()[-1].endswith("tiny.csv")


MISTAKES = [
    ("fit yeast -m multiclass -o m.mm", 1, "use --model multilabel"),
    ("fit iris -m sparse-multilabel -o m.mm", 1, "use --model sparse-multiclass"),
    ("fit yeast -m sparse-multiclass -o m.mm", 1, "use --model sparse-multilabel"),
    ("fit iris -m multiclass -o m.mm --C -1", 2, "must be a float in the range"),
    ("fit iris -m multiclass -o m.mm --mx-iter 5", 2, "Did you mean --max-iter"),
    ("fit t.csv --target b --drop a -o m.mm", 1, "no feature"),
    ("fit t.csv --target b --delimiter ;; -o m.mm", 1, "one char"),
    ("report m.mm iris", 1, "`maxmargin fit"),
    ("predict bad.mm iris -o .", 1, "not a whole model file"),
    ("evaluate bad.mm iris", 1, "not a whole model file"),
]


def test_mistakes_are_reported_in_one_line(run):
    """Beside the table of wrong calls in tests/test_wrong_calls.py."""
    Path("bad.mm").write_text("not a model")
    Path("t.csv").write_text("a,b\n1,x\n2,y\n")
    for line, code, message in MISTAKES:
        found, out, err = run(*line.split())
        assert found == code and message in err and not out, line
        assert err.startswith("Error: ") and err.count("\n") == 1 and not os.path.exists("m.mm")


def test_data_that_does_not_fit_the_model(run):
    run("fit", "iris", "-m", "multiclass", "-o", "m.mm")
    code, _, err = run("evaluate", "m.mm", "wine")
    assert code == 1 and "13 features, but the model was fitted on 4" in err


@pytest.mark.parametrize(
    "notes", [{"family": []}, {"label_names": 3}, {"reading": {"encoding": 7}}, {"data": None}]
)
def test_notes_that_fit_does_not_write_are_refused(run, notes):
    run("fit", "iris", "-m", "multiclass", "-o", "m.mm")
    about = describe("m.mm")["metadata"]
    maxmargin.save(maxmargin.load("m.mm"), "m.mm", metadata={**about, **notes})
    code, _, err = run("predict", "m.mm", "iris")
    assert code == 1 and "was not written by `maxmargin fit`" in err


def test_a_fit_that_stops_early_warns_and_keeps_the_model(run):
    code, _, err = run("fit", "yeast", "-m", "multilabel", "--max-iter", 1, "--tol", 1e-9, "-o", "m.mm")
    assert code == 0 and "Warning: MultiLabelSVC: Stopped after 1 epochs" in err
    assert maxmargin.load("m.mm").duality_gap_ > 1e-9

"""The command line with many labels: XC files, sparse models, the best labels."""

import csv
import io
import json

import numpy as np
import pytest

from maxmargin.cli import main

N, D, L = 60, 12, 15


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(5)
    lines = [f"{N} {D} {L}"]
    for _ in range(N):
        labels = sorted(rng.choice(L, 2, replace=False).tolist())
        words = sorted({*labels, *rng.choice(D, 3).tolist()} & set(range(D)))
        lines.append(
            ",".join(map(str, labels)) + " " + " ".join(f"{j}:{rng.random() + 0.5:.3f}" for j in words)
        )
    (folder / "data.xc").write_text("\n".join(lines) + "\n")
    return folder


def run(capsys, *words):
    assert main([str(word) for word in words]) in (0, None)
    return capsys.readouterr().out


def test_fit_predict_top_and_evaluate(files, capsys):
    data, model = files / "data.xc", files / "model.mm"
    run(capsys, "fit", data, "-m", "multilabel", "--memory-limit", 0, "-o", model)
    table = list(csv.reader(io.StringIO(run(capsys, "predict", model, data, "--top", 3, "--scores"))))
    assert table[0] == ["label 1", "score 1", "label 2", "score 2", "label 3", "score 3"]
    assert len(table) == N + 1
    lines = run(capsys, "predict", model, data, "--top", 3, "--to", "jsonl").splitlines()
    assert [json.loads(line)["labels"] for line in lines] == [row[::2] for row in table[1:]]
    scores = np.array([row[1::2] for row in table[1:]], float)
    assert (np.diff(scores, axis=1) <= 0).all()
    found = json.loads(run(capsys, "evaluate", model, data, "--json"))
    hits = [
        len(set(row[::2][:1]) & set(line.split(" ")[0].split(",")))
        for row, line in zip(table[1:], data.read_text().splitlines()[1:], strict=True)
    ]
    assert found["P@1"] == pytest.approx(np.mean(hits))
    assert {"P@3", "P@5", "nDCG@5", "micro F1"} <= found.keys()


def test_a_blank_line_has_its_answer(files, capsys):
    model, new = files / "blank.mm", files / "new.xc"
    run(capsys, "fit", files / "data.xc", "-m", "multilabel", "-o", model)
    new.write_text(f"3 {D} {L}\n0 0:1\n \n1 1:1\n\n")
    assert len(run(capsys, "predict", model, new, "--to", "jsonl").splitlines()) == 3


def test_sparse_weights_behind_probabilities(files, capsys):
    data, model, page = files / "data.xc", files / "p.mm", files / "p.html"
    fit = ("fit", data, "-m", "multilabel", "--memory-limit", 0, "--probabilities", "sigmoid", "-o", model)
    run(capsys, *fit)
    assert len(run(capsys, "predict", model, data, "--top", 3).splitlines()) == N + 1
    run(capsys, "report", model, data, "-o", page)
    assert "Most weighted features" in page.read_text()
    told = json.loads(run(capsys, "explain", model, data, "--rows", 1, "--json"))
    assert sum(told["parts"].values()) + told["rest"] + told["bias"] == pytest.approx(told["score"])


def test_top_is_for_models_that_score_labels(files, capsys):
    data, model = files / "data.xc", files / "dense.mm"
    run(capsys, "fit", data, "-m", "multilabel", "-o", model)
    assert main(["predict", str(model), str(data), "--top", "2", "--to", "svmlight"]) == 2
    assert "--top is for" in capsys.readouterr().err

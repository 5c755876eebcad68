"""`maxmargin fit --cluster` trains the model of one machine from files that workers read."""

import json

import numpy as np
import pytest

import maxmargin
from maxmargin.cli import main


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    lines = []
    for x in X:
        labels = ",".join(str(k) for k in range(3) if x[k] > 0)
        lines.append(f"{labels} " + " ".join(f"{j + 1}:{v:.6f}" for j, v in enumerate(x)) + "\n")
    (tmp_path / "part-0.svm").write_text("".join(lines[:20]))
    (tmp_path / "part-1.svm").write_text("".join(lines[20:]))
    (tmp_path / "all.svm").write_text("".join(lines))
    (tmp_path / "shop.csv").write_text("word,size,kind\nred,1.5,a\nblue,2,b\n")
    return tmp_path


def test_fit_of_parts_is_the_fit_of_the_whole(processes, files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    address = processes.scheduler.address
    words = ["--tol", "1e-7", "--json", "-o"]
    assert main(["fit", "part-0.svm", "part-1.svm", "--cluster", address, *words, "parts.mm"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "dashboard: http" in printed.err
    assert main(["fit", "all.svm", *words, "all.mm"]) == 0
    best = json.loads(capsys.readouterr().out)
    assert found["objective"] == pytest.approx(best["objective"], rel=1e-6)
    assert found["samples"] == best["samples"] == 60
    assert type(maxmargin.load("parts.mm")) is maxmargin.MultiLabelSVC
    assert main(["evaluate", "parts.mm", "all.svm", "--json"]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert main(["evaluate", "all.mm", "all.svm", "--json"]) == 0
    theirs = json.loads(capsys.readouterr().out)
    assert ours["micro F1"] == pytest.approx(theirs["micro F1"], abs=0.02)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["part-0.svm", "--cluster", "local", "--scale", "standard"], "scale the files before"),
        (["part-0.svm", "--cluster", "local", "--recall", "0.9"], "leave --cluster out"),
        (["part-0.svm", "--cluster", "local", "--probabilities", "sigmoid"], "leave --cluster out"),
        (["shop.csv", "--cluster", "local", "--labels", "tags", "--text", "word"], "leave --cluster out"),
        (["shop.csv", "--cluster", "local"], "name the columns of labels with --target"),
        (["part-0.svm", "--workers", "2"], "--cluster local"),
        (["yeast", "--cluster", "local"], "workers read files"),
        (["nothing*.svm", "--cluster", "local"], "There is no file"),
        (["part-0.svm", "-m", "chain", "--cluster", "local"], "use -m multilabel or multiclass"),
        (["part-0.svm", "-m", "submodular", "--cluster", "local"], "leave --cluster out"),
        (["part-0.svm", "-m", "multilabel", "--cluster", "local", "--kernal", "rbf"], "Did you mean"),
        (["--cluster", "local"], "Name the DATA"),
        (["part-0.svm", "--cluster", "tcp://127.0.0.1:9", "--workers", "2"], "--cluster local"),
    ],
)
def test_wrong_calls_name_the_remedy(files, capsys, monkeypatch, words, message):
    monkeypatch.chdir(files)
    assert main(["fit", *words, "-o", "x.mm"]) in (1, 2)
    assert message in capsys.readouterr().err


def test_words_in_a_table_are_refused_with_the_remedy(processes, files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    line = ["shop.csv", "--target", "kind", "--cluster", processes.scheduler.address, "-o", "x.mm"]
    assert main(["fit", *line]) == 1
    printed = capsys.readouterr().err
    assert "'red' is not a number" in printed
    assert "--drop columns of words" in printed


@pytest.mark.slow
def test_an_error_in_a_part_is_printed_once(files, capfd, monkeypatch):
    monkeypatch.chdir(files)
    (files / "part-1.svm").write_text("1 1:x\n")
    line = ["part-0.svm", "part-1.svm", "--cluster", "local", "--workers", "1", "-o", "x.mm"]
    assert main(["fit", *line]) == 1
    printed = capfd.readouterr().err  # of the worker, too
    assert printed.count("'x' is not a finite number") == 1
    assert printed.splitlines()[-1].startswith("Error: ")
    assert "Compute Failed" not in printed


@pytest.mark.slow
def test_a_local_cluster_and_an_address_without_a_scheduler(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    line = ["all.svm", "-m", "multilabel", "--cluster", "local", "--workers", "1", "--partition", "rows"]
    assert main(["fit", *line, "-o", "x.mm"]) == 0
    assert "Cluster of 1 workers" in capsys.readouterr().err
    assert main(["fit", "all.svm", "--cluster", "tcp://127.0.0.1:9", "-o", "y.mm"]) == 1
    assert "no Dask scheduler answers" in capsys.readouterr().err

"""Options that all commands share, and how mistakes in options are reported."""

from __future__ import annotations

import json
import re

import pytest

TABLE = "a,b,kind\n" + "0,1,x\n1,0,y\n" * 8


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(("line", "message"), [
    ("fit none.csv --labels tags --kernell rbf", "--kernell is no option"),
    ("fit none.csv --kernell=rbf", "Did you mean --kernel?"),
    ("compare none.csv --kernell rbf", "Did you mean --kernel?"),
    ("fit none.csv --quite", "Did you mean --quiet?"),
    ("fit none.csv -x", "-x is no option"),
    ("fit none.csv --target kind --tol -1", "The 'tol' parameter of MultiClassSVC must be"),
])  # fmt: skip
def test_wrong_options_are_named_before_the_file_is_read(run, line, message):
    code, _, err = run(*line.split(), *(["-o", "m.mm"] if line.startswith("fit") else []))
    assert code == 2 and message in err


@pytest.mark.parametrize(("words", "message"), [
    (["--recall", "0.9"], "--recall 0.9 is for models of several labels"),
    (["--tree", "none.csv", "-m", "multilabel"], "--tree: there is no file none.csv"),
    (["--prior", "graph:none.csv", "-m", "multilabel"], "--prior graph: there is no file none.csv"),
    (["--prior", "learned", "-m", "sparse-multilabel"], "--prior learned is for MultiLabelSVC"),
    (["--probabilities", "auto", "-m", "chain"], "is not for sequences"),
])  # fmt: skip
def test_options_of_other_models_are_refused_before_the_file_is_read(run, tmp_path, words, message):
    (tmp_path / "empty.csv").write_text("")
    code, _, err = run("fit", "empty.csv", "--target", "kind", *words, "-o", "m.mm")
    assert code == 2 and message in err, err


@pytest.mark.parametrize("words", [
    ["fit", "iris", "-o", "m.mm", "-o", "n.mm"],
    ["fit", "iris", "-o", "m.mm", "--tol", "0.1", "--tol", "0.2"],
    ["fit", "iris", "-o", "m.mm", "--header", "--no-header"],
    ["compare", "iris", "--folds", "2", "--folds", "3"],
    ["predict", "m.mm", "iris", "--to", "csv", "--to", "jsonl"],
    ["datasets", "info", "iris", "--target", "a", "--target", "b"],
])  # fmt: skip
def test_an_option_with_one_value_is_not_repeated(run, words):
    code, _, err = run(*words)
    assert code == 2 and "is given twice, but it takes one value" in err, err


def test_the_columns_are_listed_if_no_label_column_is_named(run, table):
    table.with_suffix(".jsonl").write_text('{"a": 1, "kind": "x"}\n')
    for name, columns in (("t.csv", "'a', 'b', 'kind'"), ("t.jsonl", "'a', 'kind'")):
        code, _, err = run("fit", name, "-o", "m.mm")
        assert code == 2 and f"The columns are {columns}." in err


def test_columns_of_a_known_data_set_can_be_dropped(run):
    assert run("fit", "iris", "--drop", "sepal length (cm)", "-o", "m.mm")[0] == 0
    assert "3 features" in run("fit", "iris", "--drop", "sepal length (cm)", "-v", "-o", "m.mm")[2]
    code, _, err = run("fit", "iris", "--drop", "x", "-o", "m.mm")
    assert code == 1 and "no column is called 'x'" in err
    code, _, err = run("fit", "iris", "--target", "x", "-o", "m.mm")
    assert code == 2 and "--target is for files" in err


def test_quiet_prints_errors_and_the_result(run, table):
    table.write_text("n,price,kind\n" + "".join(f"{k},{k % 3},{'xy'[k % 2]}\n" for k in range(12)))
    words = ["fit", "t.csv", "--target", "kind", "--categories", "price", "-o", "m.mm"]
    _, _, told = run(*words)
    code, _, err = run(*words, "-q")
    assert code == 0 and "Warning: column 'n' looks like a row number" in told and "Columns by kind" in told
    assert err.startswith("model m.mm, ") and len(err.splitlines()) == 1
    code, out, err = run("evaluate", "m.mm", "t.csv", "-q", "--json")
    assert code == 0 and json.loads(out)["samples"] == 12 and not err
    code, _, err = run("predict", "none.mm", "t.csv", "-q")
    assert code == 1 and err.startswith("Error: ")


def test_verbose_and_the_log_have_details(run, table, tmp_path):
    words = ["fit", "t.csv", "--target", "kind", "-o", "m.mm"]
    _, _, err = run(*words, "-v")
    assert "2 features of 16 samples to MultiClassSVC" in err
    code, _, err = run(*words, "-q", "--log", "all.txt")
    run("predict", "none.mm", "t.csv", "--log", "all.txt")
    lines = (tmp_path / "all.txt").read_text().splitlines()
    assert code == 0 and "features of" not in err
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ", line) for line in lines)
    for words in (
        "maxmargin fit t.csv --target kind",
        "2 features of 16 samples",
        "Error: There is no model",
    ):
        assert any(words in line for line in lines), words
    assert run(*words, "-q", "-v")[0] == 2


def test_compare_guesses_the_family_and_keeps_its_cells_whole(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    code, out, err = run("compare", "flags", "--folds", "2", "--no-tune")
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith(" micro F1")]
    assert re.fullmatch(r" micro F1 +0\.\d+ ± 0\.\d+ +0\.\d+ ± 0\.\d+ *", line)

"""`maxmargin predict`: every format in and out, matched by name, in bounded memory."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import maxmargin
from maxmargin import datasets
from maxmargin.cli import main


@pytest.fixture
def run(capsysbinary, tmp_path, monkeypatch):
    """Run a command line in an empty directory; return its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def words(*line):
        code = main([str(word) for word in line])
        said = capsysbinary.readouterr()
        return code, said.out.decode() if b"PAR1" not in said.out else said.out, said.err.decode()

    return words


@pytest.fixture
def flags(run):
    """A model of flags, and its answers for the test part."""
    assert (
        run("fit", "flags", "-m", "multilabel", "--max-iter", 30, "--random-state", 0, "-o", "m.mm")[0] == 0
    )
    return maxmargin.load("m.mm").predict(datasets.load("flags", split="test").X)


READERS = {
    "csv": lambda path: datasets.read_csv(path, labels=7),
    "arff": lambda path: datasets.read_mulan(path, Path(path).with_suffix(".xml")),
    "parquet": lambda path: datasets.read_parquet(path, labels=7),
    "svm": lambda path: datasets.read_svmlight(path, labels=range(7), n_features=43),
}


@pytest.mark.parametrize("kind", READERS)
def test_to_same_writes_the_data_with_predicted_labels(run, flags, kind):
    run("datasets", "convert", "flags", f"test.{kind}", "--split", "test")
    code, out, err = run("predict", "m.mm", f"test.{kind}", "--to", "same", "-o", f"answers.{kind}")
    assert (code, out) == (0, ""), err
    back = READERS[kind](f"answers.{kind}")
    dense = [part.toarray() if kind == "svm" else part for part in (back.X, back.Y)]
    np.testing.assert_array_equal(dense[0], datasets.load("flags", split="test").X)
    np.testing.assert_array_equal(dense[1], flags)


@pytest.mark.parametrize("kind", ["svmlight", "arff", "parquet"])
def test_every_output_format(run, flags, kind):
    file = "answers." + {"svmlight": "svm"}.get(kind, kind)
    assert run("predict", "m.mm", "flags", "--to", kind, "-o", file)[0] == 0
    Y = READERS[file.partition(".")[2]](file).Y
    np.testing.assert_array_equal(Y.toarray() if kind == "svmlight" else Y, flags)
    code, out, err = run("predict", "m.mm", "flags", "--to", kind)
    assert code == 0 and len(out) > 1000, err


def test_svmlight_keeps_the_ids_of_its_labels(run):
    Path("t.svm").write_text("10,30 1:1\n30 2:1\n10 1:2\n30 2:2\n")
    assert run("fit", "t.svm", "-m", "multilabel", "--C", 100, "-o", "m.mm")[0] == 0
    code, out, err = run("predict", "m.mm", "t.svm", "--to", "same")
    assert code == 0, err
    assert {word for line in out.splitlines() for word in line.split()[0].split(",")} == {"10", "30"}


@pytest.mark.parametrize("kind", ["csv", "arff", "parquet"])
def test_columns_are_found_by_name(run, kind):
    """Other columns, another order, no labels."""
    train = datasets.Dataset(
        np.array([[0.0, 1], [1, 0], [0, 2], [2, 0]]), np.array(["x", "y", "x", "y"]), ("a", "b"), ("x", "y")
    )
    write = getattr(datasets, f"write_{kind}")
    write(train, f"train.{kind}")
    assert run("fit", f"train.{kind}", "-m", "multiclass", "--target", "class", "-o", "m.mm")[0] == 0
    other = datasets.Dataset(
        np.array([[7.0, 1, 0], [8, 0, 3]]), np.array(["y", "y"]), ("id", "b", "a"), ("y",)
    )
    write(other, f"new.{kind}")
    code, out, err = run("predict", "m.mm", f"new.{kind}")
    assert (code, out) == (0, "class\nx\ny\n"), err
    code, out, err = run("evaluate", "m.mm", f"new.{kind}", "--target", "class", "--json")
    assert code == 0 and json.loads(out)["accuracy"] == 0.5, err
    write(datasets.Dataset(other.X[:, :2], other.Y, ("id", "b"), ("y",)), f"less.{kind}")
    for command in (["predict"], ["evaluate", "--target", "class"]):
        code, _, err = run(command[0], "m.mm", f"less.{kind}", *command[1:])
        assert code == 1 and "'a'" in err


def test_labels_in_another_order_are_matched_by_name(run):
    Path("a.csv").write_text("x,red,sweet\n0,0,1\n1,1,1\n2,1,0\n3,1,0\n")
    Path("b.csv").write_text("sweet,red,x\n1,0,0\n1,1,1\n0,1,2\n0,1,3\n")
    assert run("fit", "a.csv", "-m", "multilabel", "--labels", "red,sweet", "--C", 100, "-o", "m.mm")[0] == 0
    found = [json.loads(run("evaluate", "m.mm", file, "--json")[1]) for file in ("a.csv", "b.csv")]
    assert found[0]["Hamming loss"] == found[1]["Hamming loss"]
    Path("c.csv").write_text("sour,red,x\n1,0,0\n")
    code, _, err = run("evaluate", "m.mm", "c.csv", "--labels", "sour,red")
    assert code == 1 and "'sour'" in err


def test_mailboxes_with_different_words(run):
    for box, folder, words in (
        ("train", "work", "budget meeting"), ("train", "home", "dinner garden"),
        ("new", "inbox", "garden dinner tonight"),
    ):  # fmt: skip
        for k in range(2):
            path = Path(box, folder, str(k))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"Date: {k + 1} Jan 2001 10:00:00 +0000\nSubject: hello\n\n{words}\n")
    assert run("fit", "train", "-m", "ranking", "-o", "m.mm")[0] == 0
    code, out, err = run("predict", "m.mm", "new")
    assert (code, out) == (0, "file,class\ninbox/0,home\ninbox/1,home\n"), err
    code, out, _ = run("predict", "m.mm", "new", "--to", "jsonl")
    assert json.loads(out.splitlines()[0]) == {"file": "inbox/0", "class": "home"}
    code, _, err = run("predict", "m.mm", "new", "--to", "same")
    assert code == 2 and "--to csv" in err


def test_letters_are_written_as_letter_data(run):
    lines = []
    for word in range(4):
        for place, letter in enumerate("ab"):
            following = -1 if place else len(lines) + 2
            pixels = [1, 0] if letter == "a" else [0, 1]
            lines.append("\t".join(map(str, [len(lines) + 1, letter, following, word, place, 1, *pixels])))
    Path("letter.data").write_text("\n".join(lines) + "\n")
    assert run("fit", "letter.data", "-m", "chain", "--split", "all", "-o", "m.mm")[0] == 0
    code, _, err = run("predict", "m.mm", "letter.data", "--to", "same", "-o", "answers.data")
    assert code == 0, err
    back, data = datasets.read_letter_data("answers.data"), datasets.read_letter_data("letter.data")
    np.testing.assert_array_equal(back.X, data.X)
    for key in ("word", "position", "fold"):
        np.testing.assert_array_equal(back.per_row[key], data.per_row[key])
    assert "".join(back.Y) == "ab" * 4


def test_the_model_file_stores_how_its_data_was_read(run):
    Path("t.csv").write_text("id;a;kind\nq1;0;x\nq2;1;y\nq3;0;x\nq4;2;y\n", encoding="latin-1")
    words = ["--target", "kind", "--drop", "id", "--delimiter", ";", "--encoding", "latin-1"]
    assert run("fit", "t.csv", "-m", "multiclass", *words, "-o", "m.mm")[0] == 0
    code, out, err = run("evaluate", "m.mm", "t.csv", "--json")
    assert code == 0 and json.loads(out)["accuracy"] == 1, err
    Path("u.csv").write_text("id,kind,a\nq1,y,9\n")
    code, out, err = run("evaluate", "m.mm", "u.csv", "--json", "--delimiter", ",")
    assert code == 0 and json.loads(out)["accuracy"] == 1, err


@pytest.mark.parametrize(
    ("text", "cure"),
    [("a,b\n", "no samples"), ("a,b\n1,\n", "fill them in"), ("a,b\n1,x\n", "line 2, column 2")],
)
def test_rows_that_cannot_be_predicted(run, text, cure):
    Path("t.csv").write_text("a,b,kind\n0,1,x\n1,0,y\n")
    run("fit", "t.csv", "-m", "multiclass", "--target", "kind", "-o", "m.mm")
    Path("new.csv").write_text(text)
    Path("old.csv").write_text("what was there")
    code, _, err = run("predict", "m.mm", "new.csv", "-o", "old.csv")
    assert code == 1 and cure in err
    assert Path("old.csv").read_text() == "what was there"


def _rows(n):
    rng = np.random.default_rng(0)
    X = rng.random((2000, 20)).round(4)
    y = rng.integers(2, size=2000)
    times = -(-n // 2000)
    return datasets.Dataset(
        np.tile(X, (times, 1))[:n], np.tile(y, times)[:n], tuple(f"c{j}" for j in range(20)), ("0", "1")
    )


def _write(kind, n, path):
    if kind == "svm":
        datasets.write_svmlight(_rows(n), path)
    else:
        getattr(datasets, f"write_{kind}")(_rows(n), path)


@pytest.mark.parametrize(
    ("kind", "to"), [("svm", "same"), ("csv", "csv"), ("arff", "same"), ("parquet", "csv")]
)
def test_memory_does_not_grow_with_the_rows(run, kind, to, monkeypatch):
    """Four times the rows need no more memory, of Python and of Arrow."""
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr("maxmargin.io.chunks.ROWS", 200)
    monkeypatch.setattr("maxmargin.io.svmlight.BLOCK", 1 << 15)
    _write(kind, 50, f"train.{kind}")
    target = [] if kind == "svm" else ["--target", "class"]
    assert run("fit", f"train.{kind}", "-m", "multiclass", "--max-iter", 5, *target, "-o", "m.mm")[0] == 0
    _write(kind, 1_000, f"small.{kind}")
    _write(kind, 4_000, f"large.{kind}")
    run("predict", "m.mm", f"train.{kind}", "--to", to, "-o", f"out.{kind}")
    peaks = []
    for name in ("small", "large"):
        tracemalloc.start()
        code, _, err = run("predict", "m.mm", f"{name}.{kind}", "--to", to, "-o", f"out.{kind}")
        peaks.append(tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory())
        tracemalloc.stop()
        assert code == 0, err
    assert peaks[1] < 1.3 * peaks[0]
    if to == "csv":
        assert len(list(csv.reader(io.StringIO(Path(f"out.{kind}").read_text())))) == 4_001

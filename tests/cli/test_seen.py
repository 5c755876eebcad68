"""A model that is evaluated on its training samples is reported as such."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin.cli import evaluate
from maxmargin.cli.measures import fingerprint
from maxmargin.persistence import describe

ALL = "samples, so the figures say little about new data."


@pytest.fixture
def table(tmp_path):
    """Two tables of one name and size, in two folders."""
    rng = np.random.default_rng(0)
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        rows = [f"{a:.3f},{b:.3f},{'x' if a > b else 'y'}" for a, b in rng.normal(size=(20, 2))]
        (tmp_path / folder / "t.csv").write_text("\n".join(["one,two,kind", *rows]) + "\n")
    return tmp_path


def test_training_data_beside_a_report_is_read_by_the_names_of_its_columns(run, table, monkeypatch):
    run("fit", "here/t.csv", "--target", "kind", "-m", "multiclass", "-o", "m.mm")
    lines = [line.split(",") for line in Path("here/t.csv").read_text().splitlines()]
    Path("turned.csv").write_text("\n".join(f"{b},{a},{kind}" for a, b, kind in lines))
    known, fitted = [], evaluate.baseline
    monkeypatch.setattr(evaluate, "baseline", lambda *given: known.append(given[1].X) or fitted(*given))
    for name in ("here/t.csv", "turned.csv"):
        code, _, err = run("report", "m.mm", "there/t.csv", "--train", name)
        assert code == 0, err
    np.testing.assert_array_equal(*known)


def trained_on(run, *line):
    code, out, err = run("evaluate", *line, "--json")
    assert code == 0, err
    return json.loads(out)["trained on"]


def test_evaluate_and_report_begin_with_it(run, table):
    assert run("fit", "here/t.csv", "--target", "kind", "-m", "multiclass", "-o", "m.mm")[0] == 0
    _, out, _ = run("evaluate", "m.mm", "here/t.csv")
    assert out.startswith(
        f"The model was trained on these 20 {ALL} To judge it, give samples that were held out"
    )
    assert "maxmargin compare" in out.splitlines()[0]
    _, _, err = run("report", "m.mm", "here/t.csv")
    assert f"The model was trained on these 20 {ALL}" in err
    assert (
        f'<div class="verdict"><p>The model was trained on these 20 {ALL} ' in Path("report.html").read_text()
    )
    _, out, _ = run("evaluate", "m.mm", "there/t.csv")
    assert out.startswith("m.mm on there/t.csv: 20 samples")
    _, _, err = run("report", "m.mm", "there/t.csv")
    assert "trained on" not in err and '<div class="verdict"><p>accuracy' in Path("report.html").read_text()


def test_rows_are_recognised_under_any_name(run, table, monkeypatch):
    run("fit", "here/t.csv", "--target", "kind", "-m", "multiclass", "-o", "m.mm")
    names, *rows = Path("here/t.csv").read_text().splitlines()
    Path("shuffled.csv").write_text("\n".join([names, *rows[::-1]]) + "\n")
    swapped = [",".join(row.split(",")[k] for k in (2, 1, 0)) for row in (names, *rows)]
    Path("swapped.csv").write_text("\n".join(swapped) + "\n")
    Path("part.csv").write_text("\n".join([names, *rows[:19]]) + "\n")
    Path("changed.csv").write_text("\n".join([names, *rows[:19], "9,9,x"]) + "\n")
    for source in ("shuffled.csv", "swapped.csv"):
        assert trained_on(run, "m.mm", source) == "all"
    assert trained_on(run, "m.mm", "shuffled.csv", "--float32") == "all"
    for source in ("there/t.csv", "changed.csv", "part.csv"):
        assert trained_on(run, "m.mm", source) == "none known"
    shutil.copy("there/t.csv", "here/t.csv")
    assert trained_on(run, "m.mm", "here/t.csv") == "none known"
    stdin = io.TextIOWrapper(io.BytesIO(Path("shuffled.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert trained_on(run, "m.mm", "-", "--format", "csv") == "all"


@pytest.mark.parametrize(("fitted", "evaluated", "which", "remedy"), [
    ([], [], "none known", ""),
    ([], ["--split", "train"], "all", "To judge it, leave --split out."),
    ([], ["--split", "all"], "some", "To judge it, leave --split out."),
    (["--split", "all"], [], "all", "To judge it, fit without --split all."),
    (["--split", "all"], ["--split", "all"], "all", "cross-validate it"),
    (["--split", "test"], [], "all", "held out of the fit"),
])  # fmt: skip
def test_parts_of_a_set_with_a_split(run, fitted, evaluated, which, remedy):
    run("fit", "flags", "-m", "multilabel", "--scale", "standard", *fitted, "-o", "m.mm")
    assert trained_on(run, "m.mm", "flags", *evaluated) == which
    first = run("evaluate", "m.mm", "flags", *evaluated)[1].splitlines()[0]
    assert remedy in first and ("trained on" in first) == bool(remedy)
    if which == "some":
        assert "trained on 129 of these 194 samples" in first


def test_a_set_and_the_file_it_was_written_to(run):
    run("fit", "flags", "-m", "multilabel", "--scale", "standard", "-o", "m.mm")
    for part, which in (("train", "all"), ("test", "none known")):
        for name in (f"{part}.csv", f"{part}.svm", f"{part}.arff"):
            run("datasets", "convert", "flags", name, "--split", part)
            options = ["--labels", 7] if name.endswith("csv") else []
            assert trained_on(run, "m.mm", name, *options) == which


def test_tables_with_words(run):
    rows = [f"{'red' if k % 3 else 'blue'} thing number {k},{k % 7},{'ab'[k % 2]}" for k in range(24)]
    Path("t.csv").write_text("\n".join(["title,size,kind", *rows]) + "\n")
    Path("u.csv").write_text("\n".join(["title,size,kind", *rows[:-1], "a new thing,3,b"]) + "\n")
    code, _, err = run("fit", "t.csv", "--target", "kind", "--text", "title", "-o", "m.mm")
    assert code == 0, err
    assert trained_on(run, "m.mm", "t.csv") == "all"
    assert trained_on(run, "m.mm", "u.csv") == "none known"


def test_without_a_fingerprint_name_and_size_decide(run, table):
    """As one of a cluster, whose rows are elsewhere."""
    run("fit", "here/t.csv", "--target", "kind", "-m", "multiclass", "-o", "m.mm")
    about = describe("m.mm")["metadata"]
    assert about.pop("rows")
    maxmargin.save(maxmargin.load("m.mm"), "m.mm", metadata=about)
    assert trained_on(run, "m.mm", "here/t.csv") == "all"
    assert trained_on(run, "m.mm", "there/t.csv") == "none known"


def test_the_fingerprint_depends_on_values_only():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 5)) * (rng.random((30, 5)) < 0.4)
    found = fingerprint(X)
    mixed = rng.permutation(30)
    for same in (X[mixed], X.astype(np.float32), sp.csr_array(X), sp.csc_matrix(X[mixed]), X + -0.0):
        assert fingerprint(same) == found
    for other in (X[:29], X[:, ::-1], -X, np.vstack([X, X]), np.vstack([X[1:], X[1:2]])):
        assert fingerprint(other) != found
    moved = X.copy()
    moved[3, 2] += 1e-3
    assert fingerprint(moved) != found

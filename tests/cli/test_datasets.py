"""`maxmargin datasets`, and the modules that a command imports."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import numpy as np
import pytest

from maxmargin import datasets
from maxmargin.cli import main


def test_list_names_every_known_data_set(capsys):
    assert main(["datasets", "list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == datasets.list_datasets()
    assert all(entry["where"] != "not here" and entry["licence"] for entry in entries)
    assert main(["datasets", "list", "--task", "multilabel"]) == 0
    said = capsys.readouterr().out
    assert "yeast" in said and "comes with the package" in said and "iris" not in said


def test_info_counts_samples(capsys):
    assert main(["datasets", "info", "flags", "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert (entry["samples"], entry["features"], entry["labels"]) == (194, 43, 7)
    assert (entry["training samples"], entry["test samples"]) == (129, 65)


@pytest.mark.parametrize("target", ["flags.csv", "flags.arff.gz", "flags.svm.xz"])
def test_convert_keeps_every_number(tmp_path, target, capsys):
    data = datasets.load("flags")
    assert main(["datasets", "convert", "flags", str(tmp_path / target)]) == 0
    back = tmp_path / "back.csv"
    options = ["--labels", "7"] if target.endswith(".csv") else []
    assert main(["datasets", "convert", str(tmp_path / target), str(back), *options]) == 0
    read = datasets.read_csv(back, labels=7)
    np.testing.assert_array_equal(read.X, data.X)
    np.testing.assert_array_equal(read.Y, data.Y)


def test_convert_takes_one_side_of_the_split(tmp_path):
    target = tmp_path / "train.csv"
    assert main(["datasets", "convert", "flags", str(target), "--split", "train"]) == 0
    assert datasets.read_csv(target, labels=7).X.shape == (129, 43)


def test_stdin_is_read_in_the_given_format(tmp_path, monkeypatch):
    class Stdin:
        buffer = io.BytesIO(b"1 1:0.5 2:1\n2 2:4\n")

    monkeypatch.setattr(sys, "stdin", Stdin)
    target = tmp_path / "out.csv"
    assert main(["datasets", "convert", "-", str(target), "--format", "svmlight", "--one-label"]) == 0
    assert target.read_text() == "x0,x1,class\n0.5,1,1\n0,4,2\n"


def test_an_error_on_stdin_names_stdin(tmp_path, monkeypatch, capsys):
    class Stdin:
        buffer = io.BytesIO(b"1 1:0.5 2:x\n")

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert main(["datasets", "convert", "-", str(tmp_path / "o.csv"), "--format", "svmlight"]) == 1
    assert "Error: stdin, line 1, column" in capsys.readouterr().err


def test_csv_columns_are_chosen_by_name_and_prefix(tmp_path):
    table = tmp_path / "table.tsv"
    table.write_text("id\ttag_a\tsize\ttag_b\n1\t0\t2.5\t1\n2\t1\t3.5\t0\n")
    target = tmp_path / "out.csv"
    main(["datasets", "convert", str(table), str(target), "--label-prefix", "tag_", "--drop", "id"])
    assert target.read_text() == "size,tag_a,tag_b\n2.5,0,1\n3.5,1,0\n"
    main(["datasets", "convert", str(table), str(target), "--target", "id", "--drop", "tag_a,tag_b"])
    assert target.read_text() == "size,id\n2.5,1\n3.5,2\n"


def test_a_mistake_is_one_message(run):
    """Beside the table of wrong calls in tests/test_wrong_calls.py."""
    for words, code, message in (
        ("info yaest", 1, "Did you mean 'yeast'"),
        ("convert yaest a.csv", 2, "Did you mean the data set yeast"),
        ("convert - a.csv", 2, "--format"),
        ("convert flags /nowhere/a.csv", 1, "/nowhere"),
        ("fetch rcv1-subsets", 1, "MAXMARGIN_DATA"),
    ):
        found, out, err = run("datasets", *words.split())
        assert found == code and message in err and "Traceback" not in err and not out, err
        assert sum(line.startswith("Error: ") for line in err.splitlines()) == 1
    assert "datasets" in run("dataset")[2]


def test_an_error_in_a_file_names_its_place(tmp_path, capsys):
    table = tmp_path / "bad.csv"
    table.write_text("a,b,y\n1,2,0\n1,x,1\n")
    assert main(["datasets", "convert", str(table), str(tmp_path / "o.csv"), "--target", "y"]) == 1
    assert f"{table}, line 3, column 2" in capsys.readouterr().err
    assert main(["datasets", "convert", str(table), str(tmp_path / "o.csv")]) == 2
    assert "--target, --labels or --label-prefix" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        ("--help", "numba matplotlib rich numpy sklearn scipy"),
        ("--version", "numba matplotlib rich numpy sklearn scipy maxmargin.io.registry multiprocessing"),
        ("datasets list", "numba matplotlib sklearn pandas"),
        ("info m.mm", "matplotlib maxmargin.report maxmargin.submodular maxmargin.dask maxmargin.cli.fit"),
        ("predict m.mm iris -o p.csv", "matplotlib maxmargin.report maxmargin.dask maxmargin.cli.demo"),
    ],
)
def test_a_command_imports_only_what_it_uses(run, tmp_path, words, heavy):
    assert run("fit", "iris", "-o", "m.mm")[0] == 0
    program = (
        f"import sys, maxmargin\nheavy = {set(heavy.split())}\n"
        "assert not {'numpy', 'click'} & set(sys.modules)\n"
        f"from maxmargin.cli import main\nassert main({words.split()}) == 0\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL, cwd=tmp_path)

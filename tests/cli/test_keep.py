"""`predict --keep`, and tables that are written again with the predicted labels."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.cli.conftest import read_table, write_table

SUBJECTS = ["cannot log in", "invoice is wrong", "log in fails", "two invoices"]
TICKETS = [
    {
        "ticket": f"T-{i:03d}",
        "subject": f"{SUBJECTS[i % 4]} lot{i}",
        "plan": ["free", "n/a", "team"][i % 3],
        "paid": f"{i % 4},50",
        "tags": ["access", "billing;urgent", "access;urgent", "billing"][i % 4],
        "kind": ["access", "billing"][i % 2],
    }
    for i in range(24)
]
CELLS = ["--decimal", ",", "--missing", "n/a"]
WITHOUT = [{key: row[key] for key in ("plan", "ticket", "subject", "paid")} for row in TICKETS]
NEW = [("new.csv", ","), ("semicolon.csv", ";"), ("new.jsonl", ","), ("new.parquet", ",")]


@pytest.fixture
def fitted(run, tmp_path):
    """Fit models of the tags and of the kind of tickets."""
    write_table(tmp_path / "tickets.csv", TICKETS)
    fit = ("fit", "tickets.csv", *CELLS, "--drop")
    assert run(*fit, "ticket,kind", "--labels", "tags", "-o", "tags.mm")[0] == 0
    assert run(*fit, "ticket,tags", "--target", "kind", "-o", "kind.mm")[0] == 0


@pytest.mark.parametrize(("name", "delimiter"), NEW)
def test_columns_are_copied_beside_the_predictions(run, tmp_path, fitted, name, delimiter):
    write_table(tmp_path / name, WITHOUT, delimiter)
    predict = ["predict", "tags.mm", name, "--delimiter", delimiter]
    code, out, err = run(*predict, "--keep", "ticket", "--keep", "plan")
    assert code == 0, err
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["ticket", "plan", "access", "billing", "urgent"]
    lines = run(*predict)[1].splitlines()[1:]
    expected = [f"{row['ticket']},{row['plan']},{line}" for row, line in zip(TICKETS, lines, strict=True)]
    assert out.splitlines()[1:] == expected
    first = json.loads(run(*predict, "--keep", "ticket", "--to", "jsonl", "--scores")[1].splitlines()[0])
    assert list(first) == ["ticket", "labels", "scores"] and first["ticket"] == "T-000"
    assert run(*predict, "--keep", "ticket", "--top", 1)[1].splitlines()[0] == "ticket,label 1"


@pytest.mark.parametrize(("name", "delimiter"), NEW)
def test_a_table_with_words_is_written_again_with_its_labels(run, tmp_path, fitted, name, delimiter):
    write_table(tmp_path / name, WITHOUT, delimiter)
    how, file = ["--delimiter", delimiter], (tmp_path / name).with_stem("out")
    for model, column in (("tags.mm", "tags"), ("kind.mm", "kind")):
        assert run("predict", model, name, *how, "--to", "same", "--keep", "ticket", "-o", file)[0] == 0
        rows = read_table(file, delimiter)
        assert list(rows[0]) == ["ticket", "subject", "plan", "paid", column]
        assert [{key: row[key] for key in WITHOUT[0]} for row in rows] == WITHOUT
        answers = run("predict", model, name, *how, "--to", "jsonl")[1].splitlines()
        for row, line in zip(rows, answers, strict=True):
            found = json.loads(line)
            if column == "kind":
                assert row[column] == found["class"]
            else:
                tags = row[column].split(";") if isinstance(row[column], str) else row[column]
                assert [tag for tag in tags if tag] == found["labels"]
        # The model reads this file like any other file with labels.
        code, out, err = run("evaluate", model, file, *how, "--json")
        assert code == 0, err
        assert json.loads(out)["exact match" if column == "tags" else "accuracy"] == 1


def test_tags_that_contain_a_separator_are_written_as_lists(run, tmp_path):
    rows = [{"t": ["red hat", "blue"][i % 2], "tags": [["a;b", "c"], ["c"]][i % 2]} for i in range(12)]
    write_table(tmp_path / "t.jsonl", rows)
    write_table(tmp_path / "t.csv", [{"t": row["t"]} for row in rows])
    assert run("fit", "t.jsonl", "--labels", "tags", "-o", "m.mm")[0] == 0
    assert run("predict", "m.mm", "t.csv", "--to", "same", "-o", "out.csv")[0] == 0
    assert json.loads(run("evaluate", "m.mm", "out.csv", "--json")[1])["exact match"] == 1
    assert {row["tags"] for row in read_table(tmp_path / "out.csv")} <= {'["a;b", "c"]', '["c"]'}


@pytest.mark.parametrize(
    ("name", "target"), [("t.csv", "segment"), ("t.csv", "-1"), ("t.parquet", "segment"), ("t.arff", "-1")]
)
def test_a_table_of_numbers_keeps_the_name_of_its_class(run, tmp_path, name, target):
    rows = [{"a": i % 3, "b": i, "segment": "xy"[i % 3 == 0]} for i in range(12)]
    if name == "t.arff":
        head = "@relation t\n@attribute a numeric\n@attribute b numeric\n@attribute segment {x,y}\n@data\n"
        lines = [",".join(map(str, row.values())) for row in rows]
        (tmp_path / name).write_text(head + "\n".join(lines))
    else:
        write_table(tmp_path / name, rows)
    assert run("fit", name, "--target", target, "-m", "multiclass", "-o", "m.mm")[0] == 0
    out = f"out{(tmp_path / name).suffix}"
    assert run("predict", "m.mm", name, "--to", "same", "-o", out)[0] == 0
    found = run("evaluate", "m.mm", out, "--target", "segment", "--json")[1]
    assert json.loads(found)["accuracy"] == 1
    if name != "t.arff":
        assert list(read_table(tmp_path / out)[0]) == ["a", "b", "segment"]
        assert run("predict", "m.mm", name, "--keep", "b", "--to", "same", "-o", out)[0] == 0
        assert list(read_table(tmp_path / out)[0]) == ["b", "a", "segment"]


def test_a_parquet_file_written_again_keeps_its_types(run, tmp_path, fitted, monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.setattr("maxmargin.io.mixed.ROWS", 5)
    rows = [{**row, "weight": i if i > 10 else None} for i, row in enumerate(WITHOUT)]
    write_table(tmp_path / "new.parquet", rows)
    words = ["--to", "same", "--keep", "weight", "-o", "out.parquet"]
    assert run("predict", "tags.mm", "new.parquet", *words)[0] == 0
    found, types = pq.read_table(tmp_path / "out.parquet"), pq.read_schema(tmp_path / "new.parquet")
    assert found.column("weight").to_pylist() == [row["weight"] for row in rows]
    assert all(found.schema.field(name).type == types.field(name).type for name in ("weight", "subject"))
    assert str(found.schema.field("tags").type).startswith("list<")


@pytest.mark.parametrize(("words", "expected"), [
    (["new.csv", "--keep", "tags", "--to", "same"], "tags: the predictions have a column of this name"),
    (["new.csv", "--keep", "urgent"], "--keep urgent: the predictions have a column of this name"),
    (["new.csv", "--keep", "ticket", "--to", "parquet"], "use csv, jsonl or same"),
    (["none.svm", "--keep", "ticket"], "--keep copies columns of CSV"),
    (["iris", "--keep", "ticket"], "--keep copies columns of CSV"),
    (["-", "--keep", "ticket"], "Data on stdin needs --format"),
    (["absent.csv", "--keep", "ticket"], "There is no file and no known data set 'absent.csv'"),
])  # fmt: skip
def test_wrong_columns_to_keep_are_refused_before_the_file_is_read(run, tmp_path, fitted, words, expected):
    (tmp_path / "new.csv").write_text("")
    (tmp_path / "none.svm").write_text("no numbers")
    code, out, err = run("predict", "tags.mm", *words)
    assert code == 2 and expected in err and not out, err


def test_an_absent_column_to_keep_is_named(run, tmp_path, fitted):
    write_table(tmp_path / "new.csv", WITHOUT)
    code, _, err = run("predict", "tags.mm", "new.csv", "--keep", "tickte")
    assert code == 1 and "no column is called 'tickte' (1 absent); did you mean 'ticket'?" in err


def test_dropped_columns_need_not_be_in_further_data(run, tmp_path):
    rows = [{"id": f"T{i}", "n": i % 3, "y": "ab"[i % 3 == 0]} for i in range(12)]
    write_table(tmp_path / "t.csv", rows)
    assert run("fit", "t.csv", "--target", "y", "--drop", "id", "-o", "m.mm")[0] == 0
    write_table(tmp_path / "new.csv", [{"n": row["n"], "y": row["y"]} for row in rows])
    code, out, err = run("evaluate", "m.mm", "new.csv", "--json")
    assert code == 0 and json.loads(out)["samples"] == 12, err
    code, _, err = run("evaluate", "m.mm", "new.csv", "--drop", "id")
    assert code == 1 and "to drop, no column is called 'id'" in err

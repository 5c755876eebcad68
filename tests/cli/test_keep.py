"""`predict --keep`, and tables that are written again with the predicted labels in them."""

from __future__ import annotations

import csv
import io
import json

import pytest

TICKETS = [
    {
        "ticket": f"T-{i:03d}",
        "subject": ["cannot log in", "invoice is wrong", "log in fails", "two invoices"][i % 4] + f" lot{i}",
        "plan": ["free", "n/a", "team"][i % 3],
        "paid": f"{i % 4},50",
        "tags": ["access", "billing;urgent", "access;urgent", "billing"][i % 4],
        "kind": ["access", "billing"][i % 2],
    }
    for i in range(24)
]
HOW = ["--decimal", ",", "--missing", "n/a"]
WITHOUT = [{key: row[key] for key in ("plan", "ticket", "subject", "paid")} for row in TICKETS]


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="") as out:
            table = csv.DictWriter(out, rows[0], delimiter=";" if "semicolon" in path.name else ",")
            table.writeheader()
            table.writerows(rows)
    return path


def read(path):
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pylist()
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=";" if "semicolon" in path.name else ","))


@pytest.fixture
def tagged(run, tmp_path):
    write(tmp_path / "tickets.csv", TICKETS)
    code, _, err = run(
        "fit", "tickets.csv", "--labels", "tags", "--drop", "ticket,kind", *HOW, "-o", "tags.mm"
    )
    assert code == 0, err


@pytest.fixture
def sorted_by_kind(run, tmp_path):
    write(tmp_path / "tickets.csv", TICKETS)
    code, _, err = run(
        "fit", "tickets.csv", "--target", "kind", "--drop", "ticket,tags", *HOW, "-o", "kind.mm"
    )
    assert code == 0, err


@pytest.mark.parametrize("name", ["new.csv", "semicolon.csv", "new.jsonl", "new.parquet"])
def test_columns_are_carried_through_beside_the_predictions(run, tmp_path, tagged, name):
    write(tmp_path / name, WITHOUT)
    how = ["--delimiter", ";"] if name.startswith("semicolon") else []
    code, out, err = run("predict", "tags.mm", name, *how, "--keep", "ticket", "--keep", "plan")
    assert code == 0, err
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["ticket", "plan", "access", "billing", "urgent"]
    assert [(row["ticket"], row["plan"]) for row in rows] == [(row["ticket"], row["plan"]) for row in TICKETS]
    assert out.splitlines()[1:] == [
        f"{row['ticket']},{row['plan']},{line}"
        for row, line in zip(TICKETS, run("predict", "tags.mm", name, *how)[1].splitlines()[1:], strict=True)
    ]
    _, out, _ = run("predict", "tags.mm", name, *how, "--keep", "ticket", "--to", "jsonl", "--scores")
    first = json.loads(out.splitlines()[0])
    assert list(first) == ["ticket", "labels", "scores"] and first["ticket"] == "T-000"
    _, out, _ = run("predict", "tags.mm", name, *how, "--keep", "ticket", "--top", 1)
    assert out.splitlines()[0] == "ticket,label 1"


@pytest.mark.parametrize("name", ["new.csv", "semicolon.csv", "new.jsonl", "new.parquet"])
def test_a_table_with_words_is_written_again_with_its_labels(run, tmp_path, tagged, sorted_by_kind, name):
    write(tmp_path / name, WITHOUT)
    how = ["--delimiter", ";"] if name.startswith("semicolon") else []
    file = tmp_path / f"{'semicolon-' * bool(how)}out{(tmp_path / name).suffix}"
    for model, column in (("tags.mm", "tags"), ("kind.mm", "kind")):
        assert run("predict", model, name, *how, "--to", "same", "--keep", "ticket", "-o", file)[0] == 0
        rows = read(file)
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
        # The model reads it as any other file with labels.
        code, out, err = run("evaluate", model, file, *how, "--json")
        assert code == 0, err
        assert json.loads(out)["exact match" if column == "tags" else "accuracy"] == 1


def test_tags_with_separators_in_them_are_written_as_lists(run, tmp_path):
    rows = [{"t": ["red hat", "blue"][i % 2], "tags": [["a;b", "c"], ["c"]][i % 2]} for i in range(12)]
    write(tmp_path / "t.jsonl", rows)
    write(tmp_path / "t.csv", [{"t": row["t"]} for row in rows])
    assert run("fit", "t.jsonl", "--labels", "tags", "-o", "m.mm")[0] == 0
    assert run("predict", "m.mm", "t.csv", "--to", "same", "-o", "out.csv")[0] == 0
    assert json.loads(run("evaluate", "m.mm", "out.csv", "--json")[1])["exact match"] == 1
    assert {row["tags"] for row in read(tmp_path / "out.csv")} <= {'["a;b", "c"]', '["c"]'}


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arff"])
@pytest.mark.parametrize("target", ["segment", "-1"])
def test_a_table_of_numbers_keeps_the_name_of_its_class(run, tmp_path, name, target):
    rows = [{"a": i % 3, "b": i, "segment": "xy"[i % 3 == 0]} for i in range(12)]
    if name == "t.arff":
        lines = [f"{row['a']},{row['b']},{row['segment']}" for row in rows]
        (tmp_path / name).write_text(
            "@relation t\n@attribute a numeric\n@attribute b numeric\n@attribute segment {x,y}\n@data\n"
            + "\n".join(lines)
        )
    else:
        write(tmp_path / name, rows)
    code, _, err = run("fit", name, "--target", target, "-m", "multiclass", "-o", "m.mm")
    assert code == 0, err
    out = f"out{(tmp_path / name).suffix}"
    assert run("predict", "m.mm", name, "--to", "same", "-o", out)[0] == 0
    code, found, err = run("evaluate", "m.mm", out, "--target", "segment", "--json")
    assert code == 0 and json.loads(found)["accuracy"] == 1, err
    if name != "t.arff":
        assert list(read(tmp_path / out)[0]) == ["a", "b", "segment"]
        assert run("predict", "m.mm", name, "--keep", "b", "--to", "same", "-o", out)[0] == 0
        assert list(read(tmp_path / out)[0]) == ["b", "a", "segment"]


def test_a_parquet_file_written_again_keeps_its_types(run, tmp_path, tagged, monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.setattr("maxmargin.io.mixed.ROWS", 5)
    rows = [{**row, "weight": i if i > 10 else None} for i, row in enumerate(WITHOUT)]
    write(tmp_path / "new.parquet", rows)
    words = ["--to", "same", "--keep", "weight", "-o", "out.parquet"]
    code, _, err = run("predict", "tags.mm", "new.parquet", *words)
    assert code == 0, err
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column("weight").to_pylist() == [row["weight"] for row in rows]
    types = pq.read_schema(tmp_path / "new.parquet")
    assert all(found.schema.field(name).type == types.field(name).type for name in ("weight", "subject"))
    assert str(found.schema.field("tags").type).startswith("list<")


@pytest.mark.parametrize(("words", "cure"), [
    (["new.csv", "--keep", "tags", "--to", "same"], "tags: the predictions have a column of this name"),
    (["new.csv", "--keep", "urgent"], "--keep urgent: the predictions have a column of this name"),
    (["new.csv", "--keep", "ticket", "--to", "parquet"], "use csv, jsonl or same"),
    (["none.svm", "--keep", "ticket"], "--keep copies columns of CSV"),
    (["iris", "--keep", "ticket"], "--keep copies columns of CSV"),
    (["-", "--keep", "ticket"], "Data on stdin needs --format"),
    (["absent.csv", "--keep", "ticket"], "There is no file and no known data set 'absent.csv'"),
])  # fmt: skip
def test_what_cannot_be_carried_is_refused_before_the_file_is_read(run, tmp_path, tagged, words, cure):
    (tmp_path / "new.csv").write_text("")
    (tmp_path / "none.svm").write_text("no numbers")
    code, out, err = run("predict", "tags.mm", *words)
    assert code == 2 and cure in err and not out, err


def test_a_column_to_keep_that_is_not_there_is_named(run, tmp_path, tagged):
    write(tmp_path / "new.csv", WITHOUT)
    code, _, err = run("predict", "tags.mm", "new.csv", "--keep", "tickte")
    assert code == 1 and "no column is called 'tickte' (1 absent); did you mean 'ticket'?" in err


def test_columns_left_out_in_training_need_not_be_in_further_data(run, tmp_path):
    rows = [{"id": f"T{i}", "n": i % 3, "y": "ab"[i % 3 == 0]} for i in range(12)]
    write(tmp_path / "t.csv", rows)
    assert run("fit", "t.csv", "--target", "y", "--drop", "id", "-o", "m.mm")[0] == 0
    write(tmp_path / "new.csv", [{"n": row["n"], "y": row["y"]} for row in rows])
    code, out, err = run("evaluate", "m.mm", "new.csv", "--json")
    assert code == 0 and json.loads(out)["samples"] == 12, err
    code, _, err = run("evaluate", "m.mm", "new.csv", "--drop", "id")
    assert code == 1 and "to drop, no column is called 'id'" in err

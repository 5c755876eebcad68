"""Tables as people have them: words, categories, tags, missing values, CSV, JSON lines and Parquet."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys

import pandas as pd
import polars as pl
import pytest

import maxmargin
from maxmargin.io.mixed import tags_of
from maxmargin.persistence import describe
from tests.cli.conftest import write_table

TITLES = ["silk scarf", "wool socks", "silk hat", "wool gloves", "old boots"]
TAGS = [["bright", "soft"], ["warm"], ["bright", "soft"], ["warm"], []]
ROWS = [
    {
        "title": f"{TITLES[i % 5]} lot{chr(97 + i)}",
        "colour": ["red", "blue", None][i % 3],
        "price": None if i == 4 else 5.0 * (i % 7) + 1,
        "tags": TAGS[i % 5],
    }
    for i in range(25)
]


def write(path, rows=ROWS):
    """Write rows as the name of the file says."""
    plain = path.with_name(path.name.removesuffix(".gz"))
    delimiter = ";" if "semicolons" in path.name else "\t" if ".tsv" in path.name else ","
    if path.name.startswith("json."):
        rows = [{**row, "tags": json.dumps(row["tags"])} for row in rows]
    write_table(plain, rows, delimiter, "|" if delimiter == ";" else ";")
    if path != plain:
        path.write_bytes(gzip.compress(plain.read_bytes()))


FILES = ["shop.tsv", "shop.csv.gz", "shop.jsonl.gz", "shop.parquet", "semicolons.csv", "json.csv"]


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_leads_to_the_same_model(run, tmp_path, name):
    write(tmp_path / name), write(tmp_path / "other.jsonl")
    code, _, err = run("fit", name, "--labels", "tags", "--random-state", 0, "-o", "m.mm")
    assert code == 0, err
    assert "number: price; category: colour; text: title" in err
    about = describe("m.mm")["metadata"]
    assert about["family"] == "multilabel" and about["label_names"] == ["bright", "soft", "warm"]
    assert about["columns"] == {"title": "text", "colour": "category", "price": "number"}
    code, out, err = run("predict", "m.mm", name, "--to", "jsonl")
    assert code == 0, err
    assert [json.loads(line)["labels"] for line in out.splitlines()] == [row["tags"] for row in ROWS]
    assert json.loads(run("evaluate", "m.mm", "other.jsonl", "--json")[1])["exact match"] == 1.0


def test_a_table_without_labels_is_predicted(run, tmp_path):
    write(tmp_path / "shop.csv")
    assert run("fit", "shop.csv", "--labels", "tags", "-o", "m.mm")[0] == 0
    (tmp_path / "new.jsonl").write_text('{"title": "silk ribbon", "colour": "pink", "price": null}\n')
    code, out, err = run("predict", "m.mm", "new.jsonl")
    assert code == 0 and out == "bright,soft,warm\n1,1,0\n", err
    (tmp_path / "new.csv").write_text("title,price\nsilk,3\n")
    code, _, err = run("predict", "m.mm", "new.csv")
    assert code == 1 and "no column is called 'colour' (1 absent)" in err


def test_standard_input_and_one_class_per_row(run, tmp_path, monkeypatch):
    rows = [{"title": row["title"], "kind": (row["tags"] or ["other"])[0]} for row in ROWS]
    write(tmp_path / "new.csv", rows)
    stdin = io.TextIOWrapper(io.BytesIO((tmp_path / "new.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    code, _, err = run("fit", "-", "--format", "csv", "--target", "kind", "-o", "m.mm")
    assert code == 0, err
    assert describe("m.mm")["metadata"]["family"] == "multiclass"
    assert run("predict", "m.mm", "new.csv")[1].split() == ["class", *(row["kind"] for row in rows)]


def test_kinds_and_text_features_can_be_given(run, tmp_path):
    write(tmp_path / "shop.jsonl", [{**row, "lot": i} for i, row in enumerate(ROWS)])
    fit = ("fit", "shop.jsonl", "--labels", "tags", "--text", "title,colour", "-o", "m.mm")
    for drop in (["--drop", "price,lot"], ["--drop", "price", "--drop", "lot"]):
        assert run(*fit, *drop, "--text-as", "character")[0] == 0
        assert describe("m.mm")["metadata"]["columns"] == {"title": "text", "colour": "text"}
        assert maxmargin.load("m.mm")["prepare"].transformers_[0][1].analyzer == "char_wb"


@pytest.mark.parametrize("scale", ["auto", "none"])
def test_numbers_beside_words_are_scaled_by_default(run, tmp_path, scale):
    write(tmp_path / "shop.csv")
    assert run("fit", "shop.csv", "--labels", "tags", "--scale", scale, "-o", "m.mm")[0] == 0
    numbers = maxmargin.load("m.mm")["prepare"].transformers_[0][1]
    assert [name for name, _ in numbers.steps] == (["fill", "scale"] if scale == "auto" else ["fill"])


def test_missing_numbers_are_filled_behind_probabilities_too(run, tmp_path):
    lines = [f"{k % 5},{k % 3},{int(k % 5 > 2)}" for k in range(40)]
    (tmp_path / "t.csv").write_text("a,b,y\n" + "\n".join(lines) + "\n,1,0\n")
    (tmp_path / "new.csv").write_text("a,b\n4,\n,\n")
    assert run("fit", "t.csv", "--target", "y", "--probabilities", "sigmoid", "-o", "m.mm")[0] == 0
    code, out, err = run("predict", "m.mm", "new.csv")
    assert code == 0 and out.split()[:2] == ["class", "1"], err


def test_missing_numbers_are_filled_where_training_had_some(run, tmp_path):
    text = "a,b,y\n" + "".join(f"{i},{'' if i == 3 else 1000 * i},{i > 5:d}\n" for i in range(12))
    (tmp_path / "t.csv").write_text(text)
    assert run("fit", "t.csv", "--target", "y", "-o", "m.mm")[0] == 0
    model = maxmargin.load("m.mm")
    assert [name for name, _ in model.steps] == ["columns", "fill", "scale", "model"]
    assert run("predict", "m.mm", "t.csv")[1].split()[1:] == [str(int(i > 5)) for i in range(12)]
    (tmp_path / "full.csv").write_text(text.replace("3,,", "3,3000,"))
    assert run("fit", "full.csv", "--target", "y", "-o", "full.mm")[0] == 0
    code, _, err = run("predict", "full.mm", "t.csv")
    assert code == 1 and "row 4 has missing values, but the training data had none" in err
    code, _, err = run("evaluate", "full.mm", "t.csv")
    assert code == 1 and "row 4 has missing values" in err


def test_scale_auto_compares_the_sizes_of_columns(run):
    run("fit", "iris", "-m", "multiclass", "-o", "even.mm")
    run("fit", "wine", "-m", "multiclass", "-o", "uneven.mm")
    assert not hasattr(maxmargin.load("even.mm"), "steps")
    assert hasattr(maxmargin.load("uneven.mm"), "steps")


@pytest.mark.parametrize("model", ["multilabel", "ranking"])
def test_unknown_tags_count_as_missed(run, tmp_path, model):
    write(tmp_path / "shop.jsonl")
    run("fit", "shop.jsonl", "--labels", "tags", "-m", model, "-o", "m.mm")
    write(
        tmp_path / "new.jsonl",
        [{**row, "tags": [*row["tags"], "new", "x"[: i % 2]]} for i, row in enumerate(ROWS)],
    )
    known = json.loads(run("evaluate", "m.mm", "shop.jsonl", "--json")[1])
    found = json.loads(run("evaluate", "m.mm", "new.jsonl", "--json")[1])
    assert known["unknown labels"] == {} and found["unknown labels"] == {"new": 25, "x": 12}
    if model == "multilabel":
        assert known["exact match"] == 1 and found["exact match"] == 0
        tags = sum(len(row["tags"]) for row in ROWS)
        assert found["micro F1"] == pytest.approx(2 * tags / (2 * tags + 37))
        assert found["macro F1"] == pytest.approx(3 / 5)
    else:
        assert found["average precision"] < known["average precision"]
        assert found["ranking loss"] > known["ranking loss"]
    code, out, _ = run("evaluate", "m.mm", "new.jsonl")
    line = "37 labels of the data are unknown to the model and counted as missed: new (25), x (12)."
    assert code == 0 and line in out
    beside = ("--train", "shop.jsonl") if model == "multilabel" else ()
    code, _, err = run("report", "m.mm", "new.jsonl", *beside, "-o", "r.html")
    assert code == 0 and line in err and line in (tmp_path / "r.html").read_text()


def test_unknown_classes_are_counted(run, tmp_path):
    (tmp_path / "t.csv").write_text("n,y\n" + "".join(f"{i},{'ab'[i > 9]}\n" for i in range(20)))
    (tmp_path / "new.csv").write_text("n,y\n1,a\n19,c\n")
    run("fit", "t.csv", "--target", "y", "-o", "m.mm")
    code, out, _ = run("evaluate", "m.mm", "new.csv")
    assert code == 0 and "1 label of the data is unknown to the model and counted as missed: c (1)." in out


def test_unknown_categories_are_counted(run, tmp_path):
    write(tmp_path / "shop.csv")
    run("fit", "shop.csv", "--labels", "tags", "-o", "m.mm")
    write(tmp_path / "new.csv", [{**row, "colour": ["red", "pink"][i % 2]} for i, row in enumerate(ROWS)])
    line = "Column 'colour': 12 values unknown to the model, encoded as none of its categories: pink (12)."
    assert line in run("evaluate", "m.mm", "new.csv")[1]
    found = json.loads(run("evaluate", "m.mm", "new.csv", "--json")[1])
    assert found["unknown categories"] == {"colour": {"pink": 12}}
    assert line in run("report", "m.mm", "new.csv", "-o", "r.html")[2]
    assert line in run("predict", "m.mm", "new.csv")[2]
    assert "unknown" not in run("predict", "m.mm", "shop.csv")[2]


def test_the_report_names_the_columns_of_the_table(run, tmp_path):
    write(tmp_path / "shop.csv")
    run("fit", "shop.csv", "--labels", "tags", "-o", "m.mm")
    code, _, err = run("report", "m.mm", "shop.csv", "--train", "shop.csv", "-o", "r.html")
    assert code == 0, err
    page = (tmp_path / "r.html").read_text()
    numbers = "numbers (price): missing numbers are the median of their column"
    for words in ("title: silk", "categories (colour)", "text (title) as tf-idf of words", numbers):
        assert words in page, words


FAULTS = {
    "a date": ("day,y\n2024-01-02,a\n2024-02-03,b\n", "column 'day' holds dates ('2024-01-02')"),
    "a typing mistake": (
        "n,y\n1,a\n2,b\n3x,a\n4,b\n",
        "line 4, column 1: column 'n': '3x' is not a number",
    ),
    "a word for missing": ("n,y\n1,a\n2,b\nn/a,a\n4,b\n", "pass --missing n/a if it means that"),
    "a decimal comma": ('n,y\n1,a\n2,b\n"1,5",a\n4,b\n', "pass --decimal , if it means that"),
    "a missing class": ("t,y\nred hat,a\nblue,\n", "line 3: the class is missing (column 'y')"),
    "too many fields": ("t,y\nred hat,a\nblue,b,c\n", "line 3"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_names_its_place_and_a_remedy(run, tmp_path, fault):
    text, said = FAULTS[fault]
    (tmp_path / "t.csv").write_text(text)
    code, _, err = run("fit", "t.csv", "--target", "y", "-o", "m.mm")
    assert code == 1 and said.lower() in err.lower(), err


@pytest.mark.parametrize(("line", "said"), [
    ("[1, 2]", "expected an object in braces, found a list"),
    ("{oops", "line 2: not a JSON object"),
    ('{"t": "b", "tags": {"a": 1}}', "is not a tag; expected words, a list or a list in JSON"),
    ('{"t": "b", "tags": [["a"]]}', "is not a list of words"),
    ('{"t": ["b"], "tags": ["a"]}', "holds ['b'], a list"),
    ("[" * 100_000, "line 2: not a JSON object"),
])  # fmt: skip
def test_an_error_in_json_lines_names_its_line(run, tmp_path, line, said):
    (tmp_path / "t.jsonl").write_text('{"t": "red hat", "tags": ["a"]}\n' + line + "\n")
    code, _, err = run("fit", "t.jsonl", "--labels", "tags", "-o", "m.mm")
    assert code == 1 and said in err, err


def test_a_separator_that_does_not_occur_is_reported(run, tmp_path):
    (tmp_path / "t.csv").write_text("n,tags\n1,a;b\n2,b\n3,a;b\n4,b\n")
    code, _, err = run("fit", "t.csv", "--labels", "tags", "--separator", "/", "-o", "m.mm")
    assert code == 0 and "the separator '/' does not occur, but ';' does" in err
    assert (
        "does not occur" not in run("fit", "t.csv", "--labels", "tags", "--separator", ";", "-o", "m.mm")[2]
    )


IDS = {
    "a row number": [str(i) for i in range(40)],
    "a row number of some rows": [str(i * i + 7) for i in range(40)],
    "a word": [f"T-{7 * i % 40:04d}" for i in range(40)],
}


@pytest.mark.parametrize(("kind", "beside"), [
    ("a row number", "numbers"), ("a row number", "words"), ("a row number of some rows", "numbers"),
    ("a word", "numbers"),
])  # fmt: skip
def test_a_column_of_ids_is_reported(run, tmp_path, kind, beside):
    rows = [
        {
            "key": key,
            "n": i % 7,
            "t": ["red hat", "blue"][i % 2] if beside == "words" else i % 3,
            "y": "ab"[i % 2],
        }
        for i, key in enumerate(IDS[kind])
    ]
    write(tmp_path / "t.csv", rows)
    _, _, err = run("fit", "t.csv", "--target", "y", "-o", "m.mm")
    assert "Warning: column 'key'" in err and err.count("--drop key leaves it out") == 1
    assert "leaves it out" not in run("evaluate", "m.mm", "t.csv")[2]


def test_categories_of_many_values_and_numbers_as_words_are_reported(run, tmp_path):
    rows = [{"n": i % 7, "day": f"day {i}", "paid": f"{i},40", "y": "ab"[i % 2]} for i in range(40)]
    write(tmp_path / "t.csv", rows)
    _, _, err = run("fit", "t.csv", "--target", "y", "--categories", "day", "-o", "m.mm")
    assert "column 'day' has 40 categories in 40 rows" in err
    assert "column 'paid' is read as text, but '0,40' looks like a number; --decimal , reads it" in err
    _, _, err = run("fit", "t.csv", "--target", "y", "--text", "day,paid", "-o", "m.mm")
    assert "Warning: column" not in err
    write(tmp_path / "points.csv", [{**row, "paid": f"{i}.40"} for i, row in enumerate(rows)])
    how = ["--target", "y", "--drop", "day", "--decimal", ","]
    _, _, err = run("fit", "points.csv", *how, "-o", "m.mm")
    assert "'0.40' looks like a number; --decimal . reads it as one" in err


CELLS = [
    {"paid": "1,50", "age": 3, "y": "a"},
    {"paid": "n/a", "age": -9, "y": "b"},
    {"paid": "-20,25", "age": 4, "y": "b"},
    {"paid": "3", "age": 1, "y": "a"},
] * 5
PLAIN = [
    {
        key: {"1,50": 1.5, "n/a": None, "-20,25": -20.25, "3": 3.0, -9: None}.get(v, v)
        for key, v in row.items()
    }
    for row in CELLS
]
HOW = ["--decimal", ",", "--missing", "n/a", "--missing=-9"]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_decimal_commas_and_missing_words_are_read_as_given(run, tmp_path, name):
    write(tmp_path / name, CELLS), write(tmp_path / "plain.jsonl", PLAIN)
    code, _, err = run("fit", name, "--target", "y", *HOW, "-o", "m.mm")
    assert code == 0 and "Columns by kind: number: paid, age." in err, err
    assert run("fit", "plain.jsonl", "--target", "y", "-o", "plain.mm")[0] == 0
    told, plain = maxmargin.load("m.mm"), maxmargin.load("plain.mm")
    assert told["fill"].statistics_.tolist() == plain["fill"].statistics_.tolist() == [1.5, 3]
    # The model file holds how its data is read.
    expected = run("predict", "plain.mm", "plain.jsonl")[1]
    for frame in (pd.DataFrame(CELLS), pl.DataFrame(CELLS), pd.DataFrame(CELLS)[["age", "paid"]]):
        assert ["class", *told.predict(frame)] == expected.split()
    accuracy = json.loads(run("evaluate", "plain.mm", "plain.jsonl", "--json")[1])["accuracy"]
    for other in ("new.csv", "new.jsonl"):
        write(tmp_path / other, CELLS)
        code, out, err = run("predict", "m.mm", other)
        assert code == 0 and out == expected, err
        assert json.loads(run("evaluate", "m.mm", other, "--json")[1])["accuracy"] == accuracy
    write(tmp_path / "points.csv", [{**row, "paid": "1.5"} for row in CELLS])
    code, _, err = run("predict", "m.mm", "points.csv")
    assert code == 1 and "'1.5' is not a number with a decimal comma" in err
    assert run("predict", "m.mm", "points.csv", "--decimal", ".")[0] == 0


def test_missing_words_and_decimals_stand_beside_words(run, tmp_path):
    rows = [{**row, "t": ["red hat", "NULL", "blue"][i % 3]} for i, row in enumerate(CELLS)]
    write(tmp_path / "t.csv", rows)
    code, _, err = run("fit", "t.csv", "--target", "y", *HOW, "--missing", "NULL", "-o", "m.mm")
    assert code == 0 and "number: paid, age; category: t." in err, err
    known = maxmargin.load("m.mm")["prepare"].named_transformers_["categories"].categories_[0]
    assert None in known.tolist() and "NULL" not in known.tolist()
    assert run("predict", "m.mm", "t.csv")[0] == 0
    _, _, err = run("fit", "t.csv", "--target", "y", "--missing", "n/a", "-o", "m.mm")
    assert "column 'paid' is read as category, but '1,50' looks like a number; --decimal ," in err


@pytest.mark.parametrize("words", [["none.svm"], ["none.arff"], ["-", "--format", "svmlight"]])
def test_options_for_tables_are_refused_for_other_formats(run, tmp_path, words):
    (tmp_path / "none.svm").write_text("no numbers"), (tmp_path / "none.arff").write_text("")
    for option, value in (("--decimal", ","), ("--dates", "a"), ("--text", "a")):
        code, _, err = run("fit", *words, option, value, "-o", "m.mm")
        assert code == 2 and f"{option} is for CSV, JSON lines and Parquet" in err, err


@pytest.mark.parametrize("command", ["predict", "evaluate", "explain", "report"])
def test_kinds_of_columns_are_refused_after_fit(run, tmp_path, command):
    write(tmp_path / "shop.csv")
    assert run("fit", "shop.csv", "--labels", "tags", "-o", "m.mm")[0] == 0
    code, _, err = run(command, "m.mm", "shop.csv", "--text", "colour")
    assert code == 2 and "--text is for fit" in err


def test_tags_may_be_lists_of_python(run, tmp_path):
    tags = ["['a b', 'c']", "['c']", "[\"it's\", 'c']", "[]"] * 4  # as pandas writes them
    write(tmp_path / "t.csv", [{"n": i % 4, "tags": tags} for i, tags in enumerate(tags)])
    assert run("fit", "t.csv", "--labels", "tags", "-o", "m.mm")[0] == 0
    assert describe("m.mm")["metadata"]["label_names"] == ["a b", "c", "it's"]
    (tmp_path / "t.csv").write_text("n,tags\n1,\"['a' 'b']\"\n")
    code, _, err = run("fit", "t.csv", "--labels", "tags", "-o", "m.mm")
    assert code == 1 and "line 2" in err and "is not a list of tags; write" in err


def test_tables_with_words_are_not_converted(run, tmp_path):
    write(tmp_path / "shop.csv")
    code, _, err = run("datasets", "convert", "shop.csv", "shop.svm", "--labels", "tags")
    assert code == 1 and "--drop title,colour" in err
    run("fit", "shop.csv", "--labels", "tags", "-o", "m.mm")
    code, _, err = run("predict", "m.mm", "shop.csv", "--to", "arff")
    assert code == 2 and "use csv, jsonl or same" in err


def test_explain_names_the_columns_of_the_table(run, tmp_path):
    write(tmp_path / "shop.csv")
    assert run("fit", "shop.csv", "--labels", "tags", "--random-state", 0, "-o", "m.mm")[0] == 0
    code, out, err = run("explain", "m.mm", "shop.csv", "--rows", 1, "--top", 3)
    assert code == 0, err
    columns = [line.split(maxsplit=1)[1] for line in out.splitlines()[1:4]]
    assert all(re.match(r"\w+( \(per |: |=|$)", name) for name in columns), columns


def test_a_parquet_file_whose_columns_have_two_names_is_refused(run, tmp_path):
    write(tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    place, faults = whole.find(b"list"), []
    while place >= 0:
        (tmp_path / "t.parquet").write_bytes(whole[:place] + b"lost" + whole[place + 4 :])
        code, _, err = run("fit", "t.parquet", "--labels", "tags", "-o", "m.mm")
        assert code in (0, 1), err
        faults += [err] * code
        place = whole.find(b"list", place + 1)
    assert faults and all("t.parquet: " in err and "KeyError" not in err for err in faults)


def test_tags_of_a_cell():
    cells = [None, "", "a;b;a", '["a", 2]', ["a", ""], 3]
    assert [tags_of(cell, ";") for cell in cells] == [[], [], ["a", "b"], ["a", "2"], ["a"], ["3"]]

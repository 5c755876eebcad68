"""Columns of dates: `--dates` on the command line, `DateColumns` and `prepare(dates=)` in Python."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import maxmargin
from maxmargin.io.mixed import day_of
from maxmargin.tables import DateColumns
from tests.cli.conftest import write_table

FIRST = date(2024, 1, 1)
DAYS = [FIRST + timedelta(days=3 * i) for i in range(40)]
# The class is whether the day is a working day, which only the weekday tells.
ROWS = [
    {"created": str(day), "n": i % 3, "kind": "no" if day.isoweekday() > 5 else "yes"}
    for i, day in enumerate(DAYS)
]


@pytest.mark.parametrize("cell", [
    "2024-01-31", "2024/1/31", "31.01.2024", " 2024-01-31 ", "2024-01-31T10:30:00Z", "2024-01-31 10:30",
    date(2024, 1, 31), datetime(2024, 1, 31, 23), pd.Timestamp("2024-01-31"), np.datetime64("2024-01-31"),
])  # fmt: skip
def test_a_day_in_many_forms(cell):
    assert day_of(cell) == date(2024, 1, 31)


@pytest.mark.parametrize("cell", [None, "", " ", float("nan"), pd.NaT])
def test_an_empty_cell_is_no_day(cell):
    assert day_of(cell) is None


@pytest.mark.parametrize("cell", ["1/2/2024", "2024-13-01", "today", 20240131, "31.02.2024"])
def test_ambiguous_dates_are_refused(cell):
    with pytest.raises(ValueError, match="is not a date"):
        day_of(cell)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_dates_are_expanded_and_new_data_is_read_alike(run, tmp_path, name):
    rows = ROWS
    if name == "t.parquet":
        rows = [{**row, "created": datetime.fromisoformat(row["created"])} for row in ROWS]
    write_table(tmp_path / name, rows)
    code, _, err = run("fit", name, "--target", "kind", "--dates", "created", "-o", "m.mm")
    assert code == 0 and "number: n; date: created." in err, err
    # Another first day, an empty cell, another form of the same days.
    other = [{**row, "created": f"{day:%d.%m.%Y}"} for row, day in zip(ROWS, DAYS, strict=True)][7:]
    write_table(tmp_path / "new.csv", other)
    expected = run("predict", "m.mm", name)[1].split()
    assert run("predict", "m.mm", "new.csv")[1].split() == ["class", *expected[8:]]
    write_table(tmp_path / "hole.jsonl", [{"created": None, "n": 1}])
    assert run("predict", "m.mm", "hole.jsonl")[0] == 0
    model, frame = maxmargin.load("m.mm"), pd.DataFrame(ROWS)
    assert model.predict(frame).tolist() == expected[1:]
    assert model.predict(frame.assign(created=pd.to_datetime(frame.created))).tolist() == expected[1:]
    code, out, err = run("explain", "m.mm", "new.csv", "--rows", 1, "--json")
    assert code == 0, err
    names = {part.partition(" (per")[0] for part in json.loads(out)["parts"]}
    expected = {"created: year", "created: month", "created: weekday", "created: days since 2024-01-01", "n"}
    assert names <= expected and "created: weekday" in names
    code, _, err = run("predict", "m.mm", write_table(tmp_path / "bad.csv", [{"created": "soon", "n": 1}]))
    assert code == 1 and "line 2: column 'created': 'soon' is not a date; write it as 2024-01-31" in err


def test_the_numbers_of_a_date():
    step = DateColumns().fit([["2024-01-31", ""], ["2024-02-05", "2020-02-29"]])
    found = step.transform([["2024-01-30", None], [None, "2020-03-01"]])
    np.testing.assert_array_equal(found[0], [2024, 1, 2, -1, *[np.nan] * 4])
    np.testing.assert_array_equal(found[1], [*[np.nan] * 4, 2020, 3, 7, 1])
    assert step.get_feature_names_out(["a", "b"])[-1] == "b: days since 2020-02-29"
    with pytest.raises(ValueError, match="X has 1 columns, but DateColumns was fitted on 2"):
        step.transform([["2024-01-30"]])


@pytest.mark.parametrize("kind", ["words", "days"])
def test_prepare_takes_dates_and_the_file_holds_them(tmp_path, kind):
    frame = pd.DataFrame(ROWS)
    if kind == "days":
        frame["created"] = pd.to_datetime(frame.created)
    with pytest.raises(ValueError, match="--dates created"):
        maxmargin.prepare(frame.drop(columns="kind"))
    steps = maxmargin.prepare(frame.drop(columns="kind"), dates=["created"])
    model = make_pipeline(steps, maxmargin.MultiClassSVC(kernel="rbf", C=100)).fit(frame, frame.kind)
    assert (model.predict(frame) == frame.kind).all()
    maxmargin.save(model, tmp_path / "m.mm")
    again = maxmargin.load(tmp_path / "m.mm")
    np.testing.assert_array_equal(again.decision_function(frame), model.decision_function(frame))


def test_dates_are_not_exported(run, tmp_path):
    pytest.importorskip("onnx")
    write_table(tmp_path / "t.csv", ROWS)
    run("fit", "t.csv", "--target", "kind", "--dates", "created", "-o", "m.mm")
    code, _, err = run("export", "m.mm", "m.onnx")
    assert code == 1 and "Column 'created' has dates, which cannot be exported" in err


def test_a_column_of_dates_is_reported_with_its_option(run, tmp_path):
    write_table(tmp_path / "t.csv", ROWS)
    code, _, err = run("fit", "t.csv", "--target", "kind", "-o", "m.mm")
    assert code == 1 and "--dates created" in err and "--drop created" in err
    code, _, err = run("fit", "t.csv", "--target", "kind", "--dates", "n", "--drop", "created", "-o", "m.mm")
    assert code == 1 and "column 'n': '0' is not a date" in err

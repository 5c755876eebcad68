"""Running the command line in tests, and tables in the formats that it reads."""

import csv
import json

import pandas as pd
import pytest

from maxmargin.cli import main


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command line in an empty directory; return its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def words(*line):
        code = main([str(word) for word in line])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return words


def write_table(path, rows, delimiter=",", separator=";"):
    """Write a list of dicts or a frame as CSV, JSON lines or Parquet; return the name of the file."""
    if isinstance(rows, pd.DataFrame):
        records = rows.to_dict("records")
        rows = [{key: None if cell != cell else cell for key, cell in row.items()} for row in records]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="") as file:
            table = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            table.writerow(rows[0])
            for row in rows:
                cells = row.values()
                table.writerow([separator.join(cell) if isinstance(cell, list) else cell for cell in cells])
    return path.name


def read_table(path, delimiter=","):
    """Return the rows of a table as dicts."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pylist()
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))

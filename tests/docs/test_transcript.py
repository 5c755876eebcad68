"""The transcript of the command line: every command runs and prints the output on the page."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from maxmargin.cli import main

runtime = pytest.importorskip("onnxruntime", reason='needs "maxmargin[onnx]"')

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "from_files.rst"
BLOCK = re.compile(r"^\.\. code-block:: (console|python)\n\n((?:   .*\n|\n)+)", re.MULTILINE)


def commands(body):
    """Pairs of a command line and its output on the page."""
    found = []
    for line in textwrap.dedent(body).strip().splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def plain(text):
    """Return text as one line, without the numbers of a fit, which differ between machines."""
    text = re.sub(r"\d+ bytes", "# bytes", text)
    return " ".join(re.sub(r"\b(seconds|epochs|objective|gap) [\d.e-]+", r"\1 #", text).split())


def read_table(name):
    """Return the columns of a CSV file as inputs of a runtime."""
    with open(name, newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = np.array([[float(row["price"] or "nan")] for row in rows])
    words = {key: np.array([[row[key]] for row in rows], dtype=object) for key in ("colour", "title")}
    return {"price": numbers, **words}


def read_lines(name):
    """Return the texts of a file of JSON lines as inputs of a runtime."""
    return {
        "body": np.array(
            [[json.loads(line)["body"]] for line in Path(name).read_text().splitlines()], dtype=object
        )
    }


def exported(name, columns):
    """Return the names of the labels that an exported model predicts."""
    session = runtime.InferenceSession(name, providers=["CPUExecutionProvider"])
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    answers = session.run(["labels"], columns)[0]
    return [[labels[k] for k in row.nonzero()[0]] for row in answers]


def test_the_transcript_is_reproduced(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "docs" / "sample", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    ran = 0
    for kind, body in BLOCK.findall(PAGE.read_text() + "\n"):
        if kind == "python":
            exec(compile(textwrap.dedent(body), str(PAGE), "exec"), {})
            continue
        for line, expected in commands(body):
            piped = re.fullmatch(r"cat (\S+) \| (.*)", line)
            if piped:
                stdin = io.TextIOWrapper(io.BytesIO(Path(piped[1]).read_bytes()))
                monkeypatch.setattr(sys, "stdin", stdin)
            words = shlex.split(piped[2] if piped else line)
            assert words[0] == "maxmargin"
            code = main(words[1:])
            printed = capsys.readouterr()
            assert code == 0, (line, printed.err)
            if expected:
                assert plain(printed.err + printed.out) == plain("\n".join(expected)), line
            ran += 1
    assert ran >= 14
    for name in ("shop.html", "mails.html", "questions.html"):
        assert (tmp_path / name).read_text().startswith("<!doctype html>")
    expected_labels = [json.loads(line)["labels"] for line in Path("tagged.jsonl").read_text().splitlines()]
    assert exported("shop.onnx", read_table("new.csv")) == expected_labels
    names, *rows = csv.reader(Path("later.csv").read_text().splitlines())
    expected_labels = [[name for name, on in zip(names, row, strict=True) if on == "1"] for row in rows]
    assert exported("questions.onnx", read_lines("later.jsonl")) == expected_labels
    assert len((tmp_path / "later.csv").read_text().splitlines()) == 31


def test_the_sample_files_are_those_of_the_script(tmp_path, monkeypatch):
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import sample_files
    finally:
        sys.path.pop(0)
    monkeypatch.setattr(sample_files, "FOLDER", tmp_path / "sample")
    sample_files.main()
    made = {
        p.relative_to(tmp_path / "sample"): p.read_bytes()
        for p in (tmp_path / "sample").rglob("*")
        if p.is_file()
    }
    kept = ROOT / "docs" / "sample"
    assert made == {p.relative_to(kept): p.read_bytes() for p in kept.rglob("*") if p.is_file()}

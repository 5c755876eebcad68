"""Output on a terminal, Ctrl-C, and processes that are killed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

import maxmargin
from maxmargin.cli import main


class Terminal(io.StringIO):
    """A stream that counts as a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def shown(run, monkeypatch):
    """Run a command line with a terminal as stdout and stderr; return its code and its output."""
    run("--version")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")

    def words(*line):
        screen = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", screen), patch.setattr(sys, "stderr", screen)
            return main([str(word) for word in line]), screen.getvalue()

    return words


@pytest.mark.parametrize(
    "words",
    [
        ["flags", "-m", "multilabel"],
        ["iris", "-m", "sparse-multiclass", "--max-basis", "3"],
        ["flags", "-m", "submodular", "--max-iter", "3"],
    ],
    ids=lambda words: words[2],
)
def test_a_terminal_shows_gap_and_time_and_then_the_result(shown, words):
    code, output = shown("fit", *words, "-o", "m.mm")
    assert code == 0 and f"model m.mm, family {words[2]}" in output
    for expected in (f"fitting {words[2]}", "gap ", "0:00:0"):
        assert expected in output
    assert not hasattr(maxmargin.load("m.mm"), "_skl_callbacks")


NASTY = "\x1b[31m[bold]red\x07\u202e"


def test_control_characters_in_names_are_escaped_on_a_terminal(shown, tmp_path):
    (tmp_path / "t.csv").write_text(f"a,b,kind{NASTY}\n" + f"0,1,x{NASTY}\n1,0,y\n" * 8)
    target = f"kind{NASTY}"
    assert shown("fit", "t.csv", "-m", "multiclass", "--target", target, "-o", "m.mm")[0] == 0
    (tmp_path / f"{NASTY}.csv").write_bytes((tmp_path / "t.csv").read_bytes())
    for words in (
        ["predict", "m.mm", "t.csv"],
        ["predict", "m.mm", "t.csv", "--to", "jsonl"],
        ["predict", "m.mm", "t.csv", "--scores"],
        ["datasets", "info", f"{NASTY}.csv", "--target", target],
        ["evaluate", "m.mm", f"{NASTY}.csv"],
        ["evaluate", "m.mm", f"{NASTY}.missing"],
    ):
        _, output = shown(*words)
        assert "[bold]red" in output and "\\x1b[31m" in output.replace("u001b", "x1b"), words
        for acting in ("\x1b[31m", "\x07", "\u202e"):
            assert acting not in output, words


def test_parquet_is_not_written_to_a_terminal(shown):
    assert shown("fit", "iris", "-m", "multiclass", "-o", "m.mm")[0] == 0
    code, output = shown("predict", "m.mm", "iris", "--to", "parquet")
    assert code == 2 and "give -o FILE" in output and "PAR1" not in output


LONG = ["yeast", "-m", "multilabel", "--C", "1000", "--tol", "0", "--max-iter", "1000000", "--verbose", "1"]


def start(folder, *words):
    """Start a long fit, and return its process after the first epochs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "maxmargin.cli", "fit", *LONG, *words, "-o", "m.mm"],
        cwd=folder, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for _ in range(3):
        assert process.stdout.readline().startswith("epoch"), process.stderr.read()
    return process


def test_ctrl_c_saves_the_pipeline_reached(tmp_path):
    process = start(tmp_path, "--scale", "standard")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert "m.mm holds the model reached" in err and "gap" in err
    model = maxmargin.load(tmp_path / "m.mm")
    assert model[-1].duality_gap_ > 0 and model.predict([[0.0] * 103]).shape == (1, 14)


def test_a_killed_fit_leaves_the_old_model(tmp_path):
    assert main(["fit", "iris", "-m", "multiclass", "-o", str(tmp_path / "m.mm")]) == 0
    before = (tmp_path / "m.mm").read_bytes()
    process = start(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "m.mm").read_bytes() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "m.mm"]


def test_ctrl_c_before_the_first_model_writes_nothing(tmp_path, monkeypatch, capsys):
    def interrupt(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("maxmargin.MultiClassSVC.fit", interrupt)
    assert main(["fit", "iris", "-m", "multiclass", "-o", str(tmp_path / "m.mm")]) == 130
    assert "before the first model" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_ctrl_c_ends_a_comparison(monkeypatch, capsys):
    from maxmargin.cli import compare

    fits = []

    def stopped(model, data, name, fit=compare.fit):
        fits.append(name)
        return replace(fit(model, data, name), interrupted=True)

    monkeypatch.setattr(compare, "fit", stopped)
    assert main(["compare", "iris", "-m", "multiclass"]) == 130
    assert len(fits) == 1 and not capsys.readouterr().out

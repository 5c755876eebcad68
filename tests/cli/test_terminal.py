"""What a person at a terminal sees, and what survives when a process is killed."""

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

pty = pytest.importorskip("pty")


def start(words, folder, **streams):
    return subprocess.Popen(
        [sys.executable, "-m", "maxmargin.cli", *words],
        cwd=folder, env=os.environ | {"PYTHONUNBUFFERED": "1", "TERM": "xterm", "COLUMNS": "120"}, **streams,
    )  # fmt: skip


def test_a_terminal_shows_gap_and_time_and_then_the_result(tmp_path):
    ours, theirs = pty.openpty()
    words = ["fit", "flags", "-m", "multilabel", "--scale", "standard", "-o", "m.mm"]
    process = start(words, tmp_path, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert process.wait() == 0, said.decode()
    assert b"fitting multilabel" in said and b"gap " in said and b"0:00:0" in said
    assert b"model m.mm, family multilabel" in said


NASTY = "\x1b[31m[bold]red\x07\u202e"


def watched(words, folder):
    """All that a command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = start(words, folder, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    return process.wait(), said.decode()


def test_names_are_shown_to_a_terminal_and_never_obeyed(tmp_path):
    (tmp_path / "t.csv").write_text(f"a,b,kind{NASTY}\n" + f"0,1,x{NASTY}\n1,0,y\n" * 8)
    target = f"kind{NASTY}"
    assert main(["fit", str(tmp_path / "t.csv"), "-m", "multiclass", "--target", target,
                 "-o", str(tmp_path / "m.mm")]) == 0  # fmt: skip
    (tmp_path / f"{NASTY}.csv").write_bytes((tmp_path / "t.csv").read_bytes())
    for words in (
        ["predict", "m.mm", "t.csv"],
        ["predict", "m.mm", "t.csv", "--to", "jsonl"],
        ["predict", "m.mm", "t.csv", "--scores"],
        ["datasets", "info", f"{NASTY}.csv", "--target", target],
        ["evaluate", "m.mm", f"{NASTY}.csv"],
        ["evaluate", "m.mm", f"{NASTY}.missing"],
    ):
        _, said = watched(words, tmp_path)
        assert "[bold]red" in said and "\\x1b[31m" in said.replace("u001b", "x1b"), words
        for acting in ("\x1b[31m", "\x07", "\u202e"):
            assert acting not in said, words


def test_parquet_is_not_spilt_on_a_terminal(tmp_path):
    assert main(["fit", "iris", "-m", "multiclass", "-o", str(tmp_path / "m.mm")]) == 0
    code, said = watched(["predict", "m.mm", "iris", "--to", "parquet"], tmp_path)
    assert code == 2 and "give -o FILE" in said and "PAR1" not in said


@pytest.mark.parametrize(
    "words",
    [
        ["flags", "-m", "multilabel"],
        ["iris", "-m", "multiclass"],
        ["mail-stream", "-m", "ranking"],
        ["iris", "-m", "sparse-multiclass", "--max-basis", "3"],
        ["flags", "-m", "submodular", "--max-iter", "3"],
    ],
    ids=lambda words: words[2],
)
def test_every_family_can_be_watched(words, tmp_path, monkeypatch):
    from rich.console import Console
    from rich.progress import Progress

    screen = io.StringIO()

    def bar(*fields):
        return Progress(*fields, "{task.description}", console=Console(file=screen, force_terminal=True))

    monkeypatch.setattr("maxmargin.cli.models.progress_bar", bar)
    model = tmp_path / "m.mm"
    assert main(["fit", *words, "-o", str(model)]) == 0
    assert f"fitting {words[2]}" in screen.getvalue()
    assert not hasattr(maxmargin.load(model), "_skl_callbacks")


LONG = ["yeast", "-m", "multilabel", "--C", "1000", "--tol", "0", "--max-iter", "1000000", "--verbose", "1"]


def interrupted(words, folder, after):
    """Exit code and words of a fit at which Ctrl-C was pressed when a line began with `after`."""
    process = start(["fit", *words, "-o", "m.mm"], folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not process.stdout.readline().startswith(after):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    return process.returncode, said.decode()


def test_ctrl_c_behind_a_scaler_saves_the_pipeline(tmp_path):
    code, said = interrupted([*LONG, "--scale", "standard"], tmp_path, b"epoch    3")
    assert code == 130 and "m.mm holds the model reached" in said, said
    assert maxmargin.load(tmp_path / "m.mm").predict([[0.0] * 103]).shape == (1, 14)


def test_ctrl_c_before_there_is_a_model_writes_nothing(tmp_path, monkeypatch, capsys):
    def interrupt(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("maxmargin.MultiClassSVC.fit", interrupt)
    assert main(["fit", "iris", "-m", "multiclass", "-o", str(tmp_path / "m.mm")]) == 130
    assert "before there was a model" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_ctrl_c_ends_a_comparison(monkeypatch, capsys):
    from maxmargin.cli import compare

    fits = []

    def stopped(model, data, name, fit=compare.fit):
        fits.append(name)
        return replace(fit(model, data, name), interrupted=True)

    monkeypatch.setattr(compare, "fit", stopped)
    assert main(["compare", "iris", "-m", "multiclass"]) == 130
    assert len(fits) == 1 and not capsys.readouterr().out


def test_killing_fit_leaves_the_old_model(tmp_path):
    assert main(["fit", "iris", "-m", "multiclass", "-o", str(tmp_path / "m.mm")]) == 0
    before = (tmp_path / "m.mm").read_bytes()
    process = start(["fit", *LONG, "-o", "m.mm"], tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline().startswith(b"epoch")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "m.mm").read_bytes() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "m.mm"]

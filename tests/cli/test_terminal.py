"""What a person at a terminal sees, and what survives when a process is killed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys

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


def test_killing_fit_leaves_the_old_model(tmp_path):
    assert main(["fit", "iris", "-m", "multiclass", "-o", str(tmp_path / "m.mm")]) == 0
    before = (tmp_path / "m.mm").read_bytes()
    process = start(["fit", *LONG, "-o", "m.mm"], tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline().startswith(b"epoch")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "m.mm").read_bytes() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "m.mm"]

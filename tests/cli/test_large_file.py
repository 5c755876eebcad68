"""A file much larger than a block: memory stays near the matrix, and reading shows its progress."""

from __future__ import annotations

import io

import pytest

from benchmarks.problems.large_file import maxmargin, write_file
from maxmargin.cli import main


@pytest.mark.slow
def test_reading_stays_within_twice_the_matrix_and_predicting_needs_none(tmp_path):
    peaks, matrices = {}, []
    for name, n_bytes in (("small", 16 << 20), ("large", 96 << 20)):
        _, rows, nonzeros = write_file(tmp_path / f"{name}.svm", n_bytes)
        matrices.append((12 * nonzeros + 4 * rows) / 2**20)
        fit = ["fit", f"{name}.svm", "-m", "multilabel", "--max-iter", "2", "-o", f"{name}.mm"]
        predict = ["predict", f"{name}.mm", f"{name}.svm", "-o", "out.csv"]
        for words in (["datasets", "info", f"{name}.svm"], fit, predict):
            peaks[words[0], name] = maxmargin(words, tmp_path)["peak_mib"]
    more = matrices[1] - matrices[0]
    assert peaks["datasets", "large"] - peaks["datasets", "small"] < 1.3 * more
    assert peaks["fit", "large"] - peaks["fit", "small"] < 2 * more
    assert peaks["predict", "large"] - peaks["predict", "small"] < 0.2 * more


def test_reading_shows_how_far_it_is(tmp_path, monkeypatch):
    from rich.console import Console
    from rich.progress import Progress

    screen = io.StringIO()
    bar = Progress("{task.description} {task.completed}/{task.total}", console=Console(file=screen, width=80))
    monkeypatch.setattr("maxmargin.cli.data.progress_bar", lambda **_: bar)
    n_bytes, _, _ = write_file(tmp_path / "large.svm", 1)
    assert main(["datasets", "info", str(tmp_path / "large.svm")]) == 0
    assert f"reading large.svm {n_bytes}/{n_bytes}" in screen.getvalue()

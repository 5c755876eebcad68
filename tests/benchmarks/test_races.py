"""Every race runs at toy size on made data, and writes the columns of the files that are kept."""

from __future__ import annotations

import ast
import csv
from pathlib import Path

import pytest

from benchmarks.__main__ import MODELS, main, races
from benchmarks.race import RESULTS, Setting

ROOT = Path(__file__).parents[2]
ALL = [pytest.param(model, name, id=f"{model}-{name}") for model in MODELS for name in races(model)]


def columns(path):
    with path.open(newline="") as file:
        return next(csv.reader(line for line in file if not line.startswith("#")))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "name"), ALL)
def test_every_race_runs_at_toy_size(model, name, tmp_path):
    races(model)[name](Setting(small=True, out=tmp_path))
    written = list(tmp_path.glob("*.csv"))
    assert written
    for path in written:
        assert set(columns(path)) <= set(columns(RESULTS / path.name))
        assert len(path.read_text().splitlines()) > 1
    pictures = {path.name for path in tmp_path.glob("*.png")}
    kept = {path.name for path in RESULTS.glob("*.png")} | {"ranking_peers.png"}
    assert pictures <= kept


def test_one_race_is_run_by_name_and_keeps_no_toy_results(capsys):
    before = {path: path.stat().st_mtime_ns for path in RESULTS.iterdir()}
    assert main(["chain", "training", "--small", "-p", "tol=0.5", "-p", "lam=[0.1]"]) == 0
    assert "training, lambda=0.1, gap 0.5" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in RESULTS.iterdir()} == before


def test_races_are_listed_and_unknown_ones_refused(capsys):
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in listed] == MODELS
    with pytest.raises(SystemExit):
        main(["chain", "walking"])
    assert "decoding" in capsys.readouterr().err


def imported(folder):
    """Modules that the files of a folder import, anywhere in them."""
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module


def test_benchmarks_and_experiments_share_nothing_but_data():
    of_experiments = {name for name in imported("benchmarks") if name.split(".")[0] == "experiments"}
    assert all(name.startswith("experiments.data") for name in of_experiments)
    assert not [name for name in imported("experiments") if name.split(".")[0] == "benchmarks"]


def test_defaults_are_summed_up_beside_their_peers():
    from benchmarks.problems.defaults import markdown, summary

    def row(data, model, score, seconds, converged="yes"):
        return {
            "data": data, "prep": "raw", "model": model, "task": "multiclass", "score": score,
            "macro_f1": score, "cpu_seconds": seconds, "converged": converged,
        }  # fmt: skip

    rows = [
        row("a", "LinearSVC", "0.9000", "0.01"),
        row("a", "MultiClassSVC", "0.9500", "0.02", "no"),
        row("b", "LinearSVC", "0.9000", "0.01"),
        row("b", "MultiClassSVC", "0.8000", "0.005"),
        row("c", "LinearSVC", "", ">60", ""),
        row("c", "MultiClassSVC", "0.8000", "1"),
    ]
    assert summary(rows).splitlines()[2] == "| MultiClassSVC | LinearSVC | 1 | 0 | 1 | 1.2 | a raw |"
    text = markdown(
        [*rows, row("wine", "LinearSVC", "1.0000", "0.01"), row("iris", "LinearSVC", "1.0000", "1")], 3
    )
    assert text.index("| c |") < text.index("| iris |") < text.index("| wine |") and "3 sets at once" in text
    assert "| a | raw | 0.900 0.01 s | 0.950 0.02 s! |" in text and "| c | raw | >60 s | 0.800 1 s |" in text


def test_a_fit_beyond_the_limit_is_stopped_and_marked():
    from benchmarks.problems.defaults import measured, toy

    class Endless:
        def fit(self, X, y):
            while len(y) > 40:  # the fit before is of all rows, too
                pass

    found = measured(toy(False), "Endless", Endless, 3, 1.0)
    assert found["cpu_seconds"] == ">1" and found["score"] == ""

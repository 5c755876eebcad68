"""Every experiment runs at toy size and writes the columns of the kept tables; claims read from these."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

from experiments import _data
from experiments._grids import Axis, searched
from experiments._results import write
from maxmargin.io.registry import registry

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
CLAIMS = sorted((FOLDER / "claims").glob("*.toml"))

sys.path.insert(0, str(ROOT / "docs"))
try:
    from claims import VERDICTS, claim_list
finally:
    sys.path.pop(0)

# Numbers that texts of claims may hold: definitions and settings, not results.
SETTINGS = (
    "AUC 50", "10 %", "2 / 2 / 2", "add up to 6", "dual objective 0", "proves 0", "weights are 0", "at -1",
    "1.5 %", "C is 1", "first 400 messages", "residuals of 1e-11", "38 of 47 folders", "one feature of 103",
    "after 100 iterations", "as well as 200", "W = 0", "lgorithm 2", "lgorithm 3",
)  # fmt: skip


def columns(path: Path) -> list[str]:
    """The head of a result file."""
    lines = path.read_text("utf-8").splitlines()
    return next(line for line in lines if not line.startswith("#")).split(",")


def test_every_experiment_has_a_duration():
    minutes = tomllib.loads((FOLDER / "minutes.toml").read_text("utf-8"))
    assert sorted(minutes) == SCRIPTS
    assert all(value > 0 for value in minutes.values())


def test_every_experiment_names_its_data():
    """Each set of the registry that a script names is in its list, unless it makes up its own."""
    listed = tomllib.loads((FOLDER / "data.toml").read_text("utf-8"))
    assert sorted(listed) == SCRIPTS
    known = {name.partition("/")[0] for name in registry()}
    for name in SCRIPTS:
        tree = ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))
        words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        named = {word.partition("/")[0] for word in words if isinstance(word, str) and word in registry()}
        assert named <= set(listed[name]) <= known, name


@pytest.mark.parametrize("name", sorted(registry()))
def test_made_data_has_the_form_of_the_real(name):
    data = _data.made(name)
    about = registry()[name]
    assert data.X.shape[0] == data.Y.shape[0] and data.X.ndim == 2
    assert data.multilabel == (about.task in ("multilabel", "multilabel-text", "zero-shot"))
    assert about.task == "ranking" or len(data.train) + len(data.test) == len(data.Y)


def test_without_data_a_script_ends_with_one_line():
    environment = {**os.environ, "MAXMARGIN_CACHE": "/nowhere"}
    environment.pop("MAXMARGIN_DATA", None)
    done = subprocess.run(
        [sys.executable, "-m", "experiments.label_correlation_sweep"],
        cwd=ROOT, capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("Error: Data set 'awa1'") and "maxmargin datasets info awa1" in done.stderr


@pytest.mark.parametrize("path", CLAIMS, ids=lambda path: path.stem)
def test_every_claim_names_an_experiment_and_is_judged(path):
    for claim in tomllib.loads(path.read_text("utf-8"))["claim"]:
        assert claim["verdict"] in VERDICTS and claim["why"]
        if claim["verdict"] != "not tried":
            assert claim["experiment"] in SCRIPTS and claim["ours"] and claim["paper"]
            assert claim.get("baseline"), (
                f"{claim['claim']!r} needs a trivial answer or the reason why there is none"
            )


def test_the_page_takes_its_numbers_from_the_result_files():
    text = "\n".join(claim_list(FOLDER))
    for path in CLAIMS:
        assert tomllib.loads(path.read_text("utf-8"))["title"] in text


def words(claim: dict) -> list[str]:
    """Return the texts of a claim that are not cells."""
    parts = [*claim.get("ours", []), *claim.get("baseline", []), claim["why"]]
    return [part for part in parts if isinstance(part, str)]


@pytest.mark.parametrize("path", CLAIMS, ids=lambda path: path.stem)
def test_texts_hold_no_results(path):
    """A number in a text is one of SETTINGS; results come from cells, which follow the files."""
    for claim in tomllib.loads(path.read_text("utf-8"))["claim"]:
        for text in words(claim):
            for setting in SETTINGS:
                text = text.replace(setting, "")
            assert not re.search(r"(?<![A-Za-z])\d|[{}]", text), text


def test_a_cell_must_name_one_row(tmp_path):
    (tmp_path / "claims").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "tea.csv").write_text("pot,heat\nblue,3\nblue,4\nred,5\n")
    claim = (
        'title = "Tea"\n[[claim]]\nclaim = "It cools"\nwhere = "table 1"\nexperiment = "tea"\npaper = "6"\n'
        'ours = [{{ row = {{ pot = "{pot}" }}, show = "{{heat}} degrees" }}]\n'
        'verdict = "holds"\nwhy = "Physics."\n'
    )
    (tmp_path / "claims" / "tea.toml").write_text(claim.format(pot="red"))
    assert any("Ours: 5 degrees" in line for line in claim_list(tmp_path))
    (tmp_path / "claims" / "tea.toml").write_text(claim.format(pot="blue"))
    with pytest.raises(ValueError, match="2 rows"):
        claim_list(tmp_path)


class Peak(ClassifierMixin, BaseEstimator):
    """Best at x = 40 and y = 1, whatever the samples."""

    def __init__(self, x=1.0, y=1.0):
        self.x, self.y = x, y

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def score(self, X, y):
        return -abs(np.log(self.x / 40)) - abs(np.log(self.y))


@pytest.mark.parametrize(("farthest", "found"), [(1000.0, 64.0), (16.0, 16.0), (4.0, 4.0)])
def test_a_grid_grows_as_far_as_it_may(farthest, found):
    axes = {"x": Axis((1.0, 4.0), (0.1, farthest), 4.0), "y": Axis((0.5, 1.0, 2.0), (0.1, 10.0), 2.0)}
    best = searched(Peak(), np.zeros((8, 1)), np.arange(8) % 2, axes, 2)
    assert best == {"x": found, "y": 1.0}


def test_a_grid_in_another_unit():
    assert Axis((1.0, 4.0), (0.5, 8.0), 2.0).scaled(0.5) == Axis((0.5, 2.0), (0.25, 4.0), 2.0)


def test_rows_of_other_sets_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr("experiments._results.RESULTS", tmp_path)
    for data, heat in (("tea", 3.0), ("soup", 4.0), ("tea", 5.0)):
        path = write("heat", [{"data": data, "heat": heat}], ("data",))
    assert [line.split(",")[:2] for line in path.read_text().splitlines()[1:]] == [
        ["tea", "5"],
        ["soup", "4"],
    ]


def test_a_curve_gives_way_as_a_whole(monkeypatch, tmp_path):
    monkeypatch.setattr("experiments._results.RESULTS", tmp_path)
    for data, n in (("tea", 3), ("soup", 2), ("tea", 1)):
        path = write("curve", [{"data": data, "at": k} for k in range(n)], ("data", "at"), whole=("data",))
    found = [line.split(",")[:2] for line in path.read_text().splitlines()[1:]]
    assert found == [["soup", "0"], ["soup", "1"], ["tea", "0"]]


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run a script with some words: its exit code, and what it prints. It may neither load data nor write."""

    def refuse(*args, **kwargs):
        raise AssertionError("the script begins to work")

    def run(name: str, *words: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
        monkeypatch.setattr("experiments._results.RESULTS", tmp_path / "results")
        monkeypatch.setattr("maxmargin.datasets.load", refuse)
        monkeypatch.setattr("sklearn.datasets.load_digits", refuse)
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        assert list(tmp_path.iterdir()) == []
        return end.value.code, "".join(capsys.readouterr())

    return run


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_is_the_docstring(name, command):
    code, text = command(name, "--help")
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text("utf-8")))
    assert code == 0
    assert docstring in text and "--small" in text


@pytest.mark.parametrize("name", SCRIPTS)
def test_unknown_options_are_refused(name, command):
    code, text = command(name, "--no-such-option")
    assert code == 2
    assert "--no-such-option" in text.splitlines()[-1]


@pytest.mark.parametrize("word", ["no-such-set", "--smal"])
def test_unknown_sets_and_shortened_options_are_refused(word, command):
    code, text = command(SCRIPTS[0], word)
    assert code == 2
    assert word in text.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_experiment_runs_at_toy_size(name):
    """Its tables have the columns of those that are kept."""
    small, results = FOLDER / "small", FOLDER / "results"
    before = {path: path.stat().st_mtime_ns for path in small.glob("*.csv")} if small.exists() else {}
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{name}", "--small"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for path in small.glob("*.csv"):
        if before.get(path) != path.stat().st_mtime_ns and (results / path.name).exists():
            assert columns(path) == columns(results / path.name)

"""Every experiment runs at toy size and writes the columns of the kept tables; claims read from these."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
CLAIMS = sorted((FOLDER / "claims").glob("*.toml"))

sys.path.insert(0, str(ROOT / "docs"))
try:
    from claims import VERDICTS, claim_tables
finally:
    sys.path.pop(0)


def columns(path: Path) -> list[str]:
    """The head of a result file."""
    lines = path.read_text("utf-8").splitlines()
    return next(line for line in lines if not line.startswith("#")).split(",")


def test_every_experiment_says_how_long_it_takes():
    minutes = tomllib.loads((FOLDER / "minutes.toml").read_text("utf-8"))
    assert sorted(minutes) == SCRIPTS
    assert all(value > 0 for value in minutes.values())


@pytest.mark.parametrize("path", CLAIMS, ids=lambda path: path.stem)
def test_every_claim_names_an_experiment_and_is_judged(path):
    for claim in tomllib.loads(path.read_text("utf-8"))["claim"]:
        assert claim["verdict"] in VERDICTS and claim["why"]
        if claim["verdict"] != "not tried":
            assert claim["experiment"] in SCRIPTS and claim["ours"] and claim["paper"]
            assert claim.get("baseline"), (
                f"{claim['claim']!r} shows no trivial answer, nor says why there is none"
            )


def test_the_page_takes_its_numbers_from_the_result_files():
    text = "\n".join(claim_tables(FOLDER))
    for path in CLAIMS:
        assert tomllib.loads(path.read_text("utf-8"))["title"] in text


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
    assert any("5 degrees (``tea``)" in line for line in claim_tables(tmp_path))
    (tmp_path / "claims" / "tea.toml").write_text(claim.format(pot="blue"))
    with pytest.raises(ValueError, match="2 rows"):
        claim_tables(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif("MAXMARGIN_DATA" not in os.environ, reason="needs the research sets")
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

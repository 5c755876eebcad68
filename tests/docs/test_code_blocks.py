"""Every code block and command line of README and documentation runs."""

from __future__ import annotations

import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from maxmargin.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.rst"))]
    if not {"_build", "generated", "auto_examples"} & set(path.parts)
]
FENCED = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^\.\. code-block:: (python|console)\n\n((?:   .*\n|\n)+)", re.MULTILINE)


def blocks(path):
    pattern = FENCED if path.suffix == ".md" else DIRECTIVE
    text = path.read_text("utf-8") + "\n"
    return [(kind, textwrap.dedent(body)) for kind, body in pattern.findall(text)]


def test_the_patterns_find_blocks():
    found = {path.name: len(blocks(path)) for path in PAGES}
    assert found["README.md"] >= 2 and found["getting_started.rst"] >= 4


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path)], ids=lambda path: path.stem)
def test_code_blocks_run(path, tmp_path, monkeypatch, capsys):
    """Blocks of a page run in their order and share their names."""
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    for kind, body in blocks(path):
        if kind == "python":
            exec(compile(body, str(path), "exec"), names)
            continue
        for line in body.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if line.startswith("$ ") else []
            if words[:1] == ["maxmargin"]:
                assert main(words[1:]) == 0, line
            elif words:
                assert words[0] in ("make", "pip", "git", "cd", "eval"), f"nothing runs {line!r}"


def test_the_speed_table_is_what_the_races_measured():
    made = subprocess.run([sys.executable, str(ROOT / "docs" / "speed_table.py"), "--check"], check=False)
    assert made.returncode == 0, "run `python docs/speed_table.py`"


def test_the_results_page_takes_new_files_by_itself(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("_build", "generated"))
    for folder in ("experiments", "benchmarks"):
        (tmp_path / folder / "results").mkdir(parents=True)
    (tmp_path / "experiments" / "tea.py").write_text('"""How tea cools."""\n')
    results = tmp_path / "experiments" / "results"
    (results / "tea_curve.csv").write_text("# a note\nminute,heat_x,pot\n1,0.123456789,blue\n2,1e-9,blue\n")
    (results / "tea.png").write_bytes(b"not looked at")
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from results_table import write_results
    finally:
        sys.path.pop(0)
    write_results(tmp_path / "docs")
    text = (tmp_path / "docs" / "results.rst").read_text()
    assert "``experiments/tea.py``: How tea cools." in text
    assert "``experiments/results/tea_curve.csv`` (a note; pot: blue)" in text
    assert (
        "0.1235" in text and "heat x" in text and ".. figure:: /_build/pictures/experiments-tea.png" in text
    )


def test_the_reference_lists_every_public_name():
    import maxmargin

    listed = set(re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "api.rst").read_text(), re.MULTILINE))
    rooms = ("baselines", "datasets", "metrics", "model_selection", "persistence", "priors")
    public = set(maxmargin.__all__) - {"__version__", *rooms}
    for room in ("baselines", "metrics"):
        public |= {f"{room}.{name}" for name in getattr(maxmargin, room).__all__}
    missing = public - listed
    assert not missing
    for name in listed:
        pkgutil.resolve_name(f"maxmargin.{name}")

"""Every code block and command line of README and documentation runs."""

from __future__ import annotations

import re
import shlex
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

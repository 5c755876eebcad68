"""Every code block and command line of README and documentation runs."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from maxmargin.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.rst"))]
    if not {"_build", "generated", "auto_examples", "results.rst"} & set(path.parts)
]
FENCED = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(
    r"^( *)\.\. code-block:: (python|console)\n(?: +:class: needs-(\w+)\n)?\n((?:\1   .*\n|\n)+)",
    re.MULTILINE,
)
# Characters that fit in the text column of the site.
WIDEST = 88


def blocks(path):
    """Return kind and text of the blocks of a page, without those of libraries that are not installed."""
    text = path.read_text("utf-8") + "\n"
    if path.suffix == ".md":
        return [(kind, textwrap.dedent(body)) for kind, body in FENCED.findall(text)]
    found = DIRECTIVE.findall(text)
    return [
        (kind, textwrap.dedent(body))
        for _, kind, needs, body in found
        if not needs or importlib.util.find_spec(needs)
    ]


def test_the_patterns_find_blocks():
    found = {path.name: len(blocks(path)) for path in PAGES}
    assert found["README.md"] >= 2 and found["getting_started.rst"] >= 4
    assert found["coming_from.rst"] >= 6


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path.suffix == ".rst"], ids=lambda path: path.stem
)
def test_code_fits_in_its_column(path):
    bodies = [body for *_, body in DIRECTIVE.findall(path.read_text("utf-8") + "\n")]
    lines = [line for body in bodies for line in textwrap.dedent(body).splitlines()]
    assert not [line for line in lines if len(line) > WIDEST]


def print_as_promised(lines, *values):
    """Print, and compare with the expected output in a comment on the line: a list, a set or a boolean."""
    print(*values)
    line = lines[inspect.currentframe().f_back.f_lineno - 1]
    promised = line.rpartition("  # ")[2].strip()
    if not re.fullmatch(r"[\[({].*[\])}]|True|False", promised) or promised == line.strip():
        return
    printed = " ".join(map(str, values))
    assert printed == promised or ast.literal_eval(promised) == values[0], f"{line} prints {printed}"


# test_transcript.py runs the page that has files of its own.
RUN = [path for path in PAGES if blocks(path) and path.stem != "from_files"]


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_code_blocks_run(path, tmp_path, monkeypatch, capsys):
    """Blocks of a page run in their order and share their names."""
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    for kind, body in blocks(path):
        if kind == "python":
            names["print"] = partial(print_as_promised, body.splitlines())
            exec(compile(body, str(path), "exec"), names)
            continue
        for line in body.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if line.startswith("$ ") else []
            if words[:1] == ["maxmargin"]:
                assert main(words[1:]) == 0, line
            elif words:
                assert words[0] in ("make", "pip", "git", "cd", "eval"), f"nothing runs {line!r}"


def test_the_figures_of_the_readme_are_those_of_the_races():
    made = subprocess.run([sys.executable, str(ROOT / "docs" / "speed.py"), "--check"], check=False)
    assert made.returncode == 0, "run `python docs/speed.py`"


def test_the_results_page_takes_new_files_by_itself(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("_build", "generated"))
    for folder in ("experiments", "benchmarks"):
        (tmp_path / folder / "results").mkdir(parents=True)
    about = '"""How tea cools.\n\n    python -m tea\n\nIn a `POT`_\nof clay.\n\n- black;\n- green.\n"""\n'
    (tmp_path / "experiments" / "tea.py").write_text(about)
    results = tmp_path / "experiments" / "results"
    (results / "tea_curve.csv").write_text("# a note\nminute,heat_x,pot\n1,0.123456789,blue\n2,1e-9,blue\n")
    (results / "tea.png").write_bytes(b"not read")
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from results_table import write_results
    finally:
        sys.path.pop(0)
    write_results(tmp_path / "docs")
    text = (tmp_path / "docs" / "results.rst").read_text()
    assert "``experiments/tea.py``: How tea cools." in text
    assert (
        "In a ``POT``\\_ of clay." in text and "- black\n- green." in text and "    python -m tea\n" in text
    )
    assert text.count("<details>") == text.count("</details>") == 1
    assert "``experiments/results/tea_curve.csv`` (a note; pot: blue)" in text
    assert (
        "0.1235" in text and "heat x" in text and ".. figure:: /_build/pictures/experiments-tea.png" in text
    )


def test_the_reference_lists_every_public_name():
    import maxmargin
    from maxmargin._names import MODULES

    pages = [
        path.read_text("utf-8") for path in (ROOT / "docs" / "api").glob("*.rst") if path.stem != "index"
    ]
    names = re.findall(r"^   ([\w.]+)$", "\n".join(pages), re.MULTILINE)
    listed = set(names)
    assert len(names) == len(listed), "a name is listed twice"
    public = set(maxmargin.__all__) - {"__version__", *MODULES}
    for module in ("baselines", "metrics"):
        public |= {f"{module}.{name}" for name in getattr(maxmargin, module).__all__}
    missing = public - listed
    assert not missing
    for name in listed:
        pkgutil.resolve_name(f"maxmargin.{name}")


def test_every_method_on_an_api_page_has_a_summary():
    """Every public method has a docstring, which describes its parameters if there are several."""
    import maxmargin
    from maxmargin._names import ESTIMATORS

    generic = {"get_params", "set_params", "get_metadata_routing", "set_callbacks"}
    for name in ESTIMATORS:
        estimator = getattr(maxmargin, name)
        for method, function in inspect.getmembers(estimator, inspect.isfunction):
            if method.startswith("_") or method.endswith("_request") or method in generic:
                continue
            about = inspect.getdoc(function)
            assert about, f"{name}.{method} has no docstring"
            parameters = list(inspect.signature(function).parameters)[1:]
            if len(parameters) > 1 and method != "score" and "_one" not in method:
                assert "Parameters\n----------" in about, f"{name}.{method}"
                assert all(parameter in about for parameter in parameters), f"{name}.{method}"


def test_the_gallery_lists_its_examples_and_they_need_no_other_data():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from gallery import SECTIONS
    finally:
        sys.path.pop(0)
    paths = list((ROOT / "examples").glob("*/*.py"))
    assert {(section, name) for section, names in SECTIONS.items() for name in names} == {
        (path.parent.name, path.stem) for path in paths
    }
    examples = {path.stem: path.read_text("utf-8") for path in paths}
    shipped = {"yeast", "emotions", "flags", "mail-stream", "iris", "wine", "yso-sample"}
    for name, text in examples.items():
        assert "plt.show()" in text, f"{name} draws nothing"
        assert set(re.findall(r'\bload\("([\w-]+)"', text)) <= shipped, f"{name} loads what does not ship"


def test_the_configuration_page_lists_the_environment_variables():
    text = (ROOT / "docs" / "configuration.rst").read_text("utf-8")
    files = [*(ROOT / "src").rglob("*.py"), ROOT / "experiments" / "_results.py"]
    found = {name for path in files for name in re.findall(r'"(MAXMARGIN_[A-Z]+)"', path.read_text("utf-8"))}
    assert found and all(f"``{name}``" in text for name in found)


def test_files_that_the_pages_name_exist():
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    folders = "src|docs|tests|benchmarks|experiments|examples|tools"
    named = re.compile(rf"`((?:{folders})/[\w./-]+)`|``((?:{folders})/[\w./-]+)``")
    for page in [*pages, *PAGES, *(ROOT / "benchmarks" / "tried").glob("*.md")]:
        for found in named.findall(page.read_text("utf-8")):
            name = next(filter(None, found))
            is_built = name.startswith("docs/_build")
            assert is_built or (ROOT / name).exists(), f"{page.name}: {name}"

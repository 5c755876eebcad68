"""What is packed and declared: oldest versions, conda recipe, container, citation, distribution files."""

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from maxmargin._names import VERSION
from maxmargin.cli import command, main

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text()
# Kinds of files that are read by people.
TEXTS = {".cff", ".md", ".py", ".rst", ".toml", ".txt", ".yaml"}
NAMES = {"Dockerfile", "Makefile"}


def floors(requirements):
    """The least versions of requirements, as numbers without trailing zeros."""
    pairs = (re.fullmatch(r"([\w.-]+) *[>=]=([\d.]+)(?:,<[\d.]+)?", line) for line in requirements)
    return {
        name: tuple(map(int, re.sub(r"(\.0)+$", "", version).split(".")))
        for name, version in (p.groups() for p in pairs if p)
    }


def test_the_oldest_versions_are_those_allowed():
    lines = (ROOT / "tools" / "oldest.txt").read_text().splitlines()
    listed = floors(line for line in lines if not line.startswith("#"))
    frames = [line for line in EXTRAS["dev"] if line.startswith(("pandas", "polars"))]
    every = [*PROJECT["dependencies"], *EXTRAS["plots"], *EXTRAS["parquet"], *EXTRAS["data"], *frames]
    assert listed == floors(every)


def test_the_conda_recipe_asks_for_the_same():
    recipe = (ROOT / "tools" / "conda" / "meta.yaml").read_text()
    needs = re.findall(r"^    - ([\w-]+) (>=[\d.,<]+)$", recipe.partition("  run:")[2], re.MULTILINE)
    asked = {name + version for name, version in needs if name != "python"}
    assert asked == set(PROJECT["dependencies"])
    assert f'version: "{VERSION}"' in recipe and "python >=3.11" in recipe


def test_the_citation_has_the_version():
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert PROJECT["version"] == VERSION


def test_files_name_no_page_and_no_package_of_the_project_that_does_not_exist():
    """It has no home page and is on no index: it is installed from its folder."""
    folders = ("src", "docs", "examples", "experiments", "benchmarks", "tools")
    paths = [path for path in ROOT.iterdir() if path.is_file() and path.name != "CHANGELOG.md"]
    paths += [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    made = {"_build", "generated", "auto_examples", "__pycache__"}
    wrong = re.compile(
        r"(?:pip|uv|pipx|conda|mamba) (?:add|install) (?:-\S+ )*[\"'`]?maxmargin\b|https?://\S*maxmargin"
    )
    found = set()
    for path in paths:
        if not made & set(path.relative_to(ROOT).parts) and (path.suffix in TEXTS or path.name in NAMES):
            found |= {f"{path}: {each[0]}" for each in wrong.finditer(path.read_text("utf-8"))}
    assert not found


def test_the_first_lines_install_from_the_folder():
    for name in ("README.md", "docs/index.rst", "docs/getting_started.rst"):
        commands = re.findall(
            r"^ *(?:\$ )?((?:make|pip) .*?)(?: {2,}#.*)?$", (ROOT / name).read_text(), re.MULTILINE
        )
        made = [line.split()[1] for line in commands if line.startswith("make")]
        assert "run" in made and set(made) <= set(re.findall(r"^(\w+):", MAKEFILE, re.MULTILINE))
        installed = [shlex.split(line)[-1] for line in commands if line.startswith("pip install")]
        assert installed and all(re.fullmatch(r"\.(\[[\w,]+\])?", each) for each in installed)
        assert {extra for each in installed for extra in re.findall(r"\w+", each)} <= set(EXTRAS)


def test_links_of_the_readme_lead_there_from_anywhere():
    """The README is the description of a wheel, too, where a path within the repository leads nowhere."""
    targets = re.findall(r"\]\(([^)]*)\)", (ROOT / "README.md").read_text())
    assert targets and all(target.startswith("https://") for target in targets)


def test_every_import_is_declared():
    """Packages that the code imports at the top of a file are dependencies."""
    known = {"sklearn": "scikit-learn", "joblib": "scikit-learn", "llvmlite": "numba", "triton": "torch"}
    declared = set(floors(PROJECT["dependencies"]))
    # Files that are imported only when their extra is asked for.
    extras = {"device": "gpu", "dask": "dask"}
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        extra = next((extras[part] for part in (path.stem, *path.parts) if part in extras), None)
        if extra is not None:
            declared |= {re.match(r"[\w-]+", line)[0] for line in EXTRAS[extra]}
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            found |= {name.partition(".")[0] for name in names}
    foreign = {known.get(name, name) for name in found - set(sys.stdlib_module_names) - {"maxmargin"}}
    assert foreign <= declared


def test_the_container_uses_existing_files_and_extras():
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    version = re.fullmatch(r"FROM python:(3\.\d+)-slim", lines[0])[1]
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    extras = re.search(r'"/src\[(.*)\]"', text)[1].split(",")
    assert set(extras) <= set(EXTRAS) and {"plots", "parquet"} <= set(extras)
    assert "install -m 755 /src/tools/container.sh /usr/local/bin/container" in text
    assert 'ENTRYPOINT ["container"]' in lines and "USER person" in lines
    called = [line.removeprefix("RUN container ").split() for line in lines if "RUN container" in line]
    assert called == [["warmup"]] and "warmup" in command.list_commands(None)
    # What every build sends to Docker: no environments, no history.
    left_out = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*", "build"} <= set(left_out)


# What stands in the place of the command in a container.
SHOWN = """\
import os, sys
print(os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"), sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a container runs Linux")
@pytest.mark.parametrize("level", ["x86-64-v3 (supported, searched)", "x86-64-v3", "aarch64"])
def test_the_container_sets_a_level_where_the_processor_has_it(level, tmp_path):
    script, loader = (ROOT / "tools" / "container.sh").read_text(), "/lib64/ld-linux-x86-64.so.2"
    assert loader in script
    (tmp_path / "program.py").write_text(SHOWN)
    commands = {
        "maxmargin": f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/program.py" "$@"\n',
        "loader": f"#!/bin/sh\necho '{level}'\n",
        "container": script.replace(loader, str(tmp_path / "loader")),
    }
    for name, text in commands.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_CPU")}
    environment |= {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [tmp_path / "container", "fit", "a b.csv"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    expected = "x86-64-v3 " if "supported" in level else "None None"
    assert done.stdout.strip() == f"{expected} ['fit', 'a b.csv']"


def test_the_conda_recipe_names_existing_files_and_commands(capsys):
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "tools" / "conda" / "meta.yaml").read_text()
    recipe = yaml.safe_load(text.replace("{{ PYTHON }}", "python"))
    [(name, target)] = PROJECT["scripts"].items()
    assert recipe["build"]["entry_points"] == [f"{name} = {target}"]
    assert (ROOT / "tools" / "conda" / recipe["source"]["path"]).resolve() == ROOT
    assert (ROOT / recipe["about"]["license_file"]).exists()
    assert recipe["about"]["license"] == PROJECT["license"]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert floors(build) == floors(
        need.replace(" ", "") for need in recipe["requirements"]["host"] if "setuptools" in need
    )
    for line in recipe["test"]["commands"]:
        words = shlex.split(line)
        assert words[0] == name and main(words[1:]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_distribution_files_pass_the_check_of_the_index(tmp_path):
    pytest.importorskip("build"), pytest.importorskip("twine")
    made = [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(made, check=True, capture_output=True)
    files = sorted(map(str, tmp_path.iterdir()))
    assert len(files) == 2
    with zipfile.ZipFile(next(name for name in files if name.endswith(".whl"))) as wheel:
        metadata = wheel.read(f"maxmargin-{VERSION}.dist-info/METADATA").decode()
    assert "Project-URL" not in metadata
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout

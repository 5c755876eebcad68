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
    told = floors(line for line in lines if not line.startswith("#"))
    frames = [line for line in EXTRAS["dev"] if line.startswith(("pandas", "polars"))]
    every = [*PROJECT["dependencies"], *EXTRAS["plots"], *EXTRAS["parquet"], *EXTRAS["data"], *frames]
    assert told == floors(every)


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


def test_the_container_is_made_of_what_there_is():
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    version = re.fullmatch(r"FROM python:(3\.\d+)-slim", lines[0])[1]
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    extras = re.search(r'"/src\[(.*)\]"', text)[1].split(",")
    assert set(extras) <= set(EXTRAS) and {"plots", "parquet"} <= set(extras)
    assert "install -m 755 /src/tools/container.sh /usr/local/bin/container" in text
    assert 'ENTRYPOINT ["container"]' in lines and "USER person" in lines
    called = [line.removeprefix("RUN container ").split() for line in lines if "RUN container" in line]
    assert called == [["warmup"]] and "warmup" in command.commands
    # What every build sends to Docker: no environments, no history.
    left_out = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*", "build"} <= set(left_out)


# A process of the container on a processor of another name, and a loop.
CONTAINED = """
import sys
import llvmlite.binding
if len(sys.argv) > 1:
    llvmlite.binding.get_host_cpu_name = lambda: sys.argv[1]
from maxmargin.core.jit import compiled

@compiled
def twice(x):
    return 2 * x

twice(1.0)
"""


@pytest.fixture
def contained(tmp_path):
    """Run the container's command: what it prints, with a Python program in the place of maxmargin."""
    script, loader = (ROOT / "tools" / "container.sh").read_text(), "/lib64/ld-linux-x86-64.so.2"
    assert loader in script

    def run(*words, loader_says=None):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "maxmargin").write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/program.py" "$@"\n'
        )
        (folder / "loader").write_text(f"#!/bin/sh\necho '{loader_says}'\n")
        (folder / "container").write_text(
            script.replace(loader, str(folder / "loader") if loader_says else loader)
        )
        for file in folder.iterdir():
            file.chmod(0o755)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_CPU")}
        environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
        done = subprocess.run(
            [folder / "container", *words], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.mark.skipif(sys.platform != "linux", reason="a container runs Linux")
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_the_container_compiles_once_for_all_processors(contained, tmp_path):
    (tmp_path / "program.py").write_text(CONTAINED)

    def kept(*words, level="x86-64-v3 (supported, searched)"):
        contained(*words, loader_says=level)
        return len(list((tmp_path / "cache").rglob("*.nbc")))

    assert kept() == kept("skylake-avx512") == kept("haswell") == 1
    # A processor below the level takes nothing that it could not run.
    assert kept("nehalem", level="x86-64-v2 (supported, searched)\nx86-64-v3") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="a container runs Linux")
@pytest.mark.parametrize("level", ["x86-64-v3 (supported, searched)", "x86-64-v3", "aarch64"])
def test_the_container_sets_a_level_where_the_processor_has_it(level, contained, tmp_path):
    (tmp_path / "program.py").write_text(
        "import os, sys\n"
        "print(os.environ.get('NUMBA_CPU_NAME'), os.environ.get('NUMBA_CPU_FEATURES'), sys.argv[1:])\n"
    )
    told = "x86-64-v3 " if "supported" in level else "None None"
    assert contained("fit", "a b.csv", loader_says=level) == f"{told} ['fit', 'a b.csv']"


def test_the_conda_recipe_builds_and_tests_what_there_is(capsys):
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

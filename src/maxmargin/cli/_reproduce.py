"""`maxmargin reproduce`: run the experiments that stand in the repository."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import click

from maxmargin.cli._console import print_table, say


@click.command(
    "reproduce",
    context_settings={"ignore_unknown_options": True},
    short_help="Run an experiment of the repository.",
)
@click.argument("name", required=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[EXPERIMENT OPTIONS]...")
@click.option(
    "--repository",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Checkout of the repository; default: the directory you are in.",
)
def command(name: str | None, options: tuple[str, ...], repository: Path) -> int:
    """Run the experiment NAME of the repository; without NAME, list them.

    Experiments read their data through MAXMARGIN_DATA or the cache, and write tables and
    pictures to experiments/results. Further options go to the experiment itself.
    """
    folder = repository / "experiments"
    scripts = {path.stem: path for path in sorted(folder.glob("[!_]*.py"))}
    if not scripts:
        raise click.UsageError(
            f"There are no experiments in {repository.resolve()}; go to a checkout of the repository or name "
            "it by --repository."
        )
    if name is None:
        rows = [[key, _first_line(path)] for key, path in scripts.items()]
        print_table("Experiments", ["name", "what"], rows, left=(0, 1))
        return 0
    if name not in scripts:
        raise click.UsageError(f"No experiment is called {name!r}; there are {', '.join(scripts)}.")
    say(f"python -m experiments.{name} {' '.join(options)}")
    words = [sys.executable, "-m", f"experiments.{name}", *options]
    return subprocess.run(words, cwd=repository, check=False).returncode


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return docstring.partition("\n")[0]

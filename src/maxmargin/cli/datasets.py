"""`maxmargin datasets`: list, describe, download and convert data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from maxmargin.cli.console import FILE, Group, echo, json_option, print_table, progress_bar
from maxmargin.cli.data import ReadOptions, read, read_options
from maxmargin.cli.families import complete_data
from maxmargin.io.words import visible


@click.group("datasets", cls=Group, invoke_without_command=True)
@click.pass_context
def datasets_command(context: click.Context) -> None:
    """List, describe, download and convert data sets."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@datasets_command.command("list", short_help="List the known data sets.")
@click.option("--task", help="List data for this task only, such as multilabel or multiclass.")
@json_option("Print one JSON array instead of a table.")
def list_command(task: str | None, as_json: bool) -> None:
    """List the data sets that can be named instead of a file, on this machine or to download with `fetch`."""
    from maxmargin import datasets

    entries = [_entry(datasets.info(name)) for name in datasets.list_datasets(task)]
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    print_table(
        "Data sets",
        ["name", "task", "where", "licence"],
        [list(entry.values()) for entry in entries],
        left=(0, 1, 2, 3),
    )


@datasets_command.command("info", short_help="Print size, source and licence of a data set or file.")
@click.argument("name", metavar="NAME", shell_complete=complete_data)
@json_option("Print one JSON object instead of text.")
@read_options
def info_command(name: str, as_json: bool, reading: ReadOptions) -> None:
    """Print size, source and licence of the data set NAME, or the size of a file.

    \b
    maxmargin datasets info yeast
    maxmargin datasets info large.svm
    """
    from maxmargin import datasets
    from maxmargin.io.registry import registry

    if name == "-" or (name not in registry() and Path(name).exists()):
        entry = {"name": name} | _sizes(read(name, reading))
    else:
        entry = _known(datasets.info(name))
    if as_json:
        print(json.dumps(entry, indent=1))
        return
    for key, value in entry.items():
        words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        print(f"{key}: {visible(words)}")


def _complete_names(
    context: click.Context, argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the names of all data sets."""
    from maxmargin.io.registry import list_datasets

    return [CompletionItem(name) for name in list_datasets() if name.startswith(incomplete)]


@datasets_command.command("fetch")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_complete_names)
@click.option("--directory", type=FILE, help="Directory to download to. Default: the cache.")
@click.option("--mirror", help="URL to download from, of a directory laid out like MAXMARGIN_DATA.")
@click.option("--timeout", default=30.0, show_default=True, help="Seconds to wait for the server.")
def fetch_command(names: tuple[str, ...], directory: Path | None, mirror: str | None, timeout: float) -> None:
    """Download data sets and check their hashes."""
    from maxmargin import datasets

    for name in names:
        with progress_bar() as bar:
            task = bar.add_task(name)

            def progress(done: int, total: int, bar: Any = bar, task: Any = task) -> None:
                bar.update(task, completed=done, total=total)

            where = datasets.fetch(
                name, directory=directory, mirror=mirror, timeout=timeout, progress=progress
            )
        echo(f"{name}: in {where}")


@datasets_command.command("convert", short_help="Convert a data set to another format.")
@click.argument("source", shell_complete=complete_data)
@click.argument("target_file", type=FILE, metavar="TARGET")
@click.option("--one-label", is_flag=True, help="SVMlight: each line has exactly one label, the class.")
@read_options
def convert_command(source: str, target_file: Path, one_label: bool, reading: ReadOptions) -> None:
    """Convert SOURCE (a file, a known data set, or - for stdin) to TARGET.

    The extension of TARGET is its format: .csv, .parquet, .arff (with an .xml file for several labels) or
    .svm, compressed if .xz or .gz follows.

    \b
    maxmargin datasets convert yeast yeast.csv
    maxmargin datasets convert tags.csv tags.svm.xz --label-prefix tag_
    """
    from maxmargin import datasets

    suffixes = [suffix for suffix in target_file.suffixes if suffix not in (".xz", ".gz")]
    kind = suffixes[-1] if suffixes else ""
    if kind not in (".csv", ".parquet", ".arff", ".svm", ".svmlight", ".libsvm"):
        raise click.UsageError(
            f"{target_file}: the name must end in .csv, .parquet, .arff or .svm (or .xz or .gz after it)."
        )
    data = read(source, reading, single=one_label)
    if data.X.dtype == object:
        words = [name for name, own in data.extras["columns"].items() if own != "number"]
        raise ValueError(
            f"{source}: column {words[0]!r} holds words, but convert needs numbers; leave such columns out "
            f"with --drop {','.join(words)}."
        )
    if kind == ".arff":
        stem = target_file.name.partition(".arff")[0]
        xml = target_file.parent / f"{stem}.xml" if data.multilabel else None
        datasets.write_arff(data, target_file, xml)
    else:
        writers = {".csv": datasets.write_csv, ".parquet": datasets.write_parquet}
        writers.get(kind, datasets.write_svmlight)(data, target_file)
    echo(f"{target_file}: {data.X.shape[0]} samples, {data.X.shape[1]} features, {data.n_labels} labels")


def _known(about: Any) -> dict[str, Any]:
    """Describe a known data set, with sizes if its files are on this machine."""
    from maxmargin import datasets

    entry = _entry(about) | {"source": about.source}
    if entry["where"] not in ("not here", "can be fetched") and about.task != "ranking":
        entry |= _sizes(datasets.load(about.name))
    entry["files"] = [file.path for file in about.files]
    without = [f"{file.path} from {file.source}" for file in about.files if file.url is None]
    if without and not about.shipped:
        entry["without an address"] = without
    return entry | ({} if about.recipe is None else {"made by": about.recipe})


def _entry(about: Any) -> dict[str, Any]:
    from maxmargin.io.registry import where

    return {"name": about.name, "task": about.task, "where": where(about.name), "licence": about.licence}


def _sizes(data: Any) -> dict[str, Any]:
    n, d = data.X.shape
    sizes = {"samples": n, "features": d, "labels" if data.multilabel else "classes": data.n_labels}
    if data.train is not None:
        sizes["training samples"] = len(data.train)
    if data.test is not None:
        sizes["test samples"] = len(data.test)
    if data.multilabel:
        sizes["labels per sample"] = round(float(data.Y.sum()) / n, 3)
    arrays = [data.X]
    if hasattr(data.X, "indptr"):
        sizes["nonzeros per sample"] = round(data.X.nnz / n, 3)
        arrays = [data.X.data, data.X.indices, data.X.indptr]
    sizes["MiB in memory"] = round(sum(array.nbytes for array in arrays) / 2**20, 3)
    return sizes

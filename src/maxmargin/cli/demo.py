"""`maxmargin demo`: every family at work, on data that ships or is made up."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.commands import baseline, subject, write_page
from maxmargin.cli.console import print_table, progress_bar, say
from maxmargin.cli.data import Samples
from maxmargin.cli.families import FAMILIES, Family
from maxmargin.cli.models import MEASURES, cut_of

COLUMNS = ["family", "data", "measure", "maxmargin", "scikit-learn", "baseline", "gap", "fit s", "base s"]


@click.command("demo", short_help="Fit one model of each family on shipped data.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per family instead of a table.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("maxmargin-demo"),
    show_default=True,
    help="Where to put report.html.",
)
def demo_command(as_json: bool, directory: Path) -> None:
    """Fit one model of each family on shipped data beside its scikit-learn baseline.

    Prints one table and writes a page with pictures.
    """
    subjects = []
    with progress_bar() as bar:
        task = bar.add_task("compiling", total=2 * len(FAMILIES))
        start = time.perf_counter()
        for family in FAMILIES.values():
            bar.update(task, description=f"{family.name}: compiling")
            compile_loops(family)
            bar.advance(task)
        compiling = time.perf_counter() - start
        for family in FAMILIES.values():
            bar.update(task, description=f"{family.name}: fitting")
            subjects.append(run(family))
            bar.advance(task)
    rows = [_row(family, about) for family, about in zip(FAMILIES.values(), subjects, strict=True)]
    if as_json:
        for row in rows:
            print(json.dumps(dict(zip(COLUMNS, row, strict=True))))
    else:
        print_table("Test results, one model per family", COLUMNS, rows, left=(0, 1, 2, 5))
        print(f"Compiled the inner loops in {compiling:.1f} s; later runs find them on disk.")
    _write_report(directory, rows, subjects)


def run(family: Family) -> Any:
    """Fit and test a family and its baseline on the demo's data."""
    train, test = LOADERS[family.demo_data]()
    model = family.build(**family.demo_params)
    start = time.perf_counter()
    model.fit(train.X, train.y, **cut_of(model, train))
    seconds = time.perf_counter() - start
    beside = baseline(family, train, test) | {
        "training_labels": train.y,
        "training": f"Trained on {len(train)} samples of {family.demo_data}.",
    }
    return subject(model, family, test, family.demo_data, seconds, **beside)


def compile_loops(family: Family) -> None:
    """Fit some rows, so that the times shown later are those of fitting alone.

    As many as it takes to be solved in the precision and by the loops of all rows.
    """
    train, _ = LOADERS[family.demo_data]()
    few = train.take(range(min(400, len(train)) if train.lengths is None else 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = family.build(**family.demo_params).set_params(max_iter=2)
        cut = cut_of(model, few)
        model.fit(few.X, few.y, **cut).predict(few.X, **cut)


def _row(family: Family, about: Any) -> list[Any]:
    headline = family.headline or next(iter(MEASURES[family.task]))
    return [
        family.name,
        family.demo_data,
        headline,
        about.measures[headline],
        about.baseline_measures[headline],
        family.baseline_name,
        # One pass over a stream does not aim at an optimum.
        None if family.task == "ranking" else about.model.duality_gap_,
        about.seconds,
        about.baseline_seconds,
    ]


def _write_report(directory: Path, rows: list[list[Any]], subjects: list[Any]) -> None:
    if find_spec("matplotlib") is None:
        say('No report: its pictures need matplotlib; pip install "maxmargin[plots]".')
        return
    from maxmargin.report import Section, page, sections, table, versions

    parts = [Section("All families", table(COLUMNS, rows))]
    for about in subjects:
        parts += sections(about)
    directory.mkdir(parents=True, exist_ok=True)
    lead = "One model of each family beside its scikit-learn baseline, on data that ships with the package."
    write_page(directory / "report.html", page("maxmargin demo", lead, [*parts, versions()]))


Split = tuple[Samples, Samples]


def _table(name: str) -> Split:
    """A shipped data set in its own split, columns scaled to mean 0 and variance 1."""
    from sklearn.preprocessing import StandardScaler

    from maxmargin.datasets import load

    data = load(name)
    train, test = data.part("train"), data.part("test")
    scaler = StandardScaler().fit(train.X)
    names = data.label_names, data.feature_names
    return (
        Samples(scaler.transform(train.X), train.Y, *names),
        Samples(scaler.transform(test.X), test.Y, *names),
    )


def _digits() -> Split:
    """scikit-learn's 1797 images of handwritten digits, every second one for testing."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    X, y = bunch.data / 16.0, bunch.target
    names = tuple(str(digit) for digit in bunch.target_names), tuple(bunch.feature_names)
    return Samples(X[::2], y[::2], *names), Samples(X[1::2], y[1::2], *names)


def _mail() -> Split:
    """The shipped stream of mail, in its order: the first four fifths, then the rest."""
    from maxmargin.datasets import load

    data = load("mail-stream")
    cut = data.X.shape[0] * 4 // 5
    names = data.label_names, data.feature_names
    return Samples(data.X[:cut], data.Y[:cut], *names), Samples(data.X[cut:], data.Y[cut:], *names)


def digit_words(length: int = 6, noise: float = 0.5, seed: int = 0) -> Split:
    """Sequences of handwritten digits that mostly count upwards, 150 to train and 150 to test.

    The images are scikit-learn's, blurred by pixel noise; their order is drawn: a digit is
    followed by the next higher one with probability 0.8 and by any digit otherwise.
    """
    import numpy as np

    rng = np.random.default_rng(seed)

    def words(images: Samples, n_words: int = 150) -> Samples:
        pools = [np.flatnonzero(images.y == digit) for digit in range(10)]
        rows = []
        for _ in range(n_words):
            digit = rng.integers(10)
            for _ in range(length):
                rows.append(rng.choice(pools[digit]))
                digit = (digit + 1) % 10 if rng.random() < 0.8 else rng.integers(10)
        blurred = images.X[rows] + noise * rng.standard_normal((len(rows), images.X.shape[1]))
        lengths = np.full(n_words, length)
        return Samples(blurred, images.y[rows], images.label_names, images.feature_names, lengths)

    train, test = _digits()
    return words(train), words(test)


LOADERS: dict[str, Callable[[], Split]] = {
    "yeast": lambda: _table("yeast"),
    "emotions": lambda: _table("emotions"),
    "mail-stream": _mail,
    "digits": _digits,
    "digit-words": digit_words,
}

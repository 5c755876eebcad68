"""How labels hang together: from a file of pairs, trees and graphs, or learnt with the model."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

# The word for a prior that is learnt with the weights.
LEARNED = "learned"


def read_pairs(path: Path, option: str) -> list[tuple[str, ...]]:
    """Rows of a file with two labels each (and perhaps a weight), separated by commas."""
    if not path.is_file():
        raise click.UsageError(f"{option}: there is no file {path}.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [(k, tuple(word.strip() for word in row)) for k, row in enumerate(csv.reader(file), 1) if row]
    for k, row in rows:
        if len(row) not in (2, 3):
            raise click.UsageError(f"{option}: line {k} of {path} has {len(row)} entries, not two labels.")
    if not rows:
        raise click.UsageError(f"{option}: {path} is empty.")
    return [row for _, row in rows]


def edges_of(path: Path, labels: Sequence[str], option: str) -> list[tuple[Any, ...]]:
    """The pairs of a file as numbers of labels; a first line that names none is a header."""
    rows = read_pairs(path, option)
    place = {name: k for k, name in enumerate(labels)}
    if rows and not {rows[0][0], rows[0][1]} & set(place):
        rows = rows[1:]
    found: list[tuple[Any, ...]] = []
    for row in rows:
        for name in row[:2]:
            if name not in place:
                shown = ", ".join(labels[:10]) + (" and others" if len(labels) > 10 else "")
                raise click.UsageError(f"{option}: {path} names {name!r}; the labels are {shown}.")
        found.append((place[row[0]], place[row[1]], *row[2:]))
    if not found:
        raise click.UsageError(f"{option}: {path} names none of the labels.")
    return found


def tree_of(path: Path, labels: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of parent and child."""
    edges = edges_of(path, labels, "--tree")
    if any(len(edge) > 2 for edge in edges):
        raise click.UsageError(f"--tree: {path} has three columns; a tree is pairs of parent and child.")
    check_tree(edges, labels, f"--tree: {path}")
    return [(above, below) for above, below in edges]


def check_tree(edges: Sequence[tuple[Any, ...]], labels: Sequence[str], where: str) -> None:
    """Say by its name which label is its own ancestor, or has two parents."""
    from maxmargin.decisions.tree import parents_of

    try:
        parents_of([(labels[above], labels[below]) for above, below in edges], list(labels))
    except ValueError as error:
        raise click.UsageError(f"{where}: {error}") from error


def prior_of(word: str, labels: Sequence[str]) -> Any:
    """The prior that ``tree:FILE`` or ``graph:FILE`` stands for."""
    from maxmargin import priors

    kind, _, name = word.partition(":")
    option, path = f"--prior {kind}", Path(name)
    if kind == "tree":
        return priors.from_tree(edges_of(path, labels, option), range(len(labels)))
    edges = edges_of(path, labels, option)
    try:
        weighted = [(a, b, *map(float, weight)) for a, b, *weight in edges]
    except ValueError as error:
        raise click.UsageError(f"{option}: the third column of {path} is no weight: {error}.") from error
    return priors.from_graph(weighted, range(len(labels)))


def is_structure(word: Any) -> bool:
    """Whether the word given for a prior names a file of pairs, or says that it is learnt from the data."""
    return isinstance(word, str) and (word == LEARNED or word.startswith(("tree:", "graph:")))


def check_files(tree: Path | None, structure: str | None) -> None:
    """Read files of pairs before the data, so that a mistake in them is reported first."""
    if tree is not None:
        read_pairs(tree, "--tree")
    if structure is not None and structure != LEARNED:
        kind, _, name = structure.partition(":")
        read_pairs(Path(name), f"--prior {kind}")


def learn_prior(model: Any, X: Any, y: Any) -> None:
    """Give the estimator, at the end of a pipeline or alone, the prior that is learnt with its weights."""
    from sklearn.base import clone

    from maxmargin import priors

    if hasattr(model, "steps"):
        X = clone(model[:-1]).fit_transform(X)
        model = model.steps[-1][1]
    model.set_params(prior=priors.learned(model, X, y))

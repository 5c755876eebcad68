"""`maxmargin warmup`: compile every inner loop once, ahead of the first fit."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import click

from maxmargin.cli._console import progress_bar
from maxmargin.cli._families import FAMILIES, Family, build


@click.command("warmup", short_help="Compile the inner loops ahead of the first fit.")
@click.argument("families", nargs=-1, type=click.Choice(list(FAMILIES)), metavar="[FAMILY]...")
def command(families: Sequence[str]) -> None:
    """Compile the inner loops of the given families (all by default) and keep them on disk.

    The first fit of an estimator then starts at once. Needed at most once per machine and
    version.
    """
    chosen = [FAMILIES[name] for name in families or FAMILIES]
    steps = [(family, params, kind) for family in chosen for params in family.variants for kind in range(4)]
    start = time.perf_counter()
    with progress_bar() as bar:
        task = bar.add_task("compiling", total=len(steps))
        for family, params, kind in steps:
            bar.update(task, description=f"{family.name} {_words(params)}")
            fit_a_little(family, params, kind)
            bar.advance(task)
    names = ", ".join(family.name for family in chosen)
    print(f"Ready: {names} ({time.perf_counter() - start:.1f} s).")


def fit_a_little(family: Family, params: Any, kind: int) -> None:
    """Fit and predict a few rows: dense and CSR, in double and single precision (kinds 0 to 3)."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    X: Any = rng.random((24, 5)).astype(np.float32 if kind & 1 else np.float64)
    if kind & 2:
        X = sp.csr_array(X)
    codes = np.arange(24) % 3
    y = (
        np.eye(3, dtype=int)[codes] | np.eye(3, dtype=int)[codes[::-1]]
        if family.task == "multilabel"
        else codes
    )
    cut = {"lengths": np.full(8, 3)} if family.task == "chain" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = build(family, params).set_params(max_iter=3)
        model.fit(X, y, **cut).predict(X, **cut)
        if family.task == "multilabel":
            model.decision_function(X)
        if family.task == "multiclass":
            # More classes and samples take wider words and single precision.
            X = rng.random((400, 5)).astype(X.dtype)
            model.fit(sp.csr_array(X) if kind & 2 else X, np.arange(400) % 6)


def _words(params: Any) -> str:
    return " ".join(f"{key}={value}" for key, value in params.items())

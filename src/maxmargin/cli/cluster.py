"""`maxmargin fit --cluster`: the workers of a Dask cluster read files and fit."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maxmargin.cli.console import echo
from maxmargin.cli.data import ReadOptions, Samples, format_of, read_table, which_labels
from maxmargin.cli.families import FAMILIES, ON_CLUSTER, Family, estimator, value_of
from maxmargin.cli.models import Fitted, fit

if TYPE_CHECKING:
    from maxmargin.datasets import Dataset

FORMATS = ("arff", "csv", "parquet", "svmlight")
# Byte ranges per worker of a single large file, and the smallest size of a range.
RANGES, LEAST = 4, 1 << 20


def refuse(*, scale: str, decisions: bool, folds: bool) -> None:
    """Raise an error for options that need all rows in one process."""
    problem = None
    if scale not in ("auto", "none"):
        problem = f"--scale {scale} does not work on clusters; scale the files before"
    elif decisions:
        problem = "--probabilities, --recall, --set-precision and --tree do not work on clusters"
    elif folds:
        problem = "--cv and several values of --C do not work on clusters; give one C"
    if problem:
        raise click.UsageError(f"{problem}, or leave --cluster out.")


@contextmanager
def _connected(address: str, workers: int | None) -> Iterator[Any]:
    """Yield a client of the cluster, and print the address of its dashboard."""
    from maxmargin.dask.cluster import Quiet, distributed, local_cluster

    if address != "local" and workers is not None:
        raise click.UsageError("--workers needs --cluster local.")
    if address == "local":
        # Dask's own warnings, such as about a busy worker that ends slowly, need no action.
        logging.getLogger("distributed").setLevel(logging.ERROR)
        count = workers or os.cpu_count() or 1
        with local_cluster(count, "127.0.0.1:0") as cluster, distributed.Client(cluster) as client:
            echo(f"Cluster of {count} workers; dashboard: {client.dashboard_link}")
            client.register_plugin(Quiet())
            yield client
        return
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--cluster {address}: no Dask scheduler answers at this address ({error})."
        ) from error
    with client:
        echo(f"Cluster of {len(client.nthreads())} workers; dashboard: {client.dashboard_link}")
        yield client


def fit_files(
    files: Sequence[str],
    address: str,
    workers: int | None,
    family: Family | None,
    given: Mapping[str, str],
    reading: ReadOptions,
) -> tuple[Fitted, Family, Samples]:
    """Fit on a cluster; return the local model, its family, and a description of the samples.

    `address` is that of the scheduler, or "local"; `given` are the parameters of the command line.
    """
    from dask import delayed

    from maxmargin.dask.files import common_of, found, together

    if not files:
        raise click.UsageError("Name the DATA: one or several files.")
    # Mistakes in parameters and options are reported before the files are read.
    if family is not None:
        _on_cluster(family, given)
    paths = [Path(path) for path in found(files)]
    for path in paths:
        _check_file(path, reading)
    single = family is not None and family.task == "multiclass"
    with _connected(address, workers) as client:
        chunks = _chunks(paths, reading, max(len(client.nthreads()), 1))
        # The workers keep the chunks, which would otherwise be read again after their labels are known.
        read = client.persist([delayed(read_part, pure=True)(*chunk, reading, single) for chunk in chunks])
        try:
            common = client.compute(common_of(read)).result()
        except ValueError as error:
            if all(format_of(path, reading) == "svmlight" for path in paths):
                raise
            raise ValueError(
                f"{error}. Workers read tables of numbers; --drop columns of words, or leave --cluster out."
            ) from error
        family = family or FAMILIES["multilabel" if common.multilabel else "multiclass"]
        if common.multilabel != (family.task == "multilabel"):
            raise ValueError(f"The files do not suit -m {family.name}; use -m multilabel or multiclass.")
        model = _on_cluster(family, given)
        fitted = fit(model, Samples(together(read), None, (), ()), f"fitting {family.name}")
    return replace(fitted, model=model.to_local()), family, _description(model, common)


def _check_file(path: Path, reading: ReadOptions) -> None:
    """Raise an error for a file that workers cannot read."""
    if not path.is_file():
        raise click.UsageError(f"There is no file {path}; workers read files, not known data sets.")
    kind = format_of(path, reading)
    if kind not in FORMATS:
        raise click.UsageError(f"{path} is {kind}; workers read {', '.join(FORMATS)}.")
    if reading.text or reading.categories or reading.dates or reading.changes_cells:
        raise click.UsageError(
            "--text, --categories, --dates, --decimal and --missing do not work on clusters, whose workers "
            "read tables of numbers; --drop the columns, or leave --cluster out."
        )
    if kind in ("csv", "parquet") and not reading.names_labels:
        raise click.UsageError(f"{path}: {which_labels(path, kind, reading)}")


def _on_cluster(family: Family, given: Mapping[str, str]) -> Any:
    """Return the estimator of a family for clusters, with parameters of the command line."""
    import maxmargin.dask

    if family.estimator not in maxmargin.dask.__all__:
        raise click.UsageError(
            f"-m {family.name} does not work on clusters; use -m multilabel or multiclass, or leave "
            "--cluster out."
        )
    local = estimator(family, {name: word for name, word in given.items() if name not in ON_CLUSTER})
    own = {name: value_of(word) for name, word in given.items() if name in ON_CLUSTER}
    return getattr(maxmargin.dask, family.estimator)(**local.get_params(deep=False), **own)


def read_part(path: Path, span: tuple[int, int] | None, reading: ReadOptions, single: bool) -> Dataset:
    """Read a file, or a range of its bytes, on a worker."""
    from maxmargin import datasets
    from maxmargin.dask.files import naming

    kind = format_of(path, reading)
    with naming(path):
        if kind != "svmlight":
            return read_table(path, kind, reading, None)
        how = {"zero_based": reading.zero_based, "dtype": reading.dtype}
        return datasets.read_svmlight(path, multilabel=not single, span=span, **how)


def _chunks(
    paths: list[Path], reading: ReadOptions, workers: int
) -> list[tuple[Path, tuple[int, int] | None]]:
    """Return the files, or the byte ranges of a single large file."""
    from maxmargin.dask.files import spans

    path = paths[0]
    if len(paths) > 1 or format_of(path, reading) != "svmlight" or path.suffix in (".gz", ".xz"):
        return [(path, None) for path in paths]
    blocksize = max(path.stat().st_size // (RANGES * workers), LEAST)
    return [(path, span) for span in spans(str(path), blocksize)]


def _description(model: Any, common: Any) -> Samples:
    """Return samples with the names and shape of the data, without its rows."""
    import numpy as np
    import scipy.sparse as sp

    shape = common.size, common.n_features
    X = sp.csr_array(shape) if common.sparse else np.broadcast_to(np.zeros(1), shape)
    names = common.label_names if common.multilabel else tuple(str(name) for name in model.classes_)
    return Samples(X, None, names, common.feature_names)

"""`maxmargin fit --cluster`: files that the workers of a Dask cluster read and learn from."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maxmargin.cli.console import say
from maxmargin.cli.data import ReadOptions, Samples, format_of, read_table, which_labels
from maxmargin.cli.families import FAMILIES, ON_CLUSTER, Family, estimator, value_of
from maxmargin.cli.models import Fitted, fit

if TYPE_CHECKING:
    from maxmargin.datasets import Dataset

FORMATS = ("arff", "csv", "parquet", "svmlight")
# Ranges of bytes for every worker, where there is one large file; ones smaller than this are not worth it.
RANGES, LEAST = 4, 1 << 20


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for: where, with how many workers, files, family and parameters."""

    place: str
    workers: int | None
    files: Sequence[str]
    family: Family | None
    given: Mapping[str, str]


def refuse(*, scale: str, decisions: bool, folds: bool) -> None:
    """Refuse what needs all rows in one place."""
    if scale not in ("auto", "none"):
        raise click.UsageError(
            f"--scale {scale} is not for clusters; scale the files before, or leave --cluster out."
        )
    if decisions:
        raise click.UsageError(
            "--probabilities, --recall, --set-precision and --tree are not for clusters, as they need all "
            "rows here; leave --cluster out."
        )
    if folds:
        raise click.UsageError(
            "--cv and several values of --C are not for clusters; give one C, or leave --cluster out."
        )


@contextmanager
def connected(place: str, workers: int | None) -> Iterator[Any]:
    """A client of the cluster; where it shows its work is said."""
    from maxmargin.dask.cluster import Quiet, distributed, local_cluster

    if place != "local" and workers is not None:
        raise click.UsageError("--workers is the number of those of --cluster local.")
    if place == "local":
        # Dask's own warnings, such as that a busy worker is slow to end, need nothing done.
        logging.getLogger("distributed").setLevel(logging.ERROR)
        count = workers or os.cpu_count() or 1
        with local_cluster(count, "127.0.0.1:0") as cluster, distributed.Client(cluster) as client:
            say(f"Cluster of {count} workers; dashboard: {client.dashboard_link}")
            client.register_plugin(Quiet())
            yield client
        return
    try:
        client = distributed.Client(place, timeout=10)
    except (OSError, ValueError) as error:
        raise ValueError(f"--cluster {place}: no Dask scheduler answers there ({error}).") from error
    with client:
        count = len(client.nthreads())
        say(f"Cluster of {count} workers; dashboard: {client.dashboard_link}")
        yield client


def fit_parts(wanted: Wanted, reading: ReadOptions) -> tuple[Fitted, Family, Samples]:
    """Fit on a cluster; the ordinary model, its family, and samples whose rows are elsewhere."""
    from dask import delayed

    from maxmargin.dask.files import common_of, found, together

    if not wanted.files:
        raise click.UsageError("Name the DATA: one or several files.")
    if wanted.family is not None:
        on_cluster(
            wanted.family, wanted.given
        )  # a mistake in the parameters is reported before a long reading
    paths = [Path(path) for path in found(wanted.files)]
    for path in paths:
        if not path.is_file():
            raise click.UsageError(f"There is no file {path}; workers read files, not known data sets.")
        if format_of(path, reading) not in FORMATS:
            raise click.UsageError(f"{path}: workers read {', '.join(FORMATS)}.")
        check_columns(path, reading)
    single = wanted.family is not None and wanted.family.task == "multiclass"
    with connected(wanted.place, wanted.workers) as client:
        pieces = _pieces(paths, reading, max(len(client.nthreads()), 1))
        # Kept by the workers, or the files would be read again after their labels are known.
        read = client.persist([delayed(read_part, pure=True)(*piece, reading, single) for piece in pieces])
        try:
            common = client.compute(common_of(read)).result()
        except ValueError as error:
            if all(format_of(path, reading) == "svmlight" for path in paths):
                raise
            raise ValueError(
                f"{error}. Workers read tables of numbers; --drop columns of words, or leave --cluster out."
            ) from error
        family = wanted.family or FAMILIES["multilabel" if common.multilabel else "multiclass"]
        if common.multilabel != (family.task == "multilabel"):
            raise ValueError(f"The files do not suit -m {family.name}: use -m multilabel or multiclass.")
        model = on_cluster(family, wanted.given)
        fitted = fit(model, Samples(together(read), None, (), ()), f"fitting {family.name}")
    return replace(fitted, model=model.to_local()), family, _stand_in(model, common)


def check_columns(path: Path, reading: ReadOptions) -> None:
    """Refuse a table whose labels are not named, and columns of words, before anything is started."""
    if reading.text or reading.categories or reading.dates or reading.says_cells:
        raise click.UsageError(
            "--text, --categories, --dates, --decimal and --missing are not for clusters, whose workers read "
            "tables of plain numbers; --drop the columns, or leave --cluster out."
        )
    if format_of(path, reading) in ("csv", "parquet") and not reading.says_labels:
        raise click.UsageError(f"{path}: {which_labels(path, format_of(path, reading), reading)}")


def on_cluster(family: Family, given: Mapping[str, str]) -> Any:
    """The estimator of a family on a cluster, with parameters as words."""
    import maxmargin.dask

    if family.estimator not in maxmargin.dask.__all__:
        raise click.UsageError(
            f"-m {family.name} is not for clusters, -m multilabel and multiclass are; leave --cluster out."
        )
    local = estimator(family, {name: word for name, word in given.items() if name not in ON_CLUSTER})
    own = {name: value_of(word) for name, word in given.items() if name in ON_CLUSTER}
    return getattr(maxmargin.dask, family.estimator)(**local.get_params(deep=False), **own)


def read_part(path: Path, span: tuple[int, int] | None, reading: ReadOptions, single: bool) -> Dataset:
    """A file, or a range of its bytes, as a worker reads it."""
    from maxmargin import datasets
    from maxmargin.dask.files import naming

    kind = format_of(path, reading)
    with naming(path):
        if kind != "svmlight":
            return read_table(path, kind, reading, None)
        how = {"zero_based": reading.zero_based, "dtype": reading.dtype}
        return datasets.read_svmlight(path, multilabel=not single, span=span, **how)


def _pieces(
    paths: list[Path], reading: ReadOptions, workers: int
) -> list[tuple[Path, tuple[int, int] | None]]:
    """What is read at a time: files, or ranges of bytes of a single large one."""
    from maxmargin.dask.files import spans

    path = paths[0]
    if len(paths) > 1 or format_of(path, reading) != "svmlight" or path.suffix in (".gz", ".xz"):
        return [(path, None) for path in paths]
    blocksize = max(path.stat().st_size // (RANGES * workers), LEAST)
    return [(path, span) for span in spans(str(path), blocksize)]


def _stand_in(model: Any, common: Any) -> Samples:
    """What is noted of the samples, without their rows."""
    import numpy as np
    import scipy.sparse as sp

    shape = common.size, common.n_features
    X = sp.csr_array(shape) if common.sparse else np.broadcast_to(np.zeros(1), shape)
    names = common.label_names if common.multilabel else tuple(str(name) for name in model.classes_)
    return Samples(X, None, names, common.feature_names)

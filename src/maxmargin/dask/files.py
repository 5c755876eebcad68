"""Files as delayed partitions: files that workers read, and folders from which rows are mapped into memory.

`read_svmlight`, `read_parquet` and `read_arff` read several files, or ranges of bytes of one. Workers read
the files, collect the labels and the width of each, and give all partitions the same columns; no row reaches
the client.

`store` writes partitions into a folder, from which rows that do not fit the memory are mapped. With
``client="here"`` a fit needs no cluster.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from dask import compute, delayed

from maxmargin import datasets
from maxmargin.dask.cluster import name_partitions
from maxmargin.datasets import Dataset

# The arrays of a CSR matrix.
ARRAYS = ("data", "indices", "indptr")
# Bytes of an .npy file without numbers.
HEADER = 128

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Common(NamedTuple):
    """Samples, labels and width of all partitions; no labels if every sample has one class."""

    size: int
    label_names: tuple[str, ...]
    n_features: int
    feature_names: tuple[str, ...]
    multilabel: bool
    sparse: bool


def read_svmlight(
    paths: Paths,
    *,
    multilabel: bool = True,
    n_features: int | None = None,
    zero_based: bool = False,
    dtype: Any = np.float64,
    blocksize: int | None = None,
) -> list[Any]:
    """SVMlight files as delayed partitions of (X, y).

    Parameters
    ----------
    paths : path, pattern with ``*``, or list of them
        Files that all workers can read; plain, or compressed as .xz or .gz.
    multilabel, n_features, zero_based, dtype
        As in `maxmargin.datasets.read_svmlight`; the labels are those of all files, and without `n_features`
        the width is that of the widest file.
    blocksize : int, default=None
        Cut plain files into ranges of about this many bytes, one partition each; None is one per file.

    Returns
    -------
    partitions : list of delayed (X, y)
        Data for `fit` of the estimators of `maxmargin.dask`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from maxmargin.dask import read_svmlight
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.svm").write_text("1 1:1\\n2 3:1\\n")
    >>> _ = (folder / "b.svm").write_text("3 2:1\\n")
    >>> X, y = read_svmlight(folder / "*.svm")[1].compute(scheduler="sync")
    >>> X.shape, y.toarray().tolist()
    ((1, 3), [[0, 0, 1]])
    """
    how = {"multilabel": multilabel, "n_features": n_features, "zero_based": zero_based, "dtype": dtype}
    return together(
        [
            _delayed(datasets.read_svmlight, path, span=span, **how)
            for path in found(paths)
            for span in ([None] if _is_packed(path) else spans(path, blocksize))
        ]
    )


def read_parquet(paths: Paths, **how: Any) -> list[Any]:
    """Parquet files as delayed partitions of (X, y).

    Parameters
    ----------
    paths : path, pattern with ``*``, or list of them
        Files that all workers can read.
    **how
        Arguments of `maxmargin.datasets.read_parquet`, which name the label columns.

    Returns
    -------
    partitions : list of delayed (X, y)
    """
    return together([_delayed(datasets.read_parquet, path, **how) for path in found(paths)])


def read_arff(paths: Paths, **how: Any) -> list[Any]:
    """ARFF files as delayed partitions of (X, y).

    Parameters
    ----------
    paths : path, pattern with ``*``, or list of them
        Files that all workers can read.
    **how
        Arguments of `maxmargin.datasets.read_arff`, which name the label columns.

    Returns
    -------
    partitions : list of delayed (X, y)
    """
    return together([_delayed(datasets.read_arff, path, **how) for path in found(paths)])


def _delayed(reader: Callable[..., Dataset], path: str, **how: Any) -> Any:
    return delayed(_read, pure=True)(reader, path, **how)


def _read(reader: Callable[..., Dataset], path: str, **how: Any) -> Dataset:
    with naming(path):
        return reader(path, **how)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the path to errors that do not contain it, such as those of a broken disk."""
    try:
        yield
    except Exception as error:
        if os.fspath(path) not in str(error):
            error.add_note(f"in {os.fspath(path)}")
        raise


def found(paths: Paths) -> list[str]:
    """Absolute paths of the files that paths and patterns name, as workers may run in other directories."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = []
    for one in given:
        path = os.path.abspath(one)
        matching = sorted(glob.glob(path)) if glob.has_magic(path) else [path]
        if not matching:
            raise FileNotFoundError(f"There is no file {path}.")
        files += matching
    return files


def spans(path: str, blocksize: int | None) -> list[tuple[int, int]]:
    """Ranges of about `blocksize` bytes that cover a file."""
    size = Path(path).stat().st_size
    n = 1 if blocksize is None else max(-(-size // blocksize), 1)
    edges = [size * k // n for k in range(n + 1)]
    return list(pairwise(edges))


def _is_packed(path: str) -> bool:
    return path.endswith((".gz", ".xz"))


def common_of(read: list[Any]) -> Any:
    """The common labels and width of delayed data sets, delayed."""
    return delayed(_common, pure=True)([delayed(_describe, pure=True)(data) for data in read])


def together(read: list[Any]) -> list[Any]:
    """Delayed data sets as partitions with the same labels and width."""
    common = common_of(read)
    return [delayed(_aligned, pure=True)(data, common) for data in read]


def _describe(data: Dataset) -> Common:
    names = data.label_names if data.multilabel else ()
    return Common(
        data.X.shape[0], names, data.X.shape[1], data.feature_names, data.multilabel, sp.issparse(data.X)
    )


def _common(files: list[Common]) -> Common:
    multilabel, sparse = {one.multilabel for one in files}, {one.sparse for one in files}
    if len(multilabel) > 1 or len(sparse) > 1:
        raise ValueError(
            "Some files have one class per sample or dense rows and others do not; read them separately."
        )
    widest = max(files, key=lambda one: one.n_features)
    names = files[0].label_names
    if any(one.label_names != names for one in files):
        known = {name for one in files for name in one.label_names}
        whole = all(name.removeprefix("-").isdigit() for name in known)
        names = tuple(sorted(known, key=int) if whole else sorted(known))
    return widest._replace(label_names=names, size=sum(one.size for one in files))


def _aligned(data: Dataset, common: Common) -> tuple[Any, Any]:
    """Rows and labels of a data set, with the common columns."""
    X, Y = data.X, data.Y
    if sp.issparse(X) and X.shape[1] < common.n_features:
        X = sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], common.n_features))
    if common.multilabel and data.label_names != common.label_names:
        position = {name: k for k, name in enumerate(common.label_names)}
        columns = [position[name] for name in data.label_names]
        entries = np.ones(len(columns), np.int32), (np.arange(len(columns)), columns)
        selection = sp.csr_array(entries, (len(columns), len(position)))
        Y = sp.csr_array(Y @ selection) if sp.issparse(Y) else Y @ selection.toarray()
    return X, Y


def store(partitions: list[Any], folder: str | os.PathLike[str]) -> list[Any]:
    """Write partitions into a folder, one at a time, and map them from there.

    Parameters
    ----------
    partitions : list of delayed (X, y)
        As `read_svmlight` returns them; X is CSR or dense, y an array or CSR.
    folder : path
        Created if it does not exist; files of an earlier call are replaced.

    Returns
    -------
    partitions : list of delayed (X, y)
        The same data, mapped from the folder.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dask import delayed
    >>> from maxmargin.dask import MultiLabelSVC, store
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> parts = [delayed((X[k::3], (X[k::3, :2] > 0).astype(int))) for k in range(3)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mapped = store(parts, folder)
    ...     model = MultiLabelSVC(random_state=0).fit(mapped, client="here")
    >>> model.partition_, model.duality_gap_ <= 1e-3
    ('rows', True)
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(partitions):
        try:
            (pair,) = compute(part, scheduler="synchronous")
        except Exception as error:
            name_partitions(error, [k == number for k in range(len(partitions))])
            raise
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(
                f"Partition {number}: a pair (X, y) was expected. Got {type(pair).__name__} instead."
            )
        for name, values in zip("Xy", pair, strict=True):
            _write(values, folder / f"{number:05d}-{name}")
    return stored(folder)


def stored(folder: str | os.PathLike[str]) -> list[Any]:
    """The partitions that `store` wrote.

    Parameters
    ----------
    folder : path

    Returns
    -------
    partitions : list of delayed (X, y)
    """
    shapes = sorted(Path(folder).glob("*-X*.npy"))
    numbers = sorted({path.name.partition("-")[0] for path in shapes})
    if not numbers:
        raise FileNotFoundError(f"There are no partitions in {folder}; maxmargin.dask.store writes them.")
    return [delayed(_mapped)(Path(folder).resolve(), number) for number in numbers]


def _write(values: Any, stem: Path) -> None:
    for old in stem.parent.glob(f"{stem.name}*.npy"):
        old.unlink()
    if not sp.issparse(values):
        np.save(f"{stem}.npy", np.asarray(values))
        return
    rows = sp.csr_array(values)
    integers = np.int32 if max(values.nnz, values.shape[1]) <= np.iinfo(np.int32).max else np.int64
    for name, dtype in zip(ARRAYS, (rows.dtype, integers, integers), strict=True):
        np.save(f"{stem}-{name}.npy", getattr(rows, name).astype(dtype, copy=False))
    np.save(f"{stem}-shape.npy", np.array(values.shape))


def _mapped(folder: Path, number: str) -> tuple[Any, Any]:
    X, y = (_read_mapped(folder / f"{number}-{name}") for name in "Xy")
    return X, y


def _read_mapped(stem: Path) -> Any:
    if Path(f"{stem}.npy").exists():
        return _map(f"{stem}.npy")
    shape = tuple(np.load(f"{stem}-shape.npy").tolist())
    return sp.csr_array(tuple(_map(f"{stem}-{name}.npy") for name in ARRAYS), shape=shape)


def _map(path: str) -> np.ndarray:
    """A file mapped into memory; a file without numbers is read, as it cannot be mapped."""
    return np.asarray(np.load(path, mmap_mode="r" if Path(path).stat().st_size > HEADER else None))

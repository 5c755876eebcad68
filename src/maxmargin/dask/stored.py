"""Partitions in a folder, which are mapped into memory and not read: for rows that do not fit it.

With ``client="here"`` a fit needs no cluster: each round looks at all rows in one pass over the files, which
the system keeps in memory as far as there is room, and solves for those that matter.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from dask import compute, delayed

from maxmargin.dask.cluster import name_partitions

# The arrays of a CSR matrix.
ARRAYS = ("data", "indices", "indptr")
# Bytes of a file without numbers.
HEADER = 128


def store(partitions: list[Any], folder: str | PathLike[str]) -> list[Any]:
    """Write partitions into a folder, one after the other, and map them from there.

    Parameters
    ----------
    partitions : list of delayed (X, y)
        As `read_svmlight` and its like make them; X is CSR or dense, y an array or CSR.
    folder : path
        Made if it is not there; files of an earlier call give way.

    Returns
    -------
    partitions : list of delayed (X, y)
        The same, mapped from the folder.

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
            raise ValueError(f"Partition {number}: a pair (X, y) was expected.")
        for name, values in zip("Xy", pair, strict=True):
            _write(values, folder / f"{number:05d}-{name}")
    return stored(folder)


def stored(folder: str | PathLike[str]) -> list[Any]:
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
    rows, integers = sp.csr_array(values), integers_for(max(values.nnz, values.shape[1]))
    for name, dtype in zip(ARRAYS, (rows.dtype, integers, integers), strict=True):
        np.save(f"{stem}-{name}.npy", getattr(rows, name).astype(dtype, copy=False))
    np.save(f"{stem}-shape.npy", np.array(values.shape))


def integers_for(largest: int) -> type:
    """The type of places in a matrix: 32 bits where these do."""
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64


def _mapped(folder: Path, number: str) -> tuple[Any, Any]:
    X, y = (_read(folder / f"{number}-{name}") for name in "Xy")
    return X, y


def _read(stem: Path) -> Any:
    if Path(f"{stem}.npy").exists():
        return _map(f"{stem}.npy")
    shape = tuple(np.load(f"{stem}-shape.npy").tolist())
    return sp.csr_array(tuple(_map(f"{stem}-{name}.npy") for name in ARRAYS), shape=shape)


def _map(path: str) -> np.ndarray:
    """A file mapped into memory; one without numbers cannot be."""
    return np.asarray(np.load(path, mmap_mode="r" if Path(path).stat().st_size > HEADER else None))

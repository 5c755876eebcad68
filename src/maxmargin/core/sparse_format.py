"""Check that the index arrays of a sparse matrix stay inside the matrix.

SciPy's own code and compiled loops follow these arrays without a check; a wrong index crashes the process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def check_format(matrix: Any, name: str) -> Any:
    """Refuse a sparse matrix whose index arrays do not describe a matrix; lists and dictionaries become CSR.

    Entries in any order, and several for one place, are fine. One pass over the indices.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from maxmargin.core.sparse_format import check_format
    >>> check_format(sp.csr_array(([1.0], [7], [0, 1]), shape=(1, 5)), "X")
    Traceback (most recent call last):
        ...
    ValueError: X is a malformed csr matrix: indices holds 7, and must be from 0 to 4; build it from rows, ...
    """
    if not sp.issparse(matrix):
        return matrix
    fault = None if matrix.format == "dok" else _fault(matrix)
    if not fault and matrix.format in ("lil", "dok"):
        matrix = matrix.tocsr()
        fault = _fault(matrix)
    if fault:
        raise ValueError(
            f"{name} is a malformed {matrix.format} matrix: {fault}; build it from rows, columns and values: "
            "scipy.sparse.csr_array((values, (rows, columns)), shape=...)."
        )
    return matrix


def _fault(matrix: Any) -> str | None:
    """A description of what is wrong with the index arrays, or None."""
    if matrix.format == "coo":
        axes = zip(("row", "col"), matrix.coords, matrix.shape, strict=False)
        return next(filter(None, (_wrong_index(*axis, len(matrix.data)) for axis in axes)), None)
    if matrix.format == "lil":
        lengths = [[len(row) for row in part] for part in (matrix.rows, matrix.data)]
        same = len(lengths[0]) == matrix.shape[0] and lengths[0] == lengths[1]
        return None if same else "rows and data differ in length"
    if matrix.format == "dia":
        return None if len(matrix.offsets) == len(matrix.data) else "offsets and data differ in length"
    n, width = matrix.shape if len(matrix.shape) == 2 else (1, *matrix.shape)
    if matrix.format == "bsr":
        n, width = n // matrix.blocksize[0], width // matrix.blocksize[1]
    if matrix.format == "csc":
        n, width = width, n
    indptr = matrix.indptr
    if indptr.dtype.kind != "i" or indptr.shape != (n + 1,):
        return f"indptr must hold {n + 1} integers"
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        return "indptr must start at 0 and never decrease"
    if indptr[-1] > len(matrix.indices):
        return f"indptr ends at {indptr[-1]}, and there are {len(matrix.indices)} indices"
    return _wrong_index("indices", matrix.indices, width, len(matrix.data))


def _wrong_index(what: str, indices: np.ndarray, size: int, n_values: int) -> str | None:
    if indices.dtype.kind != "i" or indices.shape != (n_values,):
        return f"{what} must hold an integer for each of the {n_values} values"
    if not n_values:
        return None
    # Read as unsigned, negative indices are larger than any size.
    worst = indices[indices.view(f"u{indices.itemsize}").argmax()]
    return None if 0 <= worst < size else f"{what} holds {worst}, and must be from 0 to {size - 1}"

"""The format of the extreme classification repository: a line `samples features labels`, then SVMlight.

Labels and features are numbered from 0, and the first line says how many of each there are, so a
label or a feature that does not occur has its column all the same. Each further line is as in
`io.svmlight`: `label,label index:value index:value`, with nothing before the blank where a sample has
no labels. A blank line is a sample without labels and features; any after the last sample are skipped.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from maxmargin.io.atomic import PathLike
from maxmargin.io.dataset import DataFormatError, Dataset
from maxmargin.io.files import Progress, open_bytes
from maxmargin.io.proportion import check_proportion
from maxmargin.io.svmlight import read_svmlight

_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*")
# Letters of the name of a label.
LETTERS = 4


def read_header(path: PathLike) -> tuple[int, int, int]:
    """Numbers of samples, features and labels that the first line of a file tells."""
    with open_bytes(path) as (plain, stored):
        line = plain.readline(100)
        size = stored.seek(0, 2)
    found = _HEADER.fullmatch(line)
    if found is None:
        raise DataFormatError("the first line must hold the numbers of samples, features and labels", path, 1)
    n_samples, n_features, n_labels = (int(number) for number in found.groups())
    why = f"the first line claims {n_labels:,} labels; correct it, or read the rest as svmlight text"
    check_proportion(LETTERS * n_labels, size, "bytes", why, path, 1)
    return n_samples, n_features, n_labels


def read_xc(path: PathLike, *, dtype: Any = np.float64, progress: Progress | None = None) -> Dataset:
    """Read a file of the extreme classification repository, plain or packed as .xz or .gz.

    Parameters
    ----------
    path : path-like
    dtype : {float64, float32}, default=float64
        Type of the values.
    progress : callable, default=None
        Called with (bytes read, bytes in all) of the stored file after each block.

    Returns
    -------
    Dataset
        X and Y are sparse; the labels are called "0", "1", ...

    Raises
    ------
    DataFormatError
        With file, line and character of the first fault.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.txt"
    >>> _ = path.write_text("2 3 4\\n0,2 0:0.5 2:1\\n 1:4\\n")
    >>> data = read_xc(path)
    >>> data.X.shape, data.Y.toarray().tolist()
    ((2, 3), [[1, 0, 1, 0], [0, 0, 0, 0]])
    """
    n_samples, n_features, n_labels = read_header(path)
    data = read_svmlight(
        path,
        labels=range(n_labels),
        n_features=n_features,
        zero_based=True,
        dtype=dtype,
        progress=progress,
        header_lines=1,
        n_samples=n_samples,
    )
    if data.X.shape[0] != n_samples:
        raise DataFormatError(
            f"the first line tells of {n_samples} samples, but there are {data.X.shape[0]}", path, 1
        )
    return data

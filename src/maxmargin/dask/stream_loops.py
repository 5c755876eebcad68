"""The compiled loop of rows that do not fit the memory: copies of some of them."""

from __future__ import annotations

import numpy as np

from maxmargin.core.jit import compiled


@compiled
def copy_rows(data, indices, indptr, ids, values, columns):
    """Copy some rows of a CSR matrix, one after the other, into flat arrays of their entries."""
    place = np.uint64(0)
    for i in ids:
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            values[place] = data[k]
            columns[place] = indices[k]
            place += np.uint64(1)

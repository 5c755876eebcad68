"""`load`: a data set by its name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from maxmargin.io.catalogue import BUILDERS
from maxmargin.io.dataset import Dataset
from maxmargin.io.registry import folder, info


def load(name: str, split: str | None = None) -> Dataset:
    """Load a known data set.

    Small ones come with the package or with scikit-learn. The files of the others are looked for
    in the directory that the environment variable MAXMARGIN_DATA names (one folder per data set)
    and then in the cache that `fetch` fills.

    Parameters
    ----------
    name : str
        One of `list_datasets()`.
    split : {"train", "test", "all"}, default=None
        One side of the split that the source comes with; None and "all" give every sample, with
        the split in the `train` and `test` attributes.

    Returns
    -------
    Dataset
        X is CSR where the source is sparse. Y is a dense 0/1 array (n_samples, n_labels), or one
        class per sample. Nothing is scaled.

    Raises
    ------
    FileNotFoundError
        When the files are not on this machine; says where they were looked for and the cure.

    Examples
    --------
    >>> from maxmargin.datasets import load
    >>> load("iris")
    Dataset('iris': 150 samples x 4 features, 3 classes)
    """
    about = info(name)
    if name not in BUILDERS:
        raise ValueError(
            f"Data set {name!r} is not a table of samples; see maxmargin.datasets for its reader."
        )
    data = BUILDERS[name](folder(name))
    Y = data.Y.toarray() if sp.issparse(data.Y) else data.Y
    data = replace(data, Y=np.ascontiguousarray(Y), name=name, source=about.source, licence=about.licence)
    return data.part(split)

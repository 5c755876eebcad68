"""The small data that comes with the package, in a compact exact form.

A file NAME.npz.xz holds the decimal numbers of the source as whole numbers: X = digits / scale,
which is the same float64 that reading the decimal text gives. The four bytes of each whole number
are stored apart and feature by feature, which packs far better.
"""

from __future__ import annotations

import io
from importlib import resources

import numpy as np

from maxmargin.io.dataset import Dataset
from maxmargin.io.files import PathLike, read_bytes, whole_file
from maxmargin.io.registry import Folder


def shipped(folder: Folder) -> Dataset:
    """Read a data set that comes with the package."""
    with resources.as_file(resources.files(__package__) / "data" / f"{folder.name}.npz.xz") as path:
        return unpack(path)


def pack(data: Dataset, path: PathLike) -> None:
    """Write a dense multi-label Dataset, training rows first, with at most 6 decimals.

    This is how the shipped files are made from the files that the registry names.
    """
    scale = next((10**k for k in range(7) if (np.rint(data.X * 10**k) / 10**k == data.X).all()), None)
    if scale is None or np.abs(data.X * scale).max() > np.iinfo(np.int32).max:
        raise ValueError("X has more than 6 decimals or too many digits.")
    n, d = data.X.shape
    digits = np.ascontiguousarray(np.rint(data.X * scale).astype("<i4").T)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        planes=np.ascontiguousarray(digits.view(np.uint8).reshape(n * d, 4).T),
        scale=np.int64(scale),
        shape=np.array([n, d]),
        labels=np.packbits(np.ascontiguousarray(data.Y.T.astype(bool))),
        n_train=np.int64(n if data.train is None else len(data.train)),
        feature_names=np.array(data.feature_names),
        label_names=np.array(data.label_names),
    )
    with whole_file(path) as out:
        out.write(buffer.getvalue())


def unpack(path: PathLike) -> Dataset:
    """Read what `pack` wrote."""
    with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as arrays:
        n, d = arrays["shape"]
        digits = np.ascontiguousarray(arrays["planes"].T).view("<i4").reshape(d, n).T
        label_names = tuple(arrays["label_names"].tolist())
        bits = np.unpackbits(arrays["labels"], count=n * len(label_names))
        n_train = int(arrays["n_train"])
        return Dataset(
            np.ascontiguousarray(digits / arrays["scale"]),
            np.ascontiguousarray(bits.reshape(len(label_names), n).T.astype(np.int32)),
            tuple(arrays["feature_names"].tolist()),
            label_names,
            train=np.arange(n_train),
            test=np.arange(n_train, n),
        )

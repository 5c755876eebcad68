"""The small data that comes with the package, in a compact exact form, or with scikit-learn.

Tables: NAME.npz.xz holds the decimal numbers of the source as whole numbers: X = digits / scale,
which is the same float64 that reading the decimal text gives. The four bytes of each whole number
are stored apart and feature by feature, which packs far better. The stream of messages is stored
as steps from one word's number to the next.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib import resources

import numpy as np
import scipy.sparse as sp

from maxmargin.io.atomic import PathLike, atomic_write
from maxmargin.io.dataset import Dataset
from maxmargin.io.files import read_bytes
from maxmargin.io.texts import unpack_texts


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
    with atomic_write(path, pack=True) as out:
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


def pack_stream(data: Dataset, path: PathLike, random_state: int = 0) -> None:
    """Write a mailbox without its words, names and dates.

    Words are renumbered at random and folders by their first message, so that what is left is
    which words occur together, not which words they are.
    """
    order = np.random.RandomState(random_state).permutation(data.X.shape[1])
    rows = [
        np.sort(order[data.X.indices[a:b]])
        for a, b in zip(data.X.indptr[:-1], data.X.indptr[1:], strict=True)
    ]
    _, first, codes = np.unique(data.Y, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    buffer = io.BytesIO()
    np.savez(
        buffer,
        steps=np.concatenate([np.diff(row, prepend=0) for row in rows]).astype("<u2"),
        counts=np.array([len(row) for row in rows], dtype="<u2"),
        folders=rank[codes].astype(np.uint8),
        n_words=np.int64(data.X.shape[1]),
    )
    with atomic_write(path, pack=True) as out:
        out.write(buffer.getvalue())


def unpack_stream(path: PathLike) -> Dataset:
    """Read what `pack_stream` wrote."""
    with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as arrays:
        start = np.concatenate([[0], np.cumsum(arrays["counts"], dtype=np.int64)])
        total = np.concatenate([[0], np.cumsum(arrays["steps"], dtype=np.int64)])
        indices = total[1:] - np.repeat(total[start[:-1]], arrays["counts"])
        shape = (len(start) - 1, int(arrays["n_words"]))
        X = sp.csr_array(
            (np.ones(len(indices)), indices.astype(np.int32), start.astype(np.int32)), shape=shape
        )
        folders = np.array([f"folder {k + 1:02d}" for k in arrays["folders"].tolist()])
    names = tuple(f"word {j}" for j in range(shape[1]))
    return Dataset(X, folders, names, tuple(np.unique(folders).tolist()))


def _packed_with(read: Callable[[PathLike], Dataset]) -> Callable[[str], Dataset]:
    def from_package(name: str) -> Dataset:
        with resources.as_file(resources.files(__package__) / "data" / f"{name}.npz.xz") as path:
            return read(path)

    return from_package


def _from_scikit_learn(name: str) -> Dataset:
    from sklearn import datasets

    bunch = {"iris": datasets.load_iris, "wine": datasets.load_wine}[name]()
    names = tuple(str(name) for name in bunch.target_names)
    return Dataset(
        bunch.data, np.array(names)[bunch.target], tuple(bunch.feature_names), tuple(sorted(names))
    )


SHIPPED: dict[str, Callable[[str], Dataset]] = {
    **dict.fromkeys(("emotions", "flags", "yeast"), _packed_with(unpack)),
    **dict.fromkeys(("iris", "wine"), _from_scikit_learn),
    "mail-stream": _packed_with(unpack_stream),
    "yso-sample": _packed_with(unpack_texts),
}

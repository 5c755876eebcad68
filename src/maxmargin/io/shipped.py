"""The small data sets that come with the package, in a compact exact form, or with scikit-learn.

Tables: NAME.npz.xz holds the decimal numbers of the source as integers, X = digits / scale, which is the
same float64 as reading the decimal text. The four bytes of each integer are stored separately and feature
by feature, which compresses far better. The mail stream is stored as differences of word numbers.
`experiments/data/pack.py` of the repository writes these files.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io.dataset import Dataset, PathLike
from maxmargin.io.files import read_bytes


def unpack(path: PathLike) -> Dataset:
    """Read a table."""
    with _arrays(path) as arrays:
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


def unpack_stream(path: PathLike) -> Dataset:
    """Read a stream of messages."""
    with _arrays(path) as arrays:
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


def unpack_texts(path: PathLike) -> Dataset:
    """Read texts with several labels each."""
    with _arrays(path) as arrays:
        texts = arrays["texts"].tobytes().decode().split("\n")
        names = tuple(arrays["names"].tobytes().decode().split("\n"))
        Y = np.zeros((len(texts), len(names)), dtype=np.int32)
        Y[np.repeat(np.arange(len(texts)), arrays["counts"]), arrays["labels"]] = 1
        return vectorised(texts, Y, names, int(arrays["n_train"]))


def vectorised(texts: Sequence[str], Y: Any, label_names: tuple[str, ...], n_train: int) -> Dataset:
    """Return a Dataset of texts, training texts first: X is tf-idf, `per_row["text"]` the texts.

    `TfidfVectorizer(sublinear_tf=True, min_df=2)` is fitted on the training texts alone.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer(sublinear_tf=True, min_df=2)
    train = vectoriser.fit_transform(texts[:n_train])
    X = sp.csr_array(sp.vstack([train, vectoriser.transform(texts[n_train:])], format="csr"))
    return Dataset(
        X,
        Y,
        tuple(vectoriser.get_feature_names_out().tolist()),
        label_names,
        train=np.arange(n_train),
        test=np.arange(n_train, len(texts)),
        per_row={"text": np.array(texts, dtype=object)},
    )


def _arrays(path: PathLike) -> Any:
    return np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)


def _from_package(read: Callable[[PathLike], Dataset]) -> Callable[[str], Dataset]:
    def load(name: str) -> Dataset:
        with resources.as_file(resources.files(__package__) / "data" / f"{name}.npz.xz") as path:
            return read(path)

    return load


def _from_scikit_learn(name: str) -> Dataset:
    from sklearn import datasets

    bunch = {"iris": datasets.load_iris, "wine": datasets.load_wine}[name]()
    names = tuple(str(name) for name in bunch.target_names)
    return Dataset(
        bunch.data, np.array(names)[bunch.target], tuple(bunch.feature_names), tuple(sorted(names))
    )


SHIPPED: dict[str, Callable[[str], Dataset]] = {
    **dict.fromkeys(("emotions", "flags", "yeast"), _from_package(unpack)),
    **dict.fromkeys(("iris", "wine"), _from_scikit_learn),
    "mail-stream": _from_package(unpack_stream),
    "yso-sample": _from_package(unpack_texts),
}

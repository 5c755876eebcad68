"""Collections of texts: their tf-idf features, and the form in which one comes with the package.

The vectoriser learns its words and weights from the training rows alone:
`TfidfVectorizer(sublinear_tf=True, min_df=2)`, which lower-cases, takes words of two and more
characters, keeps those in at least two training documents, uses 1 + log(count) and the smoothed
inverse document frequency, and scales rows to unit length.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io.atomic import PathLike, atomic_write
from maxmargin.io.dataset import Dataset
from maxmargin.io.files import read_bytes


def vectorised(texts: Sequence[str], Y: Any, label_names: tuple[str, ...], n_train: int) -> Dataset:
    """A Dataset of texts, the training ones first; X is tf-idf, the texts are `per_row["text"]`."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer(sublinear_tf=True, min_df=2)
    known = vectoriser.fit_transform(texts[:n_train])
    X = sp.csr_array(sp.vstack([known, vectoriser.transform(texts[n_train:])], format="csr"))
    return Dataset(
        X,
        Y,
        tuple(vectoriser.get_feature_names_out().tolist()),
        label_names,
        train=np.arange(n_train),
        test=np.arange(n_train, len(texts)),
        per_row={"text": np.array(texts, dtype=object)},
    )


def pack_texts(
    texts: Sequence[str], labels: Sequence[Sequence[int]], names: Sequence[str], n_train: int, path: PathLike
) -> None:
    """Write texts of one line each, the numbers of their labels, and the labels' names."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        texts=np.frombuffer("\n".join(texts).encode(), np.uint8),
        names=np.frombuffer("\n".join(names).encode(), np.uint8),
        counts=np.array([len(row) for row in labels], dtype=np.uint8),
        labels=np.concatenate(labels).astype("<u2"),
        n_train=np.int64(n_train),
    )
    with atomic_write(path, pack=True) as out:
        out.write(buffer.getvalue())


def unpack_texts(path: PathLike) -> Dataset:
    """Read what `pack_texts` wrote."""
    with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as arrays:
        texts = arrays["texts"].tobytes().decode().split("\n")
        names = tuple(arrays["names"].tobytes().decode().split("\n"))
        Y = np.zeros((len(texts), len(names)), dtype=np.int32)
        Y[np.repeat(np.arange(len(texts)), arrays["counts"]), arrays["labels"]] = 1
        return vectorised(texts, Y, names, int(arrays["n_train"]))

"""Writers of the compact files in `src/maxmargin/io/data`; `maxmargin.io.shipped` reads them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from maxmargin.io.dataset import Dataset, PathLike
from maxmargin.io.files import atomic_write


def pack(data: Dataset, path: PathLike) -> None:
    """Write a dense multi-label Dataset, training rows first, with at most 6 decimals."""
    scale = next((10**k for k in range(7) if (np.rint(data.X * 10**k) / 10**k == data.X).all()), None)
    if scale is None or np.abs(data.X * scale).max() > np.iinfo(np.int32).max:
        raise ValueError("X has more than 6 decimals or too many digits.")
    n, d = data.X.shape
    digits = np.ascontiguousarray(np.rint(data.X * scale).astype("<i4").T)
    _write(
        path,
        planes=np.ascontiguousarray(digits.view(np.uint8).reshape(n * d, 4).T),
        scale=np.int64(scale),
        shape=np.array([n, d]),
        labels=np.packbits(np.ascontiguousarray(data.Y.T.astype(bool))),
        n_train=np.int64(n if data.train is None else len(data.train)),
        feature_names=np.array(data.feature_names),
        label_names=np.array(data.label_names),
    )


def pack_stream(data: Dataset, path: PathLike, random_state: int = 0) -> None:
    """Write a mailbox without its words, names and dates.

    Words are renumbered at random and folders by their first message, so that the file holds only which
    words occur together.
    """
    order = np.random.RandomState(random_state).permutation(data.X.shape[1])
    rows = [
        np.sort(order[data.X.indices[a:b]])
        for a, b in zip(data.X.indptr[:-1], data.X.indptr[1:], strict=True)
    ]
    _, first, codes = np.unique(data.Y, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    _write(
        path,
        steps=np.concatenate([np.diff(row, prepend=0) for row in rows]).astype("<u2"),
        counts=np.array([len(row) for row in rows], dtype="<u2"),
        folders=rank[codes].astype(np.uint8),
        n_words=np.int64(data.X.shape[1]),
    )


def pack_texts(
    texts: Sequence[str], labels: Sequence[Sequence[int]], names: Sequence[str], n_train: int, path: PathLike
) -> None:
    """Write texts of one line each, the numbers of their labels, and the labels' names."""
    _write(
        path,
        texts=np.frombuffer("\n".join(texts).encode(), np.uint8),
        names=np.frombuffer("\n".join(names).encode(), np.uint8),
        counts=np.array([len(row) for row in labels], dtype=np.uint8),
        labels=np.concatenate(labels).astype("<u2"),
        n_train=np.int64(n_train),
    )


def _write(path: PathLike, **arrays: Any) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    with atomic_write(path, pack=True) as out:
        out.write(buffer.getvalue())

"""Partitions of Dask collections as checked blocks of rows, and the labels that all blocks have in common.

A worker reads, checks and stores a block; the client receives sizes, label names and sums per label only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from dask import is_dask_collection
from dask.delayed import Delayed
from distributed import Future

from maxmargin.core.sparse_format import check_format
from maxmargin.dask.cluster import Cluster
from maxmargin.edge.estimator import check_given
from maxmargin.edge.labels import LabelSpace, container_of, is_sets, label_rows, sorted_names
from maxmargin.multilabel.estimator import MultiLabelSVC
from maxmargin.multilabel.problem import entry_weights


class Block(NamedTuple):
    """Checked rows, labels and weights of one partition, and the names of its features."""

    X: Any
    y: Any
    weight: np.ndarray | None
    names: np.ndarray | None


class Facts(NamedTuple):
    """The description of a block that the client receives first.

    `sides` holds the weights of the positive and the negative entries of every label (2 x L). It is None if
    the block is empty, or if y holds label names, as other blocks may have other names.
    """

    n: int
    n_features: int
    n_bytes: int
    sparse: bool
    names: np.ndarray | None
    space: LabelSpace | None
    zeros: bool
    sides: np.ndarray | None


def pieces(X: Any, y: Any, weight: Any, n_parts: int) -> list[tuple[Any, Any, Any]]:
    """The partitions of X, y and the weights, before they are read."""
    if isinstance(X, (list, tuple)) and not X:
        raise ValueError("X is an empty list: there are no partitions to train on; pass at least one.")
    if is_list(X):
        if y is None:
            if weight is not None:
                raise ValueError("sample_weight: with partitions (X, y), pass partitions (X, y, weights).")
            return [(one, None, None) for one in X]
        return _zip(list(X), _listed(y, "y"), None if weight is None else _listed(weight, "sample_weight"))
    check_given(y, "the labels in the partitions of X, or X as a list of delayed pairs (X, y)")
    if is_dask_collection(X):
        blocks, lengths = blocks_of(X)
        return _zip(
            blocks,
            _alike(y, lengths, len(blocks), "y"),
            None if weight is None else _alike(weight, lengths, len(blocks), "sample_weight"),
        )
    if is_dask_collection(y):
        raise ValueError("y is a Dask collection and X is none; pass both as such, or both in memory.")
    X = X if sp.issparse(X) or hasattr(X, "iloc") else np.asarray(X)
    X, y = check_format(X, "X"), check_format(y, "y")
    X = sp.csr_array(X) if sp.issparse(X) else X
    n = X.shape[0]
    cuts = np.linspace(0, n, min(n_parts, max(n, 1)) + 1).astype(int)
    ranges = [slice(a, b) for a, b in pairwise(cuts)]
    return [
        (_cut(X, rows), _cut(y, rows), None if weight is None else np.asarray(weight)[rows])
        for rows in ranges
    ]


def is_list(X: Any) -> bool:
    """Whether X is a list of delayed partitions."""
    return isinstance(X, (list, tuple)) and bool(X) and all(isinstance(one, (Delayed, Future)) for one in X)


def _listed(values: Any, name: str) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{name} must be a list of partitions like X. Got {type(values).__name__} instead.")
    return list(values)


def _zip(X: list[Any], y: list[Any], weight: list[Any] | None) -> list[tuple[Any, Any, Any]]:
    if not len(X) == len(y) == len(X if weight is None else weight):
        raise ValueError(
            f"X has {len(X)} partitions and y (or sample_weight) {len(y)}; pass the same number of each."
        )
    return list(zip(X, y, [None] * len(X) if weight is None else weight, strict=True))


def blocks_of(collection: Any) -> tuple[list[Any], tuple[int, ...] | None]:
    """Delayed blocks of rows of an array or frame, and their lengths if all are known."""
    chunks = getattr(collection, "chunks", None)
    if chunks is None:
        return list(collection.to_delayed()), None
    if len(chunks) == 2 and len(chunks[1]) > 1:
        collection = collection.rechunk({1: -1})
    known = not np.isnan(np.array(chunks[0], dtype=float)).any()
    return list(collection.to_delayed().ravel()), tuple(chunks[0]) if known else None


def _alike(values: Any, lengths: tuple[int, ...] | None, n_parts: int, name: str) -> list[Any]:
    """Values per sample in the partitions of X."""
    if is_dask_collection(values):
        if lengths is not None and hasattr(values, "rechunk"):
            blocks, ours = blocks_of(values)
            if ours is not None and ours != lengths and sum(ours) == sum(lengths):
                blocks, _ = blocks_of(values.rechunk({0: lengths}))
            return blocks
        return blocks_of(values)[0]
    if lengths is None:
        raise ValueError(
            f"{name} is in memory, but the lengths of the partitions of X are unknown; pass {name} as a Dask "
            "collection with the partitions of X."
        )
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(int)
    values = check_format(values, name)
    values = values if hasattr(values, "__len__") or sp.issparse(values) else np.asarray(values)
    return [_cut(values, slice(a, b)) for a, b in pairwise(ends)]


def _cut(values: Any, rows: slice) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return sp.csr_array(values)[rows] if sp.issparse(values) else values[rows]


def read(number: int, X: Any, y: Any, weight: Any) -> Block:
    """Check one partition; errors start with its number."""
    if y is None:
        X, y, weight = unpacked(number, X)
    n = X.shape[0]
    m = y.shape[0] if hasattr(y, "shape") else len(y)
    if n != m:
        raise ValueError(f"Partition {number}: X has {n} rows, but y has {m}.")
    if not n:
        empty = sp.csr_array(X.shape) if sp.issparse(X) else np.empty(X.shape)
        return Block(empty, None, None, None)
    _refuse_written_sets(number, y)
    probe = MultiLabelSVC()
    try:
        rows = probe._read_rows(X, reset=True)
    except ValueError as error:
        raise ValueError(f"Partition {number}: {error}") from error
    return Block(rows, y, checked_weights(number, weight, n), getattr(probe, "feature_names_in_", None))


def unpacked(number: int, pair: Any) -> tuple[Any, Any, Any]:
    """Rows, labels and weights of a partition that is a tuple of them."""
    if not isinstance(pair, tuple) or len(pair) not in (2, 3):
        raise ValueError(f"Partition {number}: a pair (X, y), or (X, y, sample_weight), was expected.")
    return (*pair, None)[:3]


def _refuse_written_sets(number: int, y: Any) -> None:
    """Refuse sets that Dask has converted to strings, which would be read as class names."""
    first = y.iloc[0] if hasattr(y, "iloc") and getattr(y, "ndim", 2) == 1 else None
    if isinstance(first, str) and (first == "set()" or first[:1] + first[-1:] in ("{}", "[]", "()")):
        raise ValueError(
            f"Partition {number}: y holds the string {first!r}; Dask converts sets and lists to strings "
            'unless dask.config.set({"dataframe.convert-string": False}) precedes the creation of the frame.'
        )


def checked_weights(number: int, weight: Any, n: int) -> np.ndarray | None:
    """Weights of samples, or of entries of y; all weights of one partition may be zero."""
    if weight is None:
        return None
    weight = np.asarray(weight, dtype=np.float64)
    if len(weight) != n or not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(
            f"Partition {number}: sample_weight must be {n} finite nonnegative numbers, as X has {n} rows."
        )
    return weight


def facts_of(block: Block) -> Facts:
    """Sizes, label names and sums of weights of a block."""
    X, n_bytes = block.X, 0
    for array in (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,):
        n_bytes += array.nbytes
    if not X.shape[0]:
        return Facts(0, X.shape[1], n_bytes, sp.issparse(X), None, None, False, None)
    if is_sets(block.y):
        rows = label_rows(block.y)
        named = [labels for labels in rows if labels is not None and len(labels)]
        names = sorted_names(named) if named else np.empty(0, dtype=object)
        space = LabelSpace("sets", names, container_of(rows))
        return Facts(X.shape[0], X.shape[1], n_bytes, sp.issparse(X), block.names, space, False, None)
    space = LabelSpace.recognise(block.y)
    zeros = space.kind in ("indicator", "frame") and bool(np.any(np.asarray(block.y) == 0))
    counted = None if space.single_label else sides(block, space)
    return Facts(X.shape[0], X.shape[1], n_bytes, sp.issparse(X), block.names, space, zeros, counted)


def common_space(facts: list[Facts]) -> LabelSpace:
    """The labels of all blocks."""
    spaces = [one.space for one in facts if one.space is not None]
    if not spaces:
        raise ValueError("X has no rows in any partition; at least one row is needed.")
    kinds = {space.kind for space in spaces}
    first = spaces[0]
    if kinds == {"sets"}:
        return LabelSpace("sets", sorted_names([space.classes for space in spaces]), first.container)
    if kinds <= {"binary", "multiclass"}:
        classes = np.unique(np.concatenate([space.classes for space in spaces]))
        return LabelSpace("binary" if classes.size == 2 else "multiclass", classes, None, classes.dtype)
    if any(not np.array_equal(space.classes, first.classes) for space in spaces):
        raise ValueError("y has different label columns in different partitions; use the same in all.")
    signed = [space for space in spaces if "sign" in (space.kind, space.dtype)]
    if kinds <= {"indicator", "sign"} or kinds in ({"frame"}, {"sparse"}):
        if signed and any(one.zeros for one in facts):
            raise ValueError("y holds 0/1 in some partitions and -1/+1 in others; use one coding.")
        return signed[0] if signed else first
    raise ValueError(f"y has different kinds: {', '.join(sorted(kinds))}; use one kind for all partitions.")


def common_classes(facts: list[Facts]) -> np.ndarray:
    """The classes of all blocks; refuses several labels per sample."""
    space = common_space(facts)
    if not space.single_label:
        raise ValueError(
            "y holds several labels per sample, but MultiClassSVC needs one class per sample; "
            "use MultiLabelSVC instead."
        )
    return space.classes


def check_weighted(total: float) -> None:
    """Refuse weights with a sum of zero."""
    if not total:
        raise ValueError("sample_weight is zero everywhere; at least one sample needs a positive weight.")


def sides(block: Block, space: LabelSpace) -> np.ndarray:
    """Weights of the positive and the negative entries of every label of a block, 2 x L."""
    if not block.X.shape[0]:
        return np.zeros((2, space.n_columns))
    signs = space.signs(block.y)
    weight = weights_of(block, signs)
    return np.stack([np.einsum("il,il->l", chosen, weight) for chosen in (signs > 0, signs < 0)])


def totals(cluster: Cluster, blocks: list[Any], facts: list[Facts], space: LabelSpace) -> list[np.ndarray]:
    """Sums of weights of the entries of every block; the workers compute them unless `facts` hold them."""
    received = [one.sides for one in facts if one.n]
    known = [one for one in received if one is not None]
    return known if len(known) == len(received) else cluster.map(sides, blocks, space)


def weights_of(block: Block, signs: np.ndarray) -> np.ndarray:
    """Sample weights as a column, or entry weights as a matrix."""
    if block.weight is None or block.weight.any():
        return entry_weights(block.weight, signs)
    return np.zeros((len(signs), 1))


def signs_of(block: Block, space: LabelSpace) -> np.ndarray:
    """The labels of a block as signs."""
    if not block.X.shape[0]:
        return np.zeros((0, space.n_columns), np.int8)
    return space.signs(block.y)


def two_sided(totals: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Signs and weights of two samples, one with all labels and one with none, with the sums as weights."""
    weight = np.sum(totals, axis=0)
    check_weighted(float(weight.sum()))
    signs = np.ones(weight.shape, np.int8)
    signs[1] = -1
    return signs, weight


def begin(cluster: Cluster, X: Any, y: Any, weight: Any) -> tuple[list[Any], list[Facts]]:
    """Let the workers read all partitions; returns their blocks and the facts about each."""
    blocks = cluster.read(read, pieces(X, y, weight, len(cluster)))
    return blocks, cluster.map(facts_of, blocks)

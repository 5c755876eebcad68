"""From Dask collections to parts of a problem: blocks of rows, their labels, what they have in common.

A block is read, checked and kept by a worker; the client learns sizes, label names and sums per label only.
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
    """Rows, labels and weights of one partition, checked; `names` are those of the features."""

    X: Any
    y: Any
    weight: np.ndarray | None
    names: np.ndarray | None


class Sides(NamedTuple):
    """Weights of the positive and of the negative entries of every label."""

    on: np.ndarray
    off: np.ndarray


class Facts(NamedTuple):
    """What the client learns of a block first.

    `sides` is None where the block is empty, or where y names labels: other blocks may have others.
    """

    n: int
    n_features: int
    n_bytes: int
    sparse: bool
    names: np.ndarray | None
    space: LabelSpace | None
    zeros: bool
    sides: Sides | None


def pieces(X: Any, y: Any, weight: Any, n_parts: int) -> list[tuple[Any, Any, Any]]:
    """The partitions of X with those of y and of the weights, not yet read."""
    if isinstance(X, (list, tuple)) and not X:
        raise ValueError("X is an empty list: there are no partitions to learn from; pass at least one.")
    if is_list(X):
        if y is None:
            if weight is not None:
                raise ValueError("sample_weight: with partitions of (X, y), put the weights third in each.")
            return [(one, None, None) for one in X]
        return _zip(list(X), _listed(y, "y"), None if weight is None else _listed(weight, "sample_weight"))
    check_given(y, "the labels in the partitions of X, or X as a list of delayed pairs (X, y)")
    if is_dask_collection(X):
        blocks, lengths = _blocks(X)
        return _zip(
            blocks,
            _alike(y, lengths, len(blocks), "y"),
            None if weight is None else _alike(weight, lengths, len(blocks), "sample_weight"),
        )
    if is_dask_collection(y):
        raise ValueError("y is a Dask collection and X is none; pass both as one, or both in memory.")
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
    """Whether X is a list of partitions that are not yet read."""
    return isinstance(X, (list, tuple)) and bool(X) and all(isinstance(one, (Delayed, Future)) for one in X)


def _listed(values: Any, name: str) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{name} must be a list of partitions, as X is.")
    return list(values)


def _zip(X: list[Any], y: list[Any], weight: list[Any] | None) -> list[tuple[Any, Any, Any]]:
    if not len(X) == len(y) == len(X if weight is None else weight):
        raise ValueError(
            f"X has {len(X)} partitions and y (or sample_weight) {len(y)}; they must belong together."
        )
    return list(zip(X, y, [None] * len(X) if weight is None else weight, strict=True))


def _blocks(collection: Any) -> tuple[list[Any], tuple[int, ...] | None]:
    """Blocks of rows of an array or frame, and their lengths where these are known."""
    chunks = getattr(collection, "chunks", None)
    if chunks is None:
        return list(collection.to_delayed()), None
    if len(chunks) == 2 and len(chunks[1]) > 1:
        collection = collection.rechunk({1: -1})
    known = not np.isnan(np.array(chunks[0], dtype=float)).any()
    return list(collection.to_delayed().ravel()), tuple(chunks[0]) if known else None


def blocks_of(collection: Any) -> list[Any]:
    """Blocks of rows of an array or frame, delayed."""
    return _blocks(collection)[0]


def lengths_of(collection: Any) -> tuple[float, ...]:
    """Lengths of the blocks, NaN where they are not known."""
    blocks, lengths = _blocks(collection)
    return (float("nan"),) * len(blocks) if lengths is None else lengths


def _alike(values: Any, lengths: tuple[int, ...] | None, n_parts: int, name: str) -> list[Any]:
    """Values of the samples in the partitions that X has."""
    if is_dask_collection(values):
        if lengths is not None and hasattr(values, "rechunk"):
            blocks, ours = _blocks(values)
            if ours is not None and ours != lengths and sum(ours) == sum(lengths):
                blocks, _ = _blocks(values.rechunk({0: lengths}))
            return blocks
        return _blocks(values)[0]
    if lengths is None:
        raise ValueError(f"{name} must come in the partitions of X, as the lengths of these are not known.")
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(int)
    values = check_format(values, name)
    values = values if hasattr(values, "__len__") or sp.issparse(values) else np.asarray(values)
    return [_cut(values, slice(a, b)) for a, b in pairwise(ends)]


def _cut(values: Any, rows: slice) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return sp.csr_array(values)[rows] if sp.issparse(values) else values[rows]


def read(number: int, X: Any, y: Any, weight: Any) -> Block:
    """Check one partition; errors say which."""
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
    """Rows, labels and weights of a partition that holds them together."""
    if not isinstance(pair, tuple) or len(pair) not in (2, 3):
        raise ValueError(f"Partition {number}: a pair (X, y), or (X, y, sample_weight), was expected.")
    return (*pair, None)[:3]


def _refuse_written_sets(number: int, y: Any) -> None:
    """Refuse sets that Dask has made words of, which would pass for names of classes."""
    first = y.iloc[0] if hasattr(y, "iloc") and getattr(y, "ndim", 2) == 1 else None
    if isinstance(first, str) and (first == "set()" or first[:1] + first[-1:] in ("{}", "[]", "()")):
        raise ValueError(
            f"Partition {number}: y holds {first!r} as a word; Dask writes sets and lists as words unless "
            'dask.config.set({"dataframe.convert-string": False}) stands before the frame is made.'
        )


def checked_weights(number: int, weight: Any, n: int) -> np.ndarray | None:
    """Weights of samples, or of entries of y; they may all be zero in one partition."""
    if weight is None:
        return None
    weight = np.asarray(weight, dtype=np.float64)
    if len(weight) != n or not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(
            f"Partition {number}: sample_weight must be {n} finite nonnegative numbers, as X has {n} rows."
        )
    return weight


def facts(block: Block) -> Facts:
    """Sizes and label names of a block."""
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


def common_space(seen: list[Facts]) -> LabelSpace:
    """The labels of all blocks together."""
    spaces = [one.space for one in seen if one.space is not None]
    if not spaces:
        raise ValueError("X has no rows in any partition.")
    kinds = {space.kind for space in spaces}
    first = spaces[0]
    if kinds == {"sets"}:
        return LabelSpace("sets", sorted_names([space.classes for space in spaces]), first.container)
    if kinds <= {"binary", "multiclass"}:
        classes = np.unique(np.concatenate([space.classes for space in spaces]))
        return LabelSpace("binary" if classes.size == 2 else "multiclass", classes, None, classes.dtype)
    if any(not np.array_equal(space.classes, first.classes) for space in spaces):
        raise ValueError("y has other label columns in some partitions than in others.")
    signed = [space for space in spaces if "sign" in (space.kind, space.dtype)]
    if kinds <= {"indicator", "sign"} or kinds in ({"frame"}, {"sparse"}):
        if signed and any(one.zeros for one in seen):
            raise ValueError("y holds 0/1 in some partitions and -1/+1 in others; use one of them.")
        return signed[0] if signed else first
    raise ValueError(f"y comes in different kinds: {', '.join(sorted(kinds))}; use one for all partitions.")


def common_classes(seen: list[Facts]) -> np.ndarray:
    """The classes of all blocks together, of which every sample has one."""
    space = common_space(seen)
    if not space.single_label:
        raise ValueError(
            "y holds several labels per sample, and this estimator takes one class per sample; MultiLabelSVC "
            "and its like take several."
        )
    return space.classes


def check_weighted(total: float) -> None:
    """Refuse samples of which none has a weight."""
    if not total:
        raise ValueError("sample_weight is zero everywhere; at least one sample needs a positive weight.")


def sides(block: Block, space: LabelSpace) -> Sides:
    """Sums of weights of a block's entries."""
    if not block.X.shape[0]:
        return Sides(*np.zeros((2, space.n_columns)))
    signs = space.signs(block.y)
    weight = weights_of(block, signs)
    return Sides(*(np.einsum("il,il->l", chosen, weight) for chosen in (signs > 0, signs < 0)))


def totals(cluster: Cluster, blocks: list[Any], seen: list[Facts], space: LabelSpace) -> list[Sides]:
    """Sums of weights of the entries of every block, which are asked for where they are not known yet."""
    told = [one.sides for one in seen if one.n]
    known = [one for one in told if one is not None]
    return known if len(known) == len(told) else cluster.ask(sides, blocks, space)


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


def all_signs(cluster: Cluster, blocks: list[Any], space: LabelSpace) -> np.ndarray:
    """The labels of all blocks as signs."""
    return np.vstack(cluster.ask(signs_of, blocks, space))


def two_sided(totals: list[Sides]) -> tuple[np.ndarray, np.ndarray]:
    """Signs and weights of one sample with all labels on and one with all off, weighed as all entries are."""
    weight = np.vstack([sum(one.on for one in totals), sum(one.off for one in totals)])
    check_weighted(float(weight.sum()))
    signs = np.ones(weight.shape, np.int8)
    signs[1] = -1
    return signs, weight


def begin(cluster: Cluster, X: Any, y: Any, weight: Any) -> tuple[list[Any], list[Facts]]:
    """Have the workers read all partitions; their blocks, and what is known of them."""
    blocks = cluster.read(read, pieces(X, y, weight, len(cluster)))
    return blocks, cluster.ask(facts, blocks)

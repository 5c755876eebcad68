"""The kernel matrix of a training set and the cache of its rows."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf

from maxmargin.core.jit import compiled
from maxmargin.core.kernels import LARGEST_SINGLE, Kernel, check_square, chunks
from maxmargin.core.linalg import product
from maxmargin.core.rows import readonly
from maxmargin.core.threads import run_threads

# Largest negative eigenvalue that is tolerated, relative to the largest diagonal entry.
DEFINITENESS = 1e-6
# A negative eigenvalue up to this part is rounding; kernels whose matrices never have a larger one.
NEGATIVE = 1e-10
DEFINITE = ("rbf", "chi2", "linear")
# Kernel values are computed in tiles of this number of rows and bytes, which stay in cache. With a power of
# two all numbers of a column, which is read to be mirrored, would share one cache set.
TILE_ROWS, TILE_BYTES = 256, 2**20 - 2**14
# Rows and columns of the tiles of a product, which stay in cache.
TILE = 384
# Columns of a tile that are transposed at a time, so that their cache lines stay loaded.
MIRRORED = 64
# Rows of a stored matrix that are gathered at a time and used while they are in cache.
GATHERED = 64
# Columns of a result per strip, which stay in cache.
STRIP = 2048
# Cost of an exponential and of a listed weight, in multiply-adds of a matrix product.
EXPONENTIAL, LISTED = 20, 4
# Up to this size definiteness is checked on all eigenvalues.
CHECKED_ROWS = 1000


class RowCache:
    """Rows of a matrix, computed on demand; the least recently used one is replaced.

    Parameters
    ----------
    compute : callable
        ``compute(indices)`` returns these rows as a matrix.
    shape : (int, int)
        Shape of the whole matrix.
    cache_size : float
        Bound in MiB; at least two rows are kept.
    dtype : dtype
        Of the stored rows.

    Attributes
    ----------
    store : array of shape (capacity, n_columns)
        The stored rows; `fetch` returns their positions.
    hits, misses : int
        Rows found and rows computed since the start.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.core.kernel_matrix import RowCache
    >>> K = np.arange(12.0).reshape(4, 3)
    >>> cache = RowCache(lambda i: K[i], K.shape, cache_size=0)
    >>> [cache.row(i).tolist() for i in (0, 1, 0, 2)][-1]
    [6.0, 7.0, 8.0]
    >>> cache.kept()                      # row 1 was the least recently used
    [0, 2]
    """

    def __init__(
        self,
        compute: Callable[[np.ndarray], np.ndarray],
        shape: tuple[int, int],
        cache_size: float,
        dtype: Any = np.float64,
    ) -> None:
        self.compute = compute
        self.capacity = capacity(shape, cache_size, dtype)
        self.store = np.empty((self.capacity, shape[1]), dtype)
        self.hits = self.misses = 0
        self._slot: OrderedDict[int, int] = OrderedDict()
        self._used = 0

    def kept(self) -> list[int]:
        """Samples whose rows are stored, the least recently used first."""
        return list(self._slot)

    def row(self, index: int, pinned: tuple[int, ...] = ()) -> np.ndarray:
        """One row, valid until it is replaced; rows of `pinned` samples are not replaced."""
        return self.store[self.fetch(np.array([index]), pinned)[0]]

    def fetch(self, indices: np.ndarray, pinned: tuple[int, ...] = ()) -> np.ndarray:
        """Positions in `store` of the rows of distinct samples, all of them stored at once.

        They become the most recently used ones, in the given order. Missing rows are computed in one block.
        """
        wanted = [int(i) for i in indices]
        held = set(wanted).union(i for i in pinned if i in self._slot)
        if len(held) > self.capacity:
            raise ValueError(
                f"{len(held)} rows are needed at once, but cache_size allows {self.capacity}; "
                "increase cache_size."
            )
        missing = [i for i in wanted if i not in self._slot]
        self.misses += len(missing)
        self.hits += len(wanted) - len(missing)
        if missing:
            rows = self.compute(np.array(missing))
            slots = [self._free_slot(held) for _ in missing]
            self.store[slots] = rows
            self._slot.update(zip(missing, slots, strict=True))
        for i in wanted:
            self._slot.move_to_end(i)
        return np.array([self._slot[i] for i in wanted], dtype=np.int64)

    def _free_slot(self, held: set[int]) -> int:
        """A free position, or that of the least recently used row that is not in `held`."""
        if self._used < self.capacity:
            self._used += 1
            return self._used - 1
        victim = next(i for i in self._slot if i not in held)
        return self._slot.pop(victim)


class KernelMatrix:
    """K of a training set: computed once if it fits in `cache_size` MiB, otherwise row by row.

    It is computed on first use, or by `build`, which stops when a clock has expired.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix of shape (n_samples, n_features)
    cache_size : float
        Memory for kernel values in MiB.
    dtype : dtype, default=None
        Of the stored values; None is that of X. Values that overflow float32 are stored in float64.
    n_threads : int, default=1
        Threads that compute values, more of them for large matrices; the values do not depend on it.

    Attributes
    ----------
    diagonal : array of shape (n_samples,)
        k(x_i, x_i) in float64.
    fits : bool
        Whether the matrix fits.
    whole : array of shape (n_samples, n_samples) or None
        The matrix, if it fits.
    cache : RowCache
        The rows, if it does not; made on first use.
    """

    def __init__(
        self, kernel: Kernel, X: Any, cache_size: float = 200, dtype: Any = None, n_threads: int = 1
    ) -> None:
        self.kernel, self.X = kernel, X
        self.n_threads = kernel.threads(float(X.shape[0]) ** 2 * X.shape[1], n_threads)
        self.n, self.cache_size = X.shape[0], cache_size
        self.diagonal = kernel.diagonal(X)
        self.dtype = np.dtype(X.dtype if dtype is None else dtype)
        if self.diagonal.max() > LARGEST_SINGLE:
            self.dtype = np.dtype(np.float64)
        self._built, self._whole = 0, np.empty((0, 0), self.dtype)
        self.fits = capacity((self.n, self.n), cache_size, self.dtype) >= self.n
        if kernel.name == "precomputed" and X.dtype == self.dtype and not kernel.offset:
            self.fits, self._built, self._whole = True, self.n, X

    def submatrix(self, samples: np.ndarray, buffer: np.ndarray) -> KernelMatrix:
        """The matrix of some samples, stored in the flat array `buffer`."""
        if self.kernel.name == "precomputed":
            return KernelMatrix(replace(self.kernel, offset=0.0), self.square(samples))
        K = KernelMatrix(self.kernel, self.X[samples], math.inf, self.dtype)
        K._whole = buffer[: K.n * K.n].reshape(K.n, K.n)
        return K

    @property
    def whole(self) -> np.ndarray | None:
        """The matrix, if it fits."""
        return self._whole if self.fits and self.build() else None

    def build(self, expired: Callable[[], bool] = lambda: False) -> bool:
        """Continue to compute the matrix, if it fits, until it is complete or time has expired.

        Returns whether nothing is left to compute.
        """
        if not self.fits:
            return True
        if self._built == self.n:
            return True
        if not len(self._whole):
            self._whole = np.empty((self.n, self.n), self.dtype)
        while self._built < self.n and not expired():
            end = min(self._built + self.n_threads * TILE_ROWS, self.n)
            run_threads(self._build_rows, range(self._built, end, TILE_ROWS), self.n_threads)
            self._built = end
        return self._built == self.n

    def _build_rows(self, first: int) -> None:
        """Compute some rows from their diagonal block on, and the columns that mirror them."""
        rows = slice(first, min(first + TILE_ROWS, self.n))
        for part, tile in self._tiles(rows, self.dtype):
            self._whole[rows, part] = tile
            # Of two roundings of one value, the one above the diagonal is used.
            for start in range(max(part.start, rows.stop), part.stop, MIRRORED):
                some = slice(start, min(start + MIRRORED, part.stop))
                self._whole[some, rows] = tile[:, some.start - part.start : some.stop - part.start].T
        square = self._whole[rows, rows]
        np.copyto(square, square.T, where=np.tri(len(square), k=-1, dtype=bool))

    @cached_property
    def cache(self) -> RowCache:
        """Rows of K within `cache_size` MiB."""
        return RowCache(
            lambda indices: self._strip(indices, self.dtype), (self.n, self.n), self.cache_size, self.dtype
        )

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """Rows of K; a copy."""
        if self.whole is not None:
            return self.whole[indices]
        return self.cache.store[self.cache.fetch(indices)]

    def square(self, indices: np.ndarray) -> np.ndarray:
        """K within some samples, read or computed, not stored."""
        K = np.empty((len(indices), len(indices)), self.dtype)
        if self.whole is not None:
            for start in range(0, len(indices), GATHERED):
                some = slice(start, start + GATHERED)
                K[some] = self.whole.take(indices[some], axis=0).take(indices, axis=1)
            return K
        width, basis = len(indices) * self.dtype.itemsize, self._basis(indices)

        def compute(rows: slice) -> None:
            K[rows] = self.kernel.block(self._rows_of(indices[rows]), basis, self.dtype)

        parts = chunks(len(indices), width, most=max(TILE_BYTES // width, TILE_ROWS))
        run_threads(compute, parts, self.n_threads)
        np.fill_diagonal(K, self.diagonal[indices])
        return K

    def is_definite(self) -> bool:
        """Whether the matrix is positive semi-definite up to rounding."""
        if self.kernel.name in DEFINITE:
            return True
        K = KernelMatrix(self.kernel, self.X, np.inf, np.float64).square(np.arange(self.n))
        K[np.diag_indices(self.n)] += NEGATIVE * np.abs(np.diagonal(K)).max(initial=0.0)
        return not dpotrf(K, lower=1)[1]

    def combine(self, W: np.ndarray, indices: np.ndarray, dtype: Any = None) -> np.ndarray:
        """W K[indices], combinations of some rows of K, without storing these rows.

        The values are the stored ones, or computed in `dtype` if that is another one.
        """
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        answer = np.zeros((len(W), self.n), W.dtype)
        used = np.flatnonzero(W.any(axis=0))
        if dtype == self.dtype and self._built == self.n:
            gathered = [used[start : start + GATHERED] for start in range(0, len(used), GATHERED)]

            def add(first: int) -> None:
                part = slice(first, first + STRIP)
                for some in gathered:
                    answer[:, part] += W[:, some] @ self._whole[indices[some], part]

            run_threads(add, range(0, self.n, STRIP), self.n_threads)
            return answer
        if not len(used):
            return answer
        W, indices = np.ascontiguousarray(W[:, used]), indices[used]
        basis = self._basis(indices)
        width = max(len(indices), self.X.shape[1]) * dtype.itemsize

        def compute(part: slice) -> None:
            block = self.kernel.block(self._rows_of(np.arange(part.start, part.stop)), basis, dtype)
            answer[:, part] = W @ block.T

        run_threads(compute, chunks(self.n, width, most=max(TILE_BYTES // width, TILE_ROWS)), self.n_threads)
        return answer

    def combine_nonzeros(
        self, weights: np.ndarray, samples: np.ndarray, onto: np.ndarray | None = None
    ) -> np.ndarray:
        """weights' K[samples], at all samples or those of `onto`, by the nonzero weights alone.

        Kernel values that are stored in the dtype of the weights are used; others are computed in it.
        """
        dtype, c = weights.dtype, weights.shape[1]
        used = np.flatnonzero(weights.any(axis=1))
        weights, samples = weights[used], samples[used]
        if onto is None and dtype == self.dtype and self._built == self.n:
            answer = np.zeros((c, self.n), dtype)
            add_rows(readonly(self._whole), readonly(samples), readonly(weights), answer)
            return answer
        onto = np.arange(self.n) if onto is None else onto
        answer = np.empty((c, len(onto)), dtype)
        # Long rows are converted for many columns at a time.
        size = max(TILE_BYTES // (TILE_ROWS * dtype.itemsize), min(4 * self.X.shape[1], 4096))

        def compute(start: int) -> None:
            basis = self._basis(onto[start : start + size])
            sums = np.zeros((c, min(size, len(onto) - start)), dtype)
            for first in range(0, len(samples), TILE_ROWS):
                some = slice(first, first + TILE_ROWS)
                tile = self.kernel.block(self._rows_of(samples[some]), basis, dtype)
                add_rows(readonly(tile), readonly(np.arange(len(tile))), readonly(weights[some]), sums)
            answer[:, start : start + size] = sums

        run_threads(compute, range(0, len(onto), size), self.n_threads)
        return answer

    def times(self, B: np.ndarray) -> np.ndarray:
        """K @ B in float64, from values computed in float64 unless K is stored in it."""
        B = np.asarray(B, dtype=np.float64)
        if self.dtype == np.float64 and self._built == self.n:
            return product(self._whole, B)
        some = np.flatnonzero(B.any(axis=1))
        value, c = self.X.shape[1] + EXPONENTIAL, B.shape[1]
        dense = min(len(some) * (value + c), self.n * (value / 2 + c))
        if len(some) * value + LISTED * np.count_nonzero(B) <= dense:
            return self.combine_nonzeros(B[some], some).T
        if 2 * len(some) < self.n:
            return self.combine(np.ascontiguousarray(B[some].T), some, np.float64).T
        answer = np.zeros_like(B)

        def add(pair: tuple[int, int]) -> None:
            rows, columns = (slice(i * TILE, min((i + 1) * TILE, self.n)) for i in pair)
            tile = self._block(rows, columns, B.dtype)
            answer[rows] += tile @ B[columns]
            if rows != columns:
                answer[columns] += tile.T @ B[rows]

        for pairs in rounds(-(-self.n // TILE)):
            run_threads(add, pairs, self.n_threads)
        return answer

    def _tiles(self, rows: slice, dtype: np.dtype) -> Iterator[tuple[slice, np.ndarray]]:
        """Some rows of K from their diagonal block on, in tiles: columns and values."""
        width = max(rows.stop - rows.start, self.X.shape[1]) * dtype.itemsize
        size = max(TILE_BYTES // width, TILE_ROWS)
        for start in range(rows.start, self.n, size):
            part = slice(start, min(start + size, self.n))
            yield part, self._block(rows, part, dtype)

    def _block(self, rows: slice, columns: slice, dtype: np.dtype) -> np.ndarray:
        """Some rows and columns of K, computed with an exact diagonal."""
        block = self.kernel.block(self.X[rows], self._basis(np.arange(columns.start, columns.stop)), dtype)
        own = np.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
        block[own - rows.start, own - columns.start] = self.diagonal[own]
        return block

    def _strip(self, indices: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Rows of K, with an exact diagonal."""
        K = np.empty((len(indices), self.n), dtype)
        some = self._rows_of(indices)
        width = 1 if self.kernel.name == "precomputed" else self.X.shape[1]

        def compute(part: slice) -> None:
            K[:, part] = self.kernel.block(some, self._basis(np.arange(part.start, part.stop)), dtype)

        run_threads(compute, chunks(self.n, width * dtype.itemsize), self.n_threads)
        K[np.arange(len(indices)), indices] = self.diagonal[indices]
        return K

    def _rows_of(self, indices: np.ndarray) -> Any:
        """Rows of X; consecutive ones without a copy."""
        if len(indices) and indices[-1] - indices[0] + 1 == len(indices) and (np.diff(indices) == 1).all():
            return self.X[indices[0] : indices[-1] + 1]
        return self.X[indices]

    def _basis(self, indices: np.ndarray) -> Any:
        """The second argument of `Kernel.block`: rows of X, or columns of a precomputed kernel."""
        return indices if self.kernel.name == "precomputed" else self._rows_of(indices)


@compiled(reorder=True)
def add_rows(K, chosen, weights, answer):
    """answer += weights' K[chosen], over the nonzero weights.

    `weights` (size, c), `answer` (c, n); works on strips of columns that stay in cache.
    """
    c, n = answer.shape
    for first in range(0, n, STRIP):
        last = min(first + STRIP, n)
        for j in range(chosen.size):
            row = K[chosen[j], first:last]
            for k in range(c):
                value = weights[j, k]
                if value != 0:
                    into = answer[k, first:last]
                    for i in range(row.size):
                        into[i] += value * row[i]


def capacity(shape: tuple[int, int], cache_size: float, dtype: Any) -> int:
    """Number of rows of a matrix that fit in `cache_size` MiB; at least two, at most all."""
    if isinstance(cache_size, bool) or not isinstance(cache_size, Real) or not cache_size >= 0:
        raise ValueError(f"cache_size must be a number of MiB, zero or more. Got {cache_size!r} instead.")
    bytes_per_row = max(shape[1] * np.dtype(dtype).itemsize, 1)
    fitting = shape[0] if math.isinf(cache_size) else int(cache_size * 2**20 // bytes_per_row)
    return min(shape[0], max(2, fitting))


def rounds(n: int) -> Iterator[list[tuple[int, int]]]:
    """All pairs of the numbers below n, each with itself first, in rounds in which no number occurs twice.

    >>> from maxmargin.core.kernel_matrix import rounds
    >>> list(rounds(3))
    [[(0, 0), (1, 1), (2, 2)], [(1, 2)], [(0, 2)], [(0, 1)]]
    """
    yield [(i, i) for i in range(n)]
    others = n - 1 + n % 2  # the circle method of round-robin tournaments
    for r in range(others):
        pairs = [(r, others)] + [((r + k) % others, (r - k) % others) for k in range(1, others // 2 + 1)]
        round_ = [(min(pair), max(pair)) for pair in pairs if max(pair) < n and pair[0] != pair[1]]
        if round_:
            yield round_


def smallest_eigenvalue(K: np.ndarray, n_probes: int = 60) -> float:
    """Estimate of the smallest eigenvalue of a symmetric matrix, never below it.

    It is exact up to `CHECKED_ROWS` rows; above, a Lanczos run of `n_probes` products finds any eigenvalue
    that is well below zero.
    """
    n = len(K)
    if n <= CHECKED_ROWS:
        return float(np.linalg.eigvalsh(np.asarray(K, dtype=np.float64))[0])
    rng = np.random.default_rng(0)
    Q = np.empty((n_probes, n))
    q = rng.standard_normal(n)
    q /= np.linalg.norm(q)
    main, side = np.empty(n_probes), np.empty(n_probes)
    for k in range(n_probes):
        Q[k] = q
        v = (K @ q.astype(K.dtype)).astype(np.float64)
        main[k] = q @ v
        for _ in range(2):
            v -= Q[: k + 1].T @ (Q[: k + 1] @ v)
        side[k] = np.linalg.norm(v)
        if side[k] <= 1e-12 * np.abs(main[: k + 1]).max():
            n_probes = k + 1
            break
        q = v / side[k]
    T = np.diag(main[:n_probes]) + np.diag(side[: n_probes - 1], 1) + np.diag(side[: n_probes - 1], -1)
    return float(np.linalg.eigvalsh(T)[0])


INDEFINITE = (
    "kernel is not positive semi-definite on these samples (eigenvalue {:.3g}); the solution is a stationary "
    "point, and its gap does not prove optimality."
)


def check_precomputed(K: Any) -> float:
    """Check that a matrix of kernel values is square, finite and symmetric.

    Returns its smallest eigenvalue if that is below zero by more than rounding, otherwise 0.
    """
    check_square(K)
    if not np.isfinite(K).all():
        raise ValueError("The precomputed kernel contains NaN or infinity.")
    scale = max(float(np.abs(np.diagonal(K)).max(initial=0.0)), np.finfo(K.dtype).tiny)
    for rows in chunks(len(K), len(K) * K.itemsize):
        asymmetry = np.abs(K[rows] - K[:, rows].T)
        if asymmetry.max() > DEFINITENESS * scale:
            i, j = np.unravel_index(int(np.argmax(asymmetry)), asymmetry.shape)
            i += rows.start
            raise ValueError(
                f"The precomputed kernel must be symmetric, but K[{i}, {j}] = {K[i, j]:g} and "
                f"K[{j}, {i}] = {K[j, i]:g}."
            )
    worst = int(np.argmin(np.diagonal(K)))
    if K[worst, worst] < -DEFINITENESS * scale:
        raise ValueError(
            f"The precomputed kernel must be positive semi-definite, but K[{worst}, {worst}] = "
            f"{K[worst, worst]:g} is negative."
        )
    smallest = smallest_eigenvalue(K)
    return smallest if smallest < -DEFINITENESS * scale * math.sqrt(len(K)) else 0.0

"""Kernel functions: parameters, blocks of values, scores.

| name          | k(x, z)                                          |
|---------------|--------------------------------------------------| | "linear"      | x.z
| | "rbf"         | exp(-gamma |M (x - z)|^2), M = 1 unless given    | | "poly"        | (gamma x.z +
coef0)^degree                       | | "sigmoid"     | tanh(gamma x.z + coef0)                          | |
"chi2"        | exp(-gamma sum_d (x_d - z_d)^2 / (x_d + z_d))    | | callable      | f(X, Z), the matrix of
all k(x, z)               | | "precomputed" | the values that the user passes instead of X     |

With a basis of `Clouds`, k(x, z) is replaced by the mean of "rbf" over a Gaussian around every z.

A constant `offset` is added to every value: k + s^2 is the kernel of the samples with a constant feature s,
so the offset plays the part of a bias.

Values are computed in blocks by BLAS, in float32 or float64, for dense and CSR rows; a block needs at most
`BLOCK_BYTES` besides its result.

exp(x) = 2^k exp(r), k the integer next to x / log 2, |r| <= log(2) / 2, exp(r) by its Taylor polynomial; the
error is some units in the last place of x, as that of a distance x itself. NumPy reads a matrix once more for
each operation, and without AVX-512 computes exponentials in float64 one by one.

Examples
--------
>>> import numpy as np
>>> from maxmargin.core.kernels import Kernel
>>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
>>> kernel = Kernel.of(X, "poly", gamma=1.0, degree=2, coef0=1.0)
>>> kernel.block(X, X)
array([[ 1.,  1.,  1.],
       [ 1.,  4.,  1.],
       [ 1.,  1., 25.]])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from maxmargin.core.jit import compiled
from maxmargin.core.state import Number, Sizes, State, Whole, chosen, floats
from maxmargin.core.threads import one_blas_thread, product_threads, run_threads

NAMES = ("linear", "rbf", "poly", "sigmoid", "chi2", "precomputed")
BLOCK_BYTES = 32 * 2**20
# Largest kernel values in float64 and float32; sums of their squares are finite.
LARGEST, LARGEST_SINGLE = 1e150, 1e30
# Largest rounding of gamma |x - z|^2 at which distances are computed in float32.
DISTANCE_ROUNDING = 1e-5


# Up to this size NumPy takes milliseconds, and compiling a loop about a second.
FEW_EXPONENTIALS = 10**6


@compiled(reorder=True)
def exponentials_single(K, offset):
    """K = exp(min(K, 0)) + offset in float32, in place; no exponential is below e^-87."""
    inverse, half = np.float32(1.4426950408889634), np.float32(0.5)
    log2 = np.float32(0.6931471805599453)
    zero, one, least = np.float32(0.0), np.float32(1.0), np.float32(-87.0)
    c2, c3, c4 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24)
    c5, c6, c7 = np.float32(1 / 120), np.float32(1 / 720), np.float32(1 / 5040)
    for i in range(K.shape[0]):
        row = K[i]
        for j in range(row.size):
            x = row[j]
            x = zero if x > zero else x
            x = least if x < least else x
            k = np.int32(x * inverse - half)
            r = x - np.float32(k) * log2
            p = (((((c7 * r + c6) * r + c5) * r + c4) * r + c3) * r + c2) * r * r + r + one
            power = np.int32((k + np.int32(127)) << np.int32(23)).view(np.float32)
            row[j] = p * power + offset


@compiled(reorder=True)
def exponentials_double(K, offset):
    """K = exp(min(K, 0)) + offset in float64, in place; no exponential is below e^-700."""
    for i in range(K.shape[0]):
        row = K[i]
        for j in range(row.size):
            x = row[j]
            x = 0.0 if x > 0.0 else x
            x = -700.0 if x < -700.0 else x
            k = np.int32(x * 1.4426950408889634 - 0.5)
            r = x - k * 0.6931471805599453
            p = (((1 / 6227020800 * r + 1 / 479001600) * r + 1 / 39916800) * r + 1 / 3628800) * r
            p = ((((p + 1 / 362880) * r + 1 / 40320) * r + 1 / 5040) * r + 1 / 720) * r
            p = (((p + 1 / 120) * r + 1 / 24) * r + 1 / 6) * r + 1 / 2
            power = np.int64((np.int64(k) + np.int64(1023)) << np.int64(52)).view(np.float64)
            row[j] = ((p * r * r + r) + 1.0) * power + offset


@dataclass(frozen=True, eq=False)
class Clouds:
    """A basis for "rbf" whose element j is the mean of phi(u) for u = M x normal around M z_j, scaled.

    With variances s_jf = spread_jf / (2 gamma), and phi the map into the kernel's own space, means of
    products of Gaussians are Gaussians, and the inner products of those elements are

        k(x, j) = exp(-gamma sum_f (u_f - v_jf)^2 / (1 + r_jf)),    v_j = M z_j,   r = spread
        k(i, j) = prod_f sqrt((1 + r_if) (1 + r_jf) / (1 + r_if + r_jf))
                  exp(-gamma sum_f (v_if - v_jf)^2 / (1 + r_if + r_jf)) ,

    scaled so that k(x, j) is 1 at z_j. A spread of 0 is the point z_j itself; any other is wider than the
    kernel, in every direction f by its own factor. As they are inner products, the matrix of all k(i, j) is
    positive semi-definite, and functions spanned by clouds have the norm that it defines.

    Attributes
    ----------
    centres : array of shape (n_basis, n_features)
        The z_j.
    spread : array of shape (n_basis, n_features)
        The r_j, none negative, by the rows of M.
    """

    centres: np.ndarray
    spread: np.ndarray

    def __len__(self) -> int:
        return len(self.centres)

    def __getitem__(self, some: Any) -> Clouds:
        return Clouds(self.centres[some], self.spread[some])

    def weights(self, gamma: float, V: np.ndarray) -> np.ndarray:
        """Coefficients of rows (u^2, u, 1) in the exponents of k(x, j), in float64; V = M z."""
        sharp, V = gamma / (1 + self.spread.astype(np.float64)), V.astype(np.float64)
        return np.hstack([-sharp, 2 * sharp * V, -(sharp * V * V).sum(axis=1, keepdims=True)]).T


@dataclass(frozen=True)
class Kernel:
    """A kernel function with all its parameters; build it with `Kernel.of`.

    Attributes
    ----------
    name : str
        One of `NAMES`, or "callable".
    gamma, degree, coef0 : float, int, float
        The parameters in the formulas above; unused ones have no effect.
    offset : float
        Added to every value.
    function : callable or None
        The user's own kernel, called as ``function(X, Z)``.
    metric : array of shape (n_features, n_features) or None
        The M of "rbf".
    """

    name: str
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0
    offset: float = 0.0
    function: Callable[[Any, Any], Any] | None = None
    metric: np.ndarray | None = field(default=None, compare=False)

    STATE: ClassVar[State] = State(
        {
            "name": chosen(*NAMES),
            "gamma": Number(0.0),
            "degree": Whole(high=100),
            "coef0": Number(),
            "offset": Number(0.0),
            "function": chosen(None),
            "metric": floats("n_features", "n_features", group="metric", none=True),
        }
    )

    @classmethod
    def of(
        cls,
        X: Any,
        kernel: Any = "rbf",
        *,
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        offset: float = 0.0,
        sample_weight: np.ndarray | None = None,
    ) -> Kernel:
        """Build a kernel for the training rows X.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Training rows; with "precomputed" the square matrix of kernel values.
        kernel : str or callable
            A name from the table above, or a function of two matrices of rows.
        gamma : {"scale", "auto"} or float
            "scale" is 1 / (n_features * X.var()), "auto" is 1 / n_features.
        degree, coef0 : int, float
            For "poly" (both) and "sigmoid" (coef0).
        offset : float
            Nonnegative constant added to every value.
        sample_weight : array of shape (n_samples,), default=None
            Weights in the variance of gamma="scale", so that a weight equals a repetition.
        """
        if callable(kernel):
            name, function = "callable", kernel
        elif isinstance(kernel, str) and kernel in NAMES:
            name, function = kernel, None
        else:
            raise ValueError(f"kernel must be a callable or one of {list(NAMES)}. Got {kernel!r} instead.")
        _check_numbers(degree, coef0, offset)
        if name == "precomputed":
            check_square(X)
        if name == "chi2":
            _check_nonnegative(X)
        found = cls(name, _gamma(gamma, X, sample_weight), int(degree), float(coef0), float(offset), function)
        _check_diagonal(found.diagonal(X), X.dtype)
        return found

    def block(self, X: Any, Z: Any, dtype: Any = None) -> np.ndarray:
        """Values k(x, z) for all rows x of X and z of Z, as a dense matrix.

        With "precomputed", Z is the vector of columns of X to take; with "rbf" it may be `Clouds`. The result
        has the dtype of X unless `dtype` is given.
        """
        dtype = np.dtype(X.dtype if dtype is None else dtype)
        if isinstance(Z, Clouds):
            return self._clouded(X, Z, dtype)
        if self.name not in ("precomputed", "callable") and sp.issparse(X) != sp.issparse(Z):
            X, Z = sp.csr_array(X), sp.csr_array(Z)
        if self.name == "precomputed":
            K = X[:, Z].astype(dtype)
        elif self.function is not None:
            K = self._called(X, Z).astype(dtype)
        elif self.name == "chi2":
            _check_nonnegative(X)
            K = np.exp(-self.gamma * _chi2_distances(X, Z)).astype(dtype)
        elif self.name == "rbf":
            return self._rbf(X, Z, dtype)
        else:
            K = _products(X, Z, dtype)
            if self.name in ("poly", "sigmoid"):
                K *= dtype.type(self.gamma)
                K += dtype.type(self.coef0)
                K = np.tanh(K, out=K) if self.name == "sigmoid" else _power(K, self.degree)
        if self.offset:
            K += dtype.type(self.offset)
        return K

    def diagonal(self, X: Any) -> np.ndarray:
        """Values k(x, x) of the rows of X, in float64."""
        n = X.shape[0]
        if self.name in ("rbf", "chi2"):
            values = np.ones(n)
        elif self.name == "precomputed":
            values = np.asarray(X.diagonal(), dtype=np.float64)
        elif self.function is not None:
            parts = [np.diag(self._called(X[i : i + 64], X[i : i + 64])) for i in range(0, n, 64)]
            values = np.concatenate(parts).astype(np.float64)
        else:
            values = squared_norms(X)
            if self.name == "poly":
                with np.errstate(over="ignore"):
                    values = (self.gamma * values + self.coef0) ** self.degree
            elif self.name == "sigmoid":
                values = np.tanh(self.gamma * values + self.coef0)
        return values + self.offset

    def inner_products(self, clouds: Clouds) -> np.ndarray:
        """Values k(i, j) for all pairs of clouds, in float64, exactly symmetric."""
        V, R = self.apply_metric(clouds.centres).astype(np.float64), clouds.spread.astype(np.float64)
        K, own = np.empty((len(V), len(V))), np.log1p(R).sum(axis=1)
        for i, (v, r) in enumerate(zip(V, R, strict=True)):
            wide = 1 + (r + R)
            distances = ((v - V) ** 2 / wide).sum(axis=1)
            K[i] = np.exp(0.5 * (own[i] + own - np.log(wide).sum(axis=1)) - self.gamma * distances)
        return K + self.offset

    def apply_metric(self, X: Any) -> Any:
        """M x of every row."""
        return X if self.metric is None else X @ self.metric.T

    def scores(self, X: Any, basis: Any, coefficients: np.ndarray) -> np.ndarray:
        """k(X, basis) @ coefficients, in chunks of rows, in the wider of the dtypes of X and coefficients.

        With "precomputed", `basis` is the vector of columns of X that the coefficients belong to.
        """
        dtype = np.result_type(X.dtype, coefficients.dtype)
        coefficients = np.asarray(coefficients, dtype=dtype)
        answer = np.zeros((X.shape[0], *coefficients.shape[1:]), dtype=dtype)
        if len(coefficients):

            def work(rows: slice) -> None:
                answer[rows] = self.block(X[rows], basis, dtype) @ coefficients

            n_threads = self.threads(X.shape[0] * len(coefficients) * X.shape[1])
            with one_blas_thread():
                run_threads(work, chunks(X.shape[0], len(coefficients) * dtype.itemsize), n_threads)
        return answer

    def threads(self, multiply_adds: float, n_threads: int = 1) -> int:
        """Number of threads for values of a given cost; 1 for a function of the user."""
        return 1 if self.function is not None else product_threads(multiply_adds, n_threads)

    def _called(self, X: Any, Z: Any) -> np.ndarray:
        assert self.function is not None
        K = self.function(X, Z)
        K = np.asarray(K.toarray() if sp.issparse(K) else K)
        if K.shape != (X.shape[0], Z.shape[0]):
            raise ValueError(
                f"kernel must return one value for each pair of rows, a matrix of shape "
                f"{(X.shape[0], Z.shape[0])}. Got shape {K.shape} instead."
            )
        if K.dtype.kind not in "buif" or not np.isfinite(K).all():
            raise ValueError("kernel returned values that are not finite numbers; check the callable.")
        return K

    def _clouded(self, X: Any, clouds: Clouds, dtype: np.dtype) -> np.ndarray:
        """exp(-gamma sum_f (u_f - v_f)^2 / (1 + r_f)) + offset: one product of rows (u^2, u, 1)."""
        U, V = self.apply_metric(X), self.apply_metric(clouds.centres)
        U = U.toarray() if sp.issparse(U) else U
        largest = self.gamma * (squared_norms(U).max(initial=0.0) + squared_norms(V).max(initial=0.0))
        exact = largest * np.finfo(dtype).eps <= DISTANCE_ROUNDING
        work = dtype if exact else np.dtype(np.float64)
        p = U.shape[1]
        left = np.empty((len(U), 2 * p + 1), work)
        left[:, p:-1], left[:, -1] = U, 1.0
        np.square(left[:, p:-1], out=left[:, :p])
        K = left @ clouds.weights(self.gamma, V).astype(work)
        return _exponentials(K, self.offset).astype(dtype, copy=False)

    def _rbf(self, X: Any, Z: Any, dtype: np.dtype) -> np.ndarray:
        """Values of "rbf", offset included."""
        X, Z = self.apply_metric(X), self.apply_metric(Z)
        x, z = self.gamma * squared_norms(X), self.gamma * squared_norms(Z)
        largest = x.max(initial=0.0) + z.max(initial=0.0)
        exact = largest * np.finfo(dtype).eps <= DISTANCE_ROUNDING
        work = dtype if exact else np.dtype(np.float64)
        if sp.issparse(X):
            K = _products(X, Z, work)
            K *= work.type(2 * self.gamma)
            K -= x[:, None].astype(work)
            K -= z.astype(work)
        else:
            # Minus the squared distances in one product, by two more columns on each side.
            left = _beside(X, -x, 1.0, work)
            left[:, :-2] *= work.type(2 * self.gamma)
            K = left @ _beside(Z, 1.0, -z, work).T
        return _exponentials(K, self.offset).astype(dtype, copy=False)


def _exponentials(K: np.ndarray, offset: float) -> np.ndarray:
    """exp(min(K, 0)) + offset, in place."""
    if K.size <= FEW_EXPONENTIALS:
        np.exp(np.clip(K, -700.0 if K.dtype == np.float64 else -87.0, 0.0, out=K), out=K)
        K += K.dtype.type(offset)
        return K
    loop = exponentials_single if K.dtype == np.float32 else exponentials_double
    loop(K if K.flags.c_contiguous else K.T, K.dtype.type(offset))
    return K


def check_basis(kernel: Kernel, columns: np.ndarray, rows: Any, sizes: Sizes) -> None:
    """A rule for models: basis rows are as wide as X, or are columns of a precomputed X."""
    if kernel.name == "precomputed":
        if columns.size and columns.max() >= sizes["n_features"]:
            raise ValueError("its basis lies beyond the columns of a precomputed kernel")
    elif rows.shape != (len(columns), sizes["n_features"]):
        raise ValueError(f"its basis has shape {rows.shape}, not {(len(columns), sizes['n_features'])}")


def squared_norms(X: Any) -> np.ndarray:
    """Squared Euclidean norm of every row, dense or CSR, in float64."""
    if sp.issparse(X):
        squares = X.astype(np.float64)  # converted first, because a square needs twice the digits
        return np.asarray(squares.multiply(squares).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=np.float64)


def row_sums(X: Any) -> np.ndarray:
    """Sum of every row in float64; SciPy sums sparse rows in the precision of X."""
    X = X.astype(np.float64) if sp.issparse(X) else X
    return np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()


def chunks(n: int, bytes_per_row: int, most: int = 4096) -> Iterator[slice]:
    """Cut 0..n into slices of bounded memory."""
    size = min(most, max(1, BLOCK_BYTES // max(bytes_per_row, 1)))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _products(X: Any, Z: Any, dtype: np.dtype) -> np.ndarray:
    """X Z' as a dense matrix; sparse rows are converted in chunks."""
    if not sp.issparse(X):
        return X.astype(dtype, copy=False) @ Z.astype(dtype, copy=False).T
    X, Z = X.astype(dtype, copy=False), Z.astype(dtype, copy=False)
    few, many = (X, Z) if X.shape[0] <= Z.shape[0] else (Z, X)
    G = np.empty((few.shape[0], many.shape[0]), dtype)
    for rows in chunks(few.shape[0], few.shape[1] * dtype.itemsize):
        G[rows] = (many @ few[rows].toarray().T).T
    return G if few is X else G.T


def _beside(X: np.ndarray, one: Any, other: Any, dtype: np.dtype) -> np.ndarray:
    """X with two more columns."""
    wide = np.empty((X.shape[0], X.shape[1] + 2), dtype)
    wide[:, :-2], wide[:, -2], wide[:, -1] = X, one, other
    return wide


def _power(K: np.ndarray, degree: int) -> np.ndarray:
    """K to the power `degree`, entry by entry, by repeated multiplication."""
    if degree == 0:
        return np.ones_like(K)
    base = K.copy() if degree > 1 else K
    for _ in range(degree - 1):
        K *= base
    return K


def _chi2_distances(X: Any, Z: Any) -> np.ndarray:
    """sum_d (x_d - z_d)^2 / (x_d + z_d) of every pair, taking 0/0 as 0, in float64."""
    distances = np.empty((X.shape[0], Z.shape[0]))
    if not sp.issparse(X):
        Z = Z.astype(np.float64, copy=False)
        with np.errstate(invalid="ignore"):
            for i, x in enumerate(X.astype(np.float64, copy=False)):
                terms = (x - Z) ** 2 / (x + Z)
                distances[i] = np.nansum(terms, axis=1)
        return distances
    # Where one of the two is zero the term is the other one, so only the common nonzeros count:
    # (x - z)^2 / (x + z) = x + z - 4 x z / (x + z).
    values = Z.data.astype(np.float64, copy=False)
    row_of = np.repeat(np.arange(Z.shape[0]), np.diff(Z.indptr))
    sums_x = row_sums(X)
    sums_z = np.bincount(row_of, weights=values, minlength=Z.shape[0])
    for i in range(X.shape[0]):
        x = X[i : i + 1].toarray().ravel().astype(np.float64)[Z.indices]
        total = x + values
        common = np.divide(x * values, total, out=np.zeros_like(total), where=total > 0)
        distances[i] = sums_x[i] + sums_z - 4 * np.bincount(row_of, common, minlength=Z.shape[0])
    return np.maximum(distances, 0)


def _gamma(gamma: Any, X: Any, weights: np.ndarray | None = None) -> float:
    n_features = X.shape[1]
    if isinstance(gamma, str) and gamma == "auto":
        return 1.0 / n_features
    if isinstance(gamma, str) and gamma == "scale":
        variance = _variance(X, weights)
        return 1.0 / (n_features * variance) if variance > 0 else 1.0
    number = isinstance(gamma, Real) and not isinstance(gamma, bool)
    if not number or not math.isfinite(gamma) or gamma < 0:
        raise ValueError(f"gamma must be 'scale', 'auto' or a nonnegative number. Got {gamma!r} instead.")
    return float(gamma)


def _variance(X: Any, weights: np.ndarray | None) -> float:
    """Variance of all entries of X, each row counted with its weight."""
    if weights is None and not sp.issparse(X):
        return float(X.var(dtype=np.float64))
    weights = np.ones(X.shape[0]) if weights is None else weights
    size = weights.sum() * X.shape[1]
    mean = weights @ row_sums(X) / size
    if sp.issparse(X):
        return float(weights @ squared_norms(X) / size - mean**2)
    total = 0.0
    for rows in chunks(X.shape[0], X.shape[1] * 8):
        total += float(weights[rows] @ np.square(X[rows] - mean, dtype=np.float64).sum(axis=1))
    return total / size


def _check_diagonal(diagonal: np.ndarray, dtype: Any) -> None:
    """Refuse kernels that are negative or overflow on the samples themselves, which bound all values."""
    i = int(np.argmin(diagonal))
    if diagonal[i] < 0:
        raise ValueError(
            f"kernel must be positive semi-definite, but k(x, x) is {diagonal[i]:.3g} for sample {i}; "
            "change the kernel or its coef0."
        )
    i = int(np.argmax(diagonal))
    if not diagonal[i] <= (LARGEST_SINGLE if dtype == np.float32 else LARGEST):
        raise ValueError(
            f"k(x, x) is {diagonal[i]:.3g} for sample {i}, too large for {dtype}; scale the "
            "features, or lower gamma, degree, coef0 or intercept_scaling."
        )


def _check_numbers(degree: Any, coef0: Any, offset: Any) -> None:
    if isinstance(degree, bool) or not isinstance(degree, Integral) or degree < 0:
        raise ValueError(f"degree must be a nonnegative integer. Got {degree!r} instead.")
    for name, value in (("coef0", coef0), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number. Got {value!r} instead.")
    if offset < 0:
        raise ValueError(f"offset must be nonnegative. Got {offset!r} instead.")


def check_square(K: Any) -> None:
    if sp.issparse(K):
        raise ValueError("A precomputed kernel must be a dense matrix; pass K.toarray().")
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(
            f"With kernel='precomputed', X must be the square matrix of kernel values of the training "
            f"samples. Got shape {K.shape} instead."
        )


def _check_nonnegative(X: Any) -> None:
    values = X.data if sp.issparse(X) else X
    if values.size and values.min() < 0:
        raise ValueError("Negative values in data passed to X, but kernel='chi2' needs nonnegative features.")

"""Scores of kernel and linear models on a device, and arrays of PyTorch and CuPy answered in kind.

A model that was trained on a GPU predicts anywhere: prediction takes a GPU where there is one, its `device`
allows it and the work is large enough, and the CPU else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.kernels import Clouds, Kernel
from maxmargin.device.backend import FOREIGN, installed, log

if TYPE_CHECKING:
    import torch

# Kernel values from which a GPU is worth the way there and back.
MANY_VALUES = 10**8
# Kernel values made at a time.
BATCH_VALUES = 2**28


def check_width(X: Any, n_features: int) -> None:
    """Refuse rows of another length than those of training."""
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(
            f"X has shape {tuple(X.shape)}, but the model expects rows of {n_features} features."
        )


def like(answer: Any, X: Any) -> Any:
    """Numbers in the kind of X and on its device; what is no array of numbers stays as it is."""
    if not isinstance(answer, np.ndarray) or answer.dtype.kind not in "biuf":
        return answer
    if hasattr(X, "detach"):
        import torch

        return torch.from_numpy(np.ascontiguousarray(answer)).to(X.device)
    import cupy

    return cupy.asarray(answer)


def linear_in_kind(X: Any, coef: np.ndarray, intercept: np.ndarray) -> Any:
    """X @ coef.T + intercept, on the device of X and in its kind."""
    W, b = like(coef, X), like(intercept, X)
    return X.astype(W.dtype) @ W.T + b if hasattr(X, "astype") else X.to(W.dtype) @ W.T + b


def kernel_in_kind(X: Any, kernel: Kernel, basis: Any, coefficients: np.ndarray) -> Any:
    """k(X, basis) @ coefficients, on the device of X and in its kind."""
    import torch

    rows = X if hasattr(X, "detach") else torch.from_dlpack(X)
    scores = _batched(rows, kernel, basis, coefficients)
    if hasattr(X, "detach"):
        return scores
    import cupy

    return cupy.from_dlpack(scores)


def kernel_scores(device: str, kernel: Kernel, X: Any, basis: Any, coefficients: np.ndarray) -> np.ndarray:
    """k(X, basis) @ coefficients, in the wider of the dtypes of X and coefficients.

    On a GPU, kernel values have the precision of X.
    """
    if device == "cpu" or kernel.name in FOREIGN or X.shape[0] * len(coefficients) < MANY_VALUES:
        return kernel.scores(X, basis, coefficients)
    if installed():
        import torch

        if torch.cuda.is_available():
            wide = np.result_type(X.dtype, coefficients.dtype)
            there = torch.device("cuda")
            size = max(1, BATCH_VALUES // max(X.shape[1], 1))
            parts = [
                _batched(_dense(X[i : i + size], there), kernel, basis, coefficients).cpu().numpy()
                for i in range(0, X.shape[0], size)
            ]
            return np.concatenate(parts).astype(wide, copy=False)
    log.info("no GPU here: predicting on the CPU.")
    return kernel.scores(X, basis, coefficients)


def _dense(X: Any, device: torch.device) -> torch.Tensor:
    import torch

    from maxmargin.device.kernels import to_device

    return to_device(X, device, torch.float32 if X.dtype == np.float32 else torch.float64)


def _batched(X: torch.Tensor, kernel: Kernel, basis: Any, coefficients: np.ndarray) -> torch.Tensor:
    import torch

    from maxmargin.device.kernels import block, to_device

    dtype = X.dtype if X.dtype in (torch.float32, torch.float64) else torch.float64
    X, B = X.to(dtype), torch.from_numpy(np.ascontiguousarray(coefficients)).to(X.device, dtype)
    answer = torch.zeros(len(X), B.shape[1], dtype=dtype, device=X.device)
    if not len(B):
        return answer
    if kernel.name == "precomputed":
        return X[:, torch.from_numpy(basis).to(X.device)] @ B
    Z = basis
    if not isinstance(basis, Clouds):
        Z = to_device(basis if sp.issparse(basis) else np.asarray(basis), X.device, dtype)
    size = max(1, BATCH_VALUES // len(B))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        torch.matmul(block(kernel, X[rows], Z), B, out=answer[rows])
    return answer

"""Choice of the device, and prediction on it; importing this module does not import PyTorch.

`device="cuda"` uses the GPU or raises an error that names what is missing. `device="auto"` uses the GPU if
one is available and the problem is large enough to gain from it, and otherwise the CPU; the reason goes to
``logging.getLogger("maxmargin.device")``.

A model trained on a GPU predicts anywhere: on a GPU if there is one, `device` allows it and there are at
least MANY_VALUES kernel values to compute, and otherwise on the CPU. Predictions for arrays of PyTorch and
CuPy are arrays of the same library on the same device.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maxmargin.core.kernels import Kernel

if TYPE_CHECKING:
    import torch

DEVICES = ("cpu", "cuda", "auto")
# "auto" uses a GPU from this many samples on; for sparse rows, from this many stored numbers times labels on.
MANY_SAMPLES, MANY_STORED = 3000, 10**8
# Prediction uses a GPU from this many kernel values on.
MANY_VALUES = 10**8
# Numbers per sample that scoring the candidates of a basis takes.
CANDIDATES = 400
# Largest share of the free memory that a fit may take.
SHARE = 0.9

log = logging.getLogger("maxmargin.device")


class Demand(NamedTuple):
    """Memory that a problem needs on a device, in bytes, and its size in words.

    `least` is the minimum, `wish` includes a stored kernel matrix. `too_small` is the reason to stay on the
    CPU, or "".
    """

    size: str
    least: int
    wish: int
    too_small: str


def kernel_demand(
    n_samples: int, n_features: int, n_columns: int, itemsize: int = 4, block: int = 128
) -> Demand:
    """Memory of block moves with a kernel: `n_columns` scores per sample in numbers of `itemsize` bytes.

    `block` rows of the kernel matrix are needed at a time. X, coefficients, residuals and bounds are stored
    in the working precision and in float64.
    """
    entries = n_samples * n_columns * (6 * itemsize + 6 * 8)
    state = n_samples * n_features * (itemsize + 8) + entries
    return Demand(
        f"{n_samples:,} samples and {n_columns:,} columns of scores",
        state + 2 * block * n_samples * itemsize,
        state + n_samples**2 * itemsize,
        _few_samples(n_samples),
    )


def rows_demand(nnz: int, n_samples: int, n_features: int, n_columns: int) -> Demand:
    """Memory of a linear model of sparse rows with `nnz` stored numbers.

    X and its transpose are stored in two precisions, and about a dozen numbers per sample and label.
    """
    work = nnz * n_columns
    reason = f"{work:,} stored numbers times labels are fewer than {MANY_STORED:,}, from which a GPU pays"
    entries = n_samples * n_columns * (6 * 4 + 6 * 8)
    n_bytes = nnz * 48 + entries + n_features * n_columns * 28
    size = f"{n_samples:,} samples and {n_columns:,} labels"
    return Demand(size, n_bytes, n_bytes, "" if work >= MANY_STORED else reason)


def basis_demand(n_samples: int, n_features: int, n_columns: int, max_basis: int) -> Demand:
    """Memory of a machine with a shared basis: X, basis functions, scores and candidates in float64."""
    n_bytes = 8 * n_samples * (2 * n_features + 2 * max_basis + 12 * n_columns + CANDIDATES)
    size = f"{n_samples:,} samples and {max_basis:,} basis vectors"
    return Demand(size, n_bytes, n_bytes, _few_samples(n_samples))


def _few_samples(n_samples: int) -> str:
    if n_samples >= MANY_SAMPLES:
        return ""
    return f"{n_samples:,} samples are fewer than {MANY_SAMPLES:,}, from which a GPU pays"


def installed() -> bool:
    """Whether PyTorch can be imported, without importing it."""
    return importlib.util.find_spec("torch") is not None


def free_bytes(device: torch.device) -> int:
    """Free memory of a device in bytes."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def find(wanted: str, demand: Demand, unable: str = "") -> torch.device | None:
    """The device to train on; None is the CPU without PyTorch.

    `unable` is the reason why this problem can be solved on the CPU only, or "".
    """
    if wanted == "cpu":
        return None
    reason = unable or _missing() or (demand.too_small if wanted == "auto" else "") or _too_large(demand)
    if not reason:
        import torch

        return torch.device("cuda")
    if wanted == "cuda":
        raise ValueError(f"device='cuda' cannot be used: {reason}. Use device='cpu'.")
    log.info("device='auto' works on the CPU: %s.", reason)
    return None


def _missing() -> str:
    if not installed():
        return "PyTorch is not installed; pip install torch"
    import torch

    return "" if torch.cuda.is_available() else "PyTorch finds no NVIDIA GPU with a working driver"


def _too_large(demand: Demand) -> str:
    import torch

    device = torch.device("cuda")
    free = free_bytes(device) / 2**30
    log.info(
        "%s: %.1f GiB free, %.1f GiB needed to keep everything, %.1f GiB at least.",
        torch.cuda.get_device_name(device), free, demand.wish / 2**30, demand.least / 2**30,
    )  # fmt: skip
    needed = demand.least / 2**30
    if needed <= SHARE * free:
        return ""
    return f"{demand.size} need {needed:,.1f} GiB on the GPU, of which {free:,.1f} GiB are free"


def check_width(X: Any, n_features: int) -> None:
    """Refuse rows of another length than those of training."""
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(
            f"X has shape {tuple(X.shape)}, but the model expects rows of {n_features} features."
        )


def like(answer: Any, X: Any) -> Any:
    """An array of numbers in the library of X and on its device; any other answer as it is."""
    if not isinstance(answer, np.ndarray) or answer.dtype.kind not in "biuf":
        return answer
    if hasattr(X, "detach"):
        import torch

        return torch.from_numpy(np.ascontiguousarray(answer)).to(X.device)
    import cupy

    return cupy.asarray(answer)


def linear_in_kind(X: Any, coef: np.ndarray, intercept: np.ndarray) -> Any:
    """X @ coef.T + intercept, on the device of X and in its library."""
    W, b = like(coef, X), like(intercept, X)
    return X.astype(W.dtype) @ W.T + b if hasattr(X, "astype") else X.to(W.dtype) @ W.T + b


def kernel_in_kind(X: Any, kernel: Kernel, basis: Any, coefficients: np.ndarray) -> Any:
    """k(X, basis) @ coefficients, on the device of X and in its library."""
    import torch

    from maxmargin.device.numerics import kernel_product

    rows = X if hasattr(X, "detach") else torch.from_dlpack(X)
    scores = kernel_product(rows, kernel, basis, coefficients)
    if hasattr(X, "detach"):
        return scores
    import cupy

    return cupy.from_dlpack(scores)


def kernel_scores(device: str, kernel: Kernel, X: Any, basis: Any, coefficients: np.ndarray) -> np.ndarray:
    """k(X, basis) @ coefficients, in the wider of the dtypes of X and coefficients.

    On a GPU, kernel values are computed in the precision of X.
    """
    if device == "cpu" or kernel.name == "callable" or X.shape[0] * len(coefficients) < MANY_VALUES:
        return kernel.scores(X, basis, coefficients)
    if _missing():
        log.info("no GPU is available: predicting on the CPU.")
        return kernel.scores(X, basis, coefficients)
    import torch

    from maxmargin.device.numerics import BATCH_VALUES, kernel_product, to_device

    dtype = torch.float32 if X.dtype == np.float32 else torch.float64
    size = max(1, BATCH_VALUES // max(X.shape[1], 1))
    parts = []
    for start in range(0, X.shape[0], size):
        rows = to_device(X[start : start + size], torch.device("cuda"), dtype)
        parts.append(kernel_product(rows, kernel, basis, coefficients).cpu().numpy())
    return np.concatenate(parts).astype(np.result_type(X.dtype, coefficients.dtype), copy=False)

"""Which device a fit works on, and whether the problem has room there.

`device="cuda"` means: on the GPU, or an error that says what is missing. `device="auto"` means: on
the GPU where there is one and the problem is large enough for it to pay, else on the CPU, with a
sentence in the log. The log is ``logging.getLogger("maxmargin.device")``.
"""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

DEVICES = ("cpu", "cuda", "auto")
# Kernels that have no formula on a device.
FOREIGN = ("callable",)
# Samples from which "auto" takes a GPU: below, its start costs more than the fit on a CPU.
MANY_SAMPLES = 3000
# The same for linear models of sparse rows: stored numbers times labels.
MANY_STORED = 10**8
# Numbers per sample that scoring candidates of a basis takes.
CANDIDATES = 400
# Part of the free memory that a fit may take.
SHARE = 0.9

log = logging.getLogger("maxmargin.device")


class Demand(Protocol):
    """What a problem asks of a device: bytes at least, bytes with all that is worth keeping, and a reason not
    to begin where a CPU is as good."""

    @property
    def least(self) -> int: ...

    @property
    def wish(self) -> int: ...

    @property
    def too_small(self) -> str: ...

    @property
    def size(self) -> str: ...


@dataclass(frozen=True)
class RowsDemand:
    """What sparse rows ask for.

    Parameters
    ----------
    nnz, n_samples, n_features, n_columns : int
        Stored numbers and shape of X, and how many scores a sample has.
    """

    nnz: int
    n_samples: int
    n_features: int
    n_columns: int

    @property
    def least(self) -> int:
        """Rows in two precisions with their transpose; a dozen numbers per entry; weights."""
        entries = self.n_samples * self.n_columns * (6 * 4 + 6 * 8)
        return self.nnz * 48 + entries + self.n_features * self.n_columns * 28

    @property
    def wish(self) -> int:
        return self.least

    @property
    def too_small(self) -> str:
        if self.nnz * self.n_columns >= MANY_STORED:
            return ""
        work = f"{self.nnz * self.n_columns:,} stored numbers times labels"
        return f"{work} are fewer than {MANY_STORED:,}, from which a GPU pays"

    @property
    def size(self) -> str:
        return f"{self.n_samples:,} samples and {self.n_columns:,} labels"


@dataclass(frozen=True)
class BasisDemand:
    """What a machine with a shared basis asks for, in float64.

    Parameters
    ----------
    n_samples, n_features, n_columns, max_basis : int
    """

    n_samples: int
    n_features: int
    n_columns: int
    max_basis: int

    @property
    def least(self) -> int:
        """Rows, basis functions, a dozen numbers per score, and candidates."""
        numbers = 2 * self.n_features + 2 * self.max_basis + 12 * self.n_columns + CANDIDATES
        return 8 * self.n_samples * numbers

    @property
    def wish(self) -> int:
        return self.least

    @property
    def too_small(self) -> str:
        return _few(self.n_samples)

    @property
    def size(self) -> str:
        return f"{self.n_samples:,} samples and {self.max_basis:,} basis vectors"


@dataclass(frozen=True)
class KernelDemand:
    """What a kernel matrix asks for.

    Parameters
    ----------
    n_samples, n_features, n_columns : int
        Shape of X, and how many scores a sample has.
    itemsize : int
        Bytes of a number of the working precision.
    block : int
        Samples moved at a time: so many rows of the kernel matrix are needed at once.
    """

    n_samples: int
    n_features: int
    n_columns: int
    itemsize: int = 4
    block: int = 128

    @property
    def state(self) -> int:
        """Bytes besides kernel values: X, coefficients, residuals, bounds, and their float64 copies."""
        rows = self.n_samples * self.n_features * (self.itemsize + 8)
        return rows + self.n_samples * self.n_columns * (6 * self.itemsize + 6 * 8)

    @property
    def wish(self) -> int:
        """Bytes with the kernel matrix kept."""
        return self.state + self.n_samples**2 * self.itemsize

    @property
    def least(self) -> int:
        """Bytes with only some rows of the kernel matrix at a time."""
        return self.state + 2 * self.block * self.n_samples * self.itemsize

    @property
    def too_small(self) -> str:
        return _few(self.n_samples)

    @property
    def size(self) -> str:
        return f"{self.n_samples:,} samples and {self.n_columns:,} columns of scores"


def _few(n_samples: int) -> str:
    if n_samples >= MANY_SAMPLES:
        return ""
    return f"{n_samples:,} samples are fewer than {MANY_SAMPLES:,}, from which a GPU pays"


def installed() -> bool:
    """Whether PyTorch can be imported, without importing it."""
    return importlib.util.find_spec("torch") is not None


def free_bytes(device: torch.device) -> int:
    """Memory of a device that is free."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    import os

    return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def find(wanted: str, demand: Demand, unable: str = "") -> torch.device | None:
    """The device to work on; None is the CPU without PyTorch.

    `unable` says why this problem can only be worked on by the CPU, if so.
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

    return "" if torch.cuda.is_available() else "PyTorch sees no NVIDIA GPU with a working driver"


def _too_large(demand: Demand) -> str:
    import torch

    device = torch.device("cuda")
    free = free_bytes(device)
    log.info(
        "%s: %.1f GiB free, %.1f GiB needed to keep everything, %.1f GiB at least.",
        torch.cuda.get_device_name(device), free / 2**30, demand.wish / 2**30, demand.least / 2**30,
    )  # fmt: skip
    if demand.least <= SHARE * free:
        return ""
    needed, left = demand.least / 2**30, free / 2**30
    return f"{demand.size} need {needed:,.1f} GiB on the GPU, of which {left:,.1f} GiB are free"


def keeps_whole(device: torch.device, demand: Demand) -> bool:
    """Whether the kernel matrix has room beside everything else."""
    return demand.wish <= SHARE * free_bytes(device)


def dtype_of(itemsize: int) -> Any:
    """The PyTorch type of floats of so many bytes."""
    import torch

    return torch.float32 if itemsize == 4 else torch.float64

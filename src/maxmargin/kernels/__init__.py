"""Kernel functions, the kernel matrix of a training set, and its cache of rows."""

from maxmargin.kernels._functions import NAMES, Kernel, squared_norms
from maxmargin.kernels._matrix import KernelMatrix, RowCache, check_precomputed, smallest_eigenvalue

__all__ = [
    "NAMES",
    "Kernel",
    "KernelMatrix",
    "RowCache",
    "check_precomputed",
    "smallest_eigenvalue",
    "squared_norms",
]

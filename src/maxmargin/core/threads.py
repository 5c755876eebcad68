"""Threads over compiled loops that release the GIL."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

# Products of so many multiply-adds take a tenth of a second: a second thread saves little of it, and where
# others want the cores its waiting costs ten times the product (`one_thread_where_small`).
SMALL_PRODUCTS = 2e9

T = TypeVar("T")
R = TypeVar("R")


def count_threads(n_jobs: int | None) -> int:
    """Number of threads that `n_jobs` asks for (None: 1, -1: all cores, -2: all but one)."""
    if n_jobs is None:
        return 1
    if n_jobs == 0:
        raise ValueError("n_jobs == 0 has no meaning; use 1 for one thread or -1 for all cores.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


def run_threads(task: Callable[[T], R], parts: Iterable[T], n_threads: int) -> list[R]:
    """Run `task` on every part: the calling thread takes one after the other, and so do its helpers.

    Helpers that have not begun when nothing is left are not waited for. After an error or Ctrl-C no part is
    begun, and those that were are waited for, so that no thread writes into arrays that the caller goes on
    to read.
    """
    parts = list(parts)
    n_helpers = min(n_threads, len(parts)) - 1
    if n_helpers <= 0:
        return [task(part) for part in parts]
    left = deque(enumerate(parts))
    answers: list[Any] = [None] * len(parts)

    def take() -> tuple[int, T] | None:
        try:
            return left.popleft()
        except IndexError:
            return None

    def work() -> None:
        try:
            for place, part in iter(take, None):
                answers[place] = task(part)
        except BaseException:
            left.clear()
            raise

    helpers: list[Future[None]] = []
    try:
        for _ in range(n_helpers):
            helpers.append(_pool().submit(work))
        work()
        _finish(helpers)
    except BaseException:
        left.clear()
        _finish(helpers)
        raise
    for helper in helpers:
        if not helper.cancelled():
            helper.result()
    return answers


def _finish(helpers: Iterable[Future[None]]) -> None:
    """Wait for the helpers that have begun; the others never will."""
    wait([helper for helper in helpers if not helper.cancel()])


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that sleep between calls, as many as were ever at work at once: to start one takes longer."""
    return ThreadPoolExecutor(max_workers=sys.maxsize, thread_name_prefix="maxmargin")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads are not there in a forked process


def shares(size: int, n_parts: int) -> list[tuple[int, int]]:
    """Cut 0..size into ranges of about the same length, at most `n_parts`, none empty."""
    return list(pairwise(np.unique(np.linspace(0, size, n_parts + 1).astype(int)).tolist()))


def one_blas_thread() -> AbstractContextManager[Any]:
    """Products and factors of small matrices by one thread; more would only wait for each other."""
    return _libraries().limit(limits=1, user_api="blas")


def one_thread_where_small(multiply_adds: float) -> AbstractContextManager[Any]:
    """One BLAS thread for products that are small altogether, as many as there are for others."""
    return one_blas_thread() if multiply_adds <= SMALL_PRODUCTS else nullcontext()


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def transpose(matrix: np.ndarray, answer: np.ndarray, n_threads: int) -> None:
    """Write matrix.T into `answer`, by `n_threads` threads that share its longer side."""
    source, target = (matrix, answer.T) if len(matrix) > len(answer) else (matrix.T, answer)

    def copy(part: tuple[int, int]) -> None:
        rows = slice(*part)
        target[rows] = source[rows]

    run_threads(copy, shares(len(source), n_threads), n_threads)


def aligned_zeros(
    n_rows: int, n_columns: int, dtype: Any, multiple: int = 16, n_threads: int = 1
) -> np.ndarray:
    """Zeros that start on a cache line, with columns added up to a multiple of `multiple`.

    With 16 every row starts on a cache line. Several threads share the work of writing them.
    """
    width = -(-n_columns // multiple) * multiple
    if n_threads == 1:
        return _aligned(np.zeros, n_rows, width, dtype)
    zeros = _aligned(np.empty, n_rows, width, dtype)
    run_threads(lambda part: zeros[slice(*part)].fill(0), shares(n_rows, n_threads), n_threads)
    return zeros


def aligned_empty(size: int, dtype: Any) -> np.ndarray:
    """Room for so many numbers that starts on a cache line."""
    return _aligned(np.empty, 1, size, dtype)[0]


def _aligned(make: Callable[..., np.ndarray], n_rows: int, width: int, dtype: Any) -> np.ndarray:
    size = n_rows * width * np.dtype(dtype).itemsize
    raw = make(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(n_rows, width)

"""Threads over compiled loops that release the GIL, and the memory that they share."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from threading import Condition, RLock, Thread, current_thread, get_ident, local
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from threadpoolctl import ThreadpoolController

# Multiply-adds of a tenth of a second; larger products use as many threads as BLAS would. Idle BLAS threads
# spin and slow down others, so smaller ones use one.
LARGE = 2e9

# Files with the memory limit of a Linux container.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

# Bytes of a cache line.
CACHE_LINE = 64

# Seconds after which an idle thread ends: few, because the end of the process waits for it, but many times
# what starting a thread takes.
IDLE = 0.05

T = TypeVar("T")
R = TypeVar("R")
# A callable that returns the tasks to run after it.
Task = Callable[[], Iterable[Any]]


def count_threads(n_jobs: int | None) -> int:
    """Number of threads for `n_jobs` (None: 1, -1: all cores, -2: all but one)."""
    if n_jobs is None:
        return 1
    if n_jobs == 0:
        raise ValueError("n_jobs == 0 has no meaning; use 1 for one thread or -1 for all cores.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


def run_threads(task: Callable[[T], R], parts: Iterable[T], n_threads: int) -> list[R]:
    """Run `task` on every part, see `run_tasks`; results keep the order of the parts."""
    parts = list(parts)
    answers: list[Any] = [None] * len(parts)

    def note(place: int) -> tuple[()]:
        answers[place] = task(parts[place])
        return ()

    run_tasks([partial(note, place) for place in range(len(parts))], min(n_threads, len(parts)))
    return answers


def run_tasks(tasks: Iterable[Task], n_threads: int) -> None:
    """Run tasks, and the tasks that they return, on the calling thread and its helper threads.

    Returned tasks are appended to the queue. Helpers that have not started when the queue is empty are not
    awaited. After an error or Ctrl-C no further task starts, and running ones are awaited, so that no thread
    writes to arrays that the caller reads afterwards.
    """
    queue = _Queue(tasks)
    try:
        if n_threads > 1:
            _helpers.invite(queue, n_threads - 1)
        queue.work()
    except BaseException:
        queue.close()
        raise
    finally:
        if n_threads > 1:
            _helpers.dismiss(queue)
    if queue.errors:
        raise queue.errors.pop()


class _Queue:
    """Waiting tasks, the number of running ones, and whether more may start."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.left, self.busy, self.closed = deque(tasks), 0, False
        # Ctrl-C may leave a `with` block of a Condition locked forever, but not one of its lock.
        self.lock = RLock()
        self.changed = Condition(self.lock)
        # Helpers at work, and the exceptions that they raised.
        self.helping, self.errors = 0, list[BaseException]()
        # Helpers run in the context of the caller, for example with interpreted loops.
        self.context = copy_context()

    def work(self) -> None:
        """Run tasks until none is waiting and no running one can return any."""
        try:
            while (task := self._take()) is not None:
                self._done(task())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.changed.notify_all()

    def help(self) -> None:
        """Work as one of the caller's helpers."""
        try:
            self.work()
        except BaseException as error:
            self.errors.append(error)
        with self.lock:
            self.helping -= 1
            self.changed.notify_all()

    def wait(self) -> None:
        """Wait until no helper is working."""
        with self.lock:
            self.changed.wait_for(lambda: not self.helping)

    def _take(self) -> Task | None:
        with self.lock:
            while not self.left and self.busy and not self.closed:
                self.changed.wait()
            if self.closed or not self.left:
                return None
            self.busy += 1
            return self.left.popleft()

    def _done(self, more: Iterable[Task]) -> None:
        with self.lock:
            self.left.extend(more)
            self.busy -= 1
            if self.left or not self.busy:
                self.changed.notify_all()


class _Helpers:
    """Threads that help the callers of `run_tasks`: together at most one fewer than there are cores.

    A call that requests more threads than cores gets them, and they end with it. An idle thread serves the
    next call, because starting a thread takes longer, and ends after `IDLE` seconds.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self.changed = Condition(self.lock)
        self.threads, self.busy = set[Thread](), 0
        # A queue per wanted helper that has not started, and the number that each running call asked for.
        self.wanted, self.asked = deque[_Queue](), WeakKeyDictionary[_Queue, int]()
        self.usual = count_threads(-1) - 1

    def invite(self, queue: _Queue, n_helpers: int) -> None:
        """Let up to `n_helpers` threads work on the queue as they become free."""
        with self.lock:
            self.asked[queue] = n_helpers
            self.wanted.extend([queue] * n_helpers)
            self.changed.notify(n_helpers)
            free = len(self.threads) - self.busy
            for _ in range(min(len(self.wanted) - free, -self._surplus())):
                self._start()

    def dismiss(self, queue: _Queue) -> None:
        """Let no further thread start on the queue, and wait for those that have started."""
        with self.lock:
            self.wanted = deque(each for each in self.wanted if each is not queue)
            self.asked.pop(queue, None)
            if self._surplus() > 0:
                self.changed.notify_all()
        queue.wait()

    def _start(self) -> None:
        thread = Thread(target=self._serve, name="maxmargin")
        try:
            self.threads.add(thread)
            thread.start()
        except BaseException:
            self.threads.discard(thread)
            raise

    def _serve(self) -> None:
        with self.lock:
            self.threads.add(current_thread())  # also after a Ctrl-C in `_start`
        _blas.limit_this_thread()
        while (queue := self._next()) is not None:
            queue.context.copy().run(queue.help)
            del queue
            with self.lock:
                self.busy -= 1

    def _next(self) -> _Queue | None:
        """The next queue to work on; None if the thread has to end."""
        with self.lock:
            self.changed.wait_for(lambda: self.wanted or self._surplus() > 0, IDLE)
            if not self.wanted or self._surplus() > 0:
                self.threads.discard(current_thread())
                return None
            queue = self.wanted.popleft()
            self.busy += 1
            with queue.lock:
                queue.helping += 1
            return queue

    def _surplus(self) -> int:
        """Number of threads above the limit, negative below it."""
        return len(self.threads) - max(self.usual, *self.asked.values(), 0)


_helpers = _Helpers()


def _forked() -> None:
    global _helpers
    _helpers = _Helpers()  # a forked process has none of the threads


def ranges(size: int, n_parts: int) -> list[tuple[int, int]]:
    """Cut 0..size into ranges of about the same length, at most `n_parts`, none empty."""
    return list(pairwise(np.unique(np.linspace(0, size, n_parts + 1).astype(int)).tolist()))


class _Limit:
    """Holds BLAS libraries at one thread: the first entry sets it, the last exit restores the number."""

    def __init__(self, libraries: list[Any]) -> None:
        self.libraries = libraries
        # A key per entry with its thread, and the numbers of threads before the first one.
        self.inside, self.before = dict[object, int](), list[int]()

    def enter(self, key: object) -> None:
        if not self.inside:
            self.before = [library.num_threads for library in self.libraries]
        self.inside[key] = get_ident()
        if len(self.inside) == 1:
            _set_threads(self.libraries, [1] * len(self.libraries))

    def leave(self, key: object) -> None:
        if self.inside.pop(key, None) is not None and not self.inside:
            _set_threads(self.libraries, self.before)


class _Blas:
    """The number of BLAS threads, which some libraries keep per process and others per thread."""

    def __init__(self) -> None:
        self.lock, self.shared, self.own = RLock(), _Limit([]), local()
        self.libraries: tuple[list[Any], list[Any]] | None = None

    def enter(self, key: object) -> None:
        with self.lock:
            for limit in self._limits():
                limit.enter(key)

    def leave(self, key: object) -> None:
        with self.lock:
            for limit in self._limits():
                limit.leave(key)

    def allowed(self) -> int:
        """Largest number of threads that BLAS has where nothing limits it."""
        with self.lock:
            limits = self._limits()
            numbers = (
                each.before if each.inside else [library.num_threads for library in each.libraries]
                for each in limits
            )
            return max(chain.from_iterable(numbers), default=1)

    def limit_this_thread(self) -> None:
        """Use one BLAS thread on the calling thread, for libraries with a number per thread."""
        with self.lock:
            self._limits()[1].enter(self)

    def forked(self) -> None:
        """Remove the entries of threads that a forked process does not have."""
        self.lock.release()
        for key, thread in list(self.shared.inside.items()):
            if thread != get_ident():
                self.shared.leave(key)

    def _limits(self) -> tuple[_Limit, _Limit]:
        if self.libraries is None:
            self.libraries = _find_libraries()
            self.shared = _Limit(self.libraries[0])
        if not hasattr(self.own, "limit"):
            self.own.limit = _Limit(self.libraries[1])
        return self.shared, self.own.limit


_blas = _Blas()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS at one thread, so that results do not depend on its number of threads."""
    key = object()
    try:
        _blas.enter(key)
        yield
    finally:
        _blas.leave(key)


def product_threads(multiply_adds: float, n_threads: int = 1) -> int:
    """Number of threads for products of a given size: for large ones at least the number of BLAS threads.

    Use it for `run_threads` over parts whose sizes do not depend on it, with `one_blas_thread`.
    """
    return max(n_threads, _blas.allowed()) if multiply_adds > LARGE else n_threads


def _find_libraries() -> tuple[list[Any], list[Any]]:
    """BLAS libraries with one number of threads for the process, and those with one for each thread."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    before, seen = [library.num_threads for library in libraries], list[int]()
    _set_threads(libraries, [1] * len(libraries))
    other = Thread(target=lambda: seen.extend(library.num_threads for library in libraries))
    other.start()
    other.join()
    _set_threads(libraries, before)
    found = list(zip(libraries, seen, strict=True))
    return [each for each, n in found if n == 1], [each for each, n in found if n != 1]


def _set_threads(libraries: list[Any], numbers: list[int]) -> None:
    # threadpoolctl 3.8 lets only the first thread set the number of a process, until this is cleared.
    clears = [
        each.clear_controlling_thread for each in libraries if hasattr(each, "clear_controlling_thread")
    ]
    for clear in clears[:1]:
        clear(force=True)
    for library, number in zip(libraries, numbers, strict=True):
        library.set_num_threads(number)
    for clear in clears[:1]:
        clear(force=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
    os.register_at_fork(
        before=_blas.lock.acquire, after_in_parent=_blas.lock.release, after_in_child=_blas.forked
    )


def transpose(matrix: np.ndarray, answer: np.ndarray, n_threads: int) -> None:
    """Write matrix.T into `answer` on `n_threads` threads, which divide its longer side."""
    source, target = (matrix, answer.T) if len(matrix) > len(answer) else (matrix.T, answer)

    def copy(part: tuple[int, int]) -> None:
        rows = slice(*part)
        target[rows] = source[rows]

    run_threads(copy, ranges(len(source), n_threads), n_threads)


def aligned_zeros(
    n_rows: int,
    n_columns: int,
    dtype: Any,
    multiple: int = 16,
    n_threads: int = 1,
    buffer: np.ndarray | None = None,
) -> np.ndarray:
    """Zeros that start on a cache line, with columns added up to a multiple of `multiple`.

    With a multiple of 16 every row starts on a cache line. Several threads write them together. They use the
    memory of `buffer`, a flat array from `aligned_empty`, if that is given and large enough.
    """
    width = -(-n_columns // multiple) * multiple
    size = n_rows * width * np.dtype(dtype).itemsize
    if buffer is not None and buffer.nbytes >= size:
        zeros = buffer.view(np.uint8)[:size].view(dtype).reshape(n_rows, width)
    elif n_threads == 1:
        return _aligned(np.zeros, (n_rows, width), dtype)
    else:
        zeros = aligned_empty((n_rows, width), dtype)
    run_threads(lambda part: zeros[slice(*part)].fill(0), ranges(n_rows, n_threads), n_threads)
    return zeros


def aligned_empty(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised array that starts on a cache line, see `_aligned`."""
    return _aligned(np.empty, shape, dtype)


def _aligned(make: Callable[..., np.ndarray], shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array that starts on a cache line."""
    item = np.dtype(dtype).itemsize
    size = math.prod(np.atleast_1d(shape).tolist())
    # Of the same dtype: SciPy copies what looks like a small part of another array.
    raw = make(size + CACHE_LINE // item, dtype)
    start = -raw.ctypes.data % CACHE_LINE // item
    return raw[start : start + size].reshape(shape)


def memory() -> float:
    """Bytes of memory of this machine or container; infinite if unknown."""
    found = [float("inf")]
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        found.append(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    for limit in LIMITS:
        try:
            found.append(float(limit.read_text()))
        except (OSError, ValueError):  # no such file, or the word "max"
            continue
    return min(found)

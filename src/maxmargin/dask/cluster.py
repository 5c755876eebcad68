"""Executors of tasks: any Dask client, a local cluster for the time of a fit, or this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from maxmargin.core.threads import count_threads, one_blas_thread
from maxmargin.dask.rounds import Here

try:
    import dask
    import distributed
    from dask.callbacks import Callback
    from dask.delayed import Delayed
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm import CommClosedError
except ImportError as missing:
    raise ImportError('maxmargin.dask needs Dask; pip install "dask[array]" distributed') from missing

# What a client raises when workers were lost with results that only they held.
LOST = (distributed.KilledWorker, FutureCancelledError, FuturesCancelledError)
# Settings of the workers of `local_cluster`: no sampling of their stacks, and an allocator that keeps freed
# memory for the next array. By default Dask's workers return every block of more than 128 KiB to the system,
# so that each array of a fit faults its pages in again. Variables set in the environment take precedence.
WORKERS = {
    "distributed.worker.profile.enabled": False,
    "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 32 << 20,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 256 << 20,
}
# Attempts at a piece of work whose workers are lost, and seconds to wait for new workers.
ATTEMPTS, PATIENCE = 5, 60
# Most partitions that an error lists.
NAMED = 5
# Rows, labels and weights of a partition, possibly delayed.
Piece = tuple[Any, Any, Any]


class Cluster(Here):
    """Run tasks on the workers of a client.

    `in_turn` is true if the parts are visited one after the other in any case.
    """

    in_turn = False

    def __init__(self, client: Any) -> None:
        self.client = client
        self.blocks: list[Any] = []

    @cached_property
    def _workers(self) -> list[dict[str, Any]]:
        """The scheduler's description of the workers, fetched once, as a request takes some milliseconds."""
        return list(self.client.scheduler_info(n_workers=-1)["workers"].values())

    def __len__(self) -> int:
        """Number of workers at the start of the fit, at least one."""
        return max(len(self._workers), 1)

    def share(self, value: Any) -> Any:
        (shared,) = self.client.scatter([value], hash=False)
        return shared

    def compute(self, pieces: list[Piece]) -> list[Piece]:
        """Start to compute all delayed values; other values are passed to tasks as they are."""
        values = [one for piece in pieces for one in piece]
        futures = iter(self.client.compute([one for one in values if isinstance(one, Delayed)]))
        return _by_three([next(futures) if isinstance(one, Delayed) else one for one in values])

    def read(self, task: Callable[..., Any], pieces: list[Piece]) -> list[Any]:
        """Start to read partitions with ``task(number, X, y, weight)``."""
        self.blocks = [self.submit(task, number, *piece) for number, piece in enumerate(self.compute(pieces))]
        return self.blocks

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Add the numbers of the partitions that cannot be read to errors."""
        try:
            yield
        except Exception as error:
            name_partitions(error, [getattr(block, "status", None) == "error" for block in self.blocks])
            raise

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Any:
        return self.client.submit(_run, task, *arguments, pure=False)

    def gather(self, answers: list[Any]) -> list[Any]:
        return self.client.gather(answers)

    def map(self, task: Callable[..., Any], blocks: list[Any], *arguments: Any) -> list[Any]:
        """The results of a task for all blocks."""
        return self.retry(lambda: self.gather([self.submit(task, block, *arguments) for block in blocks]))

    def retry(self, work: Callable[[], Any]) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return work()
            except LOST as error:
                self._wait(error, attempt)

    def _wait(self, error: BaseException, attempt: int) -> None:
        """Wait for workers after some were lost; raise an error after ATTEMPTS losses."""
        if self.client.status != "running":
            raise error
        if attempt == ATTEMPTS:
            raise RuntimeError(
                f"Workers were lost {ATTEMPTS} times over the same work, as they are when they run out of "
                "memory; use smaller partitions, less working_rows or workers with more memory."
            ) from error
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise ConnectionError(
                f"All workers are lost and none came back in {PATIENCE} seconds; start some and fit again."
            ) from error

    def memory(self) -> float:
        """Memory of the smallest worker in bytes; infinite if no worker has a limit."""
        limits = [one["memory_limit"] for one in self._workers if one["memory_limit"]]
        return float(min(limits, default=float("inf")))


class Alone(Cluster):
    """Run tasks at once in this process, for rows that are in files and do not fit the memory."""

    in_turn = True
    share, submit, gather, retry = Here.share, Here.submit, Here.gather, Here.retry

    def __init__(self) -> None:
        super().__init__(None)

    def __len__(self) -> int:
        return 1

    def compute(self, pieces: list[Piece]) -> list[Piece]:
        values, last = [one for piece in pieces for one in piece], LastTask()
        try:
            with last:
                return _by_three(dask.compute(*values, scheduler="synchronous", traverse=False))
        except Exception as error:
            failed = last.dependents_of_last()
            keys = [{one.key for one in piece if isinstance(one, Delayed)} for piece in pieces]
            name_partitions(error, [bool(some & failed) for some in keys])
            raise

    def memory(self) -> float:
        """0, as rows stay in their files."""
        return 0.0


class LastTask(Callback):
    """Record the last task that ran, which is the one that failed, and the tasks that depend on others."""

    key: Any = None
    dependents: dict[Any, Any] = {}

    def _pretask(self, key: Any, graph: Any, state: Any) -> None:
        self.key, self.dependents = key, state["dependents"]

    def dependents_of_last(self) -> set[Any]:
        """Keys of the last task and of every task that needs its result."""
        found, waiting = set(), [self.key]
        while waiting:
            key = waiting.pop()
            if key not in found:
                found.add(key)
                waiting += self.dependents.get(key, ())
        return found


def _run(task: Callable[..., Any], *arguments: Any) -> Any:
    """A task on a worker, with one BLAS thread as in a fit in this process."""
    with one_blas_thread():
        return task(*arguments)


def name_partitions(error: Exception, failed: list[bool]) -> None:
    """Add a note with the numbers of the failed partitions, unless the message starts with one."""
    numbers = [number for number, one in enumerate(failed) if one]
    if not numbers or str(error).startswith("Partition "):
        return
    if len(numbers) == len(failed) > 1:
        # The failed task may be common to all: each partition of `read_svmlight` depends on every file.
        error.add_note(f"none of the {len(failed)} partitions can be read")
        return
    words = "partitions" if len(numbers) > 1 else "partition"
    named = ", ".join([str(number) for number in numbers[:NAMED]] + ["..."] * (len(numbers) > NAMED))
    error.add_note(f"in {words} {named} of {len(failed)} (counted from 0)")


def _by_three(values: Sequence[Any]) -> list[Piece]:
    return list(zip(values[::3], values[1::3], values[2::3], strict=True))


def local_cluster(n_workers: int | None = None, dashboard_address: str | None = None) -> Any:
    """A cluster on this machine, with one process of one thread per core or `n_workers` processes.

    It is a `distributed.LocalCluster` whose workers do not sample their own stacks for the profiles of Dask's
    dashboard, which takes 10 to 25 % of a short fit. A worker keeps up to 256 MiB of freed memory for its
    next arrays.

    Parameters
    ----------
    n_workers : int, default=None
        Number of processes; None is one per core.
    dashboard_address : str, default=None
        Address of the dashboard, for example ``"127.0.0.1:8787"``; None is no dashboard.

    Returns
    -------
    cluster : distributed.LocalCluster
        To be closed, or used in a ``with`` block; ``distributed.Client(cluster)`` is its client.
    """
    count = count_threads(-1) if n_workers is None else n_workers
    if count < 1:
        raise ValueError(
            f"n_workers must be at least 1, or None for one per core. Got {n_workers!r} instead."
        )
    with dask.config.set(WORKERS):
        return distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address=dashboard_address
        )


class Quiet(distributed.WorkerPlugin):
    """Keep failed tasks out of the workers' logs, for clients that report every error themselves."""

    def setup(self, worker: Any) -> None:
        logging.getLogger("distributed.worker").addFilter(_is_no_failure)


def _is_no_failure(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Compute Failed")


@contextmanager
def connected(client: Any) -> Iterator[Cluster]:
    """The cluster of `client`; with None the current client, or a local cluster until the end of the block.

    "here" is this process, which runs one task after the other.
    """
    if isinstance(client, str):
        if client != "here":
            raise ValueError(f'client must be a distributed.Client, None or "here". Got {client!r} instead.')
        yield Alone()
        return
    if client is None:
        client = _current()
    if client is not None:
        try:
            yield Cluster(client)
        except (OSError, *LOST) as error:
            if client.status == "running" and not isinstance(error, CommClosedError):
                raise
            raise ConnectionError(
                "The connection to the Dask scheduler is lost, and the fit with it; check the scheduler "
                "and fit again."
            ) from error
        return
    with local_cluster() as local, distributed.Client(local, direct_to_workers=True) as new:
        yield Cluster(new)


def _current() -> Any:
    try:
        return distributed.get_client()
    except ValueError:  # there is none
        return None

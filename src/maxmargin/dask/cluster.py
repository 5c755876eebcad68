"""Where tasks run: any Dask client, or a local cluster that lives as long as the fit."""

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

# What a client hears when workers were lost with what only they had.
LOST = (distributed.KilledWorker, FutureCancelledError, FuturesCancelledError)
# Workers of `local_cluster` do not sample their own stacks, and their allocator keeps the memory of an array
# for the next one, as that of any other process does. Dask's own give every block of more than 128 KiB back
# to the system at once, so that each array of a fit faults its pages in anew. What stands in the
# environment already goes before.
WORKERS = {
    "distributed.worker.profile.enabled": False,
    "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 32 << 20,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 256 << 20,
}
# How often a piece of work is begun again, and the seconds that new workers are waited for.
ATTEMPTS, PATIENCE = 5, 60
# Partitions that an error names at most.
NAMED = 5
# Rows, labels and weights of a partition, where they are not known yet.
Piece = tuple[Any, Any, Any]


class Cluster:
    """Tasks run by the workers of a client; see `rounds.Workers`.

    `in_turn` says that parts are visited one after the other in any case.
    """

    in_turn = False

    def __init__(self, client: Any) -> None:
        self.client = client
        self.blocks: list[Any] = []

    @cached_property
    def _workers(self) -> list[dict[str, Any]]:
        """What the scheduler knows of the workers, asked once, as every question takes some milliseconds."""
        return list(self.client.scheduler_info(n_workers=-1)["workers"].values())

    def __len__(self) -> int:
        """Number of workers when the fit began, at least one."""
        return max(len(self._workers), 1)

    def share(self, value: Any) -> Any:
        (shared,) = self.client.scatter([value], hash=False)
        return shared

    def compute(self, pieces: list[Piece]) -> list[Piece]:
        """Begin to compute what is delayed, all at once; anything else is an argument of tasks as it is."""
        values = [one for piece in pieces for one in piece]
        futures = iter(self.client.compute([one for one in values if isinstance(one, Delayed)]))
        return _by_three([next(futures) if isinstance(one, Delayed) else one for one in values])

    def read(self, task: Callable[..., Any], pieces: list[Piece]) -> list[Any]:
        """Begin to read partitions by a task, which is given the number of each, too."""
        self.blocks = [self.submit(task, number, *piece) for number, piece in enumerate(self.compute(pieces))]
        return self.blocks

    @contextmanager
    def naming(self) -> Iterator[None]:
        """An error because of partitions that cannot be read names them."""
        try:
            yield
        except Exception as error:
            name_partitions(error, [getattr(block, "status", None) == "error" for block in self.blocks])
            raise

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Any:
        return self.client.submit(_run, task, *arguments, pure=False)

    def gather(self, answers: list[Any]) -> list[Any]:
        return self.client.gather(answers)

    def ask(self, task: Callable[..., Any], blocks: list[Any], *arguments: Any) -> list[Any]:
        """The answers of a task for all blocks."""
        return self.steadily(lambda: self.gather([self.submit(task, block, *arguments) for block in blocks]))

    def steadily(self, work: Callable[[], Any]) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return work()
            except LOST as error:
                self._wait(error, attempt)

    def _wait(self, error: BaseException, attempt: int) -> None:
        """Wait for workers after some were lost; give up where that has happened too often."""
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

    def room(self) -> float:
        """Bytes that the smallest worker may hold; infinite where none has a limit."""
        limits = [one["memory_limit"] for one in self._workers if one["memory_limit"]]
        return float(min(limits, default=float("inf")))


class Alone(Here, Cluster):
    """Tasks run at once in this process, for rows that lie in files and not in memory."""

    in_turn = True

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
            needing = last.needed_for()
            keys = [{one.key for one in piece if isinstance(one, Delayed)} for piece in pieces]
            name_partitions(error, [bool(some & needing) for some in keys])
            raise

    def room(self) -> float:
        """None: rows stay where they are."""
        return 0.0


class LastTask(Callback):
    """Remembers the task that ran last, which is the one that failed, and who needs its answer."""

    key: Any = None
    dependents: dict[Any, Any] = {}

    def _pretask(self, key: Any, graph: Any, state: Any) -> None:
        self.key, self.dependents = key, state["dependents"]

    def needed_for(self) -> set[Any]:
        """Keys of everything that cannot be computed without it."""
        found, waiting = set(), [self.key]
        while waiting:
            key = waiting.pop()
            if key not in found:
                found.add(key)
                waiting += self.dependents.get(key, ())
        return found


def _run(task: Callable[..., Any], *arguments: Any) -> Any:
    """A task on a worker, as a fit in this process would run it."""
    with one_blas_thread():
        return task(*arguments)


def name_partitions(error: Exception, failed: list[bool]) -> None:
    """Note the partitions that cannot be read, unless the error is one that says so itself."""
    numbers = [number for number, one in enumerate(failed) if one]
    if not numbers or str(error).startswith("Partition "):
        return
    if len(numbers) == len(failed) > 1:
        # They may well have what failed in common, as those of `read_svmlight` have all files.
        error.add_note(f"none of the {len(failed)} partitions can be read")
        return
    words = "partitions" if len(numbers) > 1 else "partition"
    named = ", ".join([str(number) for number in numbers[:NAMED]] + ["..."] * (len(numbers) > NAMED))
    error.add_note(f"in {words} {named} of {len(failed)} (counted from 0)")


def _by_three(values: Sequence[Any]) -> list[Piece]:
    return list(zip(values[::3], values[1::3], values[2::3], strict=True))


def local_cluster(n_workers: int | None = None, dashboard_address: str | None = None) -> Any:
    """A cluster of this machine: one process with one thread for each core, or `n_workers` of them.

    It is a `distributed.LocalCluster` whose workers do not look at their own stacks a hundred times a second,
    as Dask's otherwise do for the profiles of its dashboard: that takes a tenth to a quarter of a short
    fit. Up to 256 MiB that a worker no longer uses stay with it, for its next arrays.

    Parameters
    ----------
    n_workers : int, default=None
        Number of processes; None is one for each core.
    dashboard_address : str, default=None
        Where the dashboard listens, as ``"127.0.0.1:8787"``; None is no dashboard.

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
    """Keeps tasks that failed out of the workers' logs, for clients that report every error themselves."""

    def setup(self, worker: Any) -> None:
        logging.getLogger("distributed.worker").addFilter(_no_failure)


def _no_failure(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Compute Failed")


@contextmanager
def connected(client: Any) -> Iterator[Cluster]:
    """The cluster of a client, of the current one, or one of this machine's cores until the end.

    "here" is this process, in which one task runs after the other.
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
                "The connection to the Dask scheduler is lost, and the fit with it; look at the scheduler "
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

"""Parts of a task in threads: answers, errors, how many threads there are, forked processes."""

import multiprocessing
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

from maxmargin.core import threads
from maxmargin.core.threads import (
    aligned_empty,
    aligned_zeros,
    count_threads,
    one_blas_thread,
    run_tasks,
    run_threads,
)

PATIENCE = 20  # seconds after which a thread that should be there is not


def meet(n_threads):
    """Whether so many threads work at once."""
    barrier = threading.Barrier(n_threads)
    run_threads(lambda _: barrier.wait(PATIENCE), range(n_threads), n_threads)
    return True


def comes_true(condition):
    """Whether the condition holds before long."""
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize("n_threads", [1, 2, 5, 9])
def test_answers_come_in_the_order_of_the_parts(n_threads):
    assert run_threads(lambda x: x * x, range(6), n_threads) == [0, 1, 4, 9, 16, 25]
    assert run_threads(lambda x: x * x, iter([3]), n_threads) == [9]
    assert run_threads(lambda x: x * x, [], n_threads) == []


def test_as_many_threads_as_asked_for_work_at_once_and_the_caller_is_one():
    assert meet(2) and meet(3)
    barrier = threading.Barrier(2)

    def who(_):
        barrier.wait(PATIENCE)
        return threading.current_thread()

    assert threading.current_thread() in run_threads(who, range(2), 2)


def test_no_more_helpers_than_cores_whoever_calls():
    """Nor do they stay: a service that fits for years would come to the limit of the system."""
    idle = threading.active_count()
    n_callers, seen = 8, []

    def call():
        for _ in range(200):
            run_threads(lambda _: sum(range(200)), range(2), 2)
            seen.append(threading.active_count())

    callers = [threading.Thread(target=call) for _ in range(n_callers)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    # A helper that ends is counted for a moment more.
    assert max(seen) <= idle + n_callers + count_threads(-1)
    assert threading.active_count() <= idle + count_threads(-1)


def test_more_helpers_than_cores_end_with_the_call_that_asked_for_them():
    n_threads, idle = count_threads(-1) + 3, threading.active_count()
    assert meet(n_threads)
    assert comes_true(lambda: threading.active_count() <= idle + count_threads(-1) - 1)
    assert comes_true(lambda: threading.active_count() <= idle)


def test_threads_within_threads_do_not_wait_for_each_other():
    inner = lambda x: sum(run_threads(lambda y: x * y, range(4), 2))  # noqa: E731
    assert run_threads(inner, range(8), 2) == [6 * x for x in range(8)]


@pytest.mark.parametrize("error", [IndexError, ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("fails", ["caller", "helper"])
def test_after_an_error_what_was_begun_is_ended_and_nothing_else_begins(error, fails):
    barrier, caller = threading.Barrier(2), threading.current_thread()
    begun, ended = [], []

    def task(part):
        begun.append(part)
        if part < 2:
            barrier.wait(PATIENCE)
        if (threading.current_thread() is caller) == (fails == "caller"):
            raise error("here")
        time.sleep(0.2)
        ended.append(part)

    with pytest.raises(error, match="here"):
        run_threads(task, range(50), 2)
    assert set(begun) == {0, 1} and len(ended) == 1


def test_ctrl_c_as_a_lock_is_taken_does_not_leave_it_locked():
    """A `with` block of a Condition would: Python enters it in a call that Ctrl-C may end after the lock."""
    own = Path(threads.__file__).name

    def trace(frame, event, _):
        if frame.f_code is threading.Condition.__enter__.__code__ and frame.f_back is not None:
            assert Path(frame.f_back.f_code.co_filename).name != own

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run_threads(lambda x: x, range(6), 2)
    finally:
        sys.settrace(before)


def test_a_forked_process_has_threads_of_its_own():
    meet(2)
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("processes are not forked here")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(meet, (2,)).get(2 * PATIENCE)


def blas_threads():
    """The largest number of threads that a known BLAS library has; some never have more than one."""
    counts = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    return max(counts, default=1)


def in_thread(work):
    """Start a thread that enters the limit and leaves it when it may; answers when it has entered."""
    entered, may_leave = threading.Event(), threading.Event()

    def run():
        with one_blas_thread():
            work()
            entered.set()
            may_leave.wait(PATIENCE)

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(PATIENCE)

    def end():
        may_leave.set()
        thread.join()

    return end


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, "blas"):
        if blas_threads() < 2:
            pytest.skip("the BLAS library here cannot be set to two threads")
        yield


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_has_one_thread_until_the_last_one_leaves():
    """Also where those who enter first leave first, and where one of them fails."""
    ends = [in_thread(lambda: None) for _ in range(3)]
    with pytest.raises(ZeroDivisionError), one_blas_thread(), one_blas_thread():
        ends.pop(0)()
        assert blas_threads() == 1
        raise ZeroDivisionError
    for end in ends:
        assert blas_threads() == 1
        end()
    assert blas_threads() == 2
    with one_blas_thread():
        assert blas_threads() == 1
    assert blas_threads() == 2


class ThreadLocalLibrary(threading.local):
    """A library with a number of threads for every thread, as MKL."""

    num_threads = 4

    def set_num_threads(self, number):
        self.num_threads = number


def test_libraries_with_a_number_for_each_thread(monkeypatch):
    library = ThreadLocalLibrary()

    class Controller:
        lib_controllers = [library]

        def select(self, **chosen):
            return self

    monkeypatch.setattr(threads, "ThreadpoolController", Controller)
    monkeypatch.setattr(threads, "_blas", threads._Blas())
    monkeypatch.setattr(threads, "_helpers", threads._Helpers())
    seen = []
    end = in_thread(lambda: seen.append(library.num_threads))
    assert library.num_threads == 4
    with one_blas_thread():
        end()
        assert library.num_threads == 1
        meet(3)
        assert set(run_threads(lambda _: time.sleep(0.05) or library.num_threads, range(8), 3)) == {1}
    assert library.num_threads == 4 and seen == [1]


@pytest.mark.usefixtures("two_blas_threads")
def test_a_forked_process_does_not_wait_for_threads_that_it_lacks():
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("processes are not forked here")
    end = in_thread(lambda: None)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(blas_threads).get(PATIENCE) == 2
        with one_blas_thread(), multiprocessing.get_context("fork").Pool(1) as other:
            assert other.apply_async(blas_threads).get(PATIENCE) == 1
    assert blas_threads() == 1
    end()
    assert blas_threads() == 2


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_tasks_return_further_ones(n_threads):
    done = []

    def task(name, depth):
        done.append((name, depth))
        return [partial(task, name, depth - 1) for _ in range(2)] if depth else ()

    run_tasks([partial(task, name, 3) for name in "ab"], n_threads)
    assert sorted(done) == sorted(
        (name, depth) for name in "ab" for depth in range(4) for _ in range(8 >> depth)
    )
    if n_threads == 1:
        assert [depth for _, depth in done] == sorted((depth for _, depth in done), reverse=True)
    run_tasks([], n_threads)


def test_a_thread_with_nothing_left_waits_for_what_others_return():
    """One task returns two that need both threads, long after the other thread has run out of tasks."""
    barrier, idle = threading.Barrier(2), threading.Event()

    def meets():
        barrier.wait(PATIENCE)
        return ()

    def first():
        assert idle.wait(PATIENCE)
        time.sleep(0.05)
        return [meets, meets]

    def second():
        idle.set()
        return ()

    run_tasks([first, second], 2)
    assert not barrier.broken


@pytest.mark.parametrize("fails", ["caller", "helper"])
def test_after_an_error_nobody_waits_for_tasks_that_never_come(fails):
    """Nor is what others return begun."""
    barrier, caller = threading.Barrier(2), threading.current_thread()
    begun = []

    def task():
        barrier.wait(PATIENCE)
        if (threading.current_thread() is caller) == (fails == "caller"):
            raise ZeroDivisionError("here")
        time.sleep(0.1)
        return [lambda: begun.append(1) or ()]

    with pytest.raises(ZeroDivisionError, match="here"):
        run_tasks([task, task], 2)
    with pytest.raises(ZeroDivisionError, match="here"):
        run_tasks([task, task, *[lambda: begun.append(1) or ()] * 3], 2)
    assert not begun


@pytest.mark.parametrize("dtype", [np.bool_, np.uint32, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5,), (3, 17), (700, 3000), (2, 3_000_000)])
def test_arrays_start_on_a_cache_line(shape, dtype):
    buffer = aligned_empty(shape, dtype)
    assert buffer.shape == shape and buffer.dtype == dtype and buffer.flags.c_contiguous
    assert buffer.ctypes.data % 64 == 0


@pytest.mark.parametrize("size", [1000, 1_000_000, 1_100_000])
def test_sparse_matrices_take_such_room_as_it_is(size):
    values, indices = aligned_empty(size, np.float32), aligned_empty(size, np.int32)
    values[:], indices[:] = 1, np.arange(size) % 100
    X = sp.csr_array((values, indices, np.arange(0, size + 1, 100, dtype=np.int32)))
    assert np.shares_memory(X.data, values) and np.shares_memory(X.indices, indices)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_zeros_may_lie_in_the_memory_of_others(n_threads):
    buffer = aligned_empty(1000, np.float32)
    buffer[:] = 7
    zeros = aligned_zeros(10, 30, np.float64, n_threads=n_threads, buffer=buffer)
    assert zeros.shape == (10, 32) and not zeros.any() and np.shares_memory(zeros, buffer)
    assert (buffer[640:] == 7).all()
    more = aligned_zeros(20, 30, np.float64, n_threads=n_threads, buffer=buffer)
    assert more.shape == (20, 32) and not more.any() and not np.shares_memory(more, buffer)

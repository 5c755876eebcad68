"""Arrays that loops borrow: the same answers as plain Python, and nobody's references touched."""

import gc
import os
import sys
from typing import NamedTuple

import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime import _nrt_python, rtsys

from maxmargin.core.borrowed import Borrowed
from maxmargin.core.dispatch import PartLibrary
from maxmargin.core.jit import compiled

pytestmark = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")


class Inner(NamedTuple):
    """A tuple in a tuple."""

    counts: np.ndarray
    flags: np.ndarray
    scale: float


class Outer(NamedTuple):
    """Arrays of several kinds, and numbers."""

    x: np.ndarray
    W: np.ndarray
    T: np.ndarray
    inner: Inner
    n: int
    on: bool


def outer(n=5, d=3):
    rng = np.random.default_rng(0)
    inner = Inner(np.arange(n, dtype=np.int32), np.arange(n) % 2 == 0, 0.5)
    W, T = rng.random((n, d)).astype(np.float32), rng.random((2, n, d))
    return Outer(rng.random(n), W, T, inner, n, True)


@compiled
def row_total(row, weights):
    total = 0.0
    for j in range(row.shape[0]):
        total += row[j] * weights[j % weights.size]
    return total


@compiled(inline=True)
def scaled(inner, i):
    return inner.counts[i] * inner.scale if inner.flags[i] else 0.0


@compiled
def visit(data, out):
    """Every kind of access: entries, rows of matrices and of cubes, sizes, branches, views."""
    view = data.x
    if data.n > 2:
        view = data.x[1:]
    for i in range(data.n):
        row = data.W[i]
        out[i, 0] = row_total(row, view) + scaled(data.inner, i)
        if data.on and i > 0:
            out[i, 1] = data.T[1, i, 0] + data.T[0, i - 1].sum() + len(view)
        else:
            out[i, 1] = out.size + data.T.shape[2] + data.W.strides[0] + data.W.itemsize
    total = 0.0
    for number in view:
        total += number
    return total + data.T.ravel()[3] + data.W.T[1, 2] + data.x.reshape((data.n, 1))[2, 0]


def in_python(loop):
    """The same loop and those that it calls, as plain Python."""
    names = {
        name: value.py_func for name, value in loop.py_func.__globals__.items() if hasattr(value, "py_func")
    }
    scope = {**loop.py_func.__globals__, **names}
    return type(loop.py_func)(loop.py_func.__code__, scope)


def test_every_access_gives_what_python_gives():
    data, out, expected = outer(), np.zeros((5, 2)), np.zeros((5, 2))
    total = visit(data, out)
    assert total == pytest.approx(in_python(visit)(data, expected), rel=1e-6)
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def declared(loop):
    (result,) = loop.overloads.values()
    return result.fndesc


def test_arguments_are_an_address_and_a_shape():
    loop = compiled(visit.py_func)
    loop._cache.disable()
    loop(outer(), np.zeros((5, 2)))
    assert isinstance(declared(loop).argtypes, Borrowed)
    code = loop.inspect_llvm(loop.signatures[0]).splitlines()
    begin = next(line for line in code if line.startswith("define") and " i32 @" in line and "visit" in line)
    # Two numbers a vector, three a matrix, four a cube.
    assert begin.count("%arg.") == (2 + 3 + 4) + (2 + 2 + 1) + 2 + 3


def test_references_stay_as_they_are():
    data, out = outer(), np.zeros((5, 2))
    visit(data, out)
    arrays = [data.x, data.W, data.T, data.inner.counts, out]
    before = [sys.getrefcount(one) for one in arrays]
    for _ in range(10):
        visit(data, out)
    assert [sys.getrefcount(one) for one in arrays] == before


def test_an_array_that_is_returned_keeps_its_owner():
    @compiled
    def longer(a, b):
        return a if a.shape[0] > b.shape[0] else b

    @compiled
    def second(pair):
        return longer(pair[0], pair[1])

    kept = second((np.arange(3.0), np.arange(10_000.0)))
    gc.collect()
    np.full(10_000, -1.0)
    np.testing.assert_array_equal(kept, np.arange(10_000.0))
    assert not isinstance(declared(second).argtypes, Borrowed)


def test_arrays_that_a_loop_makes_are_given_back():
    @compiled
    def fill(work, x):
        for i in range(work.shape[0]):
            work[i] = x
        return work[0]

    @compiled
    def sums(n):
        total = 0.0
        for i in range(n):
            work = np.zeros(10)
            if i % 2:
                work = np.zeros(20)
            total += fill(work, float(i)) + work.sum()
        return total

    assert sums(3) == (0 + 1 + 2) + (0 + 20 + 20)
    _nrt_python.memsys_enable_stats()
    try:
        before = rtsys.get_allocation_stats()
        sums(50)
        after = rtsys.get_allocation_stats()
    finally:
        _nrt_python.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free == 75


@pytest.mark.parametrize(
    "x", [np.arange(10.0)[::2], np.asfortranarray(np.ones((3, 2)))[:, 0], np.arange(0.0)]
)
def test_strided_and_empty_arrays(x):
    @compiled
    def total(x):
        found = 0.0
        for i in range(x.shape[0]):
            found += x[i]
        return found

    assert total(x) == x.sum()
    assert isinstance(declared(total).argtypes, Borrowed) == x.flags.c_contiguous


def test_variables_set_in_branches_and_loops():
    @compiled
    def walk(W, turns):
        best, place = W[0], 0
        for t in range(turns):
            if t % 3 == 2:
                continue
            row = W[t % W.shape[0]]
            if row[0] > best[0]:
                best, place = row, t
        last = best[W.shape[1] - 1]
        return place, last

    W = np.array([[1.0, 2.0], [3.0, 4.0], [9.0, 5.0], [2.0, 6.0]])
    assert walk(W, 9) == walk.py_func(W, 9)


def test_a_variable_used_before_it_is_set_again():
    """What a turn of the loop leaves to the next one is in memory."""

    @compiled
    def turns(x, n):
        total, row = 0.0, x[0]
        for i in range(n):
            total = 2.0 * total + row[0]
            row = x[i]
        return total

    x = np.arange(8.0).reshape(4, 2) + 1.0
    assert turns(x, 4) == turns.py_func(x, 4)


def test_an_error_in_a_loop_is_raised_and_leaves_references_alone():
    @compiled
    def checked(data):
        if data.x[0] < 2.0:
            raise ValueError("too small")
        return data.n

    data = outer()
    with pytest.raises(ValueError, match="too small"):
        checked(data)
    before = sys.getrefcount(data.x)
    for _ in range(3):
        with pytest.raises(ValueError, match="too small"):
            checked(data)
    after = sys.getrefcount(data.x)
    assert after == before


@pytest.fixture
def written(monkeypatch):
    """The text of all functions that LLVM is given."""
    texts, add = [], JITCodeLibrary.add_ir_module
    monkeypatch.setattr(
        JITCodeLibrary,
        "add_ir_module",
        lambda self, module: (texts.append(str(module)), add(self, module))[1],
    )
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")
    return texts


def test_a_loop_that_makes_no_arrays_counts_no_references_and_keeps_views_in_registers(written):
    @compiled
    def rows_total(data, turns):
        total = 0.0
        for t in range(turns):
            row = data.W[t % data.n] if t % 2 else data.W[0]
            total += row_total(row, data.T[1, t % data.n])
        return total

    data = outer()
    assert rows_total(data, 9) == pytest.approx(in_python(rows_total)(data, 9), rel=1e-6)
    text = "\n".join(written)
    assert "rows_total" in text and "NRT_" not in text
    # The one view that two branches set is in memory, and no other array.
    assert (
        text.count("= alloca {i8*, i8*, i64, i64, float*") == 1
        and "= alloca {i8*, i8*, i64, i64, d" not in text
    )


def test_an_array_that_an_index_makes_is_given_back():
    @compiled
    def chosen(x, places):
        return x[places].sum() + x[1:][0]

    x, places = np.arange(5.0), np.array([1, 3])
    assert chosen(x, places) == 5.0
    _nrt_python.memsys_enable_stats()
    try:
        before = rtsys.get_allocation_stats()
        chosen(x, places)
        after = rtsys.get_allocation_stats()
    finally:
        _nrt_python.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free > 0


def test_constants_are_folded_as_python_would(written):
    """Ranges of every direction, and indices from either end."""

    @compiled
    def walk(x, n):
        total = 0
        for i in range(n):
            total = 3 * total + x[i]
        for i in range(n - 1, -1, -1):
            total = 3 * total + x[i]
        for i in range(1, n, 2):
            total = 3 * total + x[i]
        for _ in range(2, 2):
            total = -1
        return total + x[0] - x[-1] + 5 * x[-2] + x[0 * n]

    x = np.array([3, 1, 4, 1, 5], np.int64)
    assert [walk(x, n) for n in range(6)] == [walk.py_func(x, n) for n in range(6)]
    assert " 0, 0" not in "".join(line for text in written for line in text.splitlines() if "icmp" in line)


def test_a_loop_along_a_range_counts_with_its_index_alone(monkeypatch):
    """So LLVM has it after the passes over single functions, before it makes several steps of one."""

    @compiled
    def put(x, y):
        for i in range(x.shape[0]):
            x[i] = y[i]

    @compiled
    def put_twice(x, y):
        put(x, y)
        put(y, x)

    seen, optimise = [], PartLibrary._optimize_final_module

    def note(library):
        seen.append(str(library._final_module))
        optimise(library)

    monkeypatch.setattr(PartLibrary, "_optimize_final_module", note)
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")
    x, y = np.zeros(5), np.arange(5.0)
    put_twice(x, y)
    np.testing.assert_array_equal(x, y)
    assert [text.count("= phi i64") for text in seen] == [1]

"""How loops are compiled: entries, helpers and generic helpers, compiled and as plain Python."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from maxmargin.core.jit import _interpreted, compiled, generic, helper, interpreted
from maxmargin.core.loop import Certificate, Progress, Stopping, run

ROOT = Path(__file__).parents[2]
PLAIN = os.environ.get("NUMBA_DISABLE_JIT") == "1"
needs_numba = pytest.mark.skipif(PLAIN, reason="nothing is compiled")


@helper
def checked(x, limit):
    """The number of entries, which has a limit."""
    if x.size > limit:
        raise ValueError("too long")
    return x.size


@helper(hot=True)
def scale(x, factor):
    for i in range(x.size):
        x[i] *= factor


@helper
def ordered(x):
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
    return total


@compiled
def scale_twice(x, limit):
    for factor in (2.0, 3.0):
        scale(x, factor)
    return checked(x, limit)


@compiled(reorder=True)
def reordered_caller(x):
    return ordered(x)


class Square(NamedTuple):
    side: float


class Rectangle(NamedTuple):
    sides: np.ndarray


@generic
def area(shape, times): ...


@area.of(Square)
def area_of_square(square, times):
    return times * square.side**2


@area.of(Rectangle)
def area_of_rectangle(rectangle, times):
    return times * rectangle.sides[0] * rectangle.sides[1]


@compiled
def three_areas(shape, times):
    total = 0.0
    for _ in range(3):
        total += area(shape, times)
    return total


@compiled
def ones_inside(n):
    return np.ones(n).sum()


@compiled(allocates=True)
def ones_declared(n):
    return np.ones(n).sum()


def as_it_is(entry):
    """The three ways to run an entry."""

    def as_plain_python(*args):
        with interpreted(1):
            return entry(*args)

    return {"compiled": entry, "py_func": entry.py_func, "interpreted": as_plain_python}


WAYS = ["compiled", "py_func", "interpreted"]


@pytest.mark.nojit
@pytest.mark.parametrize("way", WAYS)
def test_an_entry_calls_helpers(way):
    run, x = as_it_is(scale_twice)[way], np.ones(3)
    assert run(x, 3) == 3 and x.tolist() == [6.0, 6.0, 6.0]
    with pytest.raises(ValueError, match="too long"):
        run(np.ones(4), 3)


@pytest.mark.nojit
@pytest.mark.parametrize("way", WAYS)
def test_a_generic_helper_has_a_body_for_every_kind(way):
    run = as_it_is(three_areas)[way]
    assert run(Square(2.0), 1) == 12.0
    assert run(Rectangle(np.array([1.0, 3.0])), 2) == 18.0
    assert area(Square(2.0), 1) == 4.0


@needs_numba
def test_a_kind_without_a_body_is_refused():
    import numba

    with pytest.raises(numba.TypingError, match="area"):
        three_areas(np.ones(2), 1)


@pytest.mark.nojit
def test_helpers_are_plain_functions_for_python():
    assert checked(np.ones(2), 2) == 2
    with pytest.raises(ValueError, match="too long"):
        checked(np.ones(3), 2)


@needs_numba
def test_what_runs_as_plain_python_is_not_compiled():
    @compiled
    def double(x):
        return 2 * x

    with interpreted(1):
        assert double(2.0) == 4.0 and not double.machine.signatures
        with interpreted(math.inf):
            assert double(2.0) == 4.0 and len(double.machine.signatures) == 1
        assert double(2) == 4 and len(double.machine.signatures) == 1
    assert double(2) == 4 and len(double.machine.signatures) == 2


@needs_numba
def test_numbers_that_python_refuses_are_left_to_machine_code():
    """What the plain function has written by then does not count."""

    @compiled
    def growth(x):
        x[0] += 1.0
        x[1] = math.exp(x[1])
        return 1.0 / math.log(x[2])

    with interpreted(1):
        x = np.array([1.0, 1e3, 1.0])
        assert growth(x) == math.inf
        assert x.tolist() == [2.0, math.inf, 1.0]


def test_a_small_problem_that_takes_many_epochs_is_compiled():
    seen = []

    class Solver:
        def epoch(self, clock):
            seen.append(_interpreted.get())
            return Progress(Certificate(1.0, 0.0), 1)

        def certify(self):
            return Certificate(1.0, 0.0)

    with interpreted(1):
        run(Solver(), Stopping(1e-3, 60))
    assert seen[:49] == [True] * 49 and not any(seen[50:])


@needs_numba
def test_a_helper_keeps_its_sums_in_order():
    """Leave to reorder belongs to the loop that has it, not to whichever caller comes first."""
    x = np.random.default_rng(0).normal(size=1001).astype(np.float32)
    assert reordered_caller(x) == ordered(x)


@needs_numba
def test_loops_count_no_references_and_make_no_arrays_unless_declared():
    import numba

    x = np.ones(3)
    before = sys.getrefcount(x)
    scale_twice(x, 3)
    after = sys.getrefcount(x)
    assert after == before
    with pytest.raises(numba.TypingError):
        ones_inside(3)
    assert ones_declared(3) == 3.0


@compiled
def write_first(x):
    x[0] = 1.0


@compiled
def write_by_helper(x):
    scale(x, 2.0)


class Pair(NamedTuple):
    first: np.ndarray
    second: float


@compiled
def write_in_tuple(pair):
    scale(pair.first, pair.second)


@needs_numba
@pytest.mark.parametrize("kind", ["array", "memmap"])
@pytest.mark.parametrize(
    "write",
    [write_first, write_by_helper, lambda x: write_in_tuple(Pair(x, 2.0))],
    ids=["own", "helper", "tuple"],
)
def test_a_loop_that_writes_to_a_read_only_array_is_refused(write, kind, tmp_path):
    import numba

    np.save(tmp_path / "x.npy", np.full(3, 7.0))
    x = np.load(tmp_path / "x.npy", mmap_mode="r" if kind == "memmap" else None)
    x.flags.writeable = False
    with pytest.raises(numba.TypingError):
        write(x)
    assert x.tolist() == [7.0] * 3


LOOPS = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stdout)
import numpy as np
from maxmargin.core.jit import compiled, helper, interpreted

@helper
def add(a, b):
    return a + b

@compiled
def total(x):
    s = 0.0
    for i in range(x.size):
        s = add(s, x[i])
    return s

@compiled
def both(x, y):
    return add(x, y)
"""
CALLS = "from loops import *\nprint(total(np.arange(4.0)), both(1, 2))\n"
LINE = "maxmargin: compiling loops; this takes a few seconds, once on this machine"


@pytest.fixture
def process(tmp_path):
    """Run a program in a process of its own, with a file of loops and a folder for what is compiled."""
    (tmp_path / "loops.py").write_text(LOOPS)

    def run(program, **environment):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=os.environ
            | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
            | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_compiling_is_told_once_and_what_is_kept_on_disk_is_found(process, tmp_path):
    def kept():
        return sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.nbc"))

    assert process(CALLS) == [LINE, "6.0 3"]
    first = kept()
    assert len(first) == 2
    assert process(CALLS) == ["6.0 3"] and kept() == first


def test_nothing_is_compiled_where_numba_is_switched_off(process, tmp_path):
    assert process(CALLS, NUMBA_DISABLE_JIT="1") == ["6.0 3"]
    assert process("from loops import *\nwith interpreted(1): print(total(np.arange(4.0)))") == ["6.0"]
    assert not list(tmp_path.rglob("*.nbc"))


def test_a_loop_without_a_file_is_compiled_for_the_process(process):
    program = "from loops import *\nprint(compiled(lambda x: x + 1)(1))"
    assert process(program) == [LINE, "2"]


def test_a_folder_that_takes_nothing_is_no_obstacle(process, tmp_path):
    """It was there when the loops were declared; now a file is in its place."""
    program = (
        "from loops import *\nimport shutil\nfrom pathlib import Path\n"
        "[shutil.rmtree(each) for each in Path('cache').iterdir()]\n"
        "Path('cache').rmdir(); Path('cache').touch()\n"
        "print(total(np.arange(4.0)), total(np.arange(4.0)))"
    )
    told, warned, answer = process(program)
    assert told == LINE and "not kept on disk" in warned and answer == "6.0 6.0"


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_file_that_is_cut_short_is_no_obstacle(process, tmp_path, suffix):
    process(CALLS)
    for path in tmp_path.rglob(f"*.{suffix}"):
        os.truncate(path, 0)
    *warned, answer = process(CALLS)
    assert warned and all("not kept on disk" in line for line in warned) and answer == "6.0 3"


def test_without_numba_loops_run_as_plain_python(process):
    warned, answer = process("import sys; sys.modules['numba'] = None\n" + CALLS)
    assert "numba cannot be imported" in warned and answer == "6.0 3"

"""The cache of compiled loops."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core import event

from maxmargin.core import cache, dispatch
from maxmargin.core.jit import compiled, generic

CALLER = "from maxmargin.core.jit import compiled\nfrom _callee import inner\n\n"
CALLER += "@compiled\ndef outer(x):\n    return inner(x) + 1\n"
CALLEE = "from maxmargin.core.jit import compiled\n\n@compiled{how}\ndef inner(x):\n    return x * {factor}\n"
PROGRAM = """
import sys, pathlib


sys.path.insert(0, sys.argv[1])
from _caller import outer
print(outer(10), sum(outer.stats.cache_hits.values()))
"""


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
@pytest.mark.parametrize("how", ["", "(inline=True)"])
def test_a_change_in_another_file_renews_the_cache(tmp_path, how):
    """A loop's cached code is not used once a loop it calls, in another file, has changed."""
    (tmp_path / "_caller.py").write_text(CALLER)
    environment = dict(os.environ, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    environment["PYTHONPATH"] = str(Path(__file__).parents[2] / "src")
    # Python takes bytecode for fresh when file size and second of writing agree, as they do here.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def run(factor):
        (tmp_path / "_callee.py").write_text(CALLEE.format(factor=factor, how=how))
        command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        return [int(word) for word in output.split()]

    assert run(2) == [21, 0]
    assert run(2) == [21, 1]
    assert run(3) == [31, 0]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_a_loop_that_another_calls_is_a_part_of_it():
    """It has no code of its own until Python calls it."""

    @compiled
    def step(x, most):
        for i in range(x.size):
            if x[i] > most:
                return i, most
        return -1, 0.0

    @compiled
    def steps(x):
        return step(x, 1.0), step(x, 9.0)

    x = np.arange(5.0)
    assert steps(x) == ((2, 1.0), (-1, 0.0))
    assert len(steps.signatures) == 1 and not step.signatures
    assert step(x, 3.0) == (4, 3.0) and len(step.signatures) == 1


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_a_part_keeps_its_own_sums_in_order():
    """Leave to reorder belongs to the loop that has it, not to whichever caller comes first."""

    @compiled
    def ordered(x):
        total = x.dtype.type(0)
        for i in range(x.size):
            total += x[i]
        return total

    @compiled(reorder=True)
    def caller(x):
        return ordered(x)

    x = np.random.default_rng(0).normal(size=1001).astype(np.float32)
    assert caller(x) == ordered.py_func(x) == ordered(x)


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_an_error_in_a_part_reaches_python():
    @compiled
    def checked(x, limit):
        if x.size > limit:
            raise ValueError("longer than", limit)
        return x.size

    @compiled
    def caller(x, limit):
        return checked(x, limit) + 1

    assert caller(np.ones(2), 3) == 3
    with pytest.raises(ValueError, match="longer than"):
        caller(np.ones(4), 3)


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_an_inlined_helper_counts_no_references():
    """What a helper is given belongs to its caller; one that makes an array is refused."""

    @compiled(inline=True)
    def scale(x, factor):
        for i in range(x.size):
            x[i] *= factor

    @compiled(inline=True)
    def make(n):
        return np.ones(n)

    @compiled
    def twice(x):
        for factor in (2.0, 3.0):
            if factor > x.size - 2:
                scale(x, factor)

    @compiled
    def made(n):
        return make(n).sum()

    x = np.ones(3)
    before = sys.getrefcount(x)
    twice(x)
    after = sys.getrefcount(x)
    assert x.tolist() == [6.0, 6.0, 6.0]
    assert after == before
    with pytest.raises(numba.core.errors.NumbaError):
        made(3)


KINDS = """
from typing import NamedTuple
import numpy as np
from maxmargin.core.jit import compiled, generic

class Square(NamedTuple):
    side: float

class Rectangle(NamedTuple):
    sides: np.ndarray

@generic
def area(shape, times): ...

@compiled
def total(shape, times):
    result = 0.0
    for _ in range(3):
        result += area(shape, times)
    return result
"""
BODIES = """
from _kinds import Rectangle, Square, area

@area.of(Square)
def area_of_square(square, times):
    return times * square.side**2

@area.of(Rectangle)
def area_of_rectangle(rectangle, times):
    return {factor} * times * rectangle.sides[0] * rectangle.sides[1]
"""
AREAS = """
import sys
sys.path.insert(0, sys.argv[1])
import _bodies, numpy as np
from _kinds import Rectangle, Square, total
print(total(Square(2.0), 1), total(Rectangle(np.array([1.0, 3.0])), 2))
print(sum(total.stats.cache_hits.values()) if hasattr(total, "stats") else "plain")
"""


@pytest.mark.parametrize("jit", [True, False])
def test_a_generic_function_serves_every_kind_and_its_loops_are_cached(tmp_path, jit):
    """One loop for several kinds: cached for the next process, as in plain Python, renewed with a body."""
    (tmp_path / "_kinds.py").write_text(KINDS)
    environment = dict(
        os.environ, NUMBA_CACHE_DIR=str(tmp_path / "cache"), NUMBA_DISABLE_JIT=str(int(not jit))
    )
    environment["PYTHONPATH"] = str(Path(__file__).parents[2] / "src")
    environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def run(factor):
        (tmp_path / "_bodies.py").write_text(BODIES.format(factor=factor))
        command = [sys.executable, "-c", AREAS, str(tmp_path)]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.split()

    assert run(1) == ["12.0", "18.0", "0" if jit else "plain"]
    assert run(1) == ["12.0", "18.0", "2" if jit else "plain"]
    assert run(2) == ["12.0", "36.0", "0" if jit else "plain"]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_garbage_is_not_searched_for_while_compiling(monkeypatch):
    """And is again afterwards, unless it was not before."""
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")

    class Listener(event.Listener):
        seen = []

        def on_start(self, event):
            self.seen.append(gc.isenabled())

        def on_end(self, event):
            pass

    with event.install_listener("numba:compile", Listener()) as listener:
        assert compiled(lambda x: x + 1)(1) == 2 and gc.isenabled()
        gc.disable()
        try:
            assert compiled(lambda x: x + 2)(1) == 3 and not gc.isenabled()
        finally:
            gc.enable()
    assert listener.seen == [False, False]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_what_compiling_made_is_not_searched_at_once(monkeypatch):
    """It is old when the loop returns; whoever has frozen objects finds them frozen."""
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")
    searched, loop = [], compiled(lambda x: x + 3)
    gc.collect()
    gc.callbacks.append(lambda phase, found: searched.append(found["generation"]))
    try:
        assert loop(1) == 4
    finally:
        gc.callbacks.pop()
    assert not searched and not gc.get_freeze_count()
    gc.freeze()
    try:
        assert compiled(lambda x: x + 4)(1) == 5 and gc.get_freeze_count()
    finally:
        gc.unfreeze()


class Body(NamedTuple):
    size: float


@generic
def volume(body): ...


@volume.of(Body)
def volume_of_body(body):
    return body.size


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_the_body_of_a_generic_function_is_a_part(monkeypatch):
    """It has no machine code of its own."""
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")
    kinds = []
    monkeypatch.setattr(dispatch.Part, "__init__", _noting(dispatch.Part.__init__, kinds))
    assert compiled(lambda body: 2 * volume(body))(Body(3.0)) == 6.0
    assert "volume_of_body" in kinds


def _noting(method, names):
    def noted(self, function, options):
        names.append(function.__name__)
        method(self, function, options)

    return noted


@compiled
def total_volume(body):
    return 2 * volume(body)


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_a_kind_without_a_body_is_refused():
    with pytest.raises(numba.TypingError, match="volume"):
        total_volume(np.ones(2))


def test_an_edit_in_one_folder_leaves_the_others_compiled(tmp_path):
    """A cache entry depends on the loops of its own folder and of core, not on those of other models."""
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        folder.mkdir()
        (folder / "loops.py").write_text(CALLEE.format(how="", factor=2))

    def stamps():
        cache.stamp.cache_clear()
        return [cache.stamp(folder) for folder in folders]

    before = stamps()
    (folders[0] / "loops.py").write_text(CALLEE.format(how="", factor=3))
    (folders[1] / "estimator.py").write_text("nothing = 'compiled'\n")
    after = stamps()
    cache.stamp.cache_clear()
    assert after[0] != before[0] and after[1] == before[1]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_the_greatest_of_numbers_needs_no_part(monkeypatch):
    """``max`` and ``min`` of numbers of any mix of types are those of numba, without a function each."""
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")

    def both(a, b):
        return max(a, b), min(a, b), max(a, b, 1), min(1, b, a), max(0.5, b)

    loop, plain = compiled(both), numba.njit(both)
    pairs = [
        (2, 3.5),
        (np.int32(-4), 7),
        (np.float32(0.1), 0.1),
        (np.uint32(5), 3),
        (np.nan, 1.0),
        (1.0, np.nan),
    ]
    with event.install_recorder("numba:compile") as recorder:
        found = [loop(*pair) for pair in pairs]
    expected = [plain(*pair) for pair in pairs]
    np.testing.assert_array_equal(found, expected)
    assert [[type(x) for x in row] for row in found] == [[type(x) for x in row] for row in expected]
    assert {one.data["dispatcher"] for _, one in recorder.buffer} == {loop}


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_what_numba_brings_is_a_part_of_a_loop_and_of_nobody_else(monkeypatch):
    """``argmax`` within a loop has no code of its own; the functions of others get what they got."""
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")  # or the loop comes from the disk the second time

    def largest(x):
        return x[x.argmax()]

    class Parts(event.Listener):
        def __init__(self):
            self.seen = []

        def on_start(self, event):
            self.seen.append(event.data["dispatcher"])

        def on_end(self, event):
            pass

    x = np.array([1, 5, 2], np.int8)
    for decorate, expected in [
        (compiled, dispatch.NumbaPart),
        (numba.njit, numba.core.registry.CPUDispatcher),
    ]:
        event.register("numba:compile", parts := Parts())
        try:
            outer = decorate(largest)
            assert outer(x) == 5
        finally:
            event.unregister("numba:compile", parts)
        assert {type(inner) for inner in parts.seen if inner is not outer} == {expected}


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_numba_is_asked_about_a_call_once_by_loops_and_every_time_by_others(monkeypatch):
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")  # or a second run finds the loop on disk
    asked, find = [], dispatch.find_call_type
    monkeypatch.setattr(
        dispatch, "find_call_type", lambda *given: (asked.append(given[0].typing_key), find(*given))[1]
    )

    def total(x):
        s = x[0]
        for i in range(1, x.size):
            s += x[i]
        return s

    def asked_by(decorate):
        asked.clear()
        assert decorate(total)(np.ones(3, np.int16)) == 3
        return len(asked)

    first = asked_by(compiled)
    assert asked_by(compiled) == 0 < first
    assert asked_by(numba.njit) >= first


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_a_part_is_one_for_all_that_its_code_does_not_tell_apart():
    """Arrays that may be written to or not, alone and in tuples; counts of any width, known or not."""

    @compiled
    def entry(x, i, up):
        return x[i] if up else -x[i]

    @compiled
    def entry_of_pair(pair, i):
        return pair.first[i] + pair.second

    @compiled
    def total(x, fixed, place, pair, fixed_pair):
        sums = entry(x, 0, True) + entry(fixed, place, x[0] > 5.0)
        return sums + entry_of_pair(pair, np.int32(place)) + entry_of_pair(fixed_pair, 2)

    x, fixed = np.arange(1.0, 4.0), np.arange(10.0, 13.0)
    fixed.flags.writeable = False
    assert total(x, fixed, 1, Pair(x, 0.5), Pair(fixed, 0.25)) == 1.0 - 11.0 + 2.5 + 12.25
    assert len(entry.part.overloads) == len(entry_of_pair.part.overloads) == 1
    assert not entry.signatures


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
@pytest.mark.skipif(numba.version_info[:2] < (0, 62), reason="numba asks for no such options")
@pytest.mark.skipif(os.environ.get("NUMBA_BOUNDSCHECK") == "1", reason="checked loops are not repeated")
def test_a_compact_loop_has_less_machine_code_and_the_loops_after_it_have_not(monkeypatch):
    """A loop over rows is written once, where it would be repeated for several rows in turn."""
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")

    def fall(x):
        for i in range(1, x.size):
            x[i] = 0.5 * x[i - 1] * x[i] + x[i]
        return x[-1]

    def code_of(loop):
        assert loop(np.ones(5)) == 1.9375
        return next(iter(loop.inspect_asm().values())).count("mulsd")

    before, short, after = (code_of(compiled(compact=c)(fall)) for c in (False, True, False))
    assert 0 < short < before == after


class Pair(NamedTuple):
    first: np.ndarray
    second: float


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_lifetimes_are_found_for_others_and_for_loops_that_make_arrays(monkeypatch):
    monkeypatch.setenv("MAXMARGIN_JIT_CACHE", "0")
    found, find = [], dispatch.find_lifetimes

    def note(processor, *given, **options):
        found.append(processor.func_ir.func_id.func_name)
        find(processor, *given, **options)

    monkeypatch.setattr(dispatch, "find_lifetimes", note)

    def last(x):
        i = 0
        while i + 1 < x.size:
            i += 1
        return x[i]

    def made(n):
        return np.zeros(n)[0] + 1.0

    x = np.arange(4.0)
    assert compiled(last)(x) == 3.0 and "last" not in found
    assert compiled(made)(2) == 1.0 and found.count("made") == 1
    assert numba.njit(last)(x) == 3.0 and found.count("last") > 1

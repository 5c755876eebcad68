"""The cache of compiled loops."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from maxmargin.core.jit import compiled

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
@pytest.mark.parametrize("how", ["", "(inline=True)", "(merge=True)"])
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
def test_a_merged_step_is_compiled_with_its_caller_only():
    @compiled(merge=True)
    def step(x, most):
        for i in range(x.size):
            if x[i] > most:
                return i, most
        return -1, 0.0

    @compiled
    def steps(x):
        return step(x, 1.0), step(x, 9.0)

    assert steps(np.arange(5.0)) == ((2, 1.0), (-1, 0.0))
    assert len(steps.signatures) == 1 and not step.signatures


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

"""Seconds of compiling, and how the command line keeps them apart from those of fitting."""

from __future__ import annotations

import time

import numba
import numpy as np

from maxmargin.cli.data import Samples
from maxmargin.cli.models import fit
from maxmargin.core.compiling import compile_time


def test_only_what_is_compiled_inside_is_counted():
    first, second = numba.njit(lambda x: x + 1), numba.njit(lambda x: x * 2)
    first(1)
    with compile_time() as spent:
        first(2)
        assert not spent.done
        second(1)
    before = spent.duration
    assert before > 0
    numba.njit(lambda x: x - 1)(1)
    assert spent.duration == before


def test_a_fit_is_told_without_its_compiling():
    class Slow:
        def fit(self, X, y):
            time.sleep(0.05)
            numba.njit(lambda x: x + 3)(1)

        def get_params(self):
            return {}

    start = time.perf_counter()
    found = fit(Slow(), Samples(np.eye(2), np.arange(2), ("a", "b"), ("x", "y")))
    whole = time.perf_counter() - start
    assert found.compile_seconds > 0 and found.seconds >= 0.05
    assert found.seconds + found.compile_seconds <= whole

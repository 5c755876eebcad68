"""Settings shared by all tests."""

import importlib.util
import inspect

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from maxmargin.core import jit

# Time limits per example would make the suite fail on a busy machine.
settings.register_profile("maxmargin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("maxmargin")

# The state of the generator of each test module after collection.
STATES = {}


def generator(item):
    """The generator shared by the tests of a module, if there is one."""
    found = getattr(getattr(item, "module", None), "RNG", None)
    return found if isinstance(found, np.random.Generator) else None


def pytest_collection_modifyitems(items):
    """Store the states of generators; skip tests of callbacks before scikit-learn 1.9."""
    for item in items:
        if (rng := generator(item)) is not None:
            STATES[item.module] = rng.bit_generator.state
    if importlib.util.find_spec("sklearn.callback") is not None:
        return
    for item in items:
        function = getattr(item, "function", None)
        if function is not None and "set_callbacks" in inspect.getsource(function):
            item.add_marker(pytest.mark.skip(reason="scikit-learn before 1.9 has no callbacks"))


def pytest_generate_tests(metafunc):
    """Tests of loops run twice: on machine code, and with their entries as plain Python."""
    if jit.ON and metafunc.definition.get_closest_marker("nojit"):
        metafunc.parametrize("loops_run_as", ["machine code", "plain Python"], indirect=True)


@pytest.fixture(autouse=True)
def loops_run_as(request):
    """Run all entries as plain Python, which reports zero divisors and overflow, if the parameter says so."""
    if getattr(request, "param", "machine code") == "machine code":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit.Entry, "__call__", lambda entry, *args: entry.py_func(*args))
        yield


def pytest_runtest_setup(item):
    """Restore the generator, so that each test draws the same numbers in any order."""
    if (rng := generator(item)) is not None:
        rng.bit_generator.state = STATES[item.module]

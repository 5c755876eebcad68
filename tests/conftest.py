"""Settings shared by all tests."""

import importlib.util
import inspect

import pytest
from hypothesis import HealthCheck, settings

# Time limits per example would make the suite fail on a busy machine.
settings.register_profile("maxmargin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("maxmargin")


def pytest_collection_modifyitems(items):
    """Callbacks came with scikit-learn 1.9: what sets one is left out before."""
    if importlib.util.find_spec("sklearn.callback") is not None:
        return
    for item in items:
        function = getattr(item, "function", None)
        if function is not None and "set_callbacks" in inspect.getsource(function):
            item.add_marker(pytest.mark.skip(reason="scikit-learn before 1.9 has no callbacks"))

"""Settings shared by all tests."""

from hypothesis import HealthCheck, settings

# Time limits per example would make the suite fail on a busy machine.
settings.register_profile("maxmargin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("maxmargin")

"""Races of toy size need no memory brought near."""

import pytest

from benchmarks import race


@pytest.fixture(autouse=True)
def as_it_is(monkeypatch):
    monkeypatch.setattr(race, "SETTLED", 0)

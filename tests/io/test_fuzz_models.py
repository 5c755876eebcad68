"""Changed model files of all families are refused or harmless; `make fuzz` tries many more."""

import random

import pytest

from tests.fuzz import models


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return models.seeds(tmp_path_factory.mktemp("sound"))


def test_the_starting_files_are_good(files, tmp_path):
    for file in files:
        assert models.attempt(file, tmp_path / "m.mm") == "used"


@pytest.mark.parametrize("seed", range(8))
def test_changed_files_are_refused_or_harmless(seed, files, tmp_path):
    rng = random.Random(seed)
    answers = [models.attempt(models.mutated(rng, files), tmp_path / "m.mm") for _ in range(60)]
    assert 10 < answers.count("refused") < 60

"""Any valid fit ends with finite numbers or with an error that names the remedy."""

import pytest

from tests.random_fits import complaint

# A few fits of every estimator. The campaign of the slow test has a few hundred of each.
SAMPLE, CAMPAIGN = 48, 3000


@pytest.mark.parametrize("seed", [*range(SAMPLE), 8316])
def test_random_fits(seed):
    assert complaint(seed) == ""


@pytest.mark.nojit
@pytest.mark.parametrize("seed", [156, 164, 940, 2092, 1467, 2810, 2859])
def test_loops_divide_by_no_zero_and_sum_in_float64(seed):
    """Only without JIT do zero divisors and overflow warn; here rows are the same, or biases extreme."""
    assert complaint(seed) == ""


@pytest.mark.slow
def test_many_random_fits():
    found = {seed: problem for seed in range(SAMPLE, CAMPAIGN) if (problem := complaint(seed))}
    assert not found

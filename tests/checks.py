"""One of scikit-learn's checks on one estimator, with the digits that the check compares."""

from sklearn.base import clone

# These compare two routes to one optimum to seven digits.
TWO_ROUTES = "check_sample_weight_equivalence"


def run_check(estimator, check):
    """Run a check; where it compares seven digits, ask for them by `tol`.

    A fit goes as far as `tol` says, and at its default two routes agree to three digits of the objective.
    scikit-learn treats its own LinearSVC the same way: expected to fail at defaults, tested at tol=1e-12.
    """
    if check.func.__name__.startswith(TWO_ROUTES):
        estimator = clone(estimator).set_params(tol=1e-12)
    check(estimator)

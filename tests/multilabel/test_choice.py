"""How `MultiLabelSVC` chooses a solver: every row has data that lands in it."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_wine

from maxmargin import MultiLabelSVC, priors
from maxmargin.multilabel import choice
from maxmargin.multilabel.choice import ROWS

RNG = np.random.default_rng(0)


def table(n, d, L):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, L)) + rng.normal(size=(n, L)) > 0).astype(int)


def titles(n, d, L):
    rng = np.random.default_rng(0)
    X = sp.random_array((n, d), density=0.02, format="csr", rng=rng)
    return X, (rng.random((n, L)) < 0.2).astype(int)


def long_column(n, d, L):
    """One feature far larger than the others: sweeps stall."""
    X, Y = titles(n, d, L)
    return sp.csr_array(sp.hstack([X, sp.csr_array(1e4 * RNG.normal(size=(n, 1)))])), Y


# Data that lands in each row, parameters, and what runs.
LANDS = {
    0: [(table(60, 5, 3), {"kernel": "rbf"}, "newton")],
    1: [
        (table(400, 20, 3), {"kernel": "rbf"}, "kernel-sweeps"),
        (table(400, 10, 3), {"kernel": "rbf", "gamma": 1e-3, "C": 1e6}, "kernel-sweeps, then newton"),
        (table(60, 5, 3), {"kernel": "rbf", "prior": priors.from_labels}, "kernel-sweeps"),
    ],
    2: [
        (table(100, 8, 3), {"memory_limit": 0}, "newton"),
        (table(100, 400, 3), {"loss": "squared_hinge"}, "newton"),
        (titles(600, 40, 3), {"loss": "squared_hinge"}, "newton"),
    ],
    3: [(titles(200, 900, 4), {"memory_limit": 0}, "label-blocks")],
    4: [
        (load_wine(return_X_y=True), {}, "newton"),
        (table(100, 40, 12), {"prior": priors.from_labels}, "newton"),
    ],
    5: [
        (titles(300, 800, 4), {}, "sweeps"),
        (titles(300, 800, 4), {"prior": priors.from_labels}, "sweeps"),
        (long_column(300, 400, 3), {"C": 100.0, "tol": 1e-6}, "sweeps, then newton"),
    ],
}


def ran(data, options, monkeypatch):
    """The row that was taken, and the model."""
    taken, usual = [], choice.first_that_holds

    def spied(table, *what):
        taken.append(usual(table, *what))
        return taken[-1]

    monkeypatch.setattr(choice, "first_that_holds", spied)
    model = MultiLabelSVC(random_state=0, **options).fit(*data)
    assert model.duality_gap_ <= model.tol
    assert model.history_[-1]["solver"] == model.solver_.split(", then ")[-1]
    return ROWS.index(taken[0]), model.solver_


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_every_row_has_data_that_lands_in_it(number, monkeypatch):
    for data, options, name in LANDS[number]:
        assert ran(data, options, monkeypatch) == (number, name)
        assert name.split(", then ")[0] == ROWS[number].name


def test_a_row_names_its_reason_and_its_measurement(pytestconfig):
    for row in ROWS:
        assert row.because.endswith(".")
        assert row.measured == "not measured" or (pytestconfig.rootpath / row.measured).exists()

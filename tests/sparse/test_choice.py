"""How the Newton equation of a sparse machine is solved: data for every row, and the borders between them."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from maxmargin import SparseMultiClassSVC, SparseMultiLabelSVC
from maxmargin.edge.estimator import first_that_holds
from maxmargin.sparse import greedy
from maxmargin.sparse.greedy import FACTOR, ROWS, Equation

X, CODES = load_digits(return_X_y=True)
X, CODES = X[:300] / 16, CODES[:300]
Y = np.eye(10, dtype=int)[CODES] | np.eye(10, dtype=int)[(CODES + X[:, 20].astype(int)) % 10]
ALIKE = np.outer(np.tile([1.0, -1.0], 5), np.tile([1.0, -1.0], 5)) + np.ones((10, 10))
GROW = {"n_candidates": 3, "rel_tol": 0.0, "random_state": 0}
# The machine that lands in each row, and what it says ran.
LANDS = {
    0: (SparseMultiClassSVC(max_basis=8, **GROW), CODES, "cholesky"),
    1: (SparseMultiLabelSVC(max_basis=60, prior=ALIKE / 2, **GROW), Y, "cholesky"),
    2: (SparseMultiClassSVC(C=1e5, max_basis=20, **GROW), CODES, "cholesky"),
    3: (SparseMultiClassSVC(max_basis=20, **GROW), CODES, "cholesky, then cg"),
}


@pytest.mark.parametrize("number", range(len(ROWS)))
@pytest.mark.filterwarnings("ignore")
def test_every_row_has_data_that_lands_in_it(number, monkeypatch):
    taken = []

    def spied(rows, equation):
        taken.append(first_that_holds(rows, equation))
        return taken[-1]

    monkeypatch.setattr(greedy, "first_that_holds", spied)
    machine, y, ran = LANDS[number]
    machine.fit(X, y)
    assert ROWS[number] in taken and machine.solver_ == ran
    assert set(machine.solver_.split(", then ")) == {record["solver"] for record in machine.history_}


def test_a_row_names_its_reason_and_its_measurement(pytestconfig):
    for row in ROWS:
        assert row.because.endswith(".")
        assert row.measured == "not measured" or (pytestconfig.rootpath / row.measured).exists()


def test_the_borders_between_the_rows():
    def row(unknowns, coupled=False, low_rank=False, factor=1.0, products=0.0):
        return ROWS.index(first_that_holds(ROWS, Equation(unknowns, coupled, low_rank, factor, products)))

    assert row(100) == row(100, True, True) == 0 and row(101) == row(101, True) == 3
    assert row(1500, True, True) == 1 and row(1501, True, True) == 3
    assert row(4000, factor=1.0, products=FACTOR + 0.1) == 2 and row(4000, products=FACTOR) == 3
    assert row(4001, products=1e9) == row(200, coupled=True, products=1e9) == 3


@pytest.mark.parametrize(("gone", "instead"), [("newton", "auto"), ("newton-cg", "auto")])
def test_removed_solvers_name_their_replacement(gone, instead):
    with pytest.raises(ValueError, match=f"solver='{gone}' was removed; use solver='{instead}' instead"):
        SparseMultiClassSVC(solver=gone).fit(X, CODES)
    with pytest.raises(ValueError, match="selection='jacobi' was removed; use selection='block' instead"):
        SparseMultiLabelSVC(selection="jacobi").fit(X, Y)

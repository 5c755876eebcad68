"""How `LabelRanker` finds its steps: every row, and what a model says ran."""

import numpy as np
import pytest

from maxmargin import LabelRanker
from maxmargin.edge.estimator import first_that_holds
from maxmargin.ranking.estimator import ROWS

RNG = np.random.default_rng(0)
WORDS = (RNG.random((30, 6)) < 0.4).astype(float)
WEIGHTED = WORDS * RNG.random((30, 6))
Y = (RNG.random((30, 4)) < 0.4).astype(int)
ENTROPY = {"regulariser": "entropy"}
LANDS = {
    0: [
        (WORDS, {"update": "worst_pair"}),
        (WEIGHTED, {"update": "fixed", **ENTROPY}),
        (WORDS, {"update": "fixed", "solver": "pdip"}),
    ],
    1: [(WEIGHTED, ENTROPY), (WORDS, {"solver": "pdip"})],
    2: [(WORDS, {}), (WEIGHTED, {"weighting": None}), (WORDS, ENTROPY)],
}


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_every_row_has_data_that_lands_in_it(number):
    for X, options in LANDS[number]:
        model = LabelRanker(max_iter=2, **options).fit(X, Y)
        assert model.solver_ == ROWS[number].name
        assert {record["solver"] for record in model.history_} == {model.solver_}


def test_a_row_names_its_reason_and_its_measurement(pytestconfig):
    for row in ROWS:
        assert row.because.endswith(".")
        assert row.measured == "not measured" or (pytestconfig.rootpath / row.measured).exists()
    assert first_that_holds(ROWS, "all_pairs", False).name == "water-filling"

"""How `SubmodularSVC(solver="auto")` chooses: every row of its table, and the switch between two solvers."""

import numpy as np
import pytest

from maxmargin import SubmodularSVC
from maxmargin.core.loop import Stopping, run
from maxmargin.edge.estimator import first_that_holds
from maxmargin.submodular import choice
from maxmargin.submodular.choice import ROWS, can_switch, few_weights
from maxmargin.submodular.interior import InteriorSolution
from tests.submodular.test_solvers import tiny


def ended_with_interior():
    model = SubmodularSVC(warm_start=True)
    model._warm = (InteriorSolution(*np.empty((4, 0))), None)
    return model


# A model and a problem that land in each row, and what runs there.
CASES = {
    0: (SubmodularSVC(), {"N": 40, "V": 6, "D": 5}, "interior"),
    1: (ended_with_interior(), {"N": 105, "V": 20, "D": 100}, "interior"),
    2: (SubmodularSVC(), {"N": 105, "V": 20, "D": 100}, "bcfw"),
    3: (SubmodularSVC(), {"N": 50, "V": 20, "D": 100}, "bcfw"),
}


@pytest.mark.parametrize("place", range(len(ROWS)))
def test_every_row_is_taken(place):
    model, options, name = CASES[place]
    problem = tiny(0, **options)
    row = first_that_holds(ROWS, model, problem)
    assert row is ROWS[place] and row.name == name
    solver = choice.default(SubmodularSVC(), problem) if place != 1 else row.build(SubmodularSVC(), problem)
    assert run(solver, Stopping(max_iter=1), name=name).solver == name


@pytest.mark.parametrize(
    ("N", "V", "D", "taken"), [(2000, 20, 150, True), (2001, 20, 150, False), (90, 30, 90, False)]
)
def test_interior_steps_can_take_over_on_few_labels_and_fewer_features_than_samples(N, V, D, taken):
    """Labels of all samples are counted together: the more there are, the less a preconditioner holds."""
    assert can_switch(SubmodularSVC(), tiny(0, N=N, V=V, D=D)) == taken


@pytest.mark.parametrize(("n_labels", "taken"), [(20, True), (21, False)])
def test_many_pairs_of_labels_exclude_one_system(n_labels, taken):
    problem = tiny(0, N=60, V=n_labels, D=3)
    assert len(problem.pairs) == n_labels * (n_labels - 1) // 2
    assert few_weights(SubmodularSVC(), problem) == taken


@pytest.mark.parametrize(("stalled", "ran"), [(-1.0, "bcfw, then interior"), (np.inf, "bcfw")])
def test_interior_steps_continue_if_block_steps_stall(stalled, ran, monkeypatch):
    monkeypatch.setattr(choice, "EPOCHS", 1)
    monkeypatch.setattr(choice, "STALLED", stalled)
    solver = choice.bcfw_then_interior(SubmodularSVC(), tiny(0, N=60, V=5, D=8))
    outcome = run(solver, Stopping(1e-6, 1000))
    assert outcome.converged and outcome.solver == ran

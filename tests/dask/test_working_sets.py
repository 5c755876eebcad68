"""Rounds over parts in this process: every round is an ascent; sizes of groups and of solves."""

from dataclasses import replace

import numpy as np
import pytest

from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.dask.multilabel import TASKS, label_costs, label_groups, split_groups
from maxmargin.dask.rounds import Here, Partitioned, Rounds, rows_of_worker
from maxmargin.dask.working_sets import Move, Part, dense
from maxmargin.multilabel.problem import LinearM3L, Rows, hinge_costs

pytestmark = pytest.mark.nojit


def partitioned(n_parts, R=None):
    """Noisy rows with columns of different scales, in parts."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 4)) * [3.0, 100.0, 3.0, 0.3]
    signs = np.where(X @ rng.normal(size=(4, 3)) + 9 * rng.normal(size=(60, 3)) > 0, 1, -1).astype(np.int8)
    rows = np.array_split(np.arange(60), n_parts)
    parts = [Part(X[k], hinge_costs(signs[k], np.ones((2, 3)), np.ones((len(k), 1))), 1.0) for k in rows]
    groups = [slice(0, 3)] if R is not None else [slice(0, 1), slice(1, 3)]
    whole = LinearM3L(Rows.of(X), hinge_costs(signs, np.ones((2, 3)), np.ones((60, 1))), R, 1.0)
    return Partitioned(TASKS, parts, [len(k) for k in rows], 4, groups, R, 1.0, 0.0), whole


def test_groups_of_labels_have_about_equal_costs():
    sides = np.array([[500, 100, 10, 10, 0, 1000], [500, 900, 990, 990, 0, 0]])
    costs = label_costs(sides)
    np.testing.assert_allclose(costs, [6.0, 2.0, 1.1, 1.1, 1.0, 1.0])
    assert label_groups(6, None, 2) == [slice(0, 3), slice(3, 6)]
    assert label_groups(6, None, 2, costs) == [slice(0, 1), slice(1, 6)]
    assert label_groups(6, None, 9) == [slice(k, k + 1) for k in range(6)]
    # One label costs as much as all others; a prior keeps coupled labels together.
    assert label_groups(3, None, 3, np.array([10.0, 1.0, 1.0])) == [slice(0, 1), slice(1, 3)]
    R = np.eye(6)
    R[0, 1] = R[1, 0] = 0.5
    assert label_groups(6, R, 2, costs) == [slice(0, 6)]


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("R", [None, np.eye(3) + 0.5, np.outer([1.0, 0.5, -2.0], [1.0, 0.5, -2.0])])
def test_every_round_is_an_ascent_with_true_certificates(R, in_turn):
    problem, whole = partitioned(4, R)
    rng = np.random.RandomState(0)
    solver = Rounds(problem, Here(), tol=1e-6, budget=20, rng=rng, in_turn=in_turn)
    last = -np.inf
    for _ in range(6):
        shown = solver.epoch(Clock()).certificate
        assert shown.dual >= last - 1e-9 * abs(shown.primal)
        last = shown.dual
        exact, Z = solver.certify(), solver.solution()
        alpha = np.hstack([np.vstack([dense(some) for some in group.alphas]) for group in solver.groups])
        assert (alpha >= 0).all()
        assert (alpha <= 1).all()
        # Both objectives over all rows, from the stored weights and dual variables.
        _, at_alpha = whole.evaluate(alpha)
        assert exact.dual == pytest.approx(at_alpha.dual, rel=1e-9, abs=1e-9)
        assert shown.dual == pytest.approx(exact.dual, rel=1e-9, abs=1e-9)
        F = whole.rows.matrix @ Z[:-1] + Z[-1]
        loss = np.maximum(0, 1 - whole.costs.signs * F).sum()
        norm = np.trace(np.linalg.pinv(whole.prior, hermitian=True) @ Z.T @ Z)
        assert exact.primal == pytest.approx(0.5 * norm + loss, rel=1e-9)
        assert exact.dual <= exact.primal


class InFlight(Here):
    """Record how many solves are gathered at a time."""

    def __init__(self):
        self.solves = []

    def gather(self, answers):
        self.solves.append(sum(isinstance(one, tuple) and isinstance(one[0], Move) for one in answers))
        return answers


def test_at_once_bounds_the_groups_that_are_solved_at_a_time():
    problem = replace(partitioned(4)[0], groups=[slice(k, k + 1) for k in range(3)])
    together, apart = Here(), InFlight()
    how = {"tol": 1e-6, "budget": 20}
    one = Rounds(problem, together, rng=np.random.RandomState(0), **how)
    other = Rounds(problem, apart, rng=np.random.RandomState(0), at_once=2, **how)
    assert one.epoch(Clock()).certificate == other.epoch(Clock()).certificate
    assert [n for n in apart.solves if n] == [2, 1]


def test_labels_share_a_solve_that_holds_enough_rows_for_each():
    groups = [slice(0, 3), slice(3, 8)]
    assert split_groups(groups, None, 1.0) == groups
    assert split_groups(groups, None, 0.1) == [slice(k, k + 1) for k in range(8)]
    # An eighth of the rows per label: two labels need 1 - (7/8)^2 of the rows.
    assert split_groups(groups, None, 0.235) == split_groups(groups, np.eye(8), 0.235)
    assert [some.stop - some.start for some in split_groups(groups, None, 0.235)] == [1, 2, 2, 1, 2]
    R = np.eye(8)
    R[3:, 3:] = 1.0
    assert split_groups(groups, R, 0.1) == [slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 8)]


def test_a_solve_that_holds_all_rows_needs_one_round():
    problem, _ = partitioned(4)
    solver = Rounds(problem, Here(), tol=1e-6, budget=60, rng=np.random.RandomState(0))
    assert solver.inner_tol == pytest.approx(0.7e-6)
    assert run(solver, Stopping(1e-6, 5)).n_iter == 1


def test_a_solve_holds_the_rows_that_fit_the_memory_of_a_worker():
    problem, _ = partitioned(4)
    problem = replace(problem, sizes=[300_000, 100_000])
    # 18 bytes of X and 32 of two labels per row.
    assert rows_of_worker(problem, 400_000 * 18, np.inf) == 400_000
    assert rows_of_worker(problem, 400_000 * 18, 4 * 350_000 * 50) == 350_000
    assert rows_of_worker(problem, 400_000 * 18, 0.0) == 300_000
    assert rows_of_worker(replace(problem, sizes=[20]), 400, 0.0) == 10_000

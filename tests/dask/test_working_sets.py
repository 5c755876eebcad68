"""Rounds over parts in this process: every one an ascent, and the pieces that they are made of."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.core.loop import Clock, Stopping, run
from maxmargin.dask.multilabel import TASKS
from maxmargin.dask.rounds import Here, Rounds, Scattered, fitting_rows
from maxmargin.dask.working_sets import Move, Part, choose, replaced
from maxmargin.multilabel.problem import LinearM3L, Rows, hamming_costs

pytestmark = pytest.mark.nojit


def scattered(n_parts, R=None, size=1.0):
    """Noisy rows of uneven columns, in parts."""
    rng = np.random.default_rng(3)
    X = size * rng.normal(size=(60, 4)) * [1.0, 10.0, 1.0, 0.1]
    signs = np.where(X @ rng.normal(size=(4, 3)) + 9 * rng.normal(size=(60, 3)) > 0, 1, -1).astype(np.int8)
    rows = np.array_split(np.arange(60), n_parts)
    parts = [Part(X[k], hamming_costs(signs[k], np.ones((2, 3)), np.ones((len(k), 1))), 1.0) for k in rows]
    groups = [slice(0, 3)] if R is not None else [slice(0, 1), slice(1, 3)]
    whole = LinearM3L(Rows.of(X), hamming_costs(signs, np.ones((2, 3)), np.ones((60, 1))), R, 1.0)
    return Scattered(TASKS, parts, [len(k) for k in rows], 4, groups, R, 1.0, 0.0), whole


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("size", [1.0, 10.0])
@pytest.mark.parametrize("R", [None, np.eye(3) + 0.5, np.outer([1.0, 0.5, -2.0], [1.0, 0.5, -2.0])])
def test_every_round_is_an_ascent_with_true_certificates(R, size, in_turn):
    problem, whole = scattered(4, R, size)
    rng = np.random.RandomState(0)
    solver = Rounds(problem, Here(), tol=1e-6, budget=20, rng=rng, in_turn=in_turn)
    last = -np.inf
    for _ in range(10):
        shown = solver.epoch(Clock()).certificate
        assert shown.dual >= last - 1e-9 * abs(shown.primal)
        last = shown.dual
        exact, Z = solver.certify(), solver.solution()
        alpha = np.hstack([sp.vstack(group.alphas).toarray() for group in solver.groups])
        assert (alpha >= 0).all()
        assert (alpha <= 1).all()
        # Both objectives over all rows at once, from the weights and the dual variables that are stored.
        _, at_alpha = whole.evaluate(alpha)
        assert exact.dual == pytest.approx(at_alpha.dual, rel=1e-9, abs=1e-9)
        assert shown.dual == pytest.approx(exact.dual, rel=1e-9, abs=1e-9)
        F = whole.rows.matrix @ Z[:-1] + Z[-1]
        loss = np.maximum(0, 1 - whole.costs.signs * F).sum()
        norm = np.trace(np.linalg.pinv(whole.prior, hermitian=True) @ Z.T @ Z)
        assert exact.primal == pytest.approx(0.5 * norm + loss, rel=1e-9)
        assert exact.dual <= exact.primal


class Watched(Here):
    """Notes how many columns of weights travel."""

    def __init__(self):
        self.columns = set()

    def share(self, value):
        self.columns.add(value.T.shape[1])
        return value

    def gather(self, answers):
        for answer in answers:
            if isinstance(answer, tuple) and isinstance(answer[0], Move):
                self.columns.add(answer[0].dV.shape[1])
            elif isinstance(answer, np.ndarray):
                self.columns.add(answer.shape[1])
        return answers


@pytest.mark.parametrize("R", [None, np.eye(3) + 0.5, np.ones((3, 3))])
def test_a_prior_of_low_rank_travels_in_its_factors(R):
    workers = Watched()
    solver = Rounds(scattered(4, R)[0], workers, tol=1e-6, budget=20, rng=np.random.RandomState(0))
    solver.epoch(Clock())
    assert solver.solution().shape == (5, 3)
    assert workers.columns == ({1, 2} if R is None else {int(np.linalg.matrix_rank(R))})


def test_a_solve_that_holds_all_rows_needs_one_round():
    problem, _ = scattered(4)
    solver = Rounds(problem, Here(), tol=1e-6, budget=60, rng=np.random.RandomState(0))
    assert solver.inner_tol == pytest.approx(0.7e-6)
    assert run(solver, Stopping(1e-6, 5)).n_iter == 1


def test_a_solve_holds_what_fits_a_worker():
    problem, _ = scattered(4)
    problem = replace(problem, sizes=[300_000, 100_000])
    # Rows of 18 bytes, and 32 of two labels.
    assert fitting_rows(problem, 400_000 * 18, np.inf) == 400_000
    assert fitting_rows(problem, 400_000 * 18, 4 * 350_000 * 50) == 350_000
    assert fitting_rows(problem, 400_000 * 18, 0.0) == 300_000
    assert fitting_rows(replace(problem, sizes=[20]), 400, 0.0) == 10_000


def test_half_of_the_rows_are_chosen_by_gap_and_half_by_nearness():
    share, near = np.arange(10.0), np.arange(10.0)[::-1].copy()
    chosen = choose(share, near, 4, np.random.default_rng(0))
    assert chosen.tolist() == [0, 1, 8, 9]
    assert choose(share, np.zeros(10), 4, np.random.default_rng(0)).tolist() == [6, 7, 8, 9]
    assert choose(share, near, 99, np.random.default_rng(0)).tolist() == list(range(10))
    assert choose(share, near, 0, np.random.default_rng(0)).size == 0


def test_replaced_rows_are_the_only_ones_that_change():
    old = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    new = replaced(sp.csr_array(old), np.array([0, 2]), np.array([[0.0, 5.0], [0.0, 0.0]]))
    assert new.toarray().tolist() == [[0.0, 5.0], [0.0, 2.0], [0.0, 0.0]]
    assert new.nnz == 2

"""Labels over workers: every one has all rows and learns some of the labels.

Without a prior that couples them, the labels of M3L share nothing but X: the objective is a sum over groups
of labels, and so are dual and gap. Every worker fetches the rows that it does not have, once, and there are
no rounds.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, run
from maxmargin.core.rows import Rows
from maxmargin.core.threads import count_threads
from maxmargin.dask.rounds import Scattered, Workers
from maxmargin.dask.working_sets import Part, stacked, stacked_weights
from maxmargin.multilabel.estimator import SOLVERS, MultiLabelSVC
from maxmargin.multilabel.problem import EntryCosts, LinearM3L, frequent_first

# What a solve needs room for, for each of its labels, as a part of all rows. Rows of several labels meet as
# independent ones would. Found with `experiments/label_rooms.py`.
SHARE_OF_LABEL = 0.125
# A label costs one unit, and so many times the part of all samples that is on its rarer side. Found with
# `experiments/label_costs.py`.
RARER = 10.0


class Learnt(NamedTuple):
    """The weights of a group of labels, the columns that they are of (None: all), and their certificate.

    Weights are feature-major with the bias last.
    """

    weights: np.ndarray
    columns: np.ndarray | None
    certificate: Certificate


class Heads(NamedTuple):
    """The weights of all labels as the model has them, and the bias row of Z."""

    coef: np.ndarray
    bias_row: np.ndarray


class Assignment(NamedTuple):
    """What one worker is asked to do: some of `n_labels` labels."""

    labels: slice
    n_labels: int
    R: np.ndarray | None
    model: MultiLabelSVC
    seed: int


def groups_of(
    n_labels: int, R: np.ndarray | None, n_groups: int, costs: np.ndarray | None = None
) -> list[slice]:
    """Ranges of labels that the prior does not couple, not more than `n_groups` of them.

    They have about as many labels, or cost about as much where the `costs` of labels are given.
    """
    ends = np.concatenate([[0.0], np.cumsum(np.ones(n_labels) if costs is None else costs)])
    goals = np.linspace(0.0, ends[-1], min(n_groups, n_labels) + 1)
    cuts = set(np.searchsorted(0.5 * (ends[1:] + ends[:-1]), goals).tolist())
    if R is not None:
        cuts = {cut for cut in cuts if not R[:cut, cut:].any()}
    return [slice(a, b) for a, b in pairwise(sorted(cuts))]


def label_costs(sides: np.ndarray) -> np.ndarray:
    """What it costs to learn each label, in any unit; `sides` are the weights of both of its sides."""
    total = sides.sum(axis=0)
    rarer = np.divide(sides.min(axis=0), total, out=np.zeros(len(total)), where=total > 0)
    return 1.0 + RARER * rarer


def narrowed(
    groups: list[slice], R: np.ndarray | None, share: float, each: float = SHARE_OF_LABEL
) -> list[slice]:
    """Groups of so few labels that solves holding a `share` of the rows have room enough for each."""
    if share >= 1.0:
        return groups
    together = max(1, int(np.log1p(-share) / np.log1p(-each)))
    finer = []
    for labels in groups:
        n = labels.stop - labels.start
        ours = groups_of(n, None if R is None else R[labels, labels], -(-n // together))
        finer += [slice(labels.start + some.start, labels.start + some.stop) for some in ours]
    return finer


def joined(costs: list[EntryCosts]) -> EntryCosts:
    """The costs of all parts as one."""
    filled = next((one for one in costs if len(one.signs)), costs[0])
    margin = np.vstack([one.margins() for one in costs]) if filled.per_entry_margin else filled.margin
    signs = np.vstack([one.signs for one in costs])
    return EntryCosts(signs, stacked_weights(costs), filled.upper, margin, filled.per_entry_margin)


def learn(wanted: Assignment, *parts: Part) -> Learnt:
    """Solve for the labels of one group on the rows of all parts."""
    costs = joined([part.of(wanted.labels) for part in parts])
    rows, columns = frequent_first(Rows.of(stacked([part.X for part in parts])))
    problem = LinearM3L(rows, costs, wanted.R, parts[0].bias, columns)
    model, stopping = wanted.model, wanted.model._stopping()
    solver = SOLVERS[model.solver].build(
        problem,
        model._start(problem, stopping, wanted.n_labels),
        tol=stopping.target,
        rng=np.random.RandomState(wanted.seed),
        n_threads=count_threads(model.n_jobs),
    )
    outcome = run(solver, stopping)
    return Learnt(np.ascontiguousarray(solver.solution().weights), columns, outcome.certificate)


class WholeRows:
    """The solver: one epoch, in which every group of labels is learnt to the gap asked for.

    Parameters
    ----------
    problem : Scattered
    workers : Workers
    model : MultiLabelSVC
        Says which solver, its precision, limits and threads.
    rng : numpy.random.RandomState
    """

    name = "whole rows"

    def __init__(
        self, problem: Scattered, workers: Workers, *, model: MultiLabelSVC, rng: np.random.RandomState
    ) -> None:
        self.problem, self.workers, self.model = problem, workers, model
        self.seed = int(rng.randint(2**31))
        self.learnt: list[Learnt] = []

    def epoch(self, clock: Clock) -> Progress:
        self.learnt = self.workers.steadily(self._learn)
        return Progress(
            self.certify(), sum(self.problem.sizes), exact=True, stuck="increase max_iter or time_limit"
        )

    def certify(self) -> Certificate:
        if not self.learnt:
            raise KeyboardInterrupt("Interrupted before any label was learnt; there is no model.")
        constant = self.problem.constant
        return Certificate(
            sum(one.certificate.primal for one in self.learnt) + constant,
            sum(one.certificate.dual for one in self.learnt) + constant,
        )

    def solution(self) -> Heads:
        problem = self.problem
        coef = np.zeros((problem.n_features, problem.groups[-1].stop))
        for labels, one in zip(problem.groups, self.learnt, strict=True):
            places = slice(None) if one.columns is None else one.columns
            coef[places, labels] = one.weights[:-1]
        return Heads(coef.T, np.concatenate([one.weights[-1] for one in self.learnt]))

    def _learn(self) -> list[Learnt]:
        problem, submit = self.problem, self.workers.submit
        answers: list[Any] = []
        for labels in problem.groups:
            R = None if problem.R is None else problem.R[labels, labels]
            wanted = Assignment(labels, problem.groups[-1].stop, R, self.model, self.seed)
            answers.append(submit(learn, wanted, *problem.parts))
        return self.workers.gather(answers)

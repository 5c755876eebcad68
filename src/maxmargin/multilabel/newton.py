"""Newton's method for few features: proximal steps on the dual, each solved in the weights.

Problem, dual and gap as in `problem`. Coordinate ascent gets stuck where
features are few and overlap or have different scales, which is how most tables are. There the weights are
the small side of the problem, and one label is solved at a time. With shares t = alpha / c of the boxes, a
proximal step from the centre a,

    max_t  D(c t) - omega / 2 sum_i c_i (t_i - a_i)^2,

is by duality the minimum of a smoothed primal, in which each hinge is rounded off over a width of omega:

    min_z  1/2 |z|^2 / r + sum_i c_i phi(g_i),     phi'(g) = t(g) = clip(a + g / omega, 0, 1).

It is piecewise quadratic, and Newton's method with an exact line search solves it in a few steps. Only
entries within their boxes enter the Hessian diag(1 / r) + X' diag(c / omega) X, so that a step costs
O(N D) and D^2 for each of them. The gap at any z and its t, with V = X'(y c t), splits into

    P(z) - D(c t) = sum_i c_i (max(g_i, 0) - t_i g_i) + r / 2 |z / r - V|^2 :

when the second part, which the Newton steps bring to zero, is below `solved` times the first, t becomes the
new centre and omega shrinks. This is the method of multipliers, which ends after finitely many
centres on a problem with linear pieces. 15 to 40 steps are usual, whatever C and the conditioning of X.

Coupled labels are one label of N L entries, whose rows are x_i kron P_l with R = P'P: (D+1) rank(R) columns.

Columns are scaled by powers of two inside, so the scale of a feature does not matter. The weights with the
smallest primal and the shares with the largest dual value are kept, each for itself.

Where C is so large that no optimal alpha comes near its box, shares drown in rounding. At the optimum
1/2 |V|^2 <= P, so that <m, alpha> <= 2 P(z) for every z: once steps are stuck, boxes end at 2 P(z) / m, which
changes no optimum, and the steps begin anew. A rounding of the margins still costs C; a multiple of z
just above 1 keeps them. Where no step has come near the optimum, P(z) bounds nothing; then boxes are cut to
what shares are exact with.

Yan, Li, "An efficient augmented Lagrangian method for support vector machine", Optimization Methods and
Software 35, 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from maxmargin.core.loop import Certificate, Clock, Patience, Progress
from maxmargin.core.rows import readonly
from maxmargin.core.threads import run_threads
from maxmargin.multilabel.problem import LinearM3L, Solution, powers_of_two
from maxmargin.multilabel.proximal import Columns, Entries, NewtonState, Shrinking, newton_steps

# Largest C |x|^2 with which shares of the boxes are more than rounding, and a gap that tells nothing.
CURVED, HOPELESS = 1e12, 0.5
# A multiple of weights that keeps margins which rounding has cut.
ABOVE_ONE = 1 + 2.0**-40
# Entries of labels that take a step together.
GROUP = 2**17


@dataclass(frozen=True)
class NewtonRule:
    """How the proximal steps follow each other; none of it changes the optimum.

    Parameters
    ----------
    first, again : float
        omega at the start, relative to the largest margin: cold, and from given dual variables.
    near : float
        Largest relative gap at which given dual variables are started from.
    shrink, least : float
        omega from one centre to the next, and its smallest value relative to the largest margin.
    solved : float
        A proximal step is solved when what its Newton steps left of the gap is below this part of the rest.
    n_steps, epoch : int, float
        Most Newton steps of one epoch, and entries of X times labels that they may read; at least one step.
    aim : float
        Part of the gap allowed by tol that is aimed at.
    """

    first: float = 4.0
    again: float = 0.25
    near: float = 0.1
    shrink: float = 0.25
    least: float = 1e-6
    solved: float = 0.3
    n_steps: int = 5
    epoch: float = 1e6
    aim: float = 0.95


class Newton:
    """State of the method: see `NewtonState`, all float64.

    Parameters
    ----------
    problem : LinearM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap that training stops at.
    n_threads : int, default=1
        Threads over labels.
    rule : NewtonRule
    columns : (Columns, array), optional
        What `scaled_columns` makes of the problem, where other problems on the same rows share it.
    """

    def __init__(
        self,
        problem: LinearM3L,
        alpha: np.ndarray,
        *,
        tol: float,
        n_threads: int = 1,
        rule: NewtonRule | None = None,
        columns: tuple[Columns, np.ndarray] | None = None,
    ) -> None:
        self.problem, self.tol, self.n_threads = problem, tol, n_threads
        self.rule = NewtonRule() if rule is None else rule
        self.boxes = problem.costs.boxes()
        self.columns, self.scale = scaled_columns(problem) if columns is None else columns
        self.entries = label_major(problem, self.boxes)
        self.widest = float(self.entries.m.max(initial=0.0)) or 1.0
        (L, n), D = self.entries.y.shape, len(self.scale)
        self.state = NewtonState(
            omega=np.full(L, self.rule.first * self.widest),
            primal=np.full(L, np.inf),
            dual=np.zeros(L),
            centre=np.full((L, n), 0.5),
            scores=np.zeros((L, n)),
            best_share=np.zeros((L, n)),
            z=np.zeros((L, D)),
            best_z=np.zeros((L, D)),
        )
        self.n_steps = int(np.clip(self.rule.epoch / max(n * L * D, 1), 1, self.rule.n_steps))
        self.gap, self.aim = np.inf, self.rule.aim
        self.patience = Patience(200 // self.n_steps)
        self.capped = False
        self._answer: tuple[Solution, Certificate] | None = None
        if alpha.any():
            self._begin_at(alpha)

    def epoch(self, clock: Clock) -> Progress:
        """Some Newton steps on every label that is not done."""
        if self.gap <= self.tol:
            # The running gap was small enough and yet there is another epoch: the scores have drifted.
            self._resynchronise()
        self._answer = None
        self._move(clock)
        certificate, stuck = self._bounds(), ""
        if self.patience.exhausted(certificate.gap):
            self._refine()
            certificate = self._bounds()
            goes_on = certificate.gap <= self.tol or self._cap(certificate.gap)
            stuck = "" if goes_on else "scale the features"
        self.gap = certificate.gap
        return Progress(certificate, self.problem.shape[0], stuck=stuck)

    def _bounds(self) -> Certificate:
        """The best of both sides so far, as the steps have seen them."""
        state, constant = self.state, self.problem.costs.constant
        return Certificate(float(state.primal.sum()) + constant, float(state.dual.sum()) + constant)

    def certify(self) -> Certificate:
        return self._evaluated()[1]

    def solution(self) -> Solution:
        return self._evaluated()[0]

    def _evaluated(self) -> tuple[Solution, Certificate]:
        """The best weights and dual variables as they are, kept until the next epoch."""
        if self._answer is None:
            alpha = self.state.best_share.T.reshape(self.boxes.shape) * self.boxes
            weights = self.weights()
            Z, certificate = self.problem.evaluate(alpha, n_threads=self.n_threads, weights=weights)
            if self.capped and certificate.gap > self.tol:
                Z, certificate = self.problem.evaluate(
                    alpha, n_threads=self.n_threads, weights=ABOVE_ONE * weights
                )
            self._answer = Solution(readonly(alpha), Z), certificate
        return self._answer

    def _move(self, clock: Clock) -> None:
        L, n = self.state.centre.shape
        size = max(1, GROUP // n)
        groups = [readonly(np.arange(l, min(l + size, L))) for l in range(0, L, size)]
        primal = self.state.primal[np.isfinite(self.state.primal)]
        # Half of the gap allowed goes with the objective of a label, half to all labels alike.
        half = 0.5 * self.aim * self.tol
        targets = (half, half * float(primal.sum()) / L)
        rule = Shrinking(self.rule.shrink, self.rule.least * self.widest, self.rule.solved)

        def work(labels: np.ndarray) -> None:
            if not clock.expired():
                newton_steps(self.columns, self.entries, labels, targets, self.n_steps, rule, self.state)

        run_threads(work, groups, self.n_threads)

    def _refine(self, *, most: int = 1000) -> None:
        """Solve for the dual variables within their boxes by the margins that they must make.

        The shares of a step carry the rounding of scores over omega, which is much of them where boxes are
        far too large.
        """
        state = self.state
        for l, (y, box, m) in enumerate(zip(*self.entries, strict=True)):
            alpha = state.best_share[l] * box
            free = np.flatnonzero((alpha > 0) & (alpha < box))
            if not 0 < free.size <= most:
                continue
            rows = y[:, None] * self.columns.X * (self.scale * np.sqrt(self.columns.r[l]))
            missing = m[free] - rows[free] @ (alpha @ rows)
            change = np.linalg.lstsq(rows[free] @ rows[free].T, missing, rcond=None)[0]
            alpha[free] = np.clip(alpha[free] + change, 0.0, box[free])
            V = alpha @ rows
            dual = float(alpha @ m) - 0.5 * float(V @ V)
            if dual > state.dual[l]:
                state.dual[l], state.best_share[l, free] = dual, alpha[free] / box[free]

    def _cap(self, gap: float, *, far: float = 1e-3) -> bool:
        """Cut boxes to what an optimum may fill and begin anew, once, if that is far less than they hold.

        Weights that leave most of the gap tell nothing of an optimum; then boxes are cut to what shares are
        exact with.
        """
        state, (_, boxes, margins) = self.state, self.entries
        most = np.divide(
            2 * state.primal[:, None], margins, out=np.full(boxes.shape, np.inf), where=margins > 0
        )
        if gap > HOPELESS:
            most = np.minimum(most, CURVED / self.problem.reach() ** 2)
        if self.capped or not np.minimum(boxes, most).max() < far * boxes.max():
            return False
        self.capped = True
        self.entries = self.entries._replace(c=np.minimum(boxes, most))
        self.boxes = self.entries.c.T.reshape(self.boxes.shape)
        state.omega[:], state.centre[:] = self.rule.first * self.widest, 0.5
        state.z[:] = 0.0
        self._resynchronise()
        self.patience = Patience(200 // self.n_steps)
        return True

    def _begin_at(self, alpha: np.ndarray) -> None:
        """Start from dual variables: their shares as the centre, the weights that they make.

        Far from the optimum almost all entries would be at their bounds, where Newton steps see nothing of
        the losses; the cold start is better then.
        """
        if self.problem.evaluate(alpha, n_threads=self.n_threads)[1].gap > self.rule.near:
            return
        state, boxes = self.state, self.boxes
        share = np.divide(alpha, boxes, out=np.zeros(boxes.shape), where=boxes > 0)
        state.centre[:] = share.reshape(state.centre.shape[::-1]).T
        V = self.problem.accumulate(alpha)
        self.begin_with(V @ self.problem.factor.T if self.problem.coupled else V * self.problem.r)

    def begin_with(self, U: np.ndarray) -> None:
        """Start from weights, the bias (or zero) last; coupled labels: those of the rows x_i kron P_l."""
        state = self.state
        state.z[:] = U.reshape(-1, len(state.z))[: len(self.scale)].T * self.scale
        state.scores[:] = state.z @ self.columns.X.T
        state.omega[:] = self.rule.again * self.widest

    def _resynchronise(self) -> None:
        """Make the scores anew, forget what was measured by the old ones, and aim lower."""
        state = self.state
        state.scores[:] = state.z @ self.columns.X.T
        state.primal[:], state.dual[:], state.best_share[:] = np.inf, 0.0, 0.0
        self.aim *= 0.5

    def weights(self) -> np.ndarray:
        """The best weights as `LinearM3L.evaluate` takes them, the bias (or zero) last."""
        U = (self.state.best_z / self.scale).T
        U = U.reshape(-1, len(self.problem.factor)) if self.problem.coupled else U / np.sqrt(self.problem.r)
        return U if self.problem.bias else np.vstack([U, np.zeros(U.shape[1])])


def scaled_columns(problem: LinearM3L) -> tuple[Columns, np.ndarray]:
    """X in float64 with the constant feature last, each column divided by a power of two; these powers.

    With coupled labels the rows are x_i kron P_l.
    """
    X = problem.rows.matrix
    n, d = X.shape
    with_bias = d + (problem.bias > 0)
    rank, L = problem.factor.shape if problem.coupled else (1, 1)
    problem.check_memory("newton", n * L * with_bias * rank)
    columns = np.empty((n, with_bias))
    columns[:, :d] = X.toarray() if sp.issparse(X) else X
    columns[:, d:] = problem.bias
    r = problem.r
    if problem.coupled:
        columns = np.einsum("ij,kl->iljk", columns, problem.factor).reshape(n * L, with_bias * rank)
        r = np.ones(1)
    scale = powers_of_two(np.abs(columns).max(axis=0, initial=0.0))
    columns /= scale
    return Columns(readonly(columns), readonly(1 / scale**2), readonly(r)), scale


def label_major(problem: LinearM3L, boxes: np.ndarray) -> Entries:
    """The entries of every label as a row; of labels that a prior couples, all in one, sample by sample."""
    shape = (-1, 1) if problem.coupled else boxes.shape
    parts = (problem.costs.signs, boxes, problem.costs.margins())
    return Entries(*(np.ascontiguousarray(part.reshape(shape).T, dtype=np.float64) for part in parts))


def few_features(
    problem: LinearM3L,
    most: int = 300,
    filled: float = 0.2,
    cells: int = 5 * 10**7,
    small: float = 5e8,
    curved: float = 3.0,
) -> bool:
    """Whether this method is the first choice: columns that are dense and not too many, long rows.

    Parameters
    ----------
    most : int
        Largest number of features; of those of all labels that a prior couples, unless these take turns.
    filled : float
        Least part of X that is not zero; the sweeps pass over zeros, this method does not.
    cells : int
        Largest size of the dense copy of X.
    small : float
        Multiply-adds of the second derivatives of all labels up to which C does not count: a fit takes less
        time than to compile the loops of the sweeps.
    curved : float
        Least mean of C |x|^2, the bias included; below it the sweeps are there in a few epochs.
    """
    (n, L), d = problem.shape, problem.n_features
    costs = problem.costs
    C = float(costs.weight.mean()) * float(costs.upper.mean())
    if n * L * d**2 > small and C * (float(problem.q.mean()) + problem.bias**2) < curved:
        return False
    if filled * n * d > problem.rows.data.size:
        return False
    if d > most or n * d > cells:
        return False
    return fits_joined(problem, most, cells) or in_turns(problem)


def fits_joined(problem: LinearM3L, most: int = 300, cells: int = 5 * 10**7) -> bool:
    """Whether labels that are coupled, joined to one, have so few columns, and a copy as small as that."""
    (n, L), d = problem.shape, problem.n_features
    rank, copies = (len(problem.factor), L) if problem.coupled else (1, 1)
    return d * rank <= most and n * copies * d * rank <= cells


def in_turns(
    problem: LinearM3L, condition: float = 500.0, entries: int = 5 * 10**6, curved: float = 1e12
) -> bool:
    """Whether coupled labels, too many to be joined, are so loosely tied that they take turns: see `turns`.

    Parameters
    ----------
    condition : float
        Largest condition of R, with which the number of rounds grows.
    entries : int
        Most dual variables, of which some ten copies are kept.
    curved : float
        Largest C |x|^2 with which shares of the boxes are more than rounding.
    """
    n, L = problem.shape
    if not problem.coupled or n * L > entries or fits_joined(problem):
        return False
    C = float(problem.costs.weight.max()) * float(problem.costs.upper.max())
    return C * problem.reach() ** 2 <= curved and problem.condition <= condition

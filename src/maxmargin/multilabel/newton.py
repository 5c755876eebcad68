"""Newton's method for few features: the losses and geometries of `core.proximal_newton` for labels.

Problem, dual and gap as in `problem`. Coordinate ascent stalls if features are few and overlap or have
different scales, as in most tables. There the weights are the small side of the problem.

**Hinge.** The shares are t = alpha / c of the boxes, and each hinge is smoothed over a width tau:

    phi'(g) = t(g) = clip(a + g / tau, 0, 1),     second derivative sum c / tau x x' over 0 < t < 1.

Independent labels are groups of their own, with weights u_l and scores sqrt(r_l) x.u_l. Coupled labels are
one group with weights U (rank x D) and scores F = P'U X', R = P'P.

**Squared hinge.** t = 2 max(g, 0) without an upper bound, tau = 1/2 is part of the loss and there is no
anchor: P - D(alpha) = 1/2 |grad P|^2 at any weights.

If C is so large that no optimal alpha comes near its box, shares are lost in rounding. At the optimum 1/2
|V|^2 <= P, so <m, alpha> <= 2 P(Z) for every Z: when steps stall, boxes are cut to 2 P(Z) / m, which does not
change the optimum, and the steps start again. A rounding of the margins still costs C; a multiple of the
weights slightly above 1 restores them. If no step has come near the optimum, P(Z) bounds nothing, and boxes
are cut to the largest size at which shares are exact.

Keerthi, DeCoste, "A modified finite Newton method for fast solution of large scale linear SVMs", Journal of
Machine Learning Research 6, 2005.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dsyrk

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.linalg import conjugate_gradients
from maxmargin.core.loop import Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.core.proximal_newton import (
    ALL,
    NewtonSteps,
    ProximalPoint,
    half_squares,
    solve_scaled,
    sums,
)
from maxmargin.core.rows import Rows, readonly
from maxmargin.core.threads import run_threads
from maxmargin.multilabel.label_blocks import Answer, ManyM3L, ManySolution, prune_weights
from maxmargin.multilabel.loops import add_squares
from maxmargin.multilabel.problem import EntryCosts, KernelM3L, LinearM3L, Solution

# First tau, in units of the largest margin; `AGAIN` if weights are given.
FIRST, AGAIN = 4.0, 0.25
# Steps in which the gap must fall by a tenth: of independent labels, and of coupled ones, which share the
# length of a step. Of 96 fits with a prior at C of 1e4 and 1e6 six stop too early with 200 steps, none with
# 500.
PATIENCE, PATIENCE_COUPLED = 200, 500
# Largest relative gap at which given dual variables are used as a start.
START = 0.1
# Most Newton steps of an epoch, and most products of entries of X and labels.
STEPS, EPOCH = 5, 1e6
# The steps aim at this part of the gap that tol allows.
AIM = 0.95
# Largest C |x|^2 at which shares are more than rounding, and a gap that bounds nothing.
CURVED, HOPELESS = 1e12, 0.5
# A multiple of the weights that restores margins cut by rounding.
ABOVE_ONE = 1 + 2.0**-40
# Entries of labels that take a step together.
GROUP = 2**17
# Largest curvature times |x|^2 at which equations in samples are accurate enough.
SAFE = 1e8
# Largest order of a system of coupled labels that is factored; larger ones are solved by conjugate gradients.
DIRECT = 1200
# Labels per thread and epoch, and the part of nonzeros from which sparse rows become dense.
BLOCK, FILLED = 32, 0.2
# Eigenvalues of K below this part of the largest are rounding.
RANK = 1e-14
SCALES = "scale the features"
ROUNDED = "scale the features, or lower C or intercept_scaling,"


class HingeLosses:
    """The hinges of all entries: signs (times the square root of the prior), boxes and margins, (G, k, n)."""

    def __init__(self, signs: np.ndarray, boxes: np.ndarray, margins: np.ndarray) -> None:
        self.signs, self.boxes, self.margins = signs, boxes, margins
        self.zero_shares = np.zeros_like(boxes)

    def line(self, at: Any, tau: np.ndarray, anchor: np.ndarray, scores: np.ndarray, moves: Any) -> HingeLine:
        return HingeLine(self, at, tau, anchor, scores, moves)

    def curvature(self, at: Any, tau: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Second derivatives of all losses with respect to their scores."""
        inside = (shares > 0.0) & (shares < 1.0)
        return np.where(inside, self.boxes[at] * self.signs[at] ** 2 / tau[:, None, None], 0.0)


class HingeLine:
    """Smoothed hinges along a line."""

    def __init__(
        self,
        losses: HingeLosses,
        at: Any,
        tau: np.ndarray,
        anchor: np.ndarray,
        scores: np.ndarray,
        moves: Any,
    ) -> None:
        self.signs, self.boxes, self.margins = losses.signs[at], losses.boxes[at], losses.margins[at]
        tau = tau[:, None, None]
        self.g = self.margins - self.signs * scores
        self.start = self.g / tau
        self.start += anchor
        if moves is not None:
            self.change = self.signs * moves
            self.fall, self.weight = self.change / tau, self.boxes * self.change

    def slope(self, lengths: np.ndarray, of: np.ndarray) -> np.ndarray:
        whole = len(of) == len(self.start)
        start, fall, weight = (a if whole else a[of] for a in (self.start, self.fall, self.weight))
        shares = lengths[:, None, None] * fall
        np.subtract(start, shares, out=shares)
        return -sums(weight, clipped(shares))

    def bracketed(self, moved: np.ndarray | None) -> None:
        """Do nothing: all samples stay in the sums."""

    def point(self, lengths: np.ndarray | None) -> ProximalPoint:
        g, shares = self.g, self.start
        if lengths is not None:
            t = lengths[:, None, None]
            g, shares = g - t * self.change, shares - t * self.fall
        shares = clipped(shares)
        costed = self.boxes * shares
        losses = sums(self.boxes, np.maximum(g, 0.0))
        return ProximalPoint(shares, self.signs * costed, losses, sums(costed, g), sums(costed, self.margins))


class SquaredLosses(HingeLosses):
    """The squared hinges of all entries, which need no smoothing."""

    def line(
        self, at: Any, tau: np.ndarray, anchor: np.ndarray, scores: np.ndarray, moves: Any
    ) -> SquaredLine:
        return SquaredLine(self, at, np.full_like(tau, 0.5), np.zeros_like(anchor), scores, moves)

    def curvature(self, at: Any, tau: np.ndarray, shares: np.ndarray) -> np.ndarray:
        return np.where(shares > 0.0, 2.0 * self.boxes[at] * self.signs[at] ** 2, 0.0)


class SquaredLine(HingeLine):
    """Squared hinges along a line; tau is 1/2."""

    def slope(self, lengths: np.ndarray, of: np.ndarray) -> np.ndarray:
        shares = self.start[of] - lengths[:, None, None] * self.fall[of]
        return -sums(self.weight[of], np.maximum(shares, 0.0))

    def point(self, lengths: np.ndarray | None) -> ProximalPoint:
        g = self.g if lengths is None else self.g - lengths[:, None, None] * self.change
        h = np.maximum(g, 0.0)
        costed = 2.0 * self.boxes * h
        losses = sums(self.boxes, h * h)
        values = sums(costed, self.margins) - losses
        return ProximalPoint(2.0 * h, self.signs * costed, losses, losses, values)


def clipped(shares: np.ndarray) -> np.ndarray:
    """Shares clipped to [0, 1], in place."""
    np.maximum(shares, 0.0, out=shares)
    return np.minimum(shares, 1.0, out=shares)


class LabelRows:
    """Rows of X, the constant feature last, with a Newton equation per label.

    X is dense or CSR. Equations are solved in the samples whose loss is curved if these are few or if their
    products are stored, otherwise in the features.
    """

    def __init__(self, X: Any, *, keep_products: bool = False) -> None:
        self.X, self.sparse = X, sp.issparse(X)
        n, self.order = X.shape
        self.flat = Rows.of(X).flat if self.sparse else None
        squares = X.multiply(X).sum(axis=1) if self.sparse else np.einsum("ij,ij->i", X, X)
        self.safe = SAFE / max(float(np.max(squares, initial=0.0)), 1e-300)
        # Products of all samples, which the labels share, unless they are much larger than X.
        self.products: np.ndarray | None = filled(X @ X.T) if keep_products and n <= 2 * self.order else None

    def scores(self, W: np.ndarray) -> np.ndarray:
        return ((self.X @ W[:, 0].T).T if self.sparse else W[:, 0] @ self.X.T)[:, None]

    def image(self, steps: np.ndarray, moved: np.ndarray | None = None) -> np.ndarray:
        return ((self.X.T @ steps[:, 0].T).T if self.sparse else steps[:, 0] @ self.X)[:, None]

    def entry_rows(self, labels: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """Rows of the map from the weights of a group to the scores of some entries."""
        return filled(self.X[samples])

    def directions(self, newton: NewtonSteps, at: Any) -> np.ndarray:
        curvature = newton.losses.curvature(at, newton.tau[at], newton.shares[at])
        each = zip(curvature[:, 0], newton.gradients[at][:, 0], strict=True)
        return np.stack([self._direction(weights, gradient) for weights, gradient in each])[:, None]

    def _direction(self, weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Solve (I + sum_i weights_i x_i x_i') d = -gradient."""
        curved = np.flatnonzero(weights)
        weights = weights[curved]
        few = self.order // 2 if self.products is None else self.order
        if len(curved) < few and weights.max(initial=0.0) < self.safe:
            rows = self.X[curved]
            known = self.products
            system = filled(rows @ rows.T) if known is None else known[np.ix_(curved, curved)]
            system.flat[:: len(system) + 1] += 1.0 / weights
            return rows.T @ solve_scaled(system, rows @ gradient) - gradient if curved.size else -gradient
        if self.sparse:
            system = np.zeros((self.order, self.order))
            add_squares(self.flat, curved, weights, system)
        else:
            rows = self.X[curved] * np.sqrt(weights[:, None])
            system = np.asarray(dsyrk(1.0, rows.T)).T
        system.flat[:: self.order + 1] += 1.0
        return -solve_scaled(system, gradient)


class CoupledRows:
    """Rows of X, the constant feature last, and P of the prior R = P'P that couples the labels: one group."""

    def __init__(self, X: np.ndarray, P: np.ndarray) -> None:
        self.X, self.P = X, P
        self.shape = len(P), X.shape[1]

    def scores(self, W: np.ndarray) -> np.ndarray:
        return (self.P.T @ (W[0] @ self.X.T))[None]

    def image(self, steps: np.ndarray, moved: np.ndarray | None = None) -> np.ndarray:
        return ((self.P @ steps[0]) @ self.X)[None]

    def entry_rows(self, labels: np.ndarray, samples: np.ndarray) -> np.ndarray:
        rows = self.P.T[labels][:, :, None] * self.X[samples][:, None]
        return rows.reshape(len(labels), -1)

    def directions(self, newton: NewtonSteps, at: Any) -> np.ndarray:
        weights = newton.losses.curvature(ALL, newton.tau, newton.shares)[0]
        gradient = newton.gradients[0]
        squares = np.stack([self._squares(each) for each in weights])
        solve = self._solve_directly if gradient.size <= DIRECT else self._solve_iteratively
        return -solve(squares, weights, gradient)[None]

    def _squares(self, weights: np.ndarray) -> np.ndarray:
        """X' diag(weights) X."""
        curved = np.flatnonzero(weights)
        rows = self.X[curved] * np.sqrt(weights[curved, None])
        return rows.T @ rows

    def _solve_directly(self, squares: np.ndarray, weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Solve with the matrix I + sum_l P_l P_l' (x) X'D_l X."""
        rank, D = self.shape
        pairs = (self.P[:, None] * self.P[None]).reshape(rank * rank, -1)
        matrix = (pairs @ squares.reshape(len(squares), -1)).reshape(rank, rank, D, D)
        matrix = np.ascontiguousarray(matrix.transpose(0, 2, 1, 3)).reshape(rank * D, rank * D)
        matrix.flat[:: rank * D + 1] += 1.0
        return solve_scaled(matrix, gradient.ravel()).reshape(rank, D)

    def _solve_iteratively(
        self, squares: np.ndarray, weights: np.ndarray, gradient: np.ndarray, *, accuracy: float = 0.003
    ) -> np.ndarray:
        """Solve by conjugate gradients, preconditioned by the equations of the separate labels.

        In the weights Z = P'U of the labels the matrix is Q (x) I plus one block per label, Q = R^-1; the
        blocks on its diagonal are inverted.
        """
        inverse = np.linalg.inv(self.P)
        for block, q in zip(squares, np.square(inverse).sum(axis=1), strict=True):
            block.flat[:: len(block) + 1] += q
        scale = 1.0 / np.sqrt(np.einsum("ldd->ld", squares))
        squares *= scale[:, :, None] * scale[:, None, :]
        inverses = np.linalg.inv(squares) * scale[:, :, None] * scale[:, None, :]

        def product(V: np.ndarray) -> np.ndarray:
            return V + self.image((weights * self.scores(V[None])[0])[None])[0]

        def precondition(V: np.ndarray) -> np.ndarray:
            return inverse.T @ np.matmul(inverses, (inverse @ V)[:, :, None])[:, :, 0]

        return conjugate_gradients(product, gradient, precondition, accuracy=accuracy)[0]


class Newton(Evaluated):
    """Newton's method on a linear problem.

    Parameters
    ----------
    problem : LinearM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap at which training stops.
    n_threads : int, default=1
        Threads over labels.
    rows : LabelRows, optional
        Rows of the problem that other problems share.
    """

    def __init__(
        self,
        problem: LinearM3L,
        alpha: np.ndarray,
        *,
        tol: float,
        n_threads: int = 1,
        rows: LabelRows | None = None,
    ) -> None:
        self.problem, self.tol, self.n_threads = problem, tol, n_threads
        costs, coupled = problem.costs, problem.coupled
        self.boxes = costs.boxes()
        signs = costs.signs if coupled else costs.signs * np.sqrt(problem.r)
        self.losses = HingeLosses(*map(self._grouped, (signs, self.boxes, costs.margins())))
        self.widest = float(self.losses.margins.max(initial=0.0)) or 1.0
        self.geometry: LabelRows | CoupledRows
        if coupled:
            self.geometry = CoupledRows(dense_rows(problem), problem.factor)
            shape = (1, *self.geometry.shape)
        else:
            self.geometry = LabelRows(dense_rows(problem)) if rows is None else rows
            shape = problem.shape[1], 1, self.geometry.order
        self._begin(np.zeros(shape), np.full(self.losses.boxes.shape, 0.5), FIRST)
        n, L = problem.shape
        self.n_steps = int(np.clip(EPOCH / max(n * L * shape[-1], 1), 1, STEPS))
        self.gap, self.aim = np.inf, AIM
        self.patience = self._patience()
        self.is_cut = False
        if alpha.any() and problem.evaluate(alpha, n_threads=n_threads)[1].gap <= START:
            # Farther from the optimum almost all entries are at their bounds, where steps cannot use the
            # losses.
            shares = np.divide(alpha, self.boxes, out=np.zeros(self.boxes.shape), where=self.boxes > 0)
            anchor = self._grouped(shares)
            steps = self.losses.signs * self.losses.boxes * anchor
            self._begin(self.geometry.image(steps), anchor, AGAIN)

    def begin_with(self, weights: np.ndarray) -> None:
        """Start from the weights of one label, the bias last."""
        self._begin(weights[None, None].copy(), self.steps.anchor, AGAIN)

    def _begin(self, weights: np.ndarray, anchor: np.ndarray, tau: float) -> None:
        self.steps = NewtonSteps(self.losses, self.geometry, weights, anchor, tau * self.widest)

    def _grouped(self, entries: np.ndarray) -> np.ndarray:
        """Entries (N x L) as groups x columns x samples: one group of coupled labels, or one per label."""
        rows = np.ascontiguousarray(entries.T, dtype=np.float64)
        return rows[None] if self.problem.coupled else rows[:, None]

    def _move(self, clock: Clock) -> Progress:
        """Some Newton steps on every label that is not done."""
        if self.gap <= self.tol:
            # The last running gap was small enough but not its certificate: the scores have drifted.
            self.steps.restart()
            self.aim *= 0.5
        self._step(clock)
        certificate, stuck = self._bounds(), ""
        if self.patience.exhausted(self._bounds(-np.inf).gap):
            self._refine()
            certificate = self._bounds()
            goes_on = certificate.gap <= self.tol or self._cut_boxes(certificate.gap)
            stuck = "" if goes_on else SCALES
        self.gap = certificate.gap
        return Progress(certificate, self.problem.shape[0], stuck=stuck)

    def _step(self, clock: Clock) -> None:
        steps = self.steps
        L, _, n = steps.anchor.shape
        size = max(1, GROUP // n)
        groups = [np.arange(l, min(l + size, L)) for l in range(0, L, size)]
        # Half of the allowed gap is proportional to the objective of a label, half is the same for all
        # labels.
        half = 0.5 * self.aim * self.tol
        targets = (half, half * float(steps.primal.sum()) / L)

        def work(labels: np.ndarray) -> None:
            if not clock.expired():
                steps.run(labels, self.n_steps, targets)

        run_threads(work, groups, self.n_threads)

    def _bounds(self, least: float = 0.0) -> Certificate:
        """The best bounds on both sides so far; D = 0 holds without any step."""
        constant, dual = self.problem.costs.constant, np.maximum(self.steps.dual, least)
        return Certificate(float(self.steps.primal.sum()) + constant, float(dual.sum()) + constant)

    def _evaluate(self) -> tuple[Solution, Certificate]:
        """The best weights and dual variables."""
        shares = np.where(self.steps.dual[:, None, None] > 0.0, self.steps.best_shares, 0.0)
        alpha = shares.reshape(-1, shares.shape[-1]).T * self.boxes
        weights = self.weights()
        Z, certificate = self.problem.evaluate(alpha, n_threads=self.n_threads, weights=weights)
        if self.is_cut and certificate.gap > self.tol:
            Z, certificate = self.problem.evaluate(
                alpha, n_threads=self.n_threads, weights=ABOVE_ONE * weights
            )
        return Solution(readonly(alpha), Z), certificate

    def weights(self) -> np.ndarray:
        """The best weights as `LinearM3L.evaluate` takes them, the bias last."""
        W = self.steps.best_W
        return W.reshape(-1, W.shape[-1]).T

    def _patience(self) -> Patience:
        return Patience((PATIENCE_COUPLED if self.problem.coupled else PATIENCE) // self.n_steps)

    def _refine(self, *, most: int = 1000) -> None:
        """Solve for the free dual variables of each label from the margins that they must reach.

        The shares of a step contain the rounding of scores divided by tau, which is large if boxes are far
        too large.
        """
        steps, losses = self.steps, self.losses
        for l, (s, box, m) in enumerate(zip(losses.signs, losses.boxes, losses.margins, strict=True)):
            alpha = steps.best_shares[l] * box
            free = np.nonzero((alpha > 0) & (alpha < box))
            if not 0 < len(free[0]) <= most:
                continue
            rows = s[free][:, None] * self.geometry.entry_rows(*free)
            missing = (m - s * self.geometry.scores(self.geometry.image((s * alpha)[None]))[0])[free]
            change = np.linalg.lstsq(rows @ rows.T, missing, rcond=None)[0]
            alpha[free] = np.clip(alpha[free] + change, 0.0, box[free])
            image = self.geometry.image((s * alpha)[None])
            dual = float(np.vdot(alpha, m)) - float(half_squares(image)[0])
            if dual > steps.dual[l]:
                steps.dual[l] = dual
                steps.best_shares = steps.best_shares.copy()
                steps.best_shares[l][free] = alpha[free] / box[free]

    def _cut_boxes(self, gap: float, *, far: float = 1e-3) -> bool:
        """Cut boxes to bounds on an optimum and start again, once, if that makes them far smaller.

        Weights with most of the gap left bound nothing; then boxes are cut to the size at which shares are
        exact.
        """
        boxes, margins = self.losses.boxes, self.losses.margins
        primal = self.steps.primal[:, None, None]
        most = np.divide(2 * primal, margins, out=np.full(boxes.shape, np.inf), where=margins > 0)
        if gap > HOPELESS:
            most = np.minimum(most, CURVED / self.problem.max_norm() ** 2)
        if self.is_cut or not np.minimum(boxes, most).max() < far * boxes.max():
            return False
        self.is_cut = True
        self.losses = HingeLosses(self.losses.signs, np.minimum(boxes, most), margins)
        self.boxes = self.losses.boxes.reshape(-1, boxes.shape[-1]).T
        self._begin(np.zeros(self.steps.W.shape), np.full(boxes.shape, 0.5), FIRST)
        self.aim *= 0.5
        self.patience = self._patience()
        return True


class KernelNewton(Evaluated):
    """`Newton` on a factor K = G G' of the kernel matrix, with the rows of G as features.

    The dual variables are the same, and usually they make the weights of the model. If rounding makes these
    worse than the best weights U in the features, the model has coefficients of all samples that reproduce U.

    Parameters
    ----------
    problem : KernelM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap at which training stops.
    n_threads : int, default=1
    """

    def __init__(self, problem: KernelM3L, alpha: np.ndarray, *, tol: float, n_threads: int = 1) -> None:
        self.problem, self.tol = problem, tol
        whole = KernelMatrix(problem.K.kernel, problem.K.X, np.inf, np.float64)
        values, vectors = np.linalg.eigh(whole.square(np.arange(whole.n)))
        kept = values > RANK * max(values[-1], np.finfo(float).tiny)
        roots = np.sqrt(values[kept])
        self.inverse = vectors[:, kept] / roots
        rows = Rows.of(np.ascontiguousarray(vectors[:, kept] * roots))
        linear = LinearM3L(rows, problem.costs, problem.R, bias=0.0)
        self.newton = Newton(linear, alpha, tol=tol, n_threads=n_threads)
        self.patience = Patience(50)

    def _move(self, clock: Clock) -> Progress:
        progress = self.newton.epoch(clock)
        certificate = self.certify()
        stuck = ROUNDED if progress.stuck or self.patience.exhausted(certificate.gap) else ""
        return replace(progress, certificate=certificate, exact=True, stuck=stuck)

    def _evaluate(self) -> tuple[Solution, Certificate]:
        problem, alpha = self.problem, self.newton.solution().alpha
        B = problem.coefficients(alpha)
        certificate = problem.certificate(B, problem.scores(B))
        if certificate.gap > self.tol:
            U = self.newton.weights()[:-1]
            weights = self.inverse @ (U @ problem.factor if problem.coupled else U * np.sqrt(problem.r))
            loss = problem.loss(problem.K.times(weights).T)
            primal = 0.5 * float(np.vdot(U, U)) + loss + problem.costs.constant
            if primal < certificate.primal:
                return Solution(alpha, weights), Certificate(primal, certificate.dual)
        return problem.solution(B), certificate


class LabelByLabel:
    """The solver of `ManyM3L` for few features: every label is a problem of its own.

    Active sets are small if samples are far apart, as texts are. In a few dense dimensions every sample is
    near the margin of every label, and the ascent on active sets needs thousands of scans.

    Parameters
    ----------
    problem : ManyM3L
    tol : float
        The relative gap that every label reaches.
    n_threads : int, default=1
    prune_below : float, default=0.0
        Largest weight that may be pruned.
    max_rounds : int, default=1000
        Most epochs of Newton's method for a label.
    """

    def __init__(
        self,
        problem: ManyM3L,
        *,
        tol: float,
        n_threads: int = 1,
        prune_below: float = 0.0,
        max_rounds: int = 1000,
    ) -> None:
        self.problem, self.tol, self.n_threads = problem, tol, n_threads
        self.prune_below, self.max_rounds = prune_below, max_rounds
        self.on = problem.on.tocsc()
        self.constant, self.primal = problem.negative_model()
        self.dual = np.zeros(problem.shape[1])
        X, bias = problem.rows.matrix, np.full((problem.shape[0], 1), float(problem.bias))
        if problem.squared and problem.rows.data.size < FILLED * problem.shape[0] * problem.n_features:
            rows: Any = sp.hstack([X, sp.csr_array(bias)], format="csr", dtype=np.float64)
        else:
            rows = np.hstack([filled(X), bias], dtype=np.float64)
        self.rows = LabelRows(rows, keep_products=problem.squared)
        self.W = np.zeros((self.rows.order, problem.shape[1]))
        self.W[-1] = self.constant
        self.next, self.stuck = 0, ""

    @property
    def n_epochs(self) -> int:
        """Epochs that all labels take."""
        return -(-self.problem.shape[1] // (BLOCK * self.n_threads))

    def epoch(self, clock: Clock) -> Progress:
        L = self.problem.shape[1]
        labels = range(self.next, min(self.next + BLOCK * self.n_threads, L))
        run_threads(lambda l: self._store(l, clock), labels, self.n_threads)
        self.next = labels.stop
        certificate = self.certify()
        over, close = self.next == L, certificate.gap <= self.tol
        stuck = self.stuck if over and not close else ""
        return Progress(certificate, len(labels), exact=True, done=over and close, stuck=stuck)

    def certify(self) -> Certificate:
        return Certificate(float(self.primal.sum()), float(self.dual.sum()))

    def solution(self) -> ManySolution:
        return ManySolution(sp.csc_array(self.W), self.primal, self.dual)

    def _store(self, l: int, clock: Clock) -> None:
        """Solve one label, if there is time, and store its answer."""
        answer = self.solve(l, clock)
        if answer is not None:
            self.W[:, l], self.primal[l], self.dual[l] = answer

    def solve(self, l: int, clock: Clock, start: np.ndarray | None = None) -> Answer | None:
        """Newton steps on one label until its gap is small enough, then pruning.

        `start` are the first weights, the bias last; None stands for zeros.
        """
        if clock.expired() or not self.problem.upper[:, l].any():
            return None
        return (self._squared if self.problem.squared else self._hinge)(l, clock, start)

    def _hinge(self, l: int, clock: Clock, start: np.ndarray | None) -> Answer:
        problem = self.problem
        margin = np.full((2, 1), problem.margin[l])
        costs = EntryCosts(self._signs(l), problem.weight[:, None], problem.upper[:, [l]], margin)
        label = LinearM3L(problem.rows, costs, bias=problem.bias)
        newton = Newton(label, np.zeros(label.shape), tol=0.5 * self.tol, rows=self.rows)
        if start is not None:
            newton.begin_with(start)
        for _ in range(self.max_rounds):
            progress = newton.epoch(clock)
            if progress.stuck:
                self.stuck = progress.stuck
            close = progress.certificate.gap <= newton.tol and newton.certify().gap <= newton.tol
            if close or progress.stuck or clock.expired():
                break
        alpha, weights = newton.solution()
        primal, dual = newton.certify().primal, newton.certify().dual

        def of(kept: np.ndarray) -> float:
            return label.evaluate(alpha, weights=kept[:, None])[1].primal

        return Answer(*prune_weights(weights[:, 0], primal, dual, self.prune_below, self.tol, of), dual)

    def _squared(self, l: int, clock: Clock, start: np.ndarray | None) -> Answer:
        problem, y = self.problem, self._signs(l)[:, 0]
        c = problem.weight * problem.upper[(y > 0).astype(int), l]
        m = np.full(len(y), problem.margin[l])
        losses = SquaredLosses(*(np.asarray(part, np.float64)[None, None] for part in (y, c, m)))
        W = np.zeros(self.rows.order) if start is None else start.copy()
        steps = NewtonSteps(losses, self.rows, W[None, None], losses.zero_shares, 0.5)
        patience = Patience(PATIENCE)
        for _ in range(self.max_rounds):
            primal, dual = float(steps.primal[0]), float(steps.dual[0])
            if primal - dual <= 0.5 * self.tol * primal or clock.expired():
                break
            if not steps.step(ALL).any() or patience.exhausted(primal - dual):
                self.stuck = SCALES
                break

        def of(kept: np.ndarray) -> float:
            h = np.maximum(m - y * self.rows.scores(kept[None, None])[0, 0], 0.0)
            return 0.5 * float(kept @ kept) + float(c @ h**2)

        w, dual = steps.best_W[0, 0], float(steps.dual[0])
        return Answer(*prune_weights(w, of(w), dual, self.prune_below, self.tol, of), dual)

    def _signs(self, l: int) -> np.ndarray:
        """The signs of one label, as a column."""
        signs, on = np.full((self.problem.shape[0], 1), -1, np.int8), self.on
        signs[on.indices[on.indptr[l] : on.indptr[l + 1]]] = 1
        return signs


def filled(X: Any) -> np.ndarray:
    """Rows as a dense array."""
    return X.toarray() if sp.issparse(X) else X


def dense_rows(problem: LinearM3L) -> np.ndarray:
    """X in float64, the constant feature last."""
    (n, _), d = problem.shape, problem.n_features
    order = (d + 1) * len(problem.factor) if problem.coupled else 0
    problem.check_memory("newton", n * (d + 1) + (order**2 if order <= DIRECT else 0))
    rows = np.empty((n, d + 1))
    rows[:, :d] = filled(problem.rows.matrix)
    rows[:, d:] = problem.bias
    return rows

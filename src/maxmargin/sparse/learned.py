"""A basis whose vectors move: RBF vectors, their widths and the coefficients, learned together.

The objective is that of `problem`, now in the vectors z_j, the width gamma, the metric M and the spreads r_j,

    e = 1/2 tr(al' K_JJ al) + L(K_J al P), K_ij = exp(-gamma sum_f (M (x_i - z_j))_f^2 / (1 + r_jf)) + offset.

M is the scale of the kernel in every direction, r_j the additional width of vector j: the vector is a cloud
around z_j (`kernels.Clouds`), and K_JJ are the inner products of clouds. So e is a norm and a loss of
functions of the kernel exp(-gamma |M (x - x')|^2), for any M and r. M and r are learned if X is dense, has at
most `NARROW` features (the cost of a step is quadratic in their number), and has at least as many samples as
M has entries (with fewer, they overfit). Otherwise M is the identity and r = 0: vectors are points.

The problem is not convex; the start is a basis grown by `Greedy`. The variables are M, the logarithms of
gamma and r, and v_j = M z_j, which does not move with M. With u_i = M x_i, G = dL/dF, H = (G P' al') * (K -
offset) entry by entry, w = gamma / (1 + r), and S the same as H for 1/2 tr(al' K_JJ al), with 1 + r_a + r_b
instead of 1 + r,

    dL/dv_jf   = 2 w_jf sum_i H_ij (u_if - v_jf)
    dL/dM      = 2 sum_ij H_ij w_j * (v_j - u_i) x_i'
    dL/dw_jf   = - sum_i H_ij (u_if - v_jf)^2 .

1. The first rounds follow gradients of mini-batches by Adam (Kingma and Ba 2015), with a step size that falls
   to zero along a cosine.
2. The rounds after them use all samples and L-BFGS (Liu and Nocedal 1989). Points of many samples, which may
   have thousands of features, use Adam only.
3. A fraction of the samples is held out. Each round ends with the loss on these; if it has not fallen for
   some rounds, learning returns to the best state with shorter steps, and after some such returns it ends.
4. The held-out samples join the others for some more rounds of L-BFGS.
5. The coefficients are optimised for the vectors found, over all samples, with the certificate of any fixed
   basis. If the grown basis has the lower objective, it is the result.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from maxmargin.core.kernels import Clouds, Kernel, chunks, squared_norms
from maxmargin.core.loop import Certificate, Clock, Progress
from maxmargin.sparse.greedy import DEPENDENT, PRECISION, FixedBasis, Greedy, Solution
from maxmargin.sparse.loss_loops import SquaredHinges, SquaredMargins
from maxmargin.sparse.problem import CHUNK, BasisProblem

# Most rounds of learning, one epoch each, after those of growth.
ROUNDS = 40
# Fraction of the samples held out; with fewer than ten samples, all samples are used for both purposes.
HELD_OUT = 0.1
# Factor of the step length after each return to the best state.
SHORTER = 0.3
# Most features for which a metric is learned.
NARROW = 64
# Ratio of gamma at the start to that of the grown basis, for clouds.
NARROWER = 2.0
# Pairs of clouds and features per step: with more of them, several steps share one gradient of the
# regulariser.
PAIRS = 16384
# Wolfe conditions of a step of `QuasiNewton`: sufficient decrease, largest slope at its end; most trials.
SUFFICIENT, FLATTER, TRIALS = 1e-4, 0.9, 20
# Most samples of a round of L-BFGS.
MANY = 16384
# The smallest singular values of the metric, relative to the largest, that `Moving.centres` inverts.
FORGOTTEN = 1e-4


class Schedule(NamedTuple):
    """The schedule of the rounds of learning.

    Attributes
    ----------
    batch : int
        Samples per step of Adam.
    rate : float
        Longest step of a coordinate of the vectors by Adam, in units of 1 / sqrt(gamma n_features).
    adam_rounds : int
        Most rounds of Adam; rounds of `QuasiNewton` follow.
    patience : int
        Rounds without a lower held-out loss, after which steps become shorter.
    returns : int
        How often steps become shorter before learning ends.
    """

    batch: int
    rate: float
    adam_rounds: int
    patience: int
    returns: int


# Chosen on parts of the training samples of letter, vehicle, segment, satimage, vowel and mnist.
OF_POINTS, OF_CLOUDS = Schedule(256, 0.05, ROUNDS, 4, 3), Schedule(512, 0.1, 10, 6, 0)
# Fewest rounds of Adam; there are as many as the samples fill batches.
FEWEST = 2

Movable: TypeAlias = SquaredMargins | SquaredHinges
# Value and gradient at x; x with its value and gradient.
Objective: TypeAlias = Callable[[np.ndarray], tuple[float, np.ndarray]]
Iterate: TypeAlias = tuple[np.ndarray, float, np.ndarray]


class Moving(NamedTuple):
    """The variables: vectors v_j (d x n_features), coefficients al (d x r), logarithms of gamma and r, M.

    A metric of None is the identity and stays so; a spread of None means points.
    """

    vectors: np.ndarray
    al: np.ndarray
    width: float
    metric: np.ndarray | None = None
    spread: np.ndarray | None = None

    def mapped(self, X: Any) -> Any:
        """Return u = M x for every row."""
        return X if self.metric is None else X @ self.metric.T

    def centres(self) -> np.ndarray:
        """Return z = M^-1 v for every vector; z has no part in directions that M almost removes."""
        if self.metric is None:
            return self.vectors
        back = np.linalg.pinv(self.metric.astype(np.float64), rcond=FORGOTTEN)
        return (self.vectors @ back.T).astype(self.vectors.dtype)

    def basis(self, centres: np.ndarray) -> np.ndarray | Clouds:
        """Return these centres as points, or as clouds with the present spread."""
        return centres if self.spread is None else Clouds(centres, np.exp(self.spread))

    def kernel(self, start: Kernel) -> Kernel:
        """Return the kernel with this width and metric; the metric is scaled to a mean square of 1."""
        if self.metric is None:
            return replace(start, gamma=math.exp(self.width))
        metric = self.metric.astype(np.float64)
        stretch = float(np.vdot(metric, metric)) / len(metric)
        return replace(start, gamma=stretch * math.exp(self.width), metric=metric / math.sqrt(stretch))


def squared_distances(X: Any, Z: np.ndarray, squares_X: np.ndarray, squares_Z: np.ndarray) -> np.ndarray:
    """Return |x_i - z_j|^2 from |x_i|^2 and |z_j|^2; X may be sparse."""
    D = X @ Z.T
    D *= -2
    D += squares_X[:, None]
    D += squares_Z
    return np.maximum(D, 0, out=D)


class PointValues:
    """Kernel values K (without offset) of some rows and points, and their derivatives."""

    def __init__(self, X: Any, squares: np.ndarray, at: Moving) -> None:
        self.X, self.V, self.gamma = X, at.vectors, math.exp(at.width)
        own = squared_norms(self.V).astype(self.V.dtype)
        self.D = squared_distances(X, self.V, squares.astype(self.V.dtype), own)
        self.K = np.exp(-self.gamma * self.D, dtype=self.V.dtype)

    def gradient(self, H: np.ndarray) -> dict[str, Any]:
        """Return the derivatives of the sum of all H_ij log K_ij."""
        differences = np.asarray((self.X.T @ H).T) - H.sum(axis=0)[:, None] * self.V
        return {"vectors": 2 * self.gamma * differences, "width": -self.gamma * float(np.vdot(H, self.D))}


class CloudValues:
    """Kernel values K (without offset) of some rows and clouds, and their derivatives."""

    def __init__(self, X: np.ndarray, at: Moving) -> None:
        self.X, self.V = X, at.vectors
        assert at.spread is not None
        spread, self.U = np.exp(at.spread), at.mapped(X)
        self.share, self.w = spread / (1 + spread), math.exp(at.width) / (1 + spread)
        mixed = self.w * self.V
        # The exponents sum_f w_jf (u_if - v_jf)^2 are products of rows (u^2, u) with weights (w, -2 w v).
        self.rows, self.weights = np.hstack([self.U * self.U, self.U]), np.hstack([self.w, -2 * mixed])
        E = self.rows @ self.weights.T
        E += np.einsum("jf,jf->j", mixed, self.V)
        np.maximum(E, 0, out=E)
        self.K = np.exp(np.negative(E, out=E), out=E)

    def gradient(self, H: np.ndarray) -> dict[str, Any]:
        """Return the derivatives of the sum of all H_ij log K_ij."""
        p, V = self.V.shape[1], self.V
        sums, total = H.T @ self.rows, H.sum(axis=0)[:, None]
        differences = sums[:, p:] - total * V
        squares = self.w * (sums[:, :p] - V * (sums[:, p:] + differences))
        back = H @ self.weights
        of_rows = 2 * self.U * back[:, :p] + back[:, p:]
        return {
            "vectors": 2 * self.w * differences,
            "width": -float(squares.sum()),
            "metric": -of_rows.T @ self.X,
            "spread": self.share * squares,
        }


class Regulariser(NamedTuple):
    """K_JJ without offset, and the derivatives of 1/2 tr(al' K_JJ al) except by al."""

    K: np.ndarray
    slopes: dict[str, Any]


def regularise(at: Moving) -> Regulariser:
    """Return the regulariser of a state."""
    V, gamma, pairs = at.vectors, math.exp(at.width), at.al @ at.al.T
    if at.spread is None:
        points = PointValues(V, squared_norms(V), at)
        slopes = points.gradient(pairs * points.K)
        return Regulariser(points.K, {**slopes, "width": 0.5 * slopes["width"]})
    # K_ij = prod_f sqrt((1 + r_if) (1 + r_jf) n_ijf) exp(-gamma sum_f n_ijf (v_if - v_jf)^2),
    # n_ijf = 1 / (1 + r_if + r_jf).
    spread = np.exp(at.spread)
    size = np.log1p(spread).sum(axis=1)
    K, vectors, wider, width = np.empty_like(pairs), np.empty_like(V), np.empty_like(V), 0.0
    for some in chunks(len(V), V.nbytes):
        difference = V[some, None] - V
        narrow = 1 / (1 + spread[some, None] + spread)
        scaled = difference * narrow
        distance = np.einsum("ijf,ijf->ij", scaled, difference)
        heights = 0.5 * (size[some, None] + size + np.log(narrow).sum(axis=2))
        K[some] = np.exp(heights - gamma * distance)
        S = pairs[some] * K[some]
        vectors[some] = -2 * gamma * np.einsum("ij,ijf->if", S, scaled)
        # d log K_ij / d r_if = 1/2 / (1 + r_if) - n_ijf / 2 + gamma n_ijf^2 (v_if - v_jf)^2.
        scaled *= scaled
        scaled *= gamma
        scaled -= 0.5 * narrow
        of_own = 0.5 * S.sum(axis=1)[:, None] / (1 + spread[some])
        wider[some] = spread[some] * (of_own + np.einsum("ij,ijf->if", S, scaled))
        width -= 0.5 * gamma * float(np.vdot(S, distance))
    return Regulariser(K, {"vectors": vectors, "width": width, "spread": wider})


def value_and_gradient(
    problem: BasisProblem, rows: np.ndarray | slice, at: Moving, share: float, regulariser: Regulariser
) -> tuple[float, Moving]:
    """Return the loss of some samples plus `share` times the regulariser, and the gradient."""
    al, offset, X = at.al, problem.kernel.offset, problem.X[rows]
    values = PointValues(X, problem.squares[rows], at) if at.spread is None else CloudValues(X, at)
    K, bias = values.K, offset * al.sum(axis=0)
    F = problem.scores((K @ al + bias).astype(np.float64))
    value, G = cast(Movable, problem.loss).take(rows).value_and_gradient(F)
    G = problem.back(G).astype(al.dtype, copy=False)
    H = G @ al.T
    H *= K
    slopes, kept = values.gradient(H), share * (regulariser.K @ al + bias)
    for name, part in regulariser.slopes.items():
        slopes[name] = slopes[name] + share * part
    gradient = Moving(al=K.T @ G + offset * G.sum(axis=0) + kept, **slopes)
    return 0.5 * float(np.vdot(al, kept)) + value, gradient


class Units:
    """Conversion of states to vectors whose numbers are in units of full steps, and back.

    `rates` are the lengths of full steps of vectors, coefficients, width, metric and spread.
    """

    def __init__(self, start: Moving, rates: tuple[float, float, float, float, float]) -> None:
        shapes = [np.shape(part) for part in start if part is not None]
        sizes = [math.prod(shape) for shape in shapes]
        ends = np.cumsum(sizes).tolist()
        self.parts = list(zip(map(slice, [0, *ends[:-1]], ends), shapes, strict=True))
        self.lengths = np.repeat(np.array(rates[: len(sizes)], start.al.dtype), sizes)

    def vector(self, at: Moving) -> np.ndarray:
        """Return a state as a vector in these units."""
        return self._joined(at) / self.lengths

    def gradient(self, slope: Moving) -> np.ndarray:
        """Return the gradient with respect to the vector."""
        return self._joined(slope) * self.lengths

    def state(self, x: np.ndarray) -> Moving:
        """Return the state of a vector in these units."""
        x = x * self.lengths
        vectors, al, width, *more = [x[part].reshape(shape) for part, shape in self.parts]
        return Moving(vectors, al, float(width), *more)

    def _joined(self, at: Moving) -> np.ndarray:
        parts = [part for part in at if part is not None]
        return np.concatenate(parts, axis=None, dtype=self.lengths.dtype, casting="same_kind")


class Adam:
    """Adam: steps along the running mean of gradients over the root of the running mean of their squares."""

    first, second = 0.9, 0.999

    def __init__(self, start: np.ndarray) -> None:
        self.mean, self.square, self.work = np.zeros((3, start.size), start.dtype)
        self.tiny = np.finfo(start.dtype).tiny
        self.steps = 0

    def step(self, x: np.ndarray, g: np.ndarray, length: float) -> np.ndarray:
        """Return x after one step of about `length` in every number; g is overwritten."""
        self.steps += 1
        mean, square, step = self.mean, self.square, self.work
        np.subtract(g, mean, out=step)
        step *= 1 - self.first
        mean += step
        g *= g
        g -= square
        g *= 1 - self.second
        square += g
        np.sqrt(square, out=step)
        step += self.tiny
        np.divide(mean, step, out=step)
        step *= length * math.sqrt(1 - self.second**self.steps) / (1 - self.first**self.steps)
        return x - step


class QuasiNewton:
    """Limited-memory BFGS (Liu and Nocedal 1989) with the weak Wolfe conditions.

    A step ends where the objective has fallen by a fraction of the decrease predicted by its slope and the
    slope is less steep; bisection and doubling find it. No number moves by more than `longest` in one step.
    """

    def __init__(self, memory: int = 50, longest: float = 30.0) -> None:
        self.longest = longest
        self.changes: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=memory)

    def direction(self, g: np.ndarray) -> np.ndarray:
        """Return minus the inverse Hessian times g; without a memory, a step whose largest entry is 1."""
        if not self.changes:
            largest = np.abs(g).max()
            return g / -largest if largest > 0 else -g
        # The two-loop recursion, with (s'y / y'y) I as the initial inverse Hessian.
        d, shares = -g, []
        for s, y, inverse in reversed(self.changes):
            shares.append(inverse * float(s @ d))
            d -= shares[-1] * y
        _, y, inverse = self.changes[-1]
        d /= inverse * float(y @ y)
        for (s, y, inverse), share in zip(self.changes, reversed(shares), strict=True):
            d += (share - inverse * float(y @ d)) * s
        return d

    def minimise(
        self, objective: Objective, x: np.ndarray, steps: int, expired: Callable[[], bool]
    ) -> np.ndarray:
        """Take up to `steps` steps from x; fewer if the objective no longer falls or the time is up."""
        here = x, *objective(x)
        for _ in range(steps):
            following = self._step(objective, here, expired)
            if following is None:
                if expired() or not self.changes:
                    break
                self.changes.clear()
                continue
            self._store(following[0] - here[0], following[2] - here[2])
            here = following
        return here[0]

    def _store(self, s: np.ndarray, y: np.ndarray) -> None:
        """Store a step s and the change y of the gradient, if s'y is more than rounding."""
        least = math.sqrt(np.finfo(s.dtype).tiny)
        curvature = float(s @ y)
        if curvature > least and least < float(y @ y) / curvature < 1 / least:
            self.changes.append((s, y, 1 / curvature))

    def _step(self, objective: Objective, here: Iterate, expired: Callable[[], bool]) -> Iterate | None:
        """Return the next iterate, or None if the line search fails."""
        x, value, g = here
        d = self.direction(g)
        slope = float(g @ d)
        if not slope < 0:
            return None
        most = self.longest / float(np.abs(d).max())
        low, high, t = 0.0, math.inf, min(1.0, most)
        for _ in range(TRIALS):
            if expired():
                return None
            x_t = x + t * d
            value_t, g_t = objective(x_t)
            if not value_t <= value + SUFFICIENT * t * slope:
                high = t
            elif t < most and float(g_t @ d) < FLATTER * slope:
                low = t
            else:
                return x_t, value_t, g_t
            t = 0.5 * (low + high) if math.isfinite(high) else min(2 * t, most)
        return None


class Learned:
    """Grow a basis, move its vectors, then optimise the coefficients.

    Parameters
    ----------
    greedy : Greedy
        Grows the initial basis, one vector an epoch.
    rng : numpy RandomState
        Draws the held-out samples and the mini-batches.
    rounds, steps, descents : int, default=ROUNDS, 500, 64
        Most rounds, one an epoch, and their steps by Adam or by `QuasiNewton`.
    schedule : Schedule or None, default=None
        None is `OF_POINTS` for points of more samples than a batch of `OF_CLOUDS`, else `OF_CLOUDS` with as
        many rounds of Adam as the samples fill batches.
    """

    def __init__(
        self,
        greedy: Greedy,
        rng: Any,
        *,
        rounds: int = ROUNDS,
        steps: int = 500,
        descents: int = 64,
        schedule: Schedule | None = None,
    ) -> None:
        self.greedy, self.rng, self.problem = greedy, rng, greedy.problem
        self.rounds, self.steps, self.descents, self.given_schedule = rounds, steps, descents, schedule
        # The problem with centred rows, and their mean; with a metric only.
        self.centred, self.mean = self.problem, np.zeros((), self.problem.X.dtype)
        self.grown = False
        self.round = self.waited = self.returned = 0
        self.found: tuple[np.ndarray, FixedBasis] | None = None

    @property
    def name(self) -> str:
        """Name of the method of the last epoch."""
        return "learning" if self.round else self.greedy.name

    def epoch(self, clock: Clock) -> Progress:
        """Add one vector, or run one round; the last round also optimises the coefficients."""
        if not self.grown:
            progress = self.greedy.epoch(clock)
            self.grown = bool(progress.done)
            if self.grown and self.greedy.basis.indices:
                self._begin()
                return replace(progress, done=False)
            return progress
        self._run_round(clock)
        over = self.round == self.rounds or self.returned > self.schedule.returns
        if over or clock.expired():
            self._run_on_all_samples(clock)
            self._finish(clock)
        stage = self.greedy.max_basis + self.round
        return Progress(self.certificate, len(self.trained), exact=True, done=over, stage=stage)

    def certify(self) -> Certificate:
        """Certify the moved basis once its coefficients are optimised, else the grown one."""
        return self.greedy.certify() if self.found is None else self.found[1].certificate()

    def solution(self) -> Solution:
        """Return the moved basis once its coefficients are optimised, else the grown one; without stages."""
        if self.found is None:
            return self.greedy.solution()._replace(path=None)
        kept, basis = self.found
        coefficients = basis.coefficients(basis.here.W)
        J, kernel = self.greedy.solution().basis[kept], basis.problem.kernel
        return Solution(J, basis.vectors, kernel, coefficients, None, basis.here.loss)

    def _begin(self) -> None:
        """Start from the grown vectors, with zero coefficients, which depend on no held-out sample."""
        rows = self.rng.permutation(np.flatnonzero(cast(Movable, self.problem.loss).c > 0))
        n_out = int(HELD_OUT * len(rows))
        self.trained, self.validation = rows[n_out:], rows[:n_out] if n_out else rows
        X, kernel, dtype = self.problem.X, self.problem.kernel, self.problem.X.dtype
        Z = X[self.greedy.basis.indices]
        Z = np.array(Z.toarray() if sp.issparse(Z) else Z, dtype)
        metric = spread = None
        width = math.log(kernel.gamma)
        if not sp.issparse(X) and X.shape[1] <= min(NARROW, math.sqrt(len(rows))):
            # The mean of centred rows does not move with the metric.
            metric, self.mean = np.eye(X.shape[1], dtype=dtype), X.mean(axis=0)
            Z -= self.mean
            self.centred = replace(self.problem, X=X - self.mean)
            # A larger gamma, and a spread that compensates for it: gamma / (1 + r) is that of the grown
            # basis.
            width, spread = width + math.log(NARROWER), np.full_like(Z, math.log(NARROWER - 1))
        al = np.zeros((len(Z), self.problem.rank), dtype)
        self.state = self.best = Moving(Z, al, width, metric, spread)
        n, points = len(self.trained), spread is None and len(self.trained) > OF_CLOUDS.batch
        few = min(OF_CLOUDS.adam_rounds, max(FEWEST, n // OF_CLOUDS.batch))
        self.schedule = self.given_schedule or (OF_POINTS if points else OF_CLOUDS._replace(adam_rounds=few))
        rate = self.schedule.rate
        vectors = rate / math.sqrt(kernel.gamma * Z.shape[1])
        self.units = Units(self.state, (vectors, 3 * rate, rate / 3, rate / 3, rate))
        self.adam, self.quasi = Adam(self.units.lengths), QuasiNewton()
        self.steps_per_regulariser = 1 if spread is None else 1 + len(Z) * Z.size // PAIRS
        self.lowest, self.certificate = np.inf, self.greedy.certify()

    def _validation_loss(self) -> float:
        """Return the loss of the state on the held-out samples."""
        kernel = replace(self.problem.kernel, gamma=math.exp(self.state.width))
        al, U = self.state.al.astype(np.float64), self.state.mapped(self.centred.X[self.validation])
        F = self.problem.scores(kernel.scores(U, self.state.basis(self.state.vectors), al))
        return cast(Movable, self.problem.loss).take(self.validation).at(F).value

    def _run_round(self, clock: Clock) -> None:
        """Run one round; keep the state if the held-out loss is the lowest yet."""
        move = self._adam_round if self.round < self.schedule.adam_rounds else self._lbfgs_round
        self.state = self.units.state(move(self.units.vector(self.state), clock))
        self.round += 1
        loss = self._validation_loss()
        self.waited = 0 if loss < self.lowest else self.waited + 1
        if loss < self.lowest:
            self.best, self.lowest = self.state, loss
        elif self.waited == self.schedule.patience:
            self.state, self.waited, self.returned = self.best, 0, self.returned + 1

    def _adam_round(self, x: np.ndarray, clock: Clock) -> np.ndarray:
        """Run one round of Adam on mini-batches."""
        trained, batch = self.trained, self.schedule.batch
        share = min(batch / len(trained), 1.0)
        length, first = SHORTER**self.returned, self.round * self.steps
        drawn = self.rng.randint(len(trained), size=(self.steps, batch)) if share < 1 else None
        for step in range(self.steps):
            if clock.expired():
                break
            at = self.units.state(x)
            if step % self.steps_per_regulariser == 0:
                regulariser = regularise(at)
            rows = trained if drawn is None else trained[drawn[step]]
            _, gradient = value_and_gradient(self.centred, rows, at, share, regulariser)
            rate = 0.5 + 0.5 * math.cos(math.pi * (first + step) / (self.schedule.adam_rounds * self.steps))
            x = self.adam.step(x, self.units.gradient(gradient), length * rate)
        return x

    def _lbfgs_round(self, x: np.ndarray, clock: Clock) -> np.ndarray:
        """Run one round of L-BFGS on all samples, or on `MANY` of them, in chunks that stay in the cache."""
        rows, loss = self.trained, cast(Movable, self.centred.loss)
        if len(rows) > MANY:
            rows = rows[self.rng.permutation(len(rows))[:MANY]]
        parts = [
            replace(self.centred, X=self.centred.X[some], loss=loss.take(some))
            for some in np.split(rows, range(CHUNK, len(rows), CHUNK))
        ]

        def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
            at = self.units.state(x)
            regulariser, total, g = regularise(at), 0.0, np.zeros_like(x)
            for part in parts:
                share = part.n / len(self.trained)
                value, gradient = value_and_gradient(part, slice(None), at, share, regulariser)
                total += value
                g += self.units.gradient(gradient)
            return total, g

        return self.quasi.minimise(objective, x, self.descents, clock.expired)

    def _run_on_all_samples(self, clock: Clock) -> None:
        """Continue from the best state with the held-out samples, for as many rounds as Adam had."""
        if self.schedule.adam_rounds >= self.rounds:
            return
        self.trained, self.quasi = np.union1d(self.trained, self.validation), QuasiNewton()
        for _ in range(self.schedule.adam_rounds):
            if clock.expired():
                return
            self.best = self.units.state(self._lbfgs_round(self.units.vector(self.best), clock))

    def _finish(self, clock: Clock) -> None:
        """Optimise the coefficients of the best vectors; keep them if they beat the grown basis."""
        problem = replace(self.problem, kernel=self.best.kernel(self.problem.kernel))
        vectors = self.best.basis(self.best.centres() + self.mean)
        kept = independent(problem, vectors)
        basis = FixedBasis(problem, vectors[kept], self.best.al[kept].astype(np.float64))
        goal = max(0.5 * self.greedy.tol, PRECISION)
        self.greedy.optimiser.optimise(basis, lambda: goal * basis.here.objective, clock.expired)
        if basis.here.objective < self.greedy.basis.here.objective:
            self.found, self.certificate = (kept, basis), basis.certificate()


def independent(problem: BasisProblem, vectors: np.ndarray | Clouds) -> np.ndarray:
    """Return those vectors, in their order, whose kernel functions do not depend on the ones before."""
    K = problem.gram(vectors)
    rest, kept = K.copy(), []
    for j in range(len(K)):
        if rest[j, j] > DEPENDENT[np.dtype(np.float64)] * K[j, j]:
            kept.append(j)
            rest -= np.outer(rest[:, j], rest[j] / rest[j, j])
    return np.array(kept, dtype=np.intp)

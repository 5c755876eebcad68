"""The outer loop of every solver: epochs, certified stopping, limits, records.

A solver changes its state one epoch at a time. From that state alone it computes its primal and dual
objective and its solution. The loop decides when to stop:

- *converged*: the relative gap (P - D) / |P| is at or below `tol`, on a certificate that the solver
  recomputed from its stored solution, never on a running value;
- *stopped*: after `max_iter` epochs or `time_limit` seconds, by Ctrl-C or a callback, or because the solver
  is stuck.

In every case the state stays usable and the last certificate describes it.

A record of the history holds the best bounds so far, infinite while there are none: the lowest primal
objective and the highest dual objective. The primal objective of most dual methods rises at times, so these
solvers keep and return the weights with the lowest one (`BestWeights`). A fit that ends at a record returns a
model with that primal objective. The last record is the certificate of the model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from maxmargin.core.jit import interpret

# A relative gap up to this cannot be distinguished from rounding in float64.
ROUNDING = 1e-14
# A small problem with more epochs is solved faster by compiled loops.
PLAIN_EPOCHS = 50
# Largest gap of a usable model whose fit stopped early.
USABLE = 0.1
# Numbers in a product up to which BLAS uses one thread.
SERIAL_SIZE = 4096


def squared_norm(W: np.ndarray) -> float:
    """|W|^2 computed by the calling thread alone; infinite if it overflows.

    For a long product BLAS starts a thread per core, and these threads spin for a tenth of a second
    afterwards, which costs more than the product on cores that the threads of a fit need.
    """
    entries = W.reshape(-1)
    rest = entries.size % SERIAL_SIZE
    parts = entries[rest:].reshape(-1, SERIAL_SIZE)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.vecdot(parts, parts).sum()) + float(np.vdot(entries[:rest], entries[:rest]))


@dataclass(frozen=True)
class Certificate:
    """Primal and dual objective of one stored solution, and the relative gap between them."""

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """|P - D| / |P|; 0 for a problem whose objective is 0. P < D is rounding, not a proof."""
        difference = abs(self.primal - self.dual)
        if difference == 0.0:
            return 0.0
        return difference / abs(self.primal) if self.primal and difference < math.inf else math.inf

    def tightened(self, other: Certificate) -> Certificate:
        """The better primal and the better dual bound of the two."""
        return Certificate(min(self.primal, other.primal), max(self.dual, other.dual))


UNKNOWN = Certificate(math.inf, -math.inf)


class BestWeights:
    """The weights, or what they are computed from, with the lowest primal objective so far.

    `are_last` tells whether they were offered last.
    """

    def __init__(self) -> None:
        self.primal, self.are_last = math.inf, True
        self.weights: Any = None

    def offer(self, primal: float, weights: Any) -> None:
        """Keep a copy of the weights if their primal objective is the lowest so far."""
        self.are_last = primal < self.primal
        if self.are_last:
            self.primal, self.weights = primal, deepcopy(weights)


@dataclass(frozen=True)
class Progress:
    """The report of an epoch.

    `active` is the number of samples that the epoch visited. `exact` means that the certificate was computed
    from the present state over all samples and labels; otherwise the loop computes it again before it
    stops. `done` is the decision of a solver with its own stopping rule, for which the gap only describes the
    current stage; None leaves the decision to the gap. `stuck` means that further epochs cannot help, and
    names the remedy. The bounds of another `stage` belong to another problem, as with a larger basis, and do
    not bound this one.
    """

    certificate: Certificate
    active: int
    exact: bool = False
    done: bool | None = None
    stuck: str = ""
    stage: int = 0


@dataclass(frozen=True)
class Record:
    """One entry of `history_`: the best bounds after an epoch, infinite while there are none.

    `solver` is the name of the solver that ran the epoch.
    """

    epoch: int
    seconds: float
    primal: float
    dual: float
    gap: float
    active: int
    solver: str = ""


class Clock:
    """Seconds since the start of a fit, and whether its time limit has passed."""

    def __init__(self, limit: float | None = None) -> None:
        self.limit = math.inf if limit is None else limit
        self.start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def expired(self) -> bool:
        return self.seconds >= self.limit

    def left(self) -> float | None:
        """Seconds to the limit, as a limit for a part of the work; None without a limit."""
        return None if math.isinf(self.limit) else max(self.limit - self.seconds, 0.0)


class Patience:
    """Detect a stalled gap: no improvement by `factor` for `epochs` epochs."""

    def __init__(self, epochs: int = 5, factor: float = 0.9) -> None:
        self.epochs, self.factor = epochs, factor
        self.best, self.waited = math.inf, 0

    def exhausted(self, gap: float) -> bool:
        """Record the gap of one epoch; return whether the gap has stalled."""
        if gap < self.factor * self.best:
            self.best, self.waited = gap, 0
            return False
        self.waited += 1
        return self.waited >= self.epochs


class Solver(Protocol):
    """One algorithm on one problem; it owns the state that its epochs change.

    `epoch` changes the state and may return early when the clock has expired. `certify` recomputes primal and
    dual from the stored dual variables in float64 and changes nothing, so inspecting a fit never changes it.
    `solution` returns what the certificate describes, in the form that the model stores; it changes nothing
    either.
    """

    def epoch(self, clock: Clock) -> Progress: ...

    def certify(self) -> Certificate: ...

    def solution(self) -> Any: ...


class Evaluated:
    """A solver whose certificate and solution come from one evaluation, kept until the next epoch.

    A subclass changes its state in `_move` and evaluates it in `_evaluate`, which returns the pair (solution,
    certificate). A subclass that keeps more of an evaluation overrides `certify` and `solution`.
    """

    _answer: Any = None

    def epoch(self, clock: Clock) -> Progress:
        self._answer = None
        return self._move(clock)

    def certify(self) -> Certificate:
        return self._evaluated()[1]

    def solution(self) -> Any:
        return self._evaluated()[0]

    def _evaluated(self) -> Any:
        if self._answer is None:
            self._answer = self._evaluate()
        return self._answer

    def _move(self, clock: Clock) -> Progress:
        raise NotImplementedError

    def _evaluate(self) -> Any:
        raise NotImplementedError


class Switch:
    """Run `first` until it is stuck or `when` is true of its progress, then the solver that `second` builds.

    The better certificate of the two counts.

    Parameters
    ----------
    first : Solver
    second : callable
        Takes nothing and returns the solver that continues; it may start from the state of `first`.
    when : callable
        Called with the progress of every epoch of `first`; see `stalls`.
    names : (str, str)
        The names of the two solvers, for `solver_` and `history_`.
    """

    def __init__(
        self,
        first: Solver,
        second: Callable[[], Solver],
        when: Callable[[Progress], bool],
        names: tuple[str, str],
    ) -> None:
        self.first, self.build, self.when, self.names = first, second, when, names
        self.second: Solver | None = None
        # The certificate of `first`, final once there is a second solver.
        self.reached = UNKNOWN
        self.due = False

    @property
    def name(self) -> str:
        """The solver that ran last."""
        if self.second is None:
            return solver_name(self.first, self.names[0])
        return solver_name(self.second, self.names[1])

    def epoch(self, clock: Clock) -> Progress:
        if not self.due:
            progress = self.first.epoch(clock)
            self.due = self.when(progress) or bool(progress.stuck)
            # The fit continues with `second`, so `first` does not end it.
            return replace(progress, stuck="") if self.due else progress
        if self.second is None:
            self.second, self.reached = self.build(), self.first.certify()
        progress = self.second.epoch(clock)
        if self.reached.gap < progress.certificate.gap:
            return replace(progress, certificate=self.reached, exact=True)
        return progress

    def certify(self) -> Certificate:
        return self._better().certify()

    def solution(self) -> Any:
        return self._better().solution()

    def _better(self) -> Solver:
        if self.second is None or self.reached.gap < self.second.certify().gap:
            return self.first
        return self.second


def stalls(epochs: int, factor: float = 0.5) -> Callable[[Progress], bool]:
    """For `Switch`: whether the gap has not fallen to `factor` of the best one within `epochs` epochs."""
    patience = Patience(epochs, factor)
    return lambda progress: patience.exhausted(progress.certificate.gap)


class Observer(Protocol):
    """Called before and after every epoch; a true return value of `after` ends the fit."""

    def before(self) -> None: ...

    def after(self, record: Record) -> bool: ...


@dataclass(frozen=True)
class Stopping:
    """When to stop: the certified relative gap, the number of epochs, the seconds."""

    tol: float = 1e-3
    max_iter: int = 1000
    time_limit: float | None = None

    @property
    def target(self) -> float:
        """The gap to reach: `tol`, but at least the rounding of float64."""
        return max(self.tol, ROUNDING)


@dataclass
class Outcome:
    """How a run ended: the final certificate, the reason, and one record per epoch.

    `solver` names the solvers that ran, in order: "sweeps, then newton". `interrupted` tells whether Ctrl-C
    was pressed, even if the model turned out to be converged.
    """

    certificate: Certificate
    reason: str
    history: list[dict[str, Any]] = field(default_factory=list)
    remedy: str = ""
    interrupted: bool = False
    solver: str = ""

    @property
    def converged(self) -> bool:
        return self.reason == "converged"

    @property
    def n_iter(self) -> int:
        return len(self.history)


def run(solver: Solver, stopping: Stopping, observer: Observer | None = None, name: str = "") -> Outcome:
    """Run `solver` until its certified gap is small enough or a limit is reached.

    `name` is the name of the solver in the records, unless the solver has a `name` of its own.
    """
    clock = Clock(stopping.time_limit)
    history: list[dict[str, Any]] = []
    certificate: Certificate | None = None
    best, stage, first = UNKNOWN, 0, 0
    reason, remedy = "max_iter", ""
    gap_decides, interrupted = True, False
    try:
        for epoch in range(1, stopping.max_iter + 1):
            if epoch == PLAIN_EPOCHS:
                interpret(math.inf)
            if observer is not None:
                observer.before()
            progress = solver.epoch(clock)
            if progress.stage != stage:
                best, stage, first = UNKNOWN, progress.stage, len(history)
            shown, certificate = progress.certificate, progress.certificate if progress.exact else None
            gap_decides = progress.done is None
            stop = best.tightened(shown).gap <= stopping.target if gap_decides else bool(progress.done)
            if stop and certificate is None:
                shown = certificate = solver.certify()
            best = best.tightened(shown)
            record = Record(
                epoch,
                clock.seconds,
                best.primal,
                best.dual,
                best.gap,
                progress.active,
                solver_name(solver, name),
            )
            history.append(dict(vars(record)))
            callback_stops = observer is not None and observer.after(record)
            if gap_decides:
                stop = certificate is not None and certificate.gap <= stopping.target
            if stop:
                reason = "converged"
                break
            if callback_stops:
                reason = "callback"
                break
            if progress.stuck:
                reason, remedy = "stuck", progress.stuck
                break
            if clock.expired():
                reason = "time_limit"
                break
    except KeyboardInterrupt:
        reason, certificate, interrupted = "interrupted", None, True
    if certificate is None:
        certificate = solver.certify()
    if gap_decides and certificate.gap <= stopping.target:
        reason = "converged"
    _confirm(history[first:], certificate)
    names = [record["solver"] for record in history] or [solver_name(solver, name)]
    solvers = ", then ".join(dict.fromkeys(names))
    return Outcome(certificate, reason, history, remedy, interrupted, solvers)


def solver_name(solver: Solver, name: str) -> str:
    """The name of the running solver."""
    return getattr(solver, "name", name)


def _confirm(records: list[dict[str, Any]], certificate: Certificate) -> None:
    """Make the last record the certificate; earlier ones, rounded running values, claim no more."""
    for record in records:
        primal, dual = max(record["primal"], certificate.primal), min(record["dual"], certificate.dual)
        record.update(primal=primal, dual=dual, gap=Certificate(primal, dual).gap)
    for record in records[-1:]:
        record.update(primal=certificate.primal, dual=certificate.dual, gap=certificate.gap)


REMEDIES: dict[str, str] = {
    "max_iter": "increase max_iter",
    "time_limit": "increase time_limit",
    "interrupted": "let the fit run to its end",
    "callback": "let the callback continue the fit",
}


def stop_message(outcome: Outcome, tol: float) -> str | None:
    """One sentence for the user if a run stopped early, None if it converged."""
    if outcome.converged:
        return None
    gap = outcome.certificate.gap
    verdict = "the model is usable" if gap <= USABLE else "the model may be far from the best one"
    return (
        f"Stopped after {outcome.n_iter} epochs at a relative duality gap of {gap:.3g} (tol={tol:g}); "
        f"{verdict}. To get closer, {outcome.remedy or REMEDIES[outcome.reason]} or loosen tol."
    )

"""The outer loop on methods whose gap is known in advance."""

import math
import warnings

import numpy as np
import pytest

from maxmargin.core.loop import (
    SERIAL_SIZE,
    Certificate,
    Clock,
    Outcome,
    Patience,
    Progress,
    Stopping,
    run,
    squared_norm,
    stop_message,
)


class Scripted:
    """A method whose epochs report the given gaps; certificates may be worse than the reports."""

    def __init__(self, gaps, penalty=0.0, exact=False):
        self.gaps, self.penalty, self.exact, self.epochs, self.certified = gaps, penalty, exact, 0, 0

    def _gap(self):
        return self.gaps[min(self.epochs, len(self.gaps)) - 1]

    def epoch(self, clock):
        self.epochs += 1
        if self._gap() is None:
            raise KeyboardInterrupt
        return Progress(Certificate(1.0, 1.0 - self._gap()), 5, self.exact)

    def certify(self):
        self.certified += 1
        return Certificate(1.0, 1.0 - (self._gap() or 0.5) - self.penalty)


def test_stops_on_a_recomputed_certificate():
    method = Scripted([0.5, 0.09, 0.09, 0.01], penalty=0.05)
    outcome = run(method, Stopping(tol=0.1, max_iter=10))
    assert outcome.converged and outcome.n_iter == 4 and method.certified == 3
    assert outcome.certificate.gap == pytest.approx(0.06)
    assert [record["gap"] for record in outcome.history] == pytest.approx([0.5, 0.14, 0.14, 0.06])


def test_exact_reports_need_no_second_look():
    method = Scripted([0.5, 0.01], exact=True)
    assert run(method, Stopping(tol=0.1)).converged and method.certified == 0


def test_limits():
    outcome = run(Scripted([0.5]), Stopping(tol=0.1, max_iter=3))
    assert outcome.reason == "max_iter" and outcome.n_iter == 3
    assert "gap of 0.5 (tol=0.1)" in stop_message(outcome, 0.1) and "increase max_iter" in stop_message(
        outcome, 0.1
    )
    assert "may be far from the best one" in stop_message(outcome, 0.1)
    near = run(Scripted([0.05]), Stopping(tol=0.01, max_iter=3))
    assert "the model is usable" in stop_message(near, 0.01)
    lost = Outcome(Certificate(math.nan, math.nan), "max_iter")
    assert "usable" not in stop_message(lost, 0.1)
    assert run(Scripted([0.5]), Stopping(tol=0.1, time_limit=1e-9)).reason == "time_limit"
    interrupted = run(Scripted([0.5, None]), Stopping(tol=0.1))
    assert interrupted.reason == "interrupted" and interrupted.certificate.gap == pytest.approx(0.5)
    assert stop_message(run(Scripted([1e-9]), Stopping()), 1e-3) is None


def test_no_gap_below_rounding_is_pursued():
    outcome = run(Scripted([0.1, 1e-15]), Stopping(tol=0.0))
    assert outcome.converged and outcome.n_iter == 2


def test_observer_can_stop():
    class Observer:
        def __init__(self):
            self.begun = 0

        def before(self):
            self.begun += 1

        def after(self, record):
            return record.epoch == 2

    observer = Observer()
    assert run(Scripted([0.5]), Stopping(tol=0.1), observer).reason == "callback"
    assert observer.begun == 2


def test_certificate_and_patience():
    assert Certificate(0.0, 0.0).gap == 0 and Certificate(0.0, -1.0).gap == math.inf
    assert Certificate(1.0, 1.0 + 1e-17).gap == 0
    # A dual above the primal objective proves nothing, least of all a gap of zero.
    assert Certificate(1.0, 1.5).gap == 0.5 and Certificate(-1.0, 0.0).gap == 1.0
    patience = Patience(epochs=2, factor=0.5)
    assert [patience.exhausted(gap) for gap in (1.0, 0.4, 0.3, 0.25)] == [False, False, False, True]


def test_a_clock_lends_what_is_left():
    assert Clock().left() is None
    assert 0 < Clock(100.0).left() <= 100 and Clock(0.0).left() == 0 and Clock(0.0).expired()


@pytest.mark.parametrize("size", [0, 1, SERIAL_SIZE - 1, SERIAL_SIZE, SERIAL_SIZE + 1, 3 * SERIAL_SIZE + 7])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_norm_is_that_of_all_pieces(size, kind):
    W = np.random.default_rng(size).normal(size=size).astype(kind)
    exact = np.sum(W.astype(np.longdouble) ** 2)
    assert abs(squared_norm(W) - exact) <= 10 * np.finfo(kind).eps * exact
    assert squared_norm(W.reshape(1, -1)) == squared_norm(W)


def test_a_norm_that_overflows_is_infinite_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert squared_norm(np.full(2 * SERIAL_SIZE, 1e30, np.float32)) == np.inf
        assert np.isnan(squared_norm(np.full(SERIAL_SIZE, np.nan)))

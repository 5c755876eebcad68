"""Inspecting a fit does not change it: certificates and solutions are pure."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin import MultiLabelSVC, priors
from maxmargin.core.loop import Certificate, Clock, Progress, Switch, stalls
from maxmargin.core.rows import Rows
from maxmargin.multilabel.estimator import KERNEL_ONLY, LINEAR_ONLY, SOLVERS
from maxmargin.multilabel.newton import Newton
from maxmargin.multilabel.problem import LinearM3L, hinge_costs
from maxmargin.multilabel.sweeps import LabelSweeps, SampleSweeps, SweepRule
from tests.naive import m3l as naive

# Every solver on the kernels it takes, and single precision where it can be asked for.
CASES = [
    *itertools.product(SOLVERS, ("linear",), ("auto",)),
    *itertools.product(sorted(set(SOLVERS) - set(LINEAR_ONLY)), ("rbf",), ("auto",)),
    ("auto", "linear", "single"),
    ("auto", "rbf", "single"),
]


REFUSED = Certificate(2.0, 1.0)


def data(dtype, n=150):
    rng = np.random.RandomState(1)
    X = rng.randn(n, 12)
    Y = (X @ rng.randn(12, 6) + rng.randn(n, 6) > 0.5).astype(int)
    return X.astype(dtype), Y


class Inspector:
    """A callback that predicts with the model after every epoch."""

    def __init__(self):
        self.calls = 0

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        if context.task_name == "epoch":
            assert np.isfinite(fitted_estimator.decision_function(X)).all()
            self.calls += 1


def without_seconds(history):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


@pytest.mark.parametrize(
    ("prior", "dtype", "tol"), [(None, np.float32, 1e-3), (priors.from_labels, np.float64, 1e-9)]
)
@pytest.mark.parametrize(("solver", "kernel", "precision"), CASES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_callback_that_predicts_changes_nothing(solver, kernel, precision, prior, dtype, tol):
    X, Y = data(dtype)
    options = {
        "C": 3.0,
        "kernel": kernel,
        "solver": solver,
        "precision": precision,
        "prior": prior,
        "tol": tol,
        "max_iter": 60,
        "random_state": 0,
    }
    alone = MultiLabelSVC(**options).fit(X, Y)
    inspector = Inspector()
    seen = MultiLabelSVC(**options).set_callbacks(inspector).fit(X, Y)
    assert inspector.calls == seen.n_iter_ == alone.n_iter_
    assert without_seconds(seen.history_) == without_seconds(alone.history_)
    for name in ("coef_", "dual_coef_", "intercept_", "support_"):
        assert hasattr(seen, name) == hasattr(alone, name)
        if hasattr(alone, name):
            np.testing.assert_array_equal(getattr(seen, name), getattr(alone, name))


def problem(coupled, dtype):
    X, Y = data(dtype, n=60)
    signs = np.where(Y, 1, -1).astype(np.int8)
    costs = hinge_costs(signs, np.full((2, 6), 3.0), np.ones((60, 1)))
    return LinearM3L(Rows.of(sp.csr_array(X)), costs, priors.from_labels(Y) if coupled else None)


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_certify_and_solution_leave_the_state_alone(coupled, dtype):
    posed = problem(coupled, dtype)
    for solver in sorted(set(SOLVERS) - set(KERNEL_ONLY)):
        start = np.zeros(posed.shape, dtype)
        method = SOLVERS[solver].build(posed, start, tol=1e-6, rng=np.random.RandomState(0), n_threads=1)
        if isinstance(method, Switch):
            method = method.first
        method.epoch(Clock())
        arrays = {name: value.copy() for name, value in vars(method).items() if isinstance(value, np.ndarray)}
        first, second = method.certify(), method.certify()
        alpha, weights = method.solution()
        assert first == second
        assert not alpha.flags.writeable
        for name, value in arrays.items():
            np.testing.assert_array_equal(getattr(method, name), value, err_msg=f"{solver}: {name}")
        c, m = naive.boxes_and_margins(posed.costs)
        given = naive.with_bias(posed.rows.matrix.toarray().astype(float), posed.bias), posed.costs.signs
        assert first.primal == pytest.approx(naive.primal(*given, c, m, posed.prior, weights), rel=1e-9)
        assert first.dual == pytest.approx(naive.dual(*given, m, posed.prior, alpha), rel=1e-9)


def at_hand(sweeps):
    """The weights that the next pass starts from, feature-major."""
    if isinstance(sweeps, SampleSweeps):
        return sweeps.T
    return sweeps.WT.T if sweeps.label_major_is_newer else sweeps.W


@pytest.mark.parametrize("kind", [LabelSweeps, SampleSweeps])
@pytest.mark.parametrize("early", [False, True], ids=["measured", "certified"])
def test_weights_are_made_anew_when_a_certificate_is_refused(kind, early):
    """A gap below tol and another epoch: the next one starts from weights that match alpha.

    Those it had were given up for the room of the certificate's.
    """
    posed = problem(kind is SampleSweeps, np.float64)
    rule = SweepRule() if early else SweepRule(likely=0.0, missed=1e9)  # so that it never seems done
    sweeps = kind(posed, np.zeros(posed.shape), tol=1e-3, rng=np.random.RandomState(0), rule=rule)
    while sweeps.gap > (sweeps.tol if early else sweeps.tol / 4):
        sweeps.epoch(Clock())
    assert not {"W", "WT", "T"} & set(vars(sweeps))
    move, starts = sweeps._move, []

    def noted(clock):
        V = posed.accumulate(sweeps.alpha)
        V[-1] = sweeps.bias_row
        np.testing.assert_allclose(at_hand(sweeps)[:, : posed.shape[1]], V, atol=1e-9)
        starts.append(V)
        move(clock)

    sweeps._move = noted
    for _ in range(3):
        sweeps.epoch(Clock())
        assert sweeps.gap <= sweeps.tol  # so that the next epoch begins with weights made anew, too
    assert len(starts) == 3


def test_double_precision_takes_over_where_certificates_are_refused(monkeypatch):
    """Gaps that are measured below tol and never certified, as weights that drift make them."""
    posed = problem(False, np.float32)
    rule = SweepRule(likely=0.0, missed=1e9)  # so that it never seems done
    zeros = np.zeros(posed.shape, np.float32)
    sweeps = LabelSweeps(posed, zeros, tol=1e-3, rng=np.random.RandomState(0), rule=rule)
    monkeypatch.setattr(type(posed), "evaluate", refused(type(posed).evaluate))
    refusals = 0
    for _ in range(200):
        refusals += sweeps.epoch(Clock()) == Progress(REFUSED, sweeps._active(), exact=True)
        if sweeps.alpha.dtype == np.float64:
            break
    assert refusals >= sweeps.patience.epochs and sweeps.alpha.dtype == np.float64


def refused(evaluate):
    return lambda *args, **options: (evaluate(*args, **options)[0], REFUSED)


def test_the_better_of_two_solutions_counts():
    posed = problem(False, np.float64)
    sweeps = LabelSweeps(posed, np.zeros(posed.shape), tol=1e-9, rng=np.random.RandomState(0))
    method = Switch(
        sweeps, lambda: Newton(posed, np.zeros(posed.shape), tol=1e-9), stalls(2), ("sweeps", "newton")
    )
    gaps = []
    for _ in range(40):
        method.epoch(Clock())
        gap = method.certify().gap  # of the solution as it is; an epoch may tell what it measured on its way
        assert gap <= max([*gaps[-1:], 1e-9]) or method.second is None
        gaps.append(gap)
    assert method.second is not None
    assert method.certify().gap == min(sweeps.certify().gap, method.second.certify().gap)
    alpha, weights = method.solution()
    better = sweeps if sweeps.certify().gap < method.second.certify().gap else method.second
    np.testing.assert_array_equal(alpha, better.solution().alpha)
    np.testing.assert_array_equal(weights, better.solution().weights)

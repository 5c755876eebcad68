"""One round of label ranking: known answers, the interior point's iterates, a generic solver."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.ranking import step_loops as steps
from maxmargin.ranking.interior_loops import interior_path, interior_point
from tests.naive import ranking as naive

KNOWN = json.loads((Path(__file__).parents[1] / "fixtures" / "ranking.json").read_text())


def keys_of(u, kind):
    """Levels as a round keeps them."""
    return u if kind == steps.LINEAR else np.array([steps.key_of(value) for value in u])


def normal_form(keys, relevant, gamma, C, kind):
    """A round of kind LINEAR or LOGISTIC."""
    empty = np.empty(0)
    return steps.Round(kind, gamma, C, len(keys), relevant, keys, np.empty((0, 0)), empty, empty)


def fill(keys, relevant, gamma, C, kind):
    """Update III by water filling, with its certified gap."""
    k = len(keys)
    alpha = np.zeros(k)
    form = normal_form(keys, relevant, gamma, C, kind)
    mass = steps.water_fill(form, np.empty(k, np.int64), np.empty(k, np.int64), alpha)
    return alpha, mass, steps.round_gap(form, alpha)


def interior(u, relevant, gamma, C, kind):
    """Update III by the interior point method."""
    p = naive_value(u, kind)
    loss = gamma - (p[relevant > 0].min() - p[relevant == 0].max())
    alpha = np.zeros(len(u))
    mass = interior_point(normal_form(keys_of(u, kind), relevant, gamma, C, kind), loss, alpha)
    assert mass == pytest.approx(alpha[relevant > 0].sum())
    return alpha


def naive_value(u, kind):
    return u if kind == steps.LINEAR else 1 / (1 + np.exp(-u))


def gain_of(u, alpha, relevant, gamma, kind):
    if kind == steps.LINEAR:
        cost = alpha * u + 0.5 * alpha**2
    else:
        cost = np.logaddexp(0, u + alpha) - np.logaddexp(0, u)
    return gamma * alpha[relevant > 0].sum() - cost.sum()


def logit(q):
    return np.log(q) - np.log1p(-q)


@pytest.mark.nojit
@pytest.mark.parametrize("case", [case for case in KNOWN["update_II_l2"] if case["xx"]])
def test_pair_step_squared(case):
    xx = case["xx"]
    tau = steps.pair_step(case["score_r"], case["score_s"], case["gamma"], case["C"] * xx, steps.LINEAR) / xx
    assert tau == pytest.approx(case["tau"], abs=1e-10)


@pytest.mark.nojit
@pytest.mark.parametrize("case", KNOWN["update_II_entropic_binary"])
def test_pair_step_entropy(case):
    u, v = logit(case["q_r"]), logit(case["q_s"])
    tau = steps.pair_step(u, v, case["gamma"], case["C"], steps.LOGISTIC)
    assert tau == pytest.approx(case["tau"], abs=1e-10)


@pytest.mark.nojit
@pytest.mark.parametrize("case", KNOWN["update_III_round"])
def test_best_step_known_answers(case):
    theta, x = np.array(case["Theta"]), np.array(case["x"], float)
    k = len(theta)
    relevant = np.isin(np.arange(k), case["Y"]).astype(np.uint8)
    values = np.unique(np.append(x, 0.0))
    if case["F"] == "l2":
        xx = x @ x
        u = theta @ x
        found, _, gap = fill(u, relevant, case["gamma"], case["C"] * xx, steps.LINEAR)
        found /= xx
        other = interior(u, relevant, case["gamma"], case["C"] * xx, steps.LINEAR) / xx
    elif len(values) == 2:
        c = values.max()
        q = naive.softmax(theta)[:, x > 0].sum(axis=1)
        found, _, gap = fill(q, relevant, case["gamma"] / c, case["C"] * c, steps.LOGISTIC)
        found /= c
        other = interior(logit(q), relevant, case["gamma"] / c, case["C"] * c, steps.LOGISTIC) / c
    else:
        span = x.max() - x.min()
        scaled = x / span
        logs = np.log(naive.softmax(theta))
        scores = naive.softmax(theta) @ scaled
        gamma, C = case["gamma"] / span, case["C"] * span
        loss = gamma - (scores[relevant > 0].min() - scores[relevant == 0].max())
        form = steps.Round(steps.TILTED, gamma, C, k, relevant, scores, logs, np.full(k, -np.inf), scaled)
        other = np.zeros(k)
        interior_point(form, loss, other)
        gap = steps.round_gap(form, other)
        other /= span
        found = other
    assert gap < 1e-11
    np.testing.assert_allclose(found, case["alpha"], atol=1e-8)
    np.testing.assert_allclose(other, case["alpha"], atol=1e-7)


rounds = st.tuples(
    st.integers(2, 9),
    st.integers(0, 2**31 - 1),
    st.floats(0.01, 0.99),
    st.floats(-6, 6),
    st.floats(0.1, 30),
)


@settings(max_examples=150, deadline=None)
@given(rounds, st.sampled_from([steps.LINEAR, steps.LOGISTIC]))
def test_water_filling_is_optimal_and_equals_interior_point(setting, kind):
    k, seed, gamma, log_C, scale = setting
    rng = np.random.RandomState(seed)
    u = scale * rng.randn(k)
    if rng.rand() < 0.3:
        u = np.round(u)  # ties
    relevant = np.zeros(k, np.uint8)
    relevant[rng.permutation(k)[: rng.randint(1, k)]] = 1
    C = float(np.exp(log_C))
    p = naive_value(u, kind)
    if p[relevant > 0].min() - p[relevant == 0].max() >= gamma:
        return
    alpha, mass, gap = fill(keys_of(u, kind), relevant, gamma, C, kind)
    inside = relevant > 0
    assert (alpha[inside] >= 0).all() and (alpha[~inside] <= 0).all()
    assert alpha[inside].sum() == pytest.approx(mass) and alpha.sum() == pytest.approx(0, abs=1e-12 * (1 + C))
    assert 0 < mass <= C * (1 + 1e-12)
    assert abs(gap) < 1e-11 * C * (gamma + np.abs(p).max())
    other = interior(u, relevant, gamma, C, kind)
    best, second = gain_of(u, alpha, relevant, gamma, kind), gain_of(u, other, relevant, gamma, kind)
    assert second <= best + 1e-10 * (1 + abs(best))
    assert second == pytest.approx(best, rel=1e-6, abs=1e-8 * C)


@pytest.mark.parametrize("kind", [steps.LINEAR, steps.LOGISTIC])
def test_water_filling_equals_a_generic_solver(kind):
    cvxpy = pytest.importorskip("cvxpy")
    rng = np.random.RandomState(3)
    for _ in range(6):
        k = rng.randint(3, 7)
        u, gamma, C = 2 * rng.randn(k), rng.uniform(0.3, 0.9), float(np.exp(rng.uniform(-2, 2)))
        relevant = np.zeros(k, np.uint8)
        relevant[rng.permutation(k)[: rng.randint(1, k)]] = 1
        u[relevant > 0] -= 2.0
        step = cvxpy.Variable(k)
        inside = relevant > 0
        cost = cvxpy.sum(cvxpy.multiply(u, step)) + 0.5 * cvxpy.sum_squares(step)
        if kind == steps.LOGISTIC:
            cost = cvxpy.sum(cvxpy.logistic(u + step)) - np.logaddexp(0, u).sum()
        mass = cvxpy.sum(step[inside])
        constraints = [cvxpy.sum(step) == 0, mass <= C, step[inside] >= 0, step[~inside] <= 0]
        best = cvxpy.Problem(cvxpy.Maximize(gamma * mass - cost), constraints).solve(solver="CLARABEL")
        alpha, _, _ = fill(keys_of(u, kind), relevant, gamma, C, kind)
        assert gain_of(u, alpha, relevant, gamma, kind) == pytest.approx(best, abs=1e-6)


@pytest.mark.nojit
@pytest.mark.parametrize("kind", [steps.LINEAR, steps.LOGISTIC])
def test_interior_point_iterates(kind):
    """The eliminated 2 x 2 system walks through the points of the full Newton system."""
    rng = np.random.RandomState(5)
    u, gamma, C = rng.randn(5), 0.7, 1.3
    relevant = np.array([1, 0, 0, 1, 0], np.uint8)
    u[0] -= 1
    p = naive_value(u, kind)
    loss = gamma - (p[relevant > 0].min() - p[relevant == 0].max())

    def curvature(alpha):
        m = naive_value(u + alpha, kind)
        return np.ones(5) if kind == steps.LINEAR else m * (1 - m)

    points = naive.interior_point(
        lambda alpha: naive_value(u + alpha, kind), curvature, relevant > 0, gamma, C, loss, 8
    )
    for n in (0, 1, 2, 5, 8):
        point = np.empty(6)
        interior_path(normal_form(keys_of(u, kind), relevant, gamma, C, kind), C, loss, n, point)
        np.testing.assert_allclose(point, points[n], rtol=1e-9, atol=1e-12)


@pytest.mark.nojit
def test_extreme_logits_stay_finite():
    keys = np.array([steps.key_of(u) for u in (-900.0, 800.0, 799.0, -5.0)])
    relevant = np.array([1, 0, 0, 0], np.uint8)
    for C in (1.0, 1e3, 1e6):
        alpha, _, gap = fill(keys, relevant, 0.5, C, steps.LOGISTIC)
        assert np.isfinite(alpha).all() and abs(gap) < 1e-9 * C
    assert np.isfinite(steps.log_growth(-900.0, 1e5)) and steps.log_growth(-900.0, 1e5) == pytest.approx(
        99100
    )
    assert steps.log_growth(900.0, -1e5) == pytest.approx(-900.0)


@pytest.mark.nojit
def test_keys_keep_the_order_and_value_of_logits():
    logits = np.array([-2e4, -700.0, -690.5, -689.0, -30.0, 0.0, 9.0, 9.3, 40.0, 1e5])
    keys = np.array([steps.key_of(u) for u in logits])
    assert (np.diff(keys) > 0).all()
    np.testing.assert_allclose(
        [steps.level(key, steps.LOGISTIC) for key in keys], logits, rtol=1e-11, atol=1e-15
    )

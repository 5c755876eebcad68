"""The step of one round of label ranking: updates I, II and III.

A step is a vector alpha over the labels (theta_y += alpha_y x) with alpha >= 0 on the relevant labels Y,
alpha <= 0 on the others, sum zero, and mass a = sum of alpha over Y at most C. In normal form the score of
label y after the step is H(u_y + alpha_y), and the problem (11) is

    max  gamma a - sum_y [ integral of H from u_y to u_y + alpha_y ].

| kind     | regulariser, row                | u_y                    | H(L)        |
|----------|---------------------------------|------------------------|-------------|
| LINEAR   | squared                         | <w_y, x>               | L           |
| LOGISTIC | entropy, x of two values        | logit of the mass of y | 1/(1+e^-L)  |
|          |                                 | on the larger value    |             |
| TILTED   | entropy, any x                  | (log weights)          | mean of x under w_y e^(alpha x) |

Here gamma, C and alpha are rescaled: LINEAR uses C |x|^2; the others use gamma / c and c C, with c the range
of x. The duality gap of a round costs O(labels). With m_y = H(u_y + alpha_y) it is

    C [gamma - (min over Y of m_y - max off Y of m_y)]_+ + sum alpha_y m_y - gamma a,

which is zero exactly at the best step.

Most labels never need their logit, so logits are stored as ordered *keys*: the mass q itself where
1e-300 < q < 1 - 1e-4, the logit where q is smaller (the logit is below -690), one plus the logit where q is
larger (the logit is above 9.2).

S. Shalev-Shwartz, Y. Singer, A unified algorithmic approach for efficient online label ranking, AISTATS 2007.
Update II uses the closed form with arcsinh, update III water filling; the interior point method of the paper
is in `interior_loops`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import helper

LINEAR, LOGISTIC, TILTED = 0, 1, 2
# A row that cannot move any weight.
NULL = -1
FIXED, WORST_PAIR, ALL_PAIRS = 1, 2, 3
SATURATED = 1.0 - 1e-4
# Scores are equal up to rounding if their relative difference is at most this.
TIE = 1e-13
# Newton's method on one variable stops at this relative change, or after this many steps.
NEWTON_CHANGE, NEWTON_STEPS = 1e-15, 100


class Shapes(NamedTuple):
    """Kind, base, slope and span (range of values) of every row for the entropy; else empty."""

    kind: np.ndarray
    base: np.ndarray
    slope: np.ndarray
    span: np.ndarray

    @property
    def has_general_rows(self) -> bool:
        """Whether some row has no closed form: entropy and more than two values."""
        return bool((self.kind == TILTED).any())

    @property
    def largest_range(self) -> float:
        """Largest range of the values of a row, which bounds every reachable margin; 0 without rows."""
        return float(self.span.max(initial=0.0))


def blank_shapes(n_rows: int) -> Shapes:
    """Return uninitialised shapes of `n_rows` rows."""
    return Shapes(np.empty(n_rows, np.int64), np.empty(n_rows), np.empty(n_rows), np.empty(n_rows))


class Round(NamedTuple):
    """One round in normal form; the first `known` entries of the arrays over labels are valid.

    `key` holds u_y as keys (LINEAR, LOGISTIC) or the scores (TILTED). Only TILTED rounds have log weights
    (label x coordinate of the row), the log weight of all other coordinates, and x.
    """

    kind: int
    gamma: float
    C: float
    known: int
    relevant: np.ndarray
    key: np.ndarray
    log_weight: np.ndarray
    log_rest: np.ndarray
    x: np.ndarray


@helper(hot=True)
def sigmoid(u):
    """1 / (1 + e^-u) without overflow."""
    if u >= 0.0:
        return 1.0 / (1.0 + math.exp(-u))
    e = math.exp(u)
    return e / (1.0 + e)


@helper(hot=True)
def key_of(u):
    """Return the key of a logit."""
    if u < -690.0:
        return u
    q = sigmoid(u)
    return 1.0 + u if q > SATURATED else q


@helper(hot=True)
def level(key, kind):
    """Return u of a key."""
    if kind == LINEAR or key < 0.0:
        return key
    if key > 1.0:
        return key - 1.0
    return math.log(key) - math.log1p(-key)


@helper(hot=True)
def score_of(key, kind):
    """Return H(u) from the key; keys of LINEAR and TILTED rounds are the scores."""
    if kind != LOGISTIC or 0.0 <= key <= 1.0:
        return key
    return sigmoid(level(key, kind))


@helper(hot=True)
def log_growth(u, a):
    """Return log(1 - q + q e^a) with q = sigmoid(u): the change of the log normaliser in a step a."""
    shift = 0.0
    if u > 0.0:
        u, a, shift = -u, -a, a
    if a > 1.0:
        top = u + a
        grown = top + math.log1p(math.exp(-top)) if top > 0.0 else math.log1p(math.exp(top))
        return shift + grown - math.log1p(math.exp(u))
    return shift + math.log1p(sigmoid(u) * math.expm1(a))


@helper(hot=True)
def logistic_root(u, v, gamma):
    """Return tau with sigmoid(u + tau) - sigmoid(v - tau) = gamma, for 0 < gamma < 1."""
    m = abs(0.5 * (u + v))
    log_sinh = math.log(gamma) - 0.5 * math.log1p(-gamma * gamma)
    log_sinh += m - math.log(2.0) + math.log1p(math.exp(-2.0 * m))
    if log_sinh > 0.0:
        arcsinh = log_sinh + math.log1p(math.sqrt(1.0 + math.exp(-2.0 * log_sinh)))
    else:
        arcsinh = math.asinh(math.exp(log_sinh))
    return 0.5 * (v - u) + math.atanh(gamma) + arcsinh


@helper(hot=True)
def tie_width(key, known, kind):
    """Return the largest difference of two scores that counts as a tie.

    Masses are sums of positive numbers, so their rounding is relative to each of them; this case returns
    minus the relative width. Other scores are sums that may cancel, so their rounding is relative to the
    largest score.
    """
    if kind == LOGISTIC:
        return -TIE
    largest = 0.0
    for y in range(known):
        largest = max(largest, abs(key[y]))
    return TIE * largest


@helper(hot=True)
def worst_pair(kind, known, relevant, key):
    """Return the pair (r', s') of (7), lowest relevant and highest other label, and whether it is a mistake.

    Ties go to the lowest index and count as mistakes.
    """
    width = tie_width(key, known, kind)
    r = s = -1
    for y in range(known):
        near = width if width >= 0.0 else -width * abs(key[y])
        if relevant[y]:
            if r < 0 or key[y] < key[r] - near:
                r = y
        elif s < 0 or key[y] > key[s] + near:
            s = y
    near = width if width >= 0.0 else -width * abs(key[s])
    return r, s, key[r] <= key[s] + near


@helper
def pair_step(u, v, gamma, C, kind):
    """Update II (9) in normal form: return the best mass to move from level v to level u."""
    if kind == LINEAR:
        return min(C, max(0.0, 0.5 * (gamma - (u - v))))
    if gamma >= 1.0:
        return C
    return min(C, max(0.0, logistic_root(u, v, gamma)))


@helper
def tilted_pair_step(form, r, s):
    """Update II (9) for any x under the entropy: Newton's method on the concave gain, within a bracket."""
    log_r, rest_r, log_s, rest_s = form.log_weight[r], form.log_rest[r], form.log_weight[s], form.log_rest[s]
    low, high = 0.0, form.C
    _, m_r, _ = tilt(log_r, rest_r, form.x, form.C)
    _, m_s, _ = tilt(log_s, rest_s, form.x, -form.C)
    if form.gamma - m_r + m_s >= 0.0:
        return form.C
    # The slope of the gain, gamma - m_r(tau) + m_s(-tau), falls with tau; its root is within [low, high].
    tau = 0.0
    for _ in range(NEWTON_STEPS):
        _, m_r, v_r = tilt(log_r, rest_r, form.x, tau)
        _, m_s, v_s = tilt(log_s, rest_s, form.x, -tau)
        slope = form.gamma - m_r + m_s
        if slope > 0.0:
            low = tau
        else:
            high = tau
        new = tau + slope / (v_r + v_s) if v_r + v_s > 0.0 else low - 1.0
        if not (low < new < high):
            new = 0.5 * (low + high)
        if abs(new - tau) <= NEWTON_CHANGE * new:
            return new
        tau = new
    return tau


@helper
def _sift(heap, size, i, key, sign):
    """Move the item at position i down until the root of the heap has the smallest sign * key."""
    item = heap[i]
    weight = sign * key[item]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and sign * key[heap[child + 1]] < sign * key[heap[child]]:
            child += 1
        if sign * key[heap[child]] >= weight:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = item


@helper
def _pop(heap, size, key, sign):
    """Move the root behind the heap and return its key."""
    root = heap[0]
    heap[0] = heap[size - 1]
    heap[size - 1] = root
    _sift(heap, size - 1, 0, key, sign)
    return key[root]


@helper
def _segment_root(U, p, V, q, gamma, low, high):
    """Return the mass in [low, high] at which p filled and q drained logits differ by gamma."""
    a = 0.5 * (low + high)
    if p == q:
        a = p * logistic_root(U / p, V / q, gamma)
        return min(high, max(low, a))
    for _ in range(NEWTON_STEPS):
        up, down = sigmoid((a + U) / p), sigmoid((V - a) / q)
        psi = gamma - (up - down)
        if psi > 0.0:
            low = a
        else:
            high = a
        slope = up * (1.0 - up) / p + down * (1.0 - down) / q
        new = a + psi / slope if slope > 0.0 else low - 1.0
        if not (low < new < high):
            new = 0.5 * (low + high)
        if abs(new - a) <= NEWTON_CHANGE * abs(a) or new == a:
            return new
        a = new
    return a


@helper(hot=True)
def split_labels(form, inside, outside):
    """Build heaps of the relevant labels (lowest key first) and of the others; return their sizes."""
    n_in = n_out = 0
    for y in range(form.known):
        if form.relevant[y]:
            inside[n_in] = y
            n_in += 1
        else:
            outside[n_out] = y
            n_out += 1
    for i in range(n_in // 2 - 1, -1, -1):
        _sift(inside, n_in, i, form.key, 1.0)
    for i in range(n_out // 2 - 1, -1, -1):
        _sift(outside, n_out, i, form.key, -1.0)
    return n_in, n_out


@helper
def water_fill(form, inside, outside, alpha):
    """Update III (11): fill the relevant labels from below and drain the others from above.

    The sweep ends when the two levels differ by gamma or the mass reaches C, so its cost is
    O(labels + moved labels x log labels). `inside` and `outside` are integer workspace; `alpha` must be zero.
    Returns the mass.
    """
    kind, gamma, C, key = form.kind, form.gamma, form.C, form.key
    n_in, n_out = split_labels(form, inside, outside)
    # p labels are filled to the level (a + U) / p, q are drained to the level (V - a) / q.
    U, p = level(_pop(inside, n_in, key, 1.0), kind), 1
    V, q = level(_pop(outside, n_out, key, -1.0), kind), 1
    low = a = 0.0
    while True:
        # On [low, high] the sets of filled and drained labels do not change.
        fill_next = p * level(key[inside[0]], kind) - U if p < n_in else math.inf
        drain_next = V - q * level(key[outside[0]], kind) if q < n_out else math.inf
        high = max(low, min(C, fill_next, drain_next))
        # Stop if the level difference reaches gamma within this segment.
        if kind == LINEAR:
            root = (gamma - U / p + V / q) / (1.0 / p + 1.0 / q)
            if root <= high:
                a = max(low, root)
                break
        elif gamma < 1.0 and gamma <= sigmoid((high + U) / p) - sigmoid((V - high) / q):
            a = _segment_root(U, p, V, q, gamma, low, high)
            break
        if high >= C:
            a = C
            break
        # Otherwise the next label joins the filled or the drained ones.
        low = high
        if fill_next <= drain_next:
            U += level(_pop(inside, n_in - p, key, 1.0), kind)
            p += 1
        else:
            V += level(_pop(outside, n_out - q, key, -1.0), kind)
            q += 1
    # Every moved label ends at the level of its side.
    top, bottom = (a + U) / p, (V - a) / q
    for i in range(n_in - p, n_in):
        alpha[inside[i]] = max(0.0, top - level(key[inside[i]], kind))
    for i in range(n_out - q, n_out):
        alpha[outside[i]] = min(0.0, bottom - level(key[outside[i]], kind))
    return a


@helper
def tilt(log_weight, log_rest, x, t):
    """Return log normaliser, mean and variance of x under weights proportional to w e^(t x).

    `log_weight` belongs to the values x of the row; all other coordinates are zero with total log weight
    `log_rest`.
    """
    top = log_rest
    for j in range(x.size):
        top = max(top, log_weight[j] + t * x[j])
    total = math.exp(log_rest - top)
    first = second = 0.0
    for j in range(x.size):
        e = math.exp(log_weight[j] + t * x[j] - top)
        total += e
        first += e * x[j]
        second += e * x[j] * x[j]
    mean = first / total
    return top + math.log(total), mean, max(0.0, second / total - mean * mean)


@helper(hot=True)
def dual_gain(form, alpha):
    """Return the increase of the dual (5) by a step, in normal form."""
    gain = 0.0
    for y in range(form.known):
        a = alpha[y]
        if a != 0.0:
            if form.kind == LINEAR:
                gain -= a * (form.key[y] + 0.5 * a)
            elif form.kind == LOGISTIC:
                gain -= log_growth(level(form.key[y], LOGISTIC), a)
            else:
                after, _, _ = tilt(form.log_weight[y], form.log_rest[y], form.x, a)
                before, _, _ = tilt(form.log_weight[y], form.log_rest[y], form.x, 0.0)
                gain -= after - before
            if form.relevant[y]:
                gain += form.gamma * a
    return gain


@helper
def round_gap(form, alpha):
    """Return the duality gap of (11) at the step alpha."""
    low, high, moved, a = math.inf, -math.inf, 0.0, 0.0
    for y in range(form.known):
        if form.kind == TILTED:
            _, m, _ = tilt(form.log_weight[y], form.log_rest[y], form.x, alpha[y])
        elif form.kind == LINEAR or alpha[y] == 0.0:
            m = score_of(form.key[y], form.kind) + alpha[y]
        else:
            m = sigmoid(level(form.key[y], LOGISTIC) + alpha[y])
        moved += alpha[y] * m
        if form.relevant[y]:
            low = min(low, m)
            a += alpha[y]
        else:
            high = max(high, m)
    return form.C * max(0.0, form.gamma - (low - high)) + moved - form.gamma * a

"""The step of one round of label ranking: updates I, II and III.

Every update is one vector alpha over the labels (theta_y += alpha_y x), with alpha >= 0 on
the relevant labels Y, <= 0 off them, sum zero and mass a = sum of alpha over Y at most C. In
normal form the score of label y after the step is H(u_y + alpha_y), and the problem (11) is

    max  gamma a - sum_y [ integral of H from u_y to u_y + alpha_y ].

| kind     | regulariser, row                | u_y                    | H(L)        |
|----------|---------------------------------|------------------------|-------------|
| LINEAR   | squared                         | <w_y, x>               | L           |
| LOGISTIC | entropy, x of two values        | logit of the mass of y | 1/(1+e^-L)  |
|          |                                 | on the larger value    |             |
| TILTED   | entropy, any x                  | (log weights)          | mean of x under w_y e^(alpha x) |

where gamma, C and alpha are rescaled (LINEAR: C |x|^2; the others: gamma / c and c C with c
the range of x). The gap of a round, exact and O(labels), is

    C [gamma - (min over Y of m_y - max off Y of m_y)]_+ + sum alpha_y m_y - gamma a,

with m_y = H(u_y + alpha_y): zero exactly at the best step.

Logits are kept as ordered *keys*, because most labels never need theirs: the mass q itself
where 1e-300 < q < 1 - 1e-4, the logit where q is smaller (it is below -690), one plus the
logit where q is larger (it is above 9.2).

S. Shalev-Shwartz, Y. Singer, A unified algorithmic approach for efficient online label
ranking, AISTATS 2007; update II in the closed form of arcsinh, update III by water filling
(the paper's interior point method is in `interior_loops`).
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
# Scores this close, relative to their size, are equal but for rounding.
TIE = 1e-13
# Newton's method on one variable ends at this relative change, or after so many steps.
NEWTON_CHANGE, NEWTON_STEPS = 1e-15, 100


class Shapes(NamedTuple):
    """What the entropy needs to know of every row: kind, base, slope and range; else empty."""

    kind: np.ndarray
    base: np.ndarray
    slope: np.ndarray
    spread: np.ndarray

    @property
    def has_general_rows(self) -> bool:
        """Whether some row leaves the reach of water filling: entropy and more than two values."""
        return bool((self.kind == TILTED).any())

    @property
    def largest_range(self) -> float:
        """Largest range of the values of a row, which no margin can exceed; 0 if none was surveyed."""
        return float(self.spread.max(initial=0.0))


def blank_shapes(n_rows: int) -> Shapes:
    """Room for the shapes of so many rows."""
    return Shapes(np.empty(n_rows, np.int64), np.empty(n_rows), np.empty(n_rows), np.empty(n_rows))


class Round(NamedTuple):
    """One round in normal form; of the arrays over labels the first `known` entries count.

    `key` holds u_y as keys (LINEAR, LOGISTIC) or the scores (TILTED). Only TILTED rounds have log
    weights (label x coordinate of the row), the log weight of all other coordinates, and x.
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
    """Key of a logit."""
    if u < -690.0:
        return u
    q = sigmoid(u)
    return 1.0 + u if q > SATURATED else q


@helper(hot=True)
def level(key, kind):
    """u of a key."""
    if kind == LINEAR or key < 0.0:
        return key
    if key > 1.0:
        return key - 1.0
    return math.log(key) - math.log1p(-key)


@helper(hot=True)
def value(u, kind):
    """H(u)."""
    return u if kind == LINEAR else sigmoid(u)


@helper(hot=True)
def score_of(key, kind):
    """H(u) straight from the key; other keys than those of logits are scores."""
    if kind != LOGISTIC or 0.0 <= key <= 1.0:
        return key
    return sigmoid(level(key, kind))


@helper(hot=True)
def log_growth(u, a):
    """log(1 - q + q e^a) with q = sigmoid(u): how much a step moves the log normaliser."""
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
    """tau with sigmoid(u + tau) - sigmoid(v - tau) = gamma, for 0 < gamma < 1."""
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
    """How far apart two scores may be and still be equal but for rounding.

    Masses are sums of positive numbers, accurate relative to themselves (told by a negative
    width); other scores are sums that may cancel, accurate relative to the largest of them.
    """
    if kind == LOGISTIC:
        return -TIE
    largest = 0.0
    for y in range(known):
        largest = max(largest, abs(key[y]))
    return TIE * largest


@helper(hot=True)
def worst_pair(kind, known, relevant, key):
    """The pair (r', s') of (7), lowest relevant and highest other label, and whether it is a mistake.

    Equal scores go to the lowest index, and are a mistake.
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
    """Update II, (9), in normal form: the best mass to move onto level u from level v."""
    if kind == LINEAR:
        return min(C, max(0.0, 0.5 * (gamma - (u - v))))
    if gamma >= 1.0:
        return C
    return min(C, max(0.0, logistic_root(u, v, gamma)))


@helper
def tilted_pair_step(form, r, s):
    """Update II, (9), for any x under the entropy: safeguarded Newton on the concave gain."""
    log_r, rest_r, log_s, rest_s = form.log_weight[r], form.log_rest[r], form.log_weight[s], form.log_rest[s]
    low, high = 0.0, form.C
    _, m_r, _ = tilt(log_r, rest_r, form.x, form.C)
    _, m_s, _ = tilt(log_s, rest_s, form.x, -form.C)
    if form.gamma - m_r + m_s >= 0.0:
        return form.C
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
    """Restore a heap whose root is the smallest sign * key, from position i downward."""
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
    """Mass in [low, high] at which p filled and q drained logits are gamma apart."""
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
    """Heaps of the relevant labels (lowest key first) and of the others (highest first); their sizes."""
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
    """Update III, (11): fill the relevant labels from below and drain the others from above.

    It ends when the two levels are gamma apart or the mass is C.
    `inside` and `outside` are integer work space; `alpha` must come in as zeros. The sweep
    stops at the last label it moves, so its cost is O(labels + moved log labels).
    """
    kind, gamma, C, key = form.kind, form.gamma, form.C, form.key
    n_in, n_out = split_labels(form, inside, outside)
    # p labels are filled to the level (a + U) / p, q are drained to the level (V - a) / q.
    U, p = level(_pop(inside, n_in, key, 1.0), kind), 1
    V, q = level(_pop(outside, n_out, key, -1.0), kind), 1
    low = a = 0.0
    while True:
        fill_next = p * level(key[inside[0]], kind) - U if p < n_in else math.inf
        drain_next = V - q * level(key[outside[0]], kind) if q < n_out else math.inf
        high = max(low, min(C, fill_next, drain_next))
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
        low = high
        if fill_next <= drain_next:
            U += level(_pop(inside, n_in - p, key, 1.0), kind)
            p += 1
        else:
            V += level(_pop(outside, n_out - q, key, -1.0), kind)
            q += 1
    top, bottom = (a + U) / p, (V - a) / q
    for i in range(n_in - p, n_in):
        alpha[inside[i]] = max(0.0, top - level(key[inside[i]], kind))
    for i in range(n_out - q, n_out):
        alpha[outside[i]] = min(0.0, bottom - level(key[outside[i]], kind))
    return a


@helper
def tilt(log_weight, log_rest, x, t):
    """Log normaliser, mean and variance of x under the weights e^(t x).

    The row touches coordinates with values x and log weights `log_weight`; all others are zeros
    of total log weight `log_rest`.
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
    """What a step adds to the dual (5), in normal form."""
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
    """Duality gap of (11) at the step alpha."""
    low, high, moved, a = math.inf, -math.inf, 0.0, 0.0
    for y in range(form.known):
        if form.kind == TILTED:
            _, m, _ = tilt(form.log_weight[y], form.log_rest[y], form.x, alpha[y])
        elif alpha[y] == 0.0:
            m = score_of(form.key[y], form.kind)
        else:
            m = value(level(form.key[y], form.kind) + alpha[y], form.kind)
        moved += alpha[y] * m
        if form.relevant[y]:
            low = min(low, m)
            a += alpha[y]
        else:
            high = max(high, m)
    return form.C * max(0.0, form.gamma - (low - high)) + moved - form.gamma * a

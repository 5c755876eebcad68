"""Inner loops of Algorithm 1 (SMO with delayed gradients) for kernelised M3L.

All arrays are label-major. The scores of all labels are F = R B K. With R = out into', of rank r, they are
F = out S, where S = into' B K has r rows: what a label collected is carried to S alone, (35), and the
residual e = T_l - F_l of a label is made anew from S when it is looked at.

Which label comes next is told by estimates of their largest violations. One is exact when its label is looked
at and grows by a share of what the steps of others may have added; a label is taken when its violation is a
share at least of all other estimates. With both shares 1 it is the label with the largest violation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.simplex import argmax
from maxmargin.multilabel.kernel_loops import KernelState, argmax_bits, move, pair_gains


class Ties(NamedTuple):
    """R = out into', and S, the part of the scores that all labels share (rank x samples)."""

    R: np.ndarray
    out: np.ndarray
    into: np.ndarray
    S: np.ndarray


class Duals(NamedTuple):
    """Targets, coefficients and their bounds of all labels."""

    T: np.ndarray
    B: np.ndarray
    lo: np.ndarray
    hi: np.ndarray


class Violations(NamedTuple):
    """The estimate of every label; 1 where a coefficient can rise and where it can fall, else 0."""

    estimate: np.ndarray
    up: np.ndarray
    down: np.ndarray


class Look(NamedTuple):
    """The label looked at last: residual, what its steps add to B K, violations, gains of partners."""

    e: np.ndarray
    u: np.ndarray
    violation: np.ndarray
    gains: np.ndarray
    violation_bits: np.ndarray
    gain_bits: np.ndarray


class InnerRule(NamedTuple):
    """How many steps a label makes, when it ends early, which pairs are singular, and the two shares."""

    n_inner: int
    break_factor: float
    singular: float
    accepted: float
    growth: float


def look_of(n):
    """Memory for looking at one label of n samples."""
    work = np.zeros((4, n))
    bits = work.view(np.int64)
    return Look(work[0], work[1], work[2], work[3], bits[2], bits[3])


@helper(reorder=True)
def residual(weights, S, target, e):
    """e = target - weights S."""
    for i in range(len(e)):
        e[i] = target[i]
    for j in range(len(S)):
        weight = weights[j]
        if weight != 0:
            row = S[j]
            for i in range(len(e)):
                e[i] -= weight * row[i]


@helper(reorder=True)
def measure(e, up, down, violation):
    """The violation of every coefficient of one label: the size of the projected gradient (31), (32)."""
    for i in range(len(e)):
        rise, fall = e[i] * up[i], -e[i] * down[i]
        violation[i] = rise if rise > fall else fall


@compiled
def choose(ties, duals, violations, look, accepted):
    """A label to work on and its coefficient with the largest violation (-1, -1: there is none)."""
    estimate, up, down = violations
    while True:
        l = argmax(estimate, estimate.size)
        if not estimate[l] > 0:  # none, or not a number, which no label would ever be taken with
            return -1, -1
        residual(ties.out[l], ties.S, duals.T[l], look.e)
        measure(look.e, up[l], down[l], look.violation)
        p = argmax_bits(look.violation_bits)
        estimate[l] = 0
        rival = estimate[argmax(estimate, estimate.size)]
        if p >= 0:
            estimate[l] = look.violation[p]
            if estimate[l] >= accepted * rival:
                look.u[:] = 0
                return l, p


@compiled
def partner(K_p, diagonal, l, p, violations, look, singular):
    """The q whose pair with p promises the largest unconstrained gain (30), (56) (-1: none)."""
    _, up, down = violations
    pair_gains(K_p, diagonal, p, look.e, up[l], down[l], look.violation, singular, look.gains)
    return argmax_bits(look.gain_bits)


@helper(reorder=True)
def follow(K_p, K_q, w_p, w_q, r, e, u):
    """Carry a pair step to the residual of its label, (33), and collect it in u, (36)."""
    for i in range(len(e)):
        w = w_p * K_p[i] + w_q * K_q[i]
        e[i] -= r * w
        u[i] += w


@compiled
def step(K_p, K_q, diagonal, l, p, q, ties, duals, violations, look):
    """Move p and q of label l (q = -1: p alone) and see what follows; whether anything moved."""
    _, B, lo, hi = duals
    _, up, down = violations
    r, other = ties.R[l, l], q if q >= 0 else p
    w_p, w_q = move(p, q, K_p[other], diagonal, r, KernelState(look.e, B[l], lo[l], hi[l]))
    if w_p == 0 and w_q == 0:
        return False
    for i in (p, other):
        up[l, i] = 1.0 if B[l, i] < hi[l, i] else 0.0
        down[l, i] = 1.0 if B[l, i] > lo[l, i] else 0.0
    follow(K_p, K_q, w_p, w_q, r, look.e, look.u)
    measure(look.e, up[l], down[l], look.violation)
    return True


@helper(reorder=True)
def largest(u):
    """max |u|."""
    most = 0.0
    for i in range(len(u)):
        most = max(most, abs(u[i]))
    return most


@helper(reorder=True)
def add(weights, u, S):
    """S += weights u'."""
    for j in range(len(S)):
        weight = weights[j]
        if weight != 0:
            row = S[j]
            for i in range(len(u)):
                row[i] += weight * u[i]


@compiled
def carry(l, ties, violations, look, growth):
    """Carry what label l collected to all labels, (35), and renew the estimates."""
    estimate = violations.estimate
    add(ties.into[l], look.u, ties.S)
    most = growth * largest(look.u)
    for k in range(len(estimate)):
        estimate[k] += abs(ties.R[k, l]) * most
    p = argmax_bits(look.violation_bits)
    estimate[l] = look.violation[p] if p >= 0 else 0.0


@compiled
def smo_rounds(K, diagonal, ties, duals, violations, look, n_rounds, rule):
    """Outer loop of Algorithm 1 over the whole kernel matrix; returns the number of steps."""
    n_inner, break_factor, singular, accepted, growth = rule
    steps = 0
    for _ in range(n_rounds):
        l, p = choose(ties, duals, violations, look, accepted)
        if l < 0:
            break
        entry, done = violations.estimate[l], 0
        while done < n_inner:
            q = partner(K[p], diagonal, l, p, violations, look, singular)
            if not step(K[p], K[q if q >= 0 else p], diagonal, l, p, q, ties, duals, violations, look):
                break
            done += 1
            p = argmax_bits(look.violation_bits)
            if p < 0 or look.violation[p] < break_factor * entry:
                break
        carry(l, ties, violations, look, growth)
        if done == 0:
            violations.estimate[l] = 0
        steps += done
    return steps

"""Inner loops of Algorithm 1 (SMO with delayed gradients) for kernelised M3L.

All arrays are label-major. The scores of all labels are F = R B K. With R = out into' of rank r they are
F = out S, where S = into' B K has r rows: the changes of a label are added to S only, (35), and the residual
e = T_l - F_l of a label is computed from S when the label is examined.

The next label is selected by estimates of the largest violations. An estimate is exact when its label is
examined, and grows by a part of the largest change that steps of others may have caused. A label is selected
if its violation is at least a given part of all other estimates. With both parts 1 it is the label with the
largest violation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maxmargin.core.jit import compiled, helper
from maxmargin.core.simplex import argmax
from maxmargin.multilabel.kernel_loops import KernelState, argmax_bits, move, pair_gains


class FactoredPrior(NamedTuple):
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


class Workspace(NamedTuple):
    """Of the examined label: residual, change of B K, violations, gains of partners; two as integers."""

    e: np.ndarray
    u: np.ndarray
    violation: np.ndarray
    gains: np.ndarray
    violation_bits: np.ndarray
    gain_bits: np.ndarray


class InnerRule(NamedTuple):
    """Most steps on a label, when it ends early, which pairs are singular, and the parts of the header."""

    n_inner: int
    break_factor: float
    singular: float
    accepted: float
    growth: float


def workspace(n):
    """Memory for one label of n samples."""
    work = np.zeros((4, n))
    bits = work.view(np.int64)
    return Workspace(work[0], work[1], work[2], work[3], bits[2], bits[3])


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
def select(prior, duals, violations, work, accepted):
    """A label to work on and its most violating coefficient; (-1, -1) if no label violates."""
    estimate, up, down = violations
    while True:
        l = argmax(estimate, estimate.size)
        if not estimate[l] > 0:  # zero, or NaN
            return -1, -1
        residual(prior.out[l], prior.S, duals.T[l], work.e)
        measure(work.e, up[l], down[l], work.violation)
        p = argmax_bits(work.violation_bits)
        estimate[l] = 0
        rival = estimate[argmax(estimate, estimate.size)]
        if p >= 0:
            estimate[l] = work.violation[p]
            if estimate[l] >= accepted * rival:
                work.u[:] = 0
                return l, p


@compiled
def partner(K_p, diagonal, l, p, violations, work, singular):
    """The q whose pair with p has the largest unconstrained gain (30), (56); -1 if there is none."""
    _, up, down = violations
    pair_gains(K_p, diagonal, p, work.e, up[l], down[l], work.violation, singular, work.gains)
    return argmax_bits(work.gain_bits)


@helper(reorder=True)
def follow(K_p, K_q, w_p, w_q, r, e, u):
    """Update the residual of the label after a pair step, (33), and sum the steps in u, (36)."""
    for i in range(len(e)):
        w = w_p * K_p[i] + w_q * K_q[i]
        e[i] -= r * w
        u[i] += w


@compiled
def step(K_p, K_q, diagonal, l, p, q, prior, duals, violations, work):
    """Move p and q of label l (q = -1: p alone) and update its violations; return whether anything moved."""
    _, B, lo, hi = duals
    _, up, down = violations
    r, other = prior.R[l, l], q if q >= 0 else p
    w_p, w_q = move(p, q, K_p[other], diagonal, r, KernelState(work.e, B[l], lo[l], hi[l]))
    if w_p == 0 and w_q == 0:
        return False
    for i in (p, other):
        up[l, i] = 1.0 if B[l, i] < hi[l, i] else 0.0
        down[l, i] = 1.0 if B[l, i] > lo[l, i] else 0.0
    follow(K_p, K_q, w_p, w_q, r, work.e, work.u)
    measure(work.e, up[l], down[l], work.violation)
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
def propagate(l, prior, violations, work, growth):
    """Add the changes of label l to the scores of all labels, (35), and update the estimates."""
    estimate = violations.estimate
    add(prior.into[l], work.u, prior.S)
    most = growth * largest(work.u)
    for k in range(len(estimate)):
        estimate[k] += abs(prior.R[k, l]) * most
    p = argmax_bits(work.violation_bits)
    estimate[l] = work.violation[p] if p >= 0 else 0.0


@compiled
def smo_rounds(K, diagonal, prior, duals, violations, work, n_rounds, rule):
    """Outer loop of Algorithm 1 on the whole kernel matrix; return the number of steps."""
    n_inner, break_factor, singular, accepted, growth = rule
    steps = 0
    for _ in range(n_rounds):
        l, p = select(prior, duals, violations, work, accepted)
        if l < 0:
            break
        entry, done = violations.estimate[l], 0
        while done < n_inner:
            q = partner(K[p], diagonal, l, p, violations, work, singular)
            if not step(K[p], K[q if q >= 0 else p], diagonal, l, p, q, prior, duals, violations, work):
                break
            done += 1
            p = argmax_bits(work.violation_bits)
            if p < 0 or work.violation[p] < break_factor * entry:
                break
        propagate(l, prior, violations, work, growth)
        if done == 0:
            violations.estimate[l] = 0
        steps += done
    return steps

"""Steps on one block of the dual, for any model whose block is a simplex.

Block i of the dual is a point alpha of the simplex over c answers. With the loss-augmented margins H (one per
answer) and the curvature kappa of the block, a change of alpha by a zero-sum vector delta changes the dual
objective, per unit of the sample's cost, by exactly

    delta.H - kappa/2 |delta|^2.

All functions work in place on vectors of length c and return the numbers that the caller needs to update its
sums. There are two kinds of state: alpha itself, and log alpha for the entropic steps, which therefore never
lose a coordinate. H may be shifted by any constant.

Numbers in brackets are equations of Mohapatra et al. 2016.

Conventions: `H` margins, `alpha` the block, `new` the block after the step, `kappa` curvature, `tau`
temperature; ties go to the lowest index; kappa = 0 (a zero row) makes the block linear, so the step goes to
the best vertex.
"""

from __future__ import annotations

import math

from maxmargin.core.jit import helper

# Below this curvature H / kappa may overflow; the block is treated as linear.
FLAT = 1e-30


@helper(hot=True)
def argmax(H, c):
    """Index of the largest of the first c entries, the lowest one on ties."""
    top = 0
    for k in range(1, c):
        if H[k] > H[top]:
            top = k
    return top


@helper(hot=True)
def line_search(slope, curvature, longest):
    """Maximiser of slope t - curvature / 2 t^2 within [0, longest]: the step (10), clipped."""
    if slope <= 0.0:
        return 0.0
    if longest * curvature <= slope:
        return longest
    return slope / curvature


@helper(hot=True)
def predicted_gain(gamma, slope, kappa, squared_length):
    """Increase of the dual objective by a step gamma, per unit of the sample's cost."""
    return gamma * slope - 0.5 * gamma * gamma * kappa * squared_length


@helper(reorder=True)
def vertex_direction(alpha, H, c, top):
    """d.H and |d|^2 of the direction d = e_top - alpha."""
    mean, squares = 0.0, 0.0
    for k in range(c):
        mean += alpha[k] * H[k]
        squares += alpha[k] * alpha[k]
    return H[top] - mean, squares - 2.0 * alpha[top] + 1.0


@helper(hot=True)
def frank_wolfe_step(alpha, H, c, kappa, new):
    """Exact line search towards the vertex of the largest margin."""
    top = argmax(H, c)
    slope, squared_length = vertex_direction(alpha, H, c, top)
    gamma = line_search(slope, kappa * squared_length, 1.0)
    for k in range(c):
        new[k] = (1.0 - gamma) * alpha[k]
    new[top] += gamma


@helper(hot=True)
def softmax_target(log_alpha, H, c, tau, log_target):
    """The target (9): log s, s_k proportional to alpha_k exp(H_k / tau); False when it underflowed."""
    largest = H[0]
    for k in range(1, c):
        largest = max(largest, H[k])
    peak = -math.inf
    for k in range(c):
        log_target[k] = log_alpha[k] + (H[k] - largest) / tau
        peak = max(peak, log_target[k])
    if not (peak > -math.inf):
        return False
    total = 0.0
    for k in range(c):
        total += math.exp(log_target[k] - peak)
    shift = peak + math.log(total)
    for k in range(c):
        log_target[k] -= shift
    return True


@helper(hot=True)
def log_add(a, b):
    """log(exp(a) + exp(b)) without overflow."""
    high, low = (a, b) if a > b else (b, a)
    if low == -math.inf:
        return high
    return high + math.log1p(math.exp(low - high))


@helper(hot=True)
def log_blend(log_alpha, log_target, c, gamma, log_new):
    """log((1 - gamma) alpha + gamma s); gamma = 1 gives log s."""
    if gamma >= 1.0:
        for k in range(c):
            log_new[k] = log_target[k]
        return
    keep = math.log1p(-gamma)
    move = math.log(gamma) if gamma > 0.0 else -math.inf
    for k in range(c):
        log_new[k] = log_add(keep + log_alpha[k], move + log_target[k])


@helper(hot=True)
def log_floor(log_new, c, floor):
    """Blend with the uniform block, alpha <- (1 - m) alpha + m / c, and renormalise."""
    if floor > 0.0:
        keep, least = math.log1p(-floor), math.log(floor / c)
        for k in range(c):
            log_new[k] = log_add(keep + log_new[k], least)
    total = 0.0
    for k in range(c):
        total += math.exp(log_new[k])
    shift = math.log(total)
    for k in range(c):
        log_new[k] -= shift


@helper(hot=True)
def linearized_step(log_alpha, alpha, H, c, kappa, tau, safeguard, truncation, log_target, log_new):
    """Partial linearization: exact line search (10) towards the softmax target (9).

    With `safeguard` the Frank-Wolfe vertex is tried as well and the larger predicted gain wins. The step
    stays below 1 - truncation, so that no coordinate becomes zero. At tau = 0, or if the softmax underflows,
    the target is the vertex.
    """
    interior = tau > 0.0 and softmax_target(log_alpha, H, c, tau, log_target)
    slope, squared_length = 0.0, 0.0
    gamma, gain = 0.0, -1.0
    if interior:
        for k in range(c):
            d = math.exp(log_target[k]) - alpha[k]
            slope += d * H[k]
            squared_length += d * d
        gamma = line_search(slope, kappa * squared_length, 1.0)
        gain = predicted_gain(gamma, slope, kappa, squared_length)
    if safeguard or not interior:
        top = argmax(H, c)
        slope, squared_length = vertex_direction(alpha, H, c, top)
        step = line_search(slope, kappa * squared_length, 1.0)
        if predicted_gain(step, slope, kappa, squared_length) > gain:
            gamma = step
            for k in range(c):
                log_target[k] = -math.inf
            log_target[top] = 0.0
    log_blend(log_alpha, log_target, c, min(gamma, 1.0 - truncation), log_new)


@helper(hot=True)
def exponentiated_step(log_alpha, H, c, tau, log_new):
    """Exponentiated gradient: the softmax target itself, without line search."""
    if not softmax_target(log_alpha, H, c, tau, log_new):
        top = argmax(H, c)
        for k in range(c):
            log_new[k] = -math.inf
        log_new[top] = 0.0


@helper(hot=True)
def weston_watkins_step(alpha, H, c, truth, kappa, new):
    """Best block of the Weston-Watkins dual: 0 <= alpha_k <= 1 for k != truth, H_truth = 0.

    alpha_truth = 1 - sum of the others, so delta sums to zero as well, but the quadratic is kappa/2
    (|delta|^2 + (sum delta)^2) over the others. Its minimiser is clip(u_k - s, 0, 1) with u_k = alpha_k + S +
    H_k / kappa, where S is the old and s the new sum. s - sum_k clip(u_k - s, 0, 1) increases in s; its root
    is found by Newton steps inside a bracket.
    """
    if kappa < FLAT:
        total = 0.0
        for k in range(c):
            new[k] = 1.0 if k != truth and H[k] > 0.0 else 0.0
            total += new[k]
        new[truth] = 1.0 - total
        return
    old = 1.0 - alpha[truth]
    for k in range(c):
        new[k] = alpha[k] + old + H[k] / kappa
    low, high = 0.0, c - 1.0
    s = min(max(old, low), high)
    for _ in range(100):
        total, free = 0.0, 0
        for k in range(c):
            if k != truth:
                a = new[k] - s
                if a >= 1.0:
                    total += 1.0
                elif a > 0.0:
                    total += a
                    free += 1
        excess = s - total
        if excess > 0.0:
            high = s
        else:
            low = s
        step = s - excess / (1.0 + free)
        if abs(step - s) <= 1e-15 * (1.0 + s):
            break
        s = step if low < step < high else 0.5 * (low + high)
    total = 0.0
    for k in range(c):
        if k != truth:
            new[k] = min(max(new[k] - s, 0.0), 1.0)
            total += new[k]
    new[truth] = 1.0 - total

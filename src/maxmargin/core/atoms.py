"""Blocks whose distribution is a list of atoms (answers) with weights.

The slots of all blocks lie in flat arrays: block i owns ``capacity[i]`` of them, from
``slot_at[i]`` in `alpha` and `deltas`, from ``gram_at[i]`` in `grams` (capacity x capacity)
and from ``label_at[i]`` in `labels` (capacity x width, what names an atom); ``count[i]`` are
in use. Slots of weight 0 stay as cache until their place is needed.
"""

from __future__ import annotations

from maxmargin.core.jit import compiled


@compiled
def solve_cached(m, alpha, H, gram, cost, steps, precision):
    """Pairwise steps on the simplex of m atoms until its gap has shrunk by `precision`.

    Each step moves weight from the worst atom in use to the best one, up to the
    minimiser of the quadratic or until the worst is used up.
    """
    goal = -1.0
    for _ in range(steps):
        u, v, mean = 0, -1, 0.0
        for j in range(m):
            if H[j] > H[u]:
                u = j
            if alpha[j] > 0.0:
                mean += alpha[j] * H[j]
                if v < 0 or H[j] < H[v]:
                    v = j
        gap = H[u] - mean
        if goal < 0.0:
            goal = precision * gap
        if gap <= goal or H[u] <= H[v]:
            break
        curvature = cost * (gram[u, u] + gram[v, v] - 2.0 * gram[u, v])
        move = alpha[v]
        if curvature * move > H[u] - H[v]:
            move = (H[u] - H[v]) / curvature
            alpha[v] -= move
        else:
            alpha[v] = 0.0
        alpha[u] += move
        for j in range(m):
            H[j] -= cost * move * (gram[j, u] - gram[j, v])


@compiled
def free_slot(m, alpha, H):
    """A slot for a new atom: unused, else the cached one of weight 0 with the lowest H, else -1."""
    if m < alpha.size:
        return m
    spot = -1
    for j in range(1, m):
        if alpha[j] == 0.0 and (spot < 0 or H[j] < H[spot]):
            spot = j
    return spot


@compiled
def move_slots(
    widths, count, capacity, label_at, slot_at, gram_at, labels, alpha, deltas, grams,
    new_capacity, new_label_at, new_slot_at, new_gram_at, new_labels, new_alpha, new_deltas, new_grams,
):  # fmt: skip
    """Copy the slots in use into arrays of another capacity."""
    for i in range(count.size):
        width, m = widths[i], count[i]
        for k in range(m * width):
            new_labels[new_label_at[i] + k] = labels[label_at[i] + k]
        for j in range(m):
            new_alpha[new_slot_at[i] + j] = alpha[slot_at[i] + j]
            new_deltas[new_slot_at[i] + j] = deltas[slot_at[i] + j]
            for k in range(m):
                new_grams[new_gram_at[i] + j * new_capacity[i] + k] = grams[gram_at[i] + j * capacity[i] + k]

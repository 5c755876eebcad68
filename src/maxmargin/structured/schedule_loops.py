"""Which blocks a pass visits: the bookkeeping of `maxmargin.structured.exact`.

`due[i]` is the pass from which on block i is visited again, `streak[i]` how many times in a
row it was found optimal at a vertex.
"""

from __future__ import annotations

from maxmargin.core.jit import compiled


@compiled
def due_blocks(present, due, now, visited):
    """Write the blocks that are due to `visited`; returns how many."""
    size = 0
    for j in range(present.size):
        visited[size] = present[j]
        size += due[present[j]] <= now
    return size


@compiled
def postpone(visited, gaps, idle, now, quiet, longest, streak, due):
    """Set the next visit of the blocks just visited.

    An idle block waits 2^streak - 1 passes, with streaks up to `longest`; another one whose
    gap was at most `quiet` waits for one.
    """
    for j in range(visited.size):
        i = visited[j]
        wait = 1 if gaps[i] <= quiet else 0
        if longest > 0:
            if idle[i]:
                streak[i] = min(streak[i] + 1, longest)
                wait = (1 << streak[i]) - 1
            else:
                streak[i] = 0
        due[i] = now + wait

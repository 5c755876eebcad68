"""Rounds of label ranking over a stream, and passes over a stored sample.

One pass is the online algorithm: predict, then ascend the dual with a step of the example at
hand. Further passes take an example's old step out and put a better one in, which is
block-coordinate ascent on the dual; with update "all_pairs" they converge to the optimum. The
stopping rule is the relative gap (P - D) / |P|, with D recomputed from the stored steps and P
from the weights that these steps give. The other two updates never decrease the dual either,
but need not reach the optimum. Problem, dual and regularisers: `problems.ranking`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Progress, require

# Rounds between two looks at the clock and at Ctrl-C.
BLOCK = 8192


class OnlineRanking:
    """Passes over a ranking stream: the first in the order of the stream, later ones shuffled."""

    def __init__(self, stream: Any, random: Any = None) -> None:
        require(stream, ("learn", "improve", "running", "certify", "n_rows"), "OnlineRanking")
        self.stream = stream
        self.random = random
        self.passes = 0

    def learn(self, clock: Clock | None = None) -> int:
        """The online pass; returns how many rounds moved the dual before the clock ran out."""
        return self._blocks(self.stream.learn, np.arange(self.stream.n_rows), clock)

    def epoch(self, clock: Clock) -> Progress:
        """One pass and the certificate after it; `active` counts the rounds that moved the dual."""
        if self.passes == 0:
            moved = self.learn(clock)
        else:
            order = self.random.permutation(self.stream.n_rows)
            moved = self._blocks(self.stream.improve, order, clock)
        self.passes += 1
        return Progress(self.stream.running(), moved)

    def certify(self) -> Certificate:
        """Recompute both objectives from what is stored."""
        return self.stream.certify()

    @staticmethod
    def _blocks(rounds: Any, order: np.ndarray, clock: Clock | None) -> int:
        moved = 0
        for start in range(0, len(order), BLOCK):
            moved += rounds(order[start : start + BLOCK])
            if clock is not None and clock.expired():
                break
        return moved

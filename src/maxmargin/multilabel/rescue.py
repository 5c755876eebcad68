"""Coordinate ascent first, an interior point method where it gets stuck.

Coordinate ascent is the fastest method on most data, but its rate depends on the conditioning of
X, R and C: a few unscaled features are enough to stop it in its tracks. When the gap no longer
halves within `EPOCHS` epochs, the interior point method takes over and the better of the two
solutions counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Certificate, Clock, Patience, Progress
from maxmargin.multilabel.interior import InteriorPoint

EPOCHS = 15


class Rescued:
    """A sweeping method that can hand over to `InteriorPoint`."""

    def __init__(self, sweeps: Any) -> None:
        self.current = self.sweeps = sweeps
        self.patience = Patience(EPOCHS, factor=0.5)

    @property
    def alpha(self) -> np.ndarray:
        return self.current.alpha

    def epoch(self, clock: Clock) -> Progress:
        progress = self.current.epoch(clock)
        if self.current is self.sweeps and self.patience.exhausted(progress.certificate.gap):
            self.current = InteriorPoint(self.sweeps.problem)
        return progress

    def certify(self) -> Certificate:
        """Certify the better solution, which is the one that counts from here on."""
        certificate = self.current.certify()
        if self.current is not self.sweeps:
            earlier = self.sweeps.certify()
            if earlier.gap < certificate.gap:
                self.current, certificate = self.sweeps, earlier
        return certificate

    def weights(self) -> np.ndarray:
        """Z of the solution that counts."""
        return self.current.weights()

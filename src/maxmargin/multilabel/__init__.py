"""Multi-label classification with a prior on label correlations (Hariharan, Vishwanathan, Varma 2012)."""

"""Flat-array inner loops: the only room where numba is imported."""

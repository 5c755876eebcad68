"""Sparse kernel machines with one shared basis (Ganu, Shevade, Sundararajan 2013)."""

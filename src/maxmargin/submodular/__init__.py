"""Submodular multi-label learning for the F-score (Petterson, Caetano 2011)."""

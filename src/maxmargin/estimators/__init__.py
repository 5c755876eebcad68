"""The scikit-learn face of the package, one file per task."""

"""The interface to scikit-learn that all models share."""

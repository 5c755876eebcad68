"""The side that scikit-learn sees, shared by all models."""

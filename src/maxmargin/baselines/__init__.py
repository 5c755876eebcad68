"""What the papers compare with and scikit-learn lacks."""

from maxmargin.baselines.sparse import ImportVectorMachine, SparseOneVsRest

__all__ = ["ImportVectorMachine", "SparseOneVsRest"]

"""What the papers compare with and scikit-learn lacks."""

from maxmargin.baselines.multilabel import LabelPowerset, MLkNN, RAkEL
from maxmargin.baselines.thresholds import ThresholdTuner, tune_thresholds
from maxmargin.sparse.rivals import ImportVectorMachine, SparseOneVsRest

__all__ = [
    "ImportVectorMachine",
    "LabelPowerset",
    "MLkNN",
    "RAkEL",
    "SparseOneVsRest",
    "ThresholdTuner",
    "tune_thresholds",
]

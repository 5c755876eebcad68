"""What the papers compare with and scikit-learn lacks."""

from maxmargin.baselines.multilabel import LabelPowerset, MLkNN, RAkEL
from maxmargin.baselines.sparse import ImportVectorMachine, SparseOneVsRest
from maxmargin.baselines.thresholds import ThresholdTuner, tune_thresholds

__all__ = [
    "ImportVectorMachine",
    "LabelPowerset",
    "MLkNN",
    "RAkEL",
    "SparseOneVsRest",
    "ThresholdTuner",
    "tune_thresholds",
]

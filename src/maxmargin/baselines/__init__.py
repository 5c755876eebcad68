"""Thresholds tuned for F1, and sparse machines that the papers compare with."""

from typing import Any

from maxmargin.baselines.thresholds import ThresholdTuner, tune_thresholds
from maxmargin.sparse.rivals import ImportVectorMachine, SparseOneVsRest

__all__ = [
    "ImportVectorMachine",
    "SparseOneVsRest",
    "ThresholdTuner",
    "tune_thresholds",
]


def __getattr__(name: str) -> Any:
    if name in ("LabelPowerset", "MLkNN", "RAkEL"):
        # Not an AttributeError, of which "from maxmargin.baselines import" would hide the message.
        raise ImportError(
            f"maxmargin.baselines has no {name}: it moved to experiments/_baselines.py in the repository; "
            "MultiLabelSVC and ThresholdTuner learn several labels per sample."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The version of the package, its public names, and their modules.

The package imports names from these tables on first use, and model files may only name these classes.
"""

from __future__ import annotations

VERSION = "0.1.0"

ESTIMATORS = {
    "ChainSVC": "maxmargin.structured.chain",
    "LabelRanker": "maxmargin.ranking.estimator",
    "LatentSVC": "maxmargin.structured.latent",
    "MultiClassSVC": "maxmargin.structured.multiclass",
    "MultiLabelSVC": "maxmargin.multilabel.estimator",
    "SparseMultiClassSVC": "maxmargin.sparse.machines",
    "SparseMultiLabelSVC": "maxmargin.sparse.machines",
    "StreamRanker": "maxmargin.ranking.stream",
    "SubmodularSVC": "maxmargin.submodular.estimator",
}
# Meta-estimators.
WRAPPERS = {
    "Calibrated": "maxmargin.decisions.calibrated",
    "LabelSets": "maxmargin.decisions.sets",
    "TreeLabels": "maxmargin.decisions.tree",
}
FUNCTIONS = {
    "load": "maxmargin.io.model_file",
    "prepare": "maxmargin.tables",
    "save": "maxmargin.io.model_file",
    "to_onnx": "maxmargin.export.onnx_file",
}
MODULES = (
    "baselines",
    "datasets",
    "decisions",
    "metrics",
    "model_selection",
    "persistence",
    "priors",
    "progress",
    "tables",
)

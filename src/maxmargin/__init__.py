"""Max-margin classification with many labels.

The public names are resolved on first use, so that importing the package costs
next to nothing: neither numba nor matplotlib is loaded before a fit or a plot asks
for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_ESTIMATORS = {
    "ChainSVC": "maxmargin.estimators.chain",
    "LabelRanker": "maxmargin.estimators.ranking",
    "LatentSVC": "maxmargin.estimators.latent",
    "MultiClassSVC": "maxmargin.estimators.multiclass",
    "MultiLabelSVC": "maxmargin.estimators.multilabel",
    "SparseMultiClassSVC": "maxmargin.estimators.sparse",
    "SparseMultiLabelSVC": "maxmargin.estimators.sparse",
    "StreamRanker": "maxmargin.estimators.stream",
    "SubmodularSVC": "maxmargin.estimators.submodular",
}
_FUNCTIONS = {"load": "maxmargin.persistence", "save": "maxmargin.persistence"}
_ROOMS = ("baselines", "datasets", "metrics", "model_selection", "persistence", "priors")

__all__ = [
    "ChainSVC",
    "LabelRanker",
    "LatentSVC",
    "MultiClassSVC",
    "MultiLabelSVC",
    "SparseMultiClassSVC",
    "SparseMultiLabelSVC",
    "StreamRanker",
    "SubmodularSVC",
    "__version__",
    "baselines",
    "datasets",
    "load",
    "metrics",
    "model_selection",
    "persistence",
    "priors",
    "save",
]

if TYPE_CHECKING:
    from maxmargin import baselines, datasets, metrics, model_selection, persistence, priors
    from maxmargin.estimators.chain import ChainSVC
    from maxmargin.estimators.latent import LatentSVC
    from maxmargin.estimators.multiclass import MultiClassSVC
    from maxmargin.estimators.multilabel import MultiLabelSVC
    from maxmargin.estimators.ranking import LabelRanker
    from maxmargin.estimators.sparse import SparseMultiClassSVC, SparseMultiLabelSVC
    from maxmargin.estimators.stream import StreamRanker
    from maxmargin.estimators.submodular import SubmodularSVC
    from maxmargin.persistence import load, save


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        return getattr(importlib.import_module(_ESTIMATORS[name]), name)
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"maxmargin.{name}")
    raise AttributeError(f"module 'maxmargin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

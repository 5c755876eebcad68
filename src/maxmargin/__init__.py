"""Max-margin classification with many labels.

Public names are imported on first use, so ``import maxmargin`` is fast: fits import numba, and plots import
matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from maxmargin._names import ESTIMATORS, FUNCTIONS, MODULES, VERSION, WRAPPERS

__version__ = VERSION
__all__ = sorted(["__version__", *ESTIMATORS, *WRAPPERS, *FUNCTIONS, *MODULES])

if TYPE_CHECKING:
    from maxmargin import (
        baselines,
        datasets,
        decisions,
        metrics,
        model_selection,
        persistence,
        priors,
        progress,
        tables,
    )
    from maxmargin.decisions.calibrated import Calibrated
    from maxmargin.decisions.sets import LabelSets
    from maxmargin.decisions.tree import TreeLabels
    from maxmargin.export.onnx_file import to_onnx
    from maxmargin.io.model_file import load, save
    from maxmargin.multilabel.estimator import MultiLabelSVC
    from maxmargin.ranking.estimator import LabelRanker
    from maxmargin.ranking.stream import StreamRanker
    from maxmargin.sparse.machines import SparseMultiClassSVC, SparseMultiLabelSVC
    from maxmargin.structured.chain import ChainSVC
    from maxmargin.structured.latent import LatentSVC
    from maxmargin.structured.multiclass import MultiClassSVC
    from maxmargin.submodular.estimator import SubmodularSVC
    from maxmargin.tables import prepare


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return importlib.import_module(f"maxmargin.{name}")
    module = ESTIMATORS.get(name) or WRAPPERS.get(name) or FUNCTIONS.get(name)
    if module is None:
        raise AttributeError(f"module 'maxmargin' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)

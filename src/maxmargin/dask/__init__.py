"""Training and prediction on a Dask cluster; ``pip install "dask[array]" distributed``.

The linear `MultiLabelSVC` and `MultiClassSVC` learn from dask arrays, dask dataframes and lists of delayed
partitions, with the parameters, attributes and certified gap of the estimators in `maxmargin`. `predict` and
`decision_function` give lazy predictions of any fitted model on Dask collections. `local_cluster` starts
workers on this machine.
"""

from typing import Any

from maxmargin.dask.cluster import local_cluster
from maxmargin.dask.estimator import decision_function, predict
from maxmargin.dask.files import read_arff, read_parquet, read_svmlight, store, stored
from maxmargin.dask.multiclass import MultiClassSVC
from maxmargin.dask.multilabel import MultiLabelSVC

__all__ = [
    "MultiClassSVC",
    "MultiLabelSVC",
    "decision_function",
    "local_cluster",
    "predict",
    "read_arff",
    "read_parquet",
    "read_svmlight",
    "store",
    "stored",
]


def __getattr__(name: str) -> Any:
    if name in ("ChainSVC", "SparseMultiClassSVC", "SparseMultiLabelSVC", "SubmodularSVC"):
        # "from maxmargin.dask import" would hide the message of an AttributeError.
        raise ImportError(
            f"maxmargin.dask has no {name}: fit maxmargin.{name} on one machine and pass it to "
            "maxmargin.dask.predict, which predicts on Dask collections."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The models of this package on a Dask cluster; ``pip install "dask[array]" distributed``.

The linear `MultiLabelSVC` and `MultiClassSVC` learn from dask arrays, dask dataframes and lists of delayed
partitions, and are the models of `maxmargin`: same parameters, same attributes, same certified gap. `predict`
and `decision_function` are lazy answers of any fitted model on Dask collections. `local_cluster` starts
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
        # Not an AttributeError, of which "from maxmargin.dask import" would hide the message.
        raise ImportError(
            f"maxmargin.dask has no {name}: fit maxmargin.{name} on one machine; maxmargin.dask.predict "
            "answers with it on Dask collections."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

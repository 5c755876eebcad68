"""The models of this package on a Dask cluster; ``pip install "dask[array]" distributed``.

They take dask arrays, dask dataframes and lists of delayed partitions, and are the models of `maxmargin`:
same parameters, same attributes, same certified gap. `predict` and `decision_function` are lazy answers of
any fitted model on Dask collections. `local_cluster` starts workers on this machine.
"""

from maxmargin.dask.chain import ChainSVC
from maxmargin.dask.cluster import local_cluster
from maxmargin.dask.estimator import decision_function, predict
from maxmargin.dask.files import read_arff, read_parquet, read_svmlight
from maxmargin.dask.multiclass import MultiClassSVC
from maxmargin.dask.multilabel import MultiLabelSVC
from maxmargin.dask.sparse import SparseMultiClassSVC, SparseMultiLabelSVC
from maxmargin.dask.stored import store, stored
from maxmargin.dask.submodular import SubmodularSVC

__all__ = [
    "ChainSVC",
    "MultiClassSVC",
    "MultiLabelSVC",
    "SparseMultiClassSVC",
    "SparseMultiLabelSVC",
    "SubmodularSVC",
    "decision_function",
    "local_cluster",
    "predict",
    "read_arff",
    "read_parquet",
    "read_svmlight",
    "store",
    "stored",
]

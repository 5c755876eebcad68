"""The models of this package on a Dask cluster; ``pip install "maxmargin[dask]"``.

`MultiLabelSVC` takes dask arrays, dask dataframes and lists of delayed partitions, and is the model of
`maxmargin.MultiLabelSVC`: same parameters, same attributes, same certified gap. See `multilabel`.
"""

from maxmargin.dask.multilabel import MultiLabelSVC

__all__ = ["MultiLabelSVC"]

"""Readers and writers of data formats, and `load` for benchmark data sets.

>>> from maxmargin import datasets
>>> data = datasets.load("yeast", split="train")
>>> data.X.shape, data.Y.shape
((1500, 103), (1500, 14))
"""

from maxmargin.io.arff import LabelTree, read_arff, read_label_xml, read_mulan
from maxmargin.io.dataset import DataFormatError, Dataset
from maxmargin.io.letters import read_letter_data
from maxmargin.io.mail import read_mail_folders
from maxmargin.io.registry import (
    DatasetInfo,
    DownloadError,
    FileInfo,
    cache_dir,
    fetch,
    info,
    list_datasets,
    load,
)
from maxmargin.io.svmlight import read_svmlight, read_xc
from maxmargin.io.table import read_csv, read_parquet
from maxmargin.io.write import write_arff, write_csv, write_parquet, write_svmlight

__all__ = [
    "DataFormatError",
    "Dataset",
    "DatasetInfo",
    "DownloadError",
    "FileInfo",
    "LabelTree",
    "cache_dir",
    "fetch",
    "info",
    "list_datasets",
    "load",
    "read_arff",
    "read_csv",
    "read_label_xml",
    "read_letter_data",
    "read_mail_folders",
    "read_mulan",
    "read_parquet",
    "read_svmlight",
    "read_xc",
    "write_arff",
    "write_csv",
    "write_parquet",
    "write_svmlight",
]

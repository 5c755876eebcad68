"""Data: readers and writers of the usual formats, and `load` for the data sets of the field.

>>> from maxmargin import datasets
>>> data = datasets.load("yeast", split="train")
>>> data.X.shape, data.Y.shape
((1500, 103), (1500, 14))
"""

from maxmargin.datasets._arff import read_arff, read_mulan
from maxmargin.datasets._csv import read_csv, read_parquet
from maxmargin.datasets._dataset import Dataset
from maxmargin.datasets._errors import DataFormatError
from maxmargin.datasets._fetch import DownloadError, fetch
from maxmargin.datasets._letters import read_letter_data
from maxmargin.datasets._load import load
from maxmargin.datasets._mail import read_mail_folders
from maxmargin.datasets._registry import DatasetInfo, FileInfo, cache_dir, info, list_datasets
from maxmargin.datasets._svmlight import read_svmlight
from maxmargin.datasets._write import write_arff, write_csv, write_parquet, write_svmlight
from maxmargin.datasets._xml import LabelTree, read_label_xml

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
    "write_arff",
    "write_csv",
    "write_parquet",
    "write_svmlight",
]

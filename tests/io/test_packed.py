"""Packed data files: read as they are, and refused where they unpack out of all proportion."""

import functools
import gzip
import lzma
import tarfile
import tracemalloc

import numpy as np
import pytest

from maxmargin.datasets import (
    DataFormatError,
    read_arff,
    read_csv,
    read_label_xml,
    read_letter_data,
    read_mail_folders,
    read_svmlight,
)
from maxmargin.io import files

PACKERS = {"gz": gzip.compress, "xz": lzma.compress}
READERS = {
    "svmlight": read_svmlight,
    "arff": lambda path: read_arff(path, labels=["l"]),
    "csv": lambda path: read_csv(path, labels=1),
    "xml": read_label_xml,
    "letter": read_letter_data,
    "mailbox": read_mail_folders,
}


@functools.cache
def bomb(packer, archive):
    content = b" " * (64 << 20)
    if not archive:
        return PACKERS[packer](content)
    member = tarfile.TarInfo("inbox/1")
    member.size = len(content)
    return PACKERS[packer](member.tobuf() + content)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("name", READERS)
def test_a_file_made_to_fill_the_memory_is_refused(name, packer, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST", 1 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(bomb(packer, name == "mailbox"))
    tracemalloc.start()
    try:
        with pytest.raises(DataFormatError, match=r"if you trust the file, unpack it"):
            READERS[name](path)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packer", PACKERS)
def test_a_large_table_that_shrinks_as_tables_do_is_read(packer, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST", 1 << 10)
    rng = np.random.default_rng(0)
    text = "".join(f"{k % 2} 1:{value:.2f}\n" for k, value in enumerate(rng.random(2000)))
    path = tmp_path / "table"
    path.write_bytes(PACKERS[packer](text.encode()))
    assert read_svmlight(path, multilabel=False).X.shape == (2000, 1)

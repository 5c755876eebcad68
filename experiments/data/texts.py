"""Text collections. X is tf-idf as in `maxmargin.io.shipped`; `per_row["text"]` has the texts."""

from __future__ import annotations

import tarfile

import numpy as np

from maxmargin.io.dataset import DataFormatError, Dataset, PathLike
from maxmargin.io.files import open_bytes, text_lines
from maxmargin.io.registry import Folder
from maxmargin.io.shipped import vectorised


def tab_texts(folder: Folder) -> Dataset:
    """Read one class and one text per line, separated by a tab, after three header lines."""
    train = _read_tab(folder.file(f"{folder.name}-train.tab"))
    test = _read_tab(folder.file(f"{folder.name}-test.tab"))
    y = np.array([label for label, _ in train + test])
    names = tuple(str(label) for label in np.unique(y))
    return vectorised([text for _, text in train + test], y, names, len(train))


def reuters_modapte(folder: Folder) -> Dataset:
    """Read Reuters-21578, ModApte split, in the layout of NLTK: cats.txt, training/ and test/."""
    path = folder.file("reuters.tar")
    documents: dict[str, str] = {}
    categories = ""
    try:
        with open_bytes(path) as (plain, _), tarfile.open(fileobj=plain, mode="r|") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is None:
                    continue
                content = file.read().decode("latin-1")
                _, _, inside = member.name.partition("/")
                if inside == "cats.txt":
                    categories = content
                elif inside.startswith(("training/", "test/")):
                    documents[inside] = content
    except tarfile.TarError as error:
        raise DataFormatError(f"not a tar file ({error})", path) from error
    of_document: dict[str, list[str]] = {}
    for line, text in enumerate(categories.splitlines(), 1):
        words = text.split()
        if len(words) < 2 or words[0] not in documents:
            raise DataFormatError("cats.txt: a document and its categories expected", path, line)
        of_document[words[0]] = words[1:]
    if not of_document:
        raise DataFormatError("no cats.txt with documents in the archive", path)
    keys = sorted(of_document, key=lambda key: (key.startswith("test/"), int(key.rpartition("/")[2])))
    names = tuple(sorted({name for found in of_document.values() for name in found}))
    column = {name: k for k, name in enumerate(names)}
    Y = np.zeros((len(keys), len(names)), dtype=np.int32)
    for i, key in enumerate(keys):
        Y[i, [column[name] for name in of_document[key]]] = 1
    n_train = sum(key.startswith("training/") for key in keys)
    return vectorised([documents[key] for key in keys], Y, names, n_train)


def _read_tab(path: PathLike) -> list[tuple[str, str]]:
    found = []
    for line, text in text_lines(path, "utf-8"):
        if line <= 3 or not text.strip():
            continue
        label, tab, body = text.rstrip("\r\n").partition("\t")
        if not tab or not label or "\t" in body:
            raise DataFormatError("a class, a tab and a text expected", path, line)
        found.append((label, body))
    if not found:
        raise DataFormatError("no texts in the file", path)
    return found

"""Loaders of the research sets, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from maxmargin.io.arff import read_mulan
from maxmargin.io.dataset import DataFormatError, Dataset, stack
from maxmargin.io.files import read_bytes, text_lines
from maxmargin.io.letters import read_letter_data
from maxmargin.io.mail import read_mail_folders
from maxmargin.io.registry import Folder, read_mulan_folder
from maxmargin.io.svmlight import read_svmlight
from maxmargin.io.table import read_csv

from .attributes import apascal_ayahoo, awa1
from .texts import reuters_modapte, tab_texts

Builder = Callable[[Folder], Dataset]


def _cal500(folder: Folder) -> Dataset:
    return read_mulan(folder.file("cal500.arff"), folder.file("cal500.xml"))


def _rcv1(folder: Folder) -> Dataset:
    """Pool the four subsets: every document once, the training halves first.

    A document of a training half is a training document even if it is also in a test half.
    """
    names = tuple(line.strip() for _, line in text_lines(folder.file("labels.txt"), "utf-8") if line.strip())
    halves = [
        read_svmlight(folder.file(f"rcv1subset{k}_{side}.svm"), labels=range(len(names)), n_features=47236)
        for side in ("train", "test")
        for k in (1, 2, 3, 4)
    ]
    n_train = sum(half.X.shape[0] for half in halves[:4])
    X = sp.vstack([half.X for half in halves], format="csr")
    Y = sp.vstack([half.Y for half in halves], format="csr")
    seen: set[bytes] = set()
    kept = []
    for i in range(X.shape[0]):
        entries = slice(X.indptr[i], X.indptr[i + 1])
        row = X.indices[entries].tobytes() + X.data[entries].tobytes()
        if row not in seen:
            seen.add(row)
            kept.append(i)
    rows = np.array(kept)
    return Dataset(
        X[rows],
        Y[rows],
        halves[0].feature_names,
        names,
        train=np.flatnonzero(rows < n_train),
        test=np.flatnonzero(rows >= n_train),
    )


def _csv(folder: Folder, filename: str, target: str, n_train: int | None = None) -> Dataset:
    data = read_csv(folder.file(filename), target=target)
    return data if n_train is None else _first_rows_train(data, n_train)


def _first_rows_train(data: Dataset, n_train: int) -> Dataset:
    return replace(data, train=np.arange(n_train), test=np.arange(n_train, data.X.shape[0]))


def _vowel(folder: Folder) -> Dataset:
    return stack(*(read_csv(folder.file(f"vowel.{side}.csv"), target="y") for side in ("train", "test")))


def _dna(folder: Folder) -> Dataset:
    train, test = (
        read_svmlight(folder.file(filename), multilabel=False, n_features=180)
        for filename in ("dna.scale", "dna.scale.t")
    )
    return stack(train, test)


def _satimage(folder: Folder) -> Dataset:
    return stack(
        *(
            read_csv(folder.file(filename), target=-1, header=False, delimiter=" ")
            for filename in ("sat.trn", "sat.tst")
        )
    )


def _segment(folder: Folder) -> Dataset:
    """Read the Statlog file of 2310 rows; the two UCI files hold the same rows, split 210/2100."""
    data = read_csv(folder.file("segment.dat"), target=-1, header=False, delimiter=" ")
    path = folder.file("segmentation.data")
    with_names = next((line for _, line in text_lines(path, "utf-8") if line.startswith("REGION")), "")
    names = tuple(with_names.strip().split(","))
    if len(names) != data.X.shape[1]:
        raise DataFormatError(f"no line with the names of the {data.X.shape[1]} features", path)
    return replace(data, feature_names=names)


def _poker(folder: Folder) -> Dataset:
    data = read_csv(folder.file("poker-hand-training-true.data"), target=-1, header=False)
    names = tuple(f"{what}{card}" for card in range(1, 6) for what in ("suit", "rank"))
    return replace(data, feature_names=names, train=np.arange(data.X.shape[0]))


def _mnist(folder: Folder) -> Dataset:
    images, labels = [], []
    for side in ("train", "t10k"):
        images.append(_idx(folder, f"{side}-images-idx3-ubyte", 3))
        labels.append(_idx(folder, f"{side}-labels-idx1-ubyte", 1))
    for pixels, digits in zip(images, labels, strict=True):
        if len(pixels) != len(digits):
            raise DataFormatError(f"{len(pixels)} images but {len(digits)} labels", folder.places[0])
    X = np.concatenate(images)
    X = X.reshape(len(X), -1).astype(np.float32)
    data = Dataset(
        X,
        np.concatenate(labels).astype(np.int64),
        tuple(f"pixel{j}" for j in range(X.shape[1])),
        tuple("0123456789"),
    )
    return _first_rows_train(data, len(images[0]))


def _idx(folder: Folder, filename: str, dimensions: int) -> np.ndarray:
    """Read an array of bytes in the idx format of MNIST: magic number, sizes, values."""
    path = folder.file(filename)
    content = read_bytes(path)
    head = 4 + 4 * dimensions
    if len(content) < head or content[:4] != bytes([0, 0, 8, dimensions]):
        raise DataFormatError(f"not an idx file of bytes with {dimensions} dimensions", path)
    shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4).astype(int)
    if len(content) != head + int(np.prod(shape)):
        raise DataFormatError(f"{len(content) - head} values, but the sizes say {tuple(shape)}", path)
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


def _mailbox(folder: Folder) -> Dataset:
    """Read one user's mailbox of enron-folders; the name of the data set ends in the user's name."""
    user = folder.name.rpartition("/")[2]
    return read_mail_folders(folder.file(f"{user}.partial.tar" if user == "kitchen-l" else f"{user}.tar"))


BUILDERS: dict[str, Builder] = {
    **dict.fromkeys(("enron", "bibtex", "birds", "medical", "delicious", "tmc2007-500"), read_mulan_folder),
    "genbase": partial(read_mulan_folder, drop=("protein",)),
    "corel5k": partial(read_mulan_folder, stem="Corel5k", kind="-sparse"),
    "mediamill-reduced": partial(read_mulan_folder, stem="mediamill"),
    "cal500": _cal500,
    "rcv1-subsets": _rcv1,
    "glass": partial(_csv, filename="glass.csv", target="Type"),
    "vehicle": partial(_csv, filename="vehicle.csv", target="Class"),
    "letter": partial(_csv, filename="letter.csv", target="lettr", n_train=15000),
    "shuttle": partial(_csv, filename="shuttle.csv", target="Class", n_train=43500),
    "vowel": _vowel,
    "segment": _segment,
    "dna": _dna,
    "satimage": _satimage,
    "poker": _poker,
    "mnist": _mnist,
    "ocr-letters": lambda folder: read_letter_data(folder.file("letter.data")),
    "awa1": awa1,
    "apascal-ayahoo-attributes": apascal_ayahoo,
    **dict.fromkeys(("20newsgroups", "reuters-r8", "reuters-r52"), tab_texts),
    "reuters21578-modapte": reuters_modapte,
    **{
        f"enron-folders/{user}": _mailbox
        for user in ("beck-s", "farmer-d", "kitchen-l", "lokay-m", "williams-w3")
    },
}

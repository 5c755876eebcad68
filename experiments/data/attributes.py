"""Data sets whose labels are attributes of classes, for zero-shot learning."""

from __future__ import annotations

import zipfile

import numpy as np

from maxmargin.io.dataset import DataFormatError, Dataset, PathLike
from maxmargin.io.files import text_lines
from maxmargin.io.registry import Folder


def awa1(folder: Folder) -> Dataset:
    """Read Animals with Attributes: 30,475 images of 50 classes, 85 attributes per class.

    Y holds the attributes of each image's class. `train` are the images of the 40 classes seen in
    training, `test` those of the 10 unseen ones. `per_row["class_index"]` is the class;
    `extras` has `class_names`, `signatures` (50 x 85, 0/1), `signatures_continuous`,
    `train_classes` and `test_classes` (indices).
    """
    path = folder.file("awa1_phog_float32.npz")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            X, index = arrays["X"], arrays["y"].astype(np.int64)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DataFormatError(f"not the expected npz file ({error})", path) from error
    class_names = numbered(folder.file("classes.txt"))
    attributes = numbered(folder.file("predicates.txt"))
    shape = (len(class_names), len(attributes))
    signatures = _matrix(folder.file("predicate-matrix-binary.txt"), shape).astype(np.int32)
    position = {name: k for k, name in enumerate(class_names)}
    parts = {}
    for side in ("train", "test"):
        file = folder.file(f"{side}classes.txt")
        names = [line.strip() for _, line in text_lines(file, "utf-8") if line.strip()]
        unknown = [name for name in names if name not in position]
        if unknown:
            raise DataFormatError(f"class {unknown[0]!r} is not in classes.txt", file)
        parts[side] = np.array([position[name] for name in names])
    if len(X) != len(index) or index.min() < 0 or index.max() >= len(class_names):
        raise DataFormatError("features and class indices do not fit together", path)
    return Dataset(
        X,
        signatures[index],
        tuple(f"phog{j}" for j in range(X.shape[1])),
        attributes,
        train=np.flatnonzero(np.isin(index, parts["train"])),
        test=np.flatnonzero(np.isin(index, parts["test"])),
        per_row={"class_index": index},
        extras={
            "class_names": class_names,
            "signatures": signatures,
            "signatures_continuous": _matrix(folder.file("predicate-matrix-continuous.txt"), shape),
            "train_classes": parts["train"],
            "test_classes": parts["test"],
        },
    )


def apascal_ayahoo(folder: Folder) -> Dataset:
    """Read aPascal and aYahoo: objects with 64 attributes each and their class, without image features.

    X is the bounding box (xmin, ymin, xmax, ymax). `train` is aPascal's training part and `test`
    is aYahoo, whose 12 classes are not among aPascal's 20. `per_row` has `class_index`, `image`
    and `part` ("apascal_train", "apascal_test" or "ayahoo_test").
    """
    attributes = _names(folder.file("attribute_names.txt"))
    class_names = _names(folder.file("class_names.txt"))
    position = {name: k for k, name in enumerate(class_names)}
    boxes, labels, index, images, parts = [], [], [], [], []
    for part in ("apascal_train", "apascal_test", "ayahoo_test"):
        path = folder.file(f"{part}.txt")
        for line, text in text_lines(path, "utf-8"):
            words = text.split()
            if len(words) != 6 + len(attributes):
                raise DataFormatError(f"{len(words)} words, expected {6 + len(attributes)}", path, line)
            if words[1] not in position:
                raise DataFormatError(f"class {words[1]!r} is not in class_names.txt", path, line, 2)
            boxes.append(_whole_numbers(words[2:6], path, line, 3))
            entries = _whole_numbers(words[6:], path, line, 7)
            if not set(entries) <= {0, 1}:
                raise DataFormatError("an attribute is neither 0 nor 1", path, line, 7)
            labels.append(entries)
            index.append(position[words[1]])
            images.append(words[0])
            parts.append(part)
    part_of = np.array(parts)
    return Dataset(
        np.array(boxes, dtype=np.float64),
        np.array(labels, dtype=np.int32),
        ("xmin", "ymin", "xmax", "ymax"),
        attributes,
        train=np.flatnonzero(part_of == "apascal_train"),
        test=np.flatnonzero(part_of == "ayahoo_test"),
        per_row={"class_index": np.array(index), "image": np.array(images), "part": part_of},
        extras={"class_names": class_names},
    )


def _whole_numbers(words: list[str], path: PathLike, line: int, column: int) -> list[int]:
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise DataFormatError(str(error), path, line, column) from None


def _names(path: PathLike) -> tuple[str, ...]:
    return tuple(line.strip() for _, line in text_lines(path, "utf-8") if line.strip())


def numbered(path: PathLike) -> tuple[str, ...]:
    """Read names listed as `number name`, with numbers from 1."""
    names: list[str] = []
    for line, text in text_lines(path, "utf-8"):
        words = text.split()
        if not words:
            continue
        if len(words) != 2 or words[0] != str(len(names) + 1):
            raise DataFormatError(f"'{len(names) + 1} name' expected", path, line)
        names.append(words[1])
    return tuple(names)


def _matrix(path: PathLike, shape: tuple[int, int]) -> np.ndarray:
    rows = []
    for line, text in text_lines(path, "utf-8"):
        words = text.split()
        if len(words) != shape[1]:
            raise DataFormatError(f"{len(words)} values, expected {shape[1]}", path, line)
        try:
            rows.append([float(word) for word in words])
        except ValueError as error:
            raise DataFormatError(str(error), path, line) from None
    if len(rows) != shape[0]:
        raise DataFormatError(f"{len(rows)} rows, expected {shape[0]}", path)
    return np.array(rows)

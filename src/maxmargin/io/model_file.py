"""Model files: safetensors with one JSON document in its header.

The document holds the estimator; arrays are stored as tensors (`io.values`). Models are checked against the
declarations of their classes (`io.checked`) before writing and after reading.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from maxmargin._names import VERSION
from maxmargin.io.checked import ModelFileError, check_model, class_name, parameters_of
from maxmargin.io.dataset import PathLike
from maxmargin.io.files import atomic_write
from maxmargin.io.named import by_name
from maxmargin.io.steps import rebuild
from maxmargin.io.values import DTYPES, Decoder, Encoder

FORMAT = 1
_HEADER_BYTES = 100_000_000
_ALIGNMENT = 8
# Replacements for meta-estimators of scikit-learn, which cannot be saved.
REPLACEMENTS = {
    "CalibratedClassifierCV": "use maxmargin.Calibrated for probabilities",
    "OneVsRestClassifier": "use maxmargin.MultiLabelSVC, one model for all labels",
    "FixedThresholdClassifier": "use maxmargin.baselines.ThresholdTuner",
    "TunedThresholdClassifierCV": "use maxmargin.baselines.ThresholdTuner",
}


def save(model: Any, path: PathLike, metadata: Mapping[str, Any] | None = None) -> None:
    """Save a fitted estimator, or a Pipeline that ends in one.

    The file appears under its name in one step: if the process is stopped, the path holds the
    complete new file or its previous content.

    The file holds the parameters and every fitted attribute, bit for bit: predictions, scores and
    further `partial_fit` are those of the original. The dual solution of `warm_start=True` is
    left out because it can be far larger than the model; the next `fit` starts from zero.

    Parameters
    ----------
    model : estimator
        An estimator of this package, alone, in a `ThresholdTuner`, or in a Pipeline after the result of
        `maxmargin.prepare` or after scalers, imputers, encoders, vectorisers, `PCA`, `TruncatedSVD` and
        `SelectKBest` of scikit-learn. Save the `best_estimator_` of a search.
    path : path-like
    metadata : mapping, default=None
        JSON values stored beside the model; see `describe`.

    Raises
    ------
    ModelFileError
        The model does not match the declaration of its class: it holds something that cannot be
        saved without code (such as a kernel function of your own), an undeclared attribute,
        NaN among its weights, or a parameter that `fit` would refuse.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import maxmargin
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["low", "low", "high", "high"]
    >>> model = maxmargin.MultiLabelSVC(random_state=0).fit(X, y)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.mm"
    >>> maxmargin.save(model, path)
    >>> maxmargin.load(path).predict([[0.2], [2.9]])
    array(['low', 'high'], dtype='<U4')
    """
    import sklearn

    name = type(model).__name__
    if class_name(type(model)) is None:
        hint = "save its best_estimator_" if hasattr(model, "best_estimator_") else REPLACEMENTS.get(name)
        raise ModelFileError(
            f"Only an estimator of maxmargin can be saved, alone or in a Pipeline; not a {name}"
            f"{f'; {hint}' if hint else ''}."
        )
    try:
        check_model(model, name)
    except ModelFileError as error:
        raise ModelFileError(f"{error}.") from error
    encoder = Encoder()
    document = {
        "format": FORMAT,
        "maxmargin": VERSION,
        "sklearn": sklearn.__version__,
        "metadata": dict(metadata or {}),
        "model": encoder.encode(model, name),
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    tensors = {name: np.asarray(array, order="C") for name, array in encoder.tensors.items()}
    header = _header(text, tensors)
    if len(header) > _HEADER_BYTES:
        raise ModelFileError("The model has over 100 MB of names, which is more than a model file can hold.")
    with atomic_write(path) as out:
        out.write(len(header).to_bytes(8, "little"))
        out.write(header)
        for array in tensors.values():
            out.write(array.reshape(-1).view(np.uint8).data)


def load(path: PathLike, *, max_bytes: int | None = None) -> Any:
    """Load a model written by `save` or by `maxmargin fit`.

    A model of `maxmargin fit` finds the columns of a frame by name, in any order, and its `classes_` are the
    names of the labels.

    No code from the file is run: it can name estimators of this package and a few transformers
    of scikit-learn, and nothing else.

    Parameters
    ----------
    path : path-like
    max_bytes : int, default=None
        Refuse larger files; None accepts any size. Weights that are mostly zero may take up to 64
        times their stored size in memory.

    Raises
    ------
    ModelFileError
        The file is cut off, altered, larger than allowed, made by a newer version, not a model,
        or a model whose parts do not fit together.
    """
    document, tensors = _read(path, max_bytes)
    try:
        return by_name(_decoded(document, tensors), document["metadata"])
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {error}.") from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{os.fspath(path)} cannot be loaded: `maxmargin.save` does not write such files ({error!r})."
        ) from error


def describe(path: PathLike) -> dict[str, Any]:
    """Return the class, parameters, versions, metadata and array shapes of a model file.

    The file is checked against its hash, but no model is built.
    """
    document, tensors = _read(path, None)
    state = document["model"]["state"]
    return {
        "class": document["model"]["class"],
        "format": document["format"],
        "maxmargin": document["maxmargin"],
        "sklearn": document["sklearn"],
        "metadata": document["metadata"],
        "parameters": {
            key: value for key, value in state.items() if not key.endswith("_") and not key.startswith("_")
        },
        "arrays": {name: list(array.shape) for name, array in tensors.items()},
        "bytes": Path(path).stat().st_size,
    }


def _header(text: str, tensors: dict[str, np.ndarray]) -> bytes:
    """Return the JSON header of safetensors, padded so that the arrays are aligned."""
    entries: dict[str, Any] = {"__metadata__": {"maxmargin": text, "sha256": _digest(text, tensors)}}
    begin = 0
    for name, array in tensors.items():
        end = begin + array.nbytes
        kind = DTYPES[f"{array.dtype.kind}{array.dtype.itemsize}"]
        entries[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    header = json.dumps(entries, ensure_ascii=False).encode()
    return header + b" " * (-len(header) % _ALIGNMENT)


def _digest(text: str, tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _read(path: PathLike, max_bytes: int | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the document and the arrays of a file, and check its hash."""
    from safetensors import SafetensorError, safe_open

    name = os.fspath(path)
    found = os.stat(path)
    size = found.st_size
    if not stat.S_ISREG(found.st_mode):
        raise ModelFileError(f"{name} is not a file.")
    if max_bytes is not None and size > max_bytes:
        raise ModelFileError(f"{name} has {size} bytes, more than max_bytes={max_bytes}.")
    try:
        with safe_open(name, framework="np") as file:
            words = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError, ValueError, AttributeError, KeyError, MemoryError) as error:
        raise ModelFileError(f"{name} is not a whole model file ({error}).") from error
    if "maxmargin" not in words:
        raise ModelFileError(f"{name} is a safetensors file, but not a model of maxmargin.")
    if words.get("sha256") != _digest(words["maxmargin"], tensors):
        raise ModelFileError(f"{name} was altered or damaged: its contents do not match its hash.")
    try:
        document = json.loads(words["maxmargin"], parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name} cannot be loaded: its description is not JSON.") from error
    _check_document(document, name)
    return document, tensors


def _check_document(document: Any, name: str) -> None:
    whole = isinstance(document, dict) and isinstance(document.get("format"), int)
    if whole and document["format"] > FORMAT:
        raise ModelFileError(
            f"{name} has format {document['format']}, made by maxmargin "
            f"{str(document.get('maxmargin'))[:40]}; this version ({VERSION}) "
            f"reads up to {FORMAT}. Upgrade maxmargin."
        )
    keys = {"maxmargin": str, "sklearn": str, "metadata": dict, "model": dict}
    if (
        not whole
        or document["format"] < 1
        or not all(isinstance(document.get(k), t) for k, t in keys.items())
    ):
        raise ModelFileError(f"{name} cannot be loaded: its description is incomplete.")
    model = document["model"]
    named = isinstance(model.get("class"), str) and not model["class"].startswith("part.")
    if model.get("$") != "object" or not isinstance(model.get("state"), dict) or not named:
        raise ModelFileError(f"{name} cannot be loaded: it holds no model.")


def _decoded(document: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    decoder = Decoder(tensors)
    model = decoder.decode(document["model"])
    cls: type = type(model)
    missing = [name for name in parameters_of(cls) if name not in vars(model)]
    if missing:
        raise ModelFileError(f"its parameters {missing} are missing")
    check_model(model, cls.__name__)
    for step in decoder.incomplete:
        rebuild(step)
    return model


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")

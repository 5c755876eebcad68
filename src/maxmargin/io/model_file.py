"""Model files: safetensors with one JSON document in its header.

The document holds the estimator; arrays go to the table of tensors beside it.
None, booleans, texts, whole numbers, finite floats and lists stand for themselves. Anything
else is an object with the key "$":

| "$"                    | holds                                                          |
|------------------------|----------------------------------------------------------------|
| "float"                | "nan", "inf" or "-inf"                                         |
| "dict"                 | items: pairs of key and value                                  |
| "tuple", "set", ...    | items                                                          |
| "array"                | tensor: name in the table; order: "C" or "F"                   |
| "words"                | dtype, shape and items of an array of texts or objects         |
| "record"               | an array with named fields: one array per field                |
| "scalar"               | tensor: a numpy scalar, as an array without dimensions         |
| "csr"                  | data, indices, indptr, shape, and whether it is a matrix       |
| "dtype", "type", "function", "random_state", "frame" | small words                      |
| "object"               | class and state of an allowed class                            |
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin._names import VERSION
from maxmargin.io import allowed
from maxmargin.io.allowed import ModelFileError
from maxmargin.io.atomic import PathLike, atomic_write

FORMAT = 1
DEEPEST = 40
# Bytes that an array of fixed-width texts may take; a few characters could ask for any number.
MOST_TEXT = 1 << 32
# The dtypes that numpy and safetensors have in common, by the kind and size numpy gives them.
_DTYPES = {
    "b1": "BOOL", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64", "u1": "U8", "u2": "U16", "u4": "U32",
    "u8": "U64", "f2": "F16", "f4": "F32", "f8": "F64",
}  # fmt: skip
_HEADER_BYTES = 100_000_000
_ALIGNMENT = 8
_CONTAINERS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_CSR = ("data", "indices", "indptr")
# Dual solutions serve warm starts only and can be far larger than the model.
_LEFT_OUT = frozenset({"_sklearn_version", "_warm", "_dual", "_dual_solution"})
_BACKENDS = ("pandas", "polars", "pyarrow")


def save(model: Any, path: PathLike, metadata: Mapping[str, Any] | None = None) -> None:
    """Save a fitted estimator, or a Pipeline that ends in one.

    The file appears under its name in one step: whenever the process is stopped, what stands
    there is the whole new file or whatever was there before.

    It holds the parameters and every fitted attribute, bit for bit: predictions, scores and
    further `partial_fit` are those of the original. The dual solution that `warm_start=True`
    keeps is left out, since it can be far larger than the model: the next `fit` starts anew.

    Parameters
    ----------
    model : estimator
        An estimator of this package, alone or behind scalers and vectorisers of scikit-learn.
    path : path-like
    metadata : mapping, default=None
        Anything that JSON can hold, kept beside the model; see `describe`.

    Raises
    ------
    ModelFileError
        When the model holds something that cannot be saved without code, such as a kernel that
        is a function of your own.

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

    encoder = Encoder()
    document = {
        "format": FORMAT,
        "maxmargin": VERSION,
        "sklearn": sklearn.__version__,
        "metadata": dict(metadata or {}),
        "model": encoder.encode(model, type(model).__name__),
    }
    if document["model"].get("$") != "object":
        raise ModelFileError("Only an estimator can be saved.")
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    tensors = {name: np.asarray(array, order="C") for name, array in encoder.tensors.items()}
    header = _header(text, tensors)
    if len(header) > _HEADER_BYTES:
        raise ModelFileError("The model holds more words than a model file can: over 100 MB of names.")
    with atomic_write(path) as out:
        out.write(len(header).to_bytes(8, "little"))
        out.write(header)
        for array in tensors.values():
            out.write(array.reshape(-1).view(np.uint8).data)


def load(path: PathLike, *, max_bytes: int | None = None) -> Any:
    """Load a model that `save` wrote.

    No code from the file is run: it can name estimators of this package and a few transformers
    of scikit-learn, and nothing else.

    Parameters
    ----------
    path : path-like
    max_bytes : int, default=None
        Refuse larger files; None takes any that is as large as it says.

    Raises
    ------
    ModelFileError
        When the file is cut off, altered, larger than allowed, made by a newer version, or not
        a model at all.
    """
    document, tensors = _read(path, max_bytes)
    try:
        return _decoded(document, tensors)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {error}.") from error
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ModelFileError(
            f"{os.fspath(path)} cannot be loaded: it is not as `maxmargin.save` writes it ({error!r})."
        ) from error


def describe(path: PathLike) -> dict[str, Any]:
    """What a model file says of itself: class, parameters, versions, metadata, sizes of arrays.

    Nothing is built; the file is only checked against its hash.
    """
    document, tensors = _read(path, None)
    state = document["model"]["state"]
    return {
        "class": document["model"]["class"],
        "format": document["format"],
        "maxmargin": document["maxmargin"],
        "sklearn": document["sklearn"],
        "metadata": document["metadata"],
        "parameters": {key: value for key, value in state.items() if not key.endswith("_") and key[0] != "_"},
        "arrays": {name: list(array.shape) for name, array in tensors.items()},
        "bytes": Path(path).stat().st_size,
    }


def _header(text: str, tensors: dict[str, np.ndarray]) -> bytes:
    """The JSON header of safetensors, padded so that the arrays are aligned."""
    entries: dict[str, Any] = {"__metadata__": {"maxmargin": text, "sha256": _digest(text, tensors)}}
    begin = 0
    for name, array in tensors.items():
        end = begin + array.nbytes
        kind = _DTYPES[f"{array.dtype.kind}{array.dtype.itemsize}"]
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
    """Document and arrays of a file whose hash is right."""
    from safetensors import SafetensorError, safe_open

    name = os.fspath(path)
    size = Path(path).stat().st_size
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
        raise ModelFileError(f"{name} cannot be loaded: its description lacks a part.")
    model = document["model"]
    named = isinstance(model.get("class"), str) and not model["class"].startswith("part.")
    if model.get("$") != "object" or not isinstance(model.get("state"), dict) or not named:
        raise ModelFileError(f"{name} cannot be loaded: it holds no model.")


def _decoded(document: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    model = Decoder(tensors).decode(document["model"])
    names = type(model)._get_param_names() if hasattr(model, "get_params") else ()
    missing = [name for name in names if name not in vars(model)]
    if missing:
        raise ModelFileError(f"its parameters {missing} are missing")
    return model


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


class Encoder:
    """Turns a model into a JSON value and fills `tensors`."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}
        # Arrays already stored, kept alive so that their ids stay theirs.
        self._stored: dict[int, tuple[str, np.ndarray]] = {}

    def encode(self, value: Any, where: str, depth: int = 0) -> Any:
        """Encode a value; `where` is its place, for messages."""
        if depth > DEEPEST:
            raise ModelFileError(f"{where} is nested too deeply to be saved.")
        if value is None or isinstance(value, (bool, str)):
            return value
        if type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$": "float", "value": repr(value)}
        if type(value) is list:
            return [self.encode(item, f"{where}[{k}]", depth + 1) for k, item in enumerate(value)]
        if type(value) is dict:
            return {"$": "dict", "items": self._items(value, where, depth)}
        if type(value) in _CONTAINERS.values():
            ordered = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
            items = [self.encode(item, f"{where}[{k}]", depth + 1) for k, item in enumerate(ordered)]
            return {"$": type(value).__name__, "items": items}
        return self._other(value, where, depth)

    def _items(self, value: dict[Any, Any], where: str, depth: int) -> list[Any]:
        return [
            [
                self.encode(key, f"a key of {where}", depth + 1),
                self.encode(item, f"{where}[{key!r}]", depth + 1),
            ]
            for key, item in value.items()
        ]

    def _other(self, value: Any, where: str, depth: int) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(value, where, depth)
        if isinstance(value, np.generic):
            return {"$": "scalar", "value": self._array(np.asarray(value), where, depth)}
        if sp.issparse(value) and value.format == "csr":
            parts = {name: self._array(getattr(value, name), where, depth) for name in _CSR}
            return {"$": "csr", **parts, "shape": list(value.shape), "matrix": isinstance(value, sp.spmatrix)}
        if isinstance(value, np.dtype):
            return {"$": "dtype", "value": value.str}
        if isinstance(value, np.random.RandomState):
            return {"$": "random_state", "state": self.encode(value.get_state(), where, depth + 1)}
        if isinstance(value, type):
            name = allowed.type_name(value)
            if name is not None:
                return {"$": "type", "value": name}
        elif callable(value) and not hasattr(value, "get_params"):
            name = allowed.function_name(value)
            if name is None:
                raise ModelFileError(
                    f"{where} is a function of your own, and a model file holds no code: replace it by a "
                    "name or by its result before saving."
                )
            return {"$": "function", "value": name}
        elif hasattr(value, "implementation") and hasattr(value, "to_native"):
            return {"$": "frame", "value": str(value.implementation.value)}
        return self._object(value, where, depth)

    def _object(self, value: Any, where: str, depth: int) -> Any:
        name = allowed.class_name(type(value))
        if name is None:
            raise ModelFileError(
                f"{where} is a {type(value).__module__}.{type(value).__name__}, "
                "which a model file cannot hold."
            )
        state = value.__getstate__() if hasattr(value, "get_params") else vars(value)
        state = {key: item for key, item in state.items() if key not in _LEFT_OUT}
        fields = {key: self.encode(item, f"{where}.{key}", depth + 1) for key, item in state.items()}
        return {"$": "object", "class": name, "state": fields}

    def _array(self, array: np.ndarray, where: str, depth: int) -> Any:
        if array.dtype.names is not None:
            fields = [[name, self._array(array[name], where, depth)] for name in array.dtype.names]
            return {"$": "record", "fields": fields}
        if array.dtype.kind in "UO":
            items = [self.encode(item, where, depth + 1) for item in array.ravel().tolist()]
            return {"$": "words", "dtype": array.dtype.str, "shape": list(array.shape), "items": items}
        if f"{array.dtype.kind}{array.dtype.itemsize}" not in _DTYPES:
            raise ModelFileError(f"{where} is an array of {array.dtype}, which a model file cannot hold.")
        # Products round differently by layout, so the axis that runs fastest must stay the same one.
        columns_run_fastest = array.ndim == 2 and abs(array.strides[0]) < abs(array.strides[1])
        order = "F" if columns_run_fastest and not array.flags.c_contiguous else "C"
        if id(array) not in self._stored:
            name = f"t{len(self.tensors)}"
            self.tensors[name] = array.T if order == "F" else array
            self._stored[id(array)] = name, array
        return {"$": "array", "tensor": self._stored[id(array)][0], "order": order}


class Decoder:
    """Turns a JSON value back into a model; trusts nothing in it."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.tensors = tensors

    def decode(self, value: Any, depth: int = 0) -> Any:
        """Decode a value."""
        if depth > DEEPEST:
            raise ModelFileError("it is nested too deeply")
        if value is None or isinstance(value, (bool, str, int, float)):
            return value
        if isinstance(value, list):
            return [self.decode(item, depth + 1) for item in value]
        kind = value.get("$")
        if not isinstance(kind, str) or kind not in _READERS:
            raise ModelFileError(f"it holds a value of the unknown kind {str(kind)[:80]!r}")
        return _READERS[kind](self, value, depth)

    def _float(self, value: Any, depth: int) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value["value"]]

    def _dict(self, value: Any, depth: int) -> dict[Any, Any]:
        return {
            self.decode(key, depth + 1): self.decode(item, depth + 1) for key, item in _list(value["items"])
        }

    def _container(self, value: Any, depth: int) -> Any:
        return _CONTAINERS[value["$"]](self.decode(item, depth + 1) for item in _list(value["items"]))

    def _array(self, value: Any, depth: int) -> np.ndarray:
        array = self.tensors[value["tensor"]]
        return array.T if value["order"] == "F" else array

    def _words(self, value: Any, depth: int) -> np.ndarray:
        dtype = np.dtype(value["dtype"])
        items = [self.decode(item, depth + 1) for item in _list(value["items"])]
        shape = tuple(_list(value["shape"]))
        if dtype.kind not in "UO" or dtype.itemsize * len(items) > MOST_TEXT:
            raise ModelFileError(f"it holds {len(items)} entries of {dtype.str!r}")
        array = np.empty(len(items), dtype)
        for k, item in enumerate(items):
            if dtype.kind == "U" and not isinstance(item, str):
                raise ModelFileError("an array of texts holds something else")
            array[k] = item
        return array.reshape(shape)

    def _record(self, value: Any, depth: int) -> np.ndarray:
        fields = {str(name): self.decode(column, depth + 1) for name, column in _list(value["fields"])}
        shape = next(iter(fields.values())).shape
        record = np.empty(shape, [(name, column.dtype) for name, column in fields.items()])
        for name, column in fields.items():
            if column.shape != shape:
                raise ModelFileError("the fields of a record differ in shape")
            record[name] = column
        return record

    def _scalar(self, value: Any, depth: int) -> Any:
        array = self.decode(value["value"], depth + 1)
        if not isinstance(array, np.ndarray) or array.ndim:
            raise ModelFileError("a scalar has dimensions")
        return array[()]

    def _csr(self, value: Any, depth: int) -> Any:
        data, indices, indptr = (self.decode(value[name], depth + 1) for name in _CSR)
        kind = sp.csr_matrix if value["matrix"] is True else sp.csr_array
        matrix = kind((data, indices, indptr), shape=tuple(_list(value["shape"])))
        matrix.check_format(full_check=True)
        return matrix

    def _dtype(self, value: Any, depth: int) -> np.dtype:
        dtype = np.dtype(str(value["value"]))
        if dtype.kind not in "biufUO" or dtype.names is not None or dtype.subdtype is not None:
            raise ModelFileError(f"it names the dtype {dtype.str!r}")
        return dtype

    def _type(self, value: Any, depth: int) -> type:
        return allowed.find_type(str(value["value"]))

    def _function(self, value: Any, depth: int) -> Any:
        return allowed.find_function(str(value["value"]))

    def _random_state(self, value: Any, depth: int) -> np.random.RandomState:
        state = np.random.RandomState()
        state.set_state(self.decode(value["state"], depth + 1))
        return state

    def _frame(self, value: Any, depth: int) -> Any:
        import narwhals.stable.v2 as nw

        backend = value["value"]
        if backend not in _BACKENDS:
            raise ModelFileError(f"it names the data frame library {str(backend)[:80]!r}")
        try:
            return nw.from_dict({"none": []}, backend=backend)
        except ImportError as error:
            raise ModelFileError(f"it answers in {backend} frames; install {backend}") from error

    def _object(self, value: Any, depth: int) -> Any:
        cls = allowed.find_class(str(value["class"]))
        state = {
            str(key): self.decode(item, depth + 1)
            for key, item in dict(value["state"]).items()
            if key not in _LEFT_OUT
        }
        return allowed.restore(cls, state)


_READERS: dict[str, Callable[[Decoder, Any, int], Any]] = {
    "float": Decoder._float,
    "dict": Decoder._dict,
    "tuple": Decoder._container,
    "set": Decoder._container,
    "frozenset": Decoder._container,
    "array": Decoder._array,
    "words": Decoder._words,
    "record": Decoder._record,
    "scalar": Decoder._scalar,
    "csr": Decoder._csr,
    "dtype": Decoder._dtype,
    "type": Decoder._type,
    "function": Decoder._function,
    "random_state": Decoder._random_state,
    "frame": Decoder._frame,
    "object": Decoder._object,
}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ModelFileError("a list was expected")
    return value

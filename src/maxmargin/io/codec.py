"""Values to JSON and back, exactly; arrays go to a table of tensors beside it.

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

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io import allowed as _allowed
from maxmargin.io.checks import check
from maxmargin.io.model_errors import ModelFileError

DEEPEST = 40
# Bytes that an array of fixed-width texts may take; a few characters could ask for any number.
MOST_TEXT = 1 << 32
# The dtypes that safetensors and numpy have in common, by the kind and size numpy gives them.
TENSORS = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_CONTAINERS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}
# Dual solutions over structured outputs serve warm starts only and can be far larger than the model.
_LEFT_OUT = frozenset({"_sklearn_version", "_dual", "_dual_solution"})
_BACKENDS = ("pandas", "polars", "pyarrow")


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
            name = _allowed.type_name(value)
            if name is not None:
                return {"$": "type", "value": name}
        elif callable(value) and not hasattr(value, "get_params"):
            name = _allowed.function_name(value)
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
        name = _allowed.class_name(type(value))
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
        if f"{array.dtype.kind}{array.dtype.itemsize}" not in TENSORS:
            raise ModelFileError(f"{where} is an array of {array.dtype}, which a model file cannot hold.")
        # Products round differently by layout, so the axis that runs fastest must stay the same one.
        columns_run_fastest = array.ndim == 2 and abs(array.strides[0]) < abs(array.strides[1])
        order = "F" if columns_run_fastest and not array.flags.c_contiguous else "C"
        if id(array) not in self._stored:
            name = f"t{len(self.tensors)}"
            self.tensors[name] = array.T if order == "F" else array
            self._stored[id(array)] = name, array
        return {"$": "array", "tensor": self._stored[id(array)][0], "order": order}


_CSR = ("data", "indices", "indptr")


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
        reader = getattr(self, f"_read_{value.get('$')}", None)
        if reader is None:
            raise ModelFileError(f"it holds a value of the unknown kind {str(value.get('$'))[:80]!r}")
        return reader(value, depth)

    def _read_float(self, value: Any, depth: int) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value["value"]]

    def _read_dict(self, value: Any, depth: int) -> dict[Any, Any]:
        return {
            self.decode(key, depth + 1): self.decode(item, depth + 1) for key, item in _list(value["items"])
        }

    def _read_tuple(self, value: Any, depth: int) -> Any:
        return _CONTAINERS[value["$"]](self.decode(item, depth + 1) for item in _list(value["items"]))

    _read_set = _read_frozenset = _read_tuple

    def _read_array(self, value: Any, depth: int) -> np.ndarray:
        array = self.tensors[value["tensor"]]
        return array.T if value["order"] == "F" else array

    def _read_words(self, value: Any, depth: int) -> np.ndarray:
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

    def _read_record(self, value: Any, depth: int) -> np.ndarray:
        fields = {str(name): self.decode(column, depth + 1) for name, column in _list(value["fields"])}
        shape = next(iter(fields.values())).shape
        record = np.empty(shape, [(name, column.dtype) for name, column in fields.items()])
        for name, column in fields.items():
            if column.shape != shape:
                raise ModelFileError("the fields of a record differ in shape")
            record[name] = column
        return record

    def _read_scalar(self, value: Any, depth: int) -> Any:
        array = self.decode(value["value"], depth + 1)
        if not isinstance(array, np.ndarray) or array.ndim:
            raise ModelFileError("a scalar has dimensions")
        return array[()]

    def _read_csr(self, value: Any, depth: int) -> Any:
        data, indices, indptr = (self.decode(value[name], depth + 1) for name in _CSR)
        kind = sp.csr_matrix if value["matrix"] is True else sp.csr_array
        matrix = kind((data, indices, indptr), shape=tuple(_list(value["shape"])))
        matrix.check_format(full_check=True)
        return matrix

    def _read_dtype(self, value: Any, depth: int) -> np.dtype:
        dtype = np.dtype(str(value["value"]))
        if dtype.kind not in "biufUO" or dtype.names is not None or dtype.subdtype is not None:
            raise ModelFileError(f"it names the dtype {dtype.str!r}")
        return dtype

    def _read_type(self, value: Any, depth: int) -> type:
        return _allowed.find_type(str(value["value"]))

    def _read_function(self, value: Any, depth: int) -> Any:
        return _allowed.find_function(str(value["value"]))

    def _read_random_state(self, value: Any, depth: int) -> np.random.RandomState:
        state = np.random.RandomState()
        state.set_state(self.decode(value["state"], depth + 1))
        return state

    def _read_frame(self, value: Any, depth: int) -> Any:
        import narwhals.stable.v2 as nw

        backend = value["value"]
        if backend not in _BACKENDS:
            raise ModelFileError(f"it names the data frame library {str(backend)[:80]!r}")
        try:
            return nw.from_dict({"none": []}, backend=backend)
        except ImportError as error:
            raise ModelFileError(f"it answers in {backend} frames; install {backend}") from error

    def _read_object(self, value: Any, depth: int) -> Any:
        cls = _allowed.find_class(str(value["class"]))
        state = {str(key): self.decode(item, depth + 1) for key, item in dict(value["state"]).items()}
        restored = _allowed.restore(cls, state)
        check(restored)
        return restored


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ModelFileError("a list was expected")
    return value

"""Values of a model as JSON, and back.

None, booleans, texts, integers, finite floats and lists are stored as they are, arrays in a table of
tensors. Any other value is an object with the key "$":

| "$"                    | holds                                                          |
|------------------------|----------------------------------------------------------------|
| "float"                | "nan", "inf" or "-inf"                                         |
| "dict"                 | items: pairs of key and value                                  |
| "tuple", "set", ...    | items                                                          |
| "array"                | tensor: name in the table; order: "C" or "F"                   |
| "sparse"               | shape and order of an array, positions and values of its nonzeros |
| "words"                | dtype, shape and items of an array of texts or objects         |
| "scalar"               | tensor: a NumPy scalar, as an array without dimensions         |
| "csr", "csc"           | data, indices, indptr, shape, and whether it is a matrix       |
| "dtype", "type", "function", "random_state" | names                                     |
| "object"               | class and state of an allowed class                            |
| "frame"                | in files of earlier versions: the library of a frame           |

Reading runs no code of the named classes and takes memory in proportion to the file (up to 64 times the
stored size for arrays that are mostly zero). `io.checked` decides whether the values make a sound model.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.state import State
from maxmargin.io import checked
from maxmargin.io.checked import LEFT_OUT, MOST_TUPLES, ModelFileError, parameters_of, state_of
from maxmargin.io.steps import DERIVED

DEEPEST = 40
# The dtypes that NumPy and safetensors share, by NumPy's kind and size.
DTYPES = {
    "b1": "BOOL", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64", "u1": "U8", "u2": "U16", "u4": "U32",
    "u8": "U64", "f2": "F16", "f4": "F32", "f8": "F64",
}  # fmt: skip
_CONTAINERS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_CSR = ("data", "indices", "indptr")
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_COMPRESSED = {"csr": (sp.csr_array, sp.csr_matrix), "csc": (sp.csc_array, sp.csc_matrix)}
_DTYPE = re.compile(r"[<>|=]?(?:[biuf][1248]|b|\?|O|U\d{1,9})")
# An array of texts of fixed width may take this many bytes, and this many more per letter that it holds.
TEXT_BYTES, TEXT_BYTES_PER_LETTER = 1 << 20, 64
# Arrays of at least `LARGE` bytes are stored by their nonzeros if these take at most half of the bytes, and
# at least 1 / `SPARSEST` of them, so that a small file cannot ask for much memory.
LARGE, SPARSEST = 1 << 20, 64


def _width_is_fair(dtype: np.dtype, items: list[Any]) -> bool:
    """Whether an array of texts takes no more than a small multiple of the texts themselves."""
    size = dtype.itemsize * len(items) if dtype.kind == "U" else 0
    # Older versions of NumPy turn sizes that overflow into negative ones.
    limit = TEXT_BYTES if size <= TEXT_BYTES else TEXT_BYTES + TEXT_BYTES_PER_LETTER * sum(map(len, items))
    return 0 <= size <= limit


class Encoder:
    """Encodes a model as a JSON value and fills `tensors`."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}
        # Stored arrays by id; the references keep the ids unique.
        self._stored: dict[int, tuple[dict[str, Any], np.ndarray]] = {}

    def encode(self, value: Any, where: str, depth: int = 0) -> Any:
        """Encode a value; messages name it as `where`."""
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
            items = [
                [
                    self.encode(key, f"a key of {where}", depth + 1),
                    self.encode(item, f"{where}[{key!r}]", depth + 1),
                ]
                for key, item in value.items()
            ]
            return {"$": "dict", "items": items}
        if type(value) in _CONTAINERS.values():
            ordered = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
            items = [self.encode(item, f"{where}[{k}]", depth + 1) for k, item in enumerate(ordered)]
            return {"$": type(value).__name__, "items": items}
        return self._other(value, where, depth)

    def _other(self, value: Any, where: str, depth: int) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(value, where, depth)
        if isinstance(value, np.generic):
            return {"$": "scalar", "value": self._array(np.asarray(value), where, depth)}
        if sp.issparse(value) and value.format in _COMPRESSED:
            parts = {name: self._array(getattr(value, name), where, depth) for name in _CSR}
            return {
                "$": value.format,
                **parts,
                "shape": list(value.shape),
                "matrix": isinstance(value, sp.spmatrix),
            }
        if isinstance(value, np.dtype):
            return {"$": "dtype", "value": value.str}
        if isinstance(value, np.random.RandomState):
            return {"$": "random_state", "state": self.encode(value.get_state(), where, depth + 1)}
        if isinstance(value, type):
            name = checked.type_name(value)
            if name is not None:
                return {"$": "type", "value": name}
        elif callable(value) and not hasattr(value, "get_params"):
            name = checked.function_name(value)
            if name is None:
                raise ModelFileError(
                    f"{where} is a function of your own, and a model file holds no code: replace it by a "
                    "name or by its result before saving."
                )
            return {"$": "function", "value": name}
        return self._object(value, where, depth)

    def _object(self, value: Any, where: str, depth: int) -> Any:
        name = checked.class_name(type(value))
        if name is None:
            raise ModelFileError(
                f"{where} is a {type(value).__module__}.{type(value).__name__}, "
                "which a model file cannot hold."
            )
        state = state_of(value)
        fields = {key: self.encode(item, f"{where}.{key}", depth + 1) for key, item in state.items()}
        return {"$": "object", "class": name, "state": fields}

    def _array(self, array: np.ndarray, where: str, depth: int) -> Any:
        if array.dtype.kind in "UO":
            if not _width_is_fair(array.dtype, array.ravel().tolist()):
                raise ModelFileError(f"{where} is far wider than its texts; store it as objects.")
            items = [self.encode(item, where, depth + 1) for item in array.ravel().tolist()]
            return {"$": "words", "dtype": array.dtype.str, "shape": list(array.shape), "items": items}
        if f"{array.dtype.kind}{array.dtype.itemsize}" not in DTYPES:
            raise ModelFileError(f"{where} is an array of {array.dtype}, which a model file cannot hold.")
        # Products round differently by memory layout, so the layout must be restored.
        columns_run_fastest = array.ndim == 2 and abs(array.strides[0]) < abs(array.strides[1])
        order = "F" if columns_run_fastest and not array.flags.c_contiguous else "C"
        if id(array) not in self._stored:
            tensor = array.T if order == "F" else array
            stored = self._sparse(tensor) or {"$": "array", "tensor": self._tensor(tensor)}
            self._stored[id(array)] = stored | {"order": order}, array
        return self._stored[id(array)][0]

    def _tensor(self, array: np.ndarray) -> str:
        """Store an array in the table; return its name."""
        name = f"t{len(self.tensors)}"
        self.tensors[name] = array
        return name

    def _sparse(self, array: np.ndarray) -> dict[str, Any] | None:
        """Store an array by its nonzeros if that takes much less; return None otherwise."""
        if array.nbytes < LARGE or array.dtype.kind != "f":
            return None
        flat = np.ascontiguousarray(array).reshape(-1)
        # Compare bits, so that a negative zero counts as a nonzero.
        positions = np.flatnonzero(flat.view(f"u{flat.itemsize}"))
        positions = positions.astype(np.uint32 if flat.size <= 2**32 else np.uint64)
        size = positions.nbytes + len(positions) * flat.itemsize
        if not flat.nbytes <= SPARSEST * size <= SPARSEST * flat.nbytes // 2:
            return None
        parts = {"places": self._tensor(positions), "values": self._tensor(flat[positions])}
        return {"$": "sparse", "shape": list(array.shape), **parts}


class Decoder:
    """Decodes a JSON value to a model without trusting it."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.tensors = tensors
        # Objects whose derived attributes are rebuilt after the check.
        self.incomplete: list[Any] = []
        # Arrays stored by their nonzeros, by the name of their positions.
        self._filled: dict[str, tuple[Any, np.ndarray]] = {}

    def decode(self, value: Any, depth: int = 0) -> Any:
        """Decode a value."""
        if depth > DEEPEST:
            raise ModelFileError("it is nested too deeply")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ModelFileError("it holds an integer of more than 64 bits")
        if value is None or isinstance(value, (bool, str, int, float)):
            return value
        if isinstance(value, list):
            return [self.decode(item, depth + 1) for item in value]
        kind = value.get("$")
        if not isinstance(kind, str) or kind not in _READERS:
            raise ModelFileError(f"it holds a value of the unknown kind {str(kind)[:80]!r}")
        return _READERS[kind](self, value, depth)

    def _dict(self, value: Any, depth: int) -> dict[Any, Any]:
        items = [(self.decode(k, depth + 1), self.decode(v, depth + 1)) for k, v in _list(value["items"])]
        _check_keys([key for key, _ in items])
        return dict(items)

    def _container(self, value: Any, depth: int) -> Any:
        items = [self.decode(item, depth + 1) for item in _list(value["items"])]
        if value["$"] != "tuple":
            _check_keys(items)
        return _CONTAINERS[value["$"]](items)

    def _array(self, value: Any, depth: int) -> np.ndarray:
        array = self.tensors[value["tensor"]]
        return array.T if value["order"] == "F" else array

    def _sparse(self, value: Any, depth: int) -> np.ndarray:
        """Decode an array stored by its nonzeros.

        No two arrays share positions, so that memory stays in proportion to the file.
        """
        if value["places"] not in self._filled:
            self._filled[value["places"]] = value, self._fill(value)
        known, array = self._filled[value["places"]]
        if known != value:
            raise ModelFileError("two arrays share the positions of their entries")
        return array.T if value["order"] == "F" else array

    def _fill(self, value: Any) -> np.ndarray:
        positions, values = (self.tensors[value[name]] for name in ("places", "values"))
        shape = [int(side) for side in _list(value["shape"])]
        size = math.prod(shape)
        vectors = positions.ndim == values.ndim == 1 and len(positions) == len(values)
        sound = vectors and positions.dtype.kind == "u" and values.dtype.kind == "f"
        sound = sound and min(shape, default=-1) >= 0
        if sound and len(positions):
            sound = int(positions.max()) < size and bool((positions[1:] > positions[:-1]).all())
        if not sound:
            raise ModelFileError("the entries of an array are not in its shape, or not in order")
        if size * values.itemsize > SPARSEST * (positions.nbytes + values.nbytes):
            raise ModelFileError(f"a large array has only {len(values)} entries")
        array = np.zeros(size, values.dtype)
        array[positions] = values
        return array.reshape(shape)

    def _words(self, value: Any, depth: int) -> np.ndarray:
        dtype = self._dtype({"value": value["dtype"]}, depth)
        items = [self.decode(item, depth + 1) for item in _list(value["items"])]
        shape = tuple(_list(value["shape"]))
        if dtype.kind == "U" and not all(isinstance(item, str) for item in items):
            raise ModelFileError("an array of texts holds something else")
        if dtype.kind not in "UO" or not _width_is_fair(dtype, items):
            raise ModelFileError(f"it holds {len(items)} entries of {dtype.str!r}")
        array = np.empty(len(items), dtype)
        for k, item in enumerate(items):
            array[k] = item
        return array.reshape(shape)

    def _scalar(self, value: Any, depth: int) -> Any:
        array = self.decode(value["value"], depth + 1)
        if not isinstance(array, np.ndarray) or array.ndim:
            raise ModelFileError("a scalar has dimensions")
        return array[()]

    def _compressed(self, value: Any, depth: int) -> Any:
        data, indices, indptr = (self.decode(value[name], depth + 1) for name in _CSR)
        kind = _COMPRESSED[value["$"]][value["matrix"] is True]
        matrix = kind((data, indices, indptr), shape=tuple(_list(value["shape"])))
        # SciPy's own check misses rows that end before they begin.
        if (matrix.indptr[1:] < matrix.indptr[:-1]).any():
            raise ModelFileError("rows of a sparse matrix end before they begin")
        matrix.check_format(full_check=True)
        return matrix

    def _dtype(self, value: Any, depth: int) -> np.dtype:
        name = str(value["value"])
        if _DTYPE.fullmatch(name) is None:
            raise ModelFileError(f"it names the dtype {name[:80]!r}")
        return np.dtype(name)

    def _random_state(self, value: Any, depth: int) -> np.random.RandomState:
        """Decode the state of a Mersenne twister, which NumPy does not check."""
        name, keys, place, has_gauss, gauss = self.decode(value["state"], depth + 1)
        whole = all(type(number) is int for number in (place, has_gauss))
        sound = isinstance(keys, np.ndarray) and keys.dtype == np.uint32 and keys.shape == (624,)
        if name != "MT19937" or not sound or not whole or not (0 <= place <= 624 and has_gauss in (0, 1)):
            raise ModelFileError("its random state is not that of a Mersenne twister")
        state = np.random.RandomState()
        state.set_state((name, keys, place, has_gauss, float(gauss)))
        return state

    def _object(self, value: Any, depth: int) -> Any:
        cls = checked.find_class(str(value["class"]))
        state = {
            str(key): self.decode(item, depth + 1)
            for key, item in dict(value["state"]).items()
            if key not in LEFT_OUT and key not in DERIVED.get(cls.__name__, ())
        }
        restored = cls.__new__(cls)
        restored.__dict__.update(_drop_removed(cls, state))
        for name, default in _defaults(cls).items():
            restored.__dict__.setdefault(name, default)
        if cls.__name__ in DERIVED:
            self.incomplete.append(restored)
        return restored


def _drop_removed(cls: type, state: dict[str, Any]) -> dict[str, Any]:
    """Drop removed parameters, and replace removed values, of a file of an earlier version."""
    table = getattr(cls, "STATE", None)
    if not isinstance(table, State):
        return state
    kept = dict(state)
    for name, values in [*table.removed.items(), *table.renamed.items()]:
        if values is None:
            kept.pop(name, None)
        elif isinstance(values, str):
            if kept.get(name) is not None:
                kept[values] = kept.pop(name)
        elif isinstance(value := kept.get(name), str):
            kept[name] = values.get(value, value)
    return kept


@functools.cache
def _defaults(cls: type) -> dict[str, Any]:
    """Return the defaults of the parameters, for files written before a parameter existed."""
    if not parameters_of(cls):
        return {}
    known = inspect.signature(cls).parameters.values()
    return {each.name: each.default for each in known if each.default is not inspect.Parameter.empty}


_READERS: dict[str, Callable[[Decoder, Any, int], Any]] = {
    "float": lambda decoder, value, depth: _SPECIAL[value["value"]],
    "dict": Decoder._dict,
    "tuple": Decoder._container,
    "set": Decoder._container,
    "frozenset": Decoder._container,
    "array": Decoder._array,
    "sparse": Decoder._sparse,
    "words": Decoder._words,
    "scalar": Decoder._scalar,
    "csr": Decoder._compressed,
    "csc": Decoder._compressed,
    "dtype": Decoder._dtype,
    "type": lambda decoder, value, depth: checked.find_type(str(value["value"])),
    "function": lambda decoder, value, depth: checked.find_function(str(value["value"])),
    "random_state": Decoder._random_state,
    "frame": lambda decoder, value, depth: str(value["value"]),
    "object": Decoder._object,
}


def _check_keys(keys: list[Any]) -> None:
    """Refuse many tuples as keys, because their hashes can be made to collide."""
    if len(keys) > MOST_TUPLES and any(isinstance(key, (tuple, frozenset)) for key in keys):
        raise ModelFileError(f"it holds more than {MOST_TUPLES} names that are tuples")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ModelFileError("expected a list")
    return value

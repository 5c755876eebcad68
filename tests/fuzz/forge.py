"""Model files that can be changed and written again with a hash that matches."""

from __future__ import annotations

import json
import marshal
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from maxmargin.io.model_file import _digest

Way = tuple[Any, ...]


def duplicate(value: Any) -> Any:
    """Copy a JSON value, several times faster than `copy.deepcopy`."""
    return marshal.loads(marshal.dumps(value))


def gather(value: Any, way: Way, found: list[Way]) -> None:
    """Add the paths of all values inside a JSON value."""
    for key, item in value.items() if type(value) is dict else enumerate(value):
        here = (*way, key)
        found.append(here)
        if type(item) is dict or type(item) is list:
            gather(item, here, found)


class Forged:
    """The document and the arrays of a model file, which tests may change."""

    def __init__(
        self, document: Any, tensors: dict[str, np.ndarray], places: list[Way] | None = None
    ) -> None:
        self.document, self.tensors, self._places = document, tensors, places

    @classmethod
    def of(cls, path: Path) -> Forged:
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        return cls(json.loads(header["__metadata__"]["maxmargin"]), load_file(path))

    def copy(self) -> Forged:
        return Forged(duplicate(self.document), dict(self.tensors), self._places)

    @property
    def places(self) -> list[Way]:
        """Paths of all values of the model, in the order of the document; copies share them."""
        if self._places is None:
            gather(self.document["model"], (), found := [])
            self._places = found
        return self._places

    def changed(self) -> None:
        """Forget the paths after a change of the document."""
        self._places = None

    @property
    def state(self) -> dict[str, Any]:
        return self.document["model"]["state"]

    def array(self, name: str, array: np.ndarray) -> dict[str, Any]:
        """Add an array; return the value that refers to it."""
        self.tensors[name] = np.asarray(array, order="C")
        return {"$": "array", "tensor": name, "order": "C"}

    def write(self, path: Path) -> Path:
        """Write a file whose hash matches its contents."""
        text = self.document if isinstance(self.document, str) else json.dumps(self.document)
        tensors = {name: np.asarray(array, order="C") for name, array in self.tensors.items()}
        path.write_bytes(save(tensors, metadata={"maxmargin": text, "sha256": _digest(text, tensors)}))
        return path

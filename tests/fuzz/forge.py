"""Model files taken apart and put together again, with a hash that fits."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from maxmargin.io.model_file import _digest


class Forged:
    """The document and the arrays of a model file, free to change."""

    def __init__(self, document: Any, tensors: dict[str, np.ndarray]) -> None:
        self.document, self.tensors = document, tensors

    @classmethod
    def of(cls, path: Path) -> Forged:
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        return cls(json.loads(header["__metadata__"]["maxmargin"]), load_file(path))

    def copy(self) -> Forged:
        return Forged(copy.deepcopy(self.document), dict(self.tensors))

    @property
    def state(self) -> dict[str, Any]:
        return self.document["model"]["state"]

    def array(self, name: str, array: np.ndarray) -> dict[str, Any]:
        """Add an array; the value that refers to it."""
        self.tensors[name] = np.asarray(array, order="C")
        return {"$": "array", "tensor": name, "order": "C"}

    def write(self, path: Path) -> Path:
        """A file whose hash is right, whatever it says."""
        text = self.document if isinstance(self.document, str) else json.dumps(self.document)
        tensors = {name: np.asarray(array, order="C") for name, array in self.tensors.items()}
        path.write_bytes(save(tensors, metadata={"maxmargin": text, "sha256": _digest(text, tensors)}))
        return path

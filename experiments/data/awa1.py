"""Make the data set awa1 from the published files of its features.

    git clone https://github.com/samorr/Animals-with-Attributes
    python -m experiments.data.awa1 Animals-with-Attributes

The repository has one file of features per class, code/feat/CLASS-phog.pic.bz2: a packed pickle of a
matrix, from which only numbers are read. Their rows, in the order of classes.txt, become
awa1_phog_float32.npz; the lists of classes and attributes are copied beside it. The folder awa1 is written
to a directory that `maxmargin.datasets.load` searches: MAXMARGIN_DATA, or the cache.
"""

from __future__ import annotations

import argparse
import bz2
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from maxmargin.io.dataset import DataFormatError
from maxmargin.io.files import atomic_write
from maxmargin.io.registry import folder, info

from .attributes import numbered

FEATURES = "awa1_phog_float32.npz"
# Names in a pickle of arrays of numbers; newer versions of NumPy have them in other modules.
ARRAYS = {"_reconstruct", "scalar", "ndarray", "dtype", "_frombuffer"}


class Numbers(pickle.Unpickler):
    """Reads arrays of numbers; refuses a pickle that names anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in ARRAYS:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not part of an array of numbers")


def features_of(path: Path) -> np.ndarray:
    """Read the features of the images of a class."""
    try:
        with bz2.open(path) as file:
            found = np.asarray(Numbers(file, encoding="latin1").load(), dtype=np.float32)
    except (OSError, EOFError, ValueError, TypeError, pickle.UnpicklingError) as error:
        raise DataFormatError(f"not packed features ({error})", path) from error
    if found.ndim != 2 or not np.isfinite(found).all():
        raise DataFormatError("expected a matrix of finite numbers", path)
    return found


def make(clone: Path, target: Path) -> Path:
    """Write the files of awa1 to the folder `target`; return the path of the features."""
    listed = [Path(file.path).name for file in info("awa1").files]
    names = numbered(clone / "classes.txt")
    parts = [features_of(clone / "code" / "feat" / f"{name}-phog.pic.bz2") for name in names]
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        raise DataFormatError(f"classes have features of different widths, {sorted(widths)}", clone)
    target.mkdir(parents=True, exist_ok=True)
    for name in listed:
        if name != FEATURES:
            shutil.copyfile(clone / name, target / name)
    index = np.repeat(np.arange(len(parts)), [len(part) for part in parts]).astype(np.uint8)
    with atomic_write(target / FEATURES) as out:
        np.savez_compressed(out, X=np.concatenate(parts), y=index, classes=np.array(names))
    return target / FEATURES


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.data.awa1",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("clone", type=Path, help="folder of the cloned repository")
    parser.add_argument("--output", type=Path, help="folder to write to, instead of the one that load reads")
    given = parser.parse_args()
    try:
        written = make(given.clone, given.output or folder("awa1").places[0])
    except (OSError, DataFormatError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(f"{written}: {written.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

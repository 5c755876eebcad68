"""Examples in docstrings are collected from all files but those whose extra is not installed."""

import importlib.util
import os

from tools.loops_folder import folder

# Before numba is imported; tests that start processes hand it on.
os.environ.setdefault("NUMBA_CACHE_DIR", str(folder()))

collect_ignore: list[str] = []
if importlib.util.find_spec("torch") is None:
    names = ("numerics", "blocks", "multilabel", "multiclass", "sparse")
    collect_ignore += [f"src/maxmargin/device/{name}.py" for name in names] + ["tests/naive/device.py"]
if importlib.util.find_spec("triton") is None:
    collect_ignore.append("src/maxmargin/device/triton_moves.py")
if importlib.util.find_spec("distributed") is None:
    collect_ignore += ["src/maxmargin/dask", "tests/dask"]

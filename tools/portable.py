"""Run tests as on other processors: ``python tools/portable.py [LEVEL] [ARGUMENTS OF PYTEST]``.

Each run uses the OpenBLAS kernels of one processor, and compiles the loops for the x86-64 level of that
processor. Levels that this machine lacks are skipped. With a level such as ``x86-64-v2``, only that run is
made.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding
import numpy  # noqa: F401 - loads OpenBLAS, which threadpool_info lists
from threadpoolctl import threadpool_info

ROOT = Path(__file__).parents[1]
# OpenBLAS kernels and the level of compiled loops.
PAIRS = {"Haswell": "x86-64-v3", "Nehalem": "x86-64-v2", "SkylakeX": "x86-64-v4"}
# Features of a level beyond those of the level before.
LEVELS = {
    "x86-64-v2": {"popcnt", "sse4.2", "ssse3"},
    "x86-64-v3": {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"},
    "x86-64-v4": {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
}


def levels_here() -> list[str]:
    """The levels that this processor supports, the lowest first."""
    have = {name for name, there in llvmlite.binding.get_host_cpu_features().items() if there}
    return list(itertools.takewhile(lambda level: LEVELS[level] <= have, LEVELS))


def environment(kernels: str, level: str) -> dict[str, str]:
    """Environment variables of a run."""
    loops = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}
    return os.environ | loops | {"OPENBLAS_CORETYPE": kernels}


def main(arguments: list[str]) -> int:
    """Run pytest once per level; returns the number of failed runs."""
    only = arguments.pop(0) if arguments and arguments[0] in LEVELS else None
    if not any(library["internal_api"] == "openblas" for library in threadpool_info()):
        print("This NumPy does not use OpenBLAS: the runs differ in the compiled loops only.", flush=True)
    failed, here = [], levels_here()
    for kernels, level in PAIRS.items():
        if only not in (None, level):
            continue
        name = f"{level} with OpenBLAS kernels for {kernels}"
        if level not in here:
            print(f"{name}: skipped, this processor does not support the level", flush=True)
            continue
        print(name, flush=True)
        command = [sys.executable, "-m", "pytest", *arguments]
        if subprocess.run(command, cwd=ROOT, env=environment(kernels, level), check=False).returncode:
            failed.append(name)
    print("\n".join(["Failed:", *failed] if failed else ["All runs passed."]))
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

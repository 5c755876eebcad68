"""Run the tests as other processors run them: ``python tools/portable.py [ARGUMENTS OF PYTEST]``.

Every run takes the kernels that OpenBLAS has for one processor and holds the compiled loops to the level
of the x86-64 family that this processor has. What the machine at hand lacks is left out.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding
from threadpoolctl import threadpool_info

ROOT = Path(__file__).parents[1]
# The kernels of OpenBLAS and the level of the compiled loops.
PAIRS = {"Haswell": "x86-64-v3", "Nehalem": "x86-64-v2", "SkylakeX": "x86-64-v4"}


# What a processor of a level has beyond one of the level before.
LEVELS = {
    "x86-64-v2": {"popcnt", "sse4.2", "ssse3"},
    "x86-64-v3": {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"},
    "x86-64-v4": {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
}


def levels_here() -> list[str]:
    """The levels that this processor has, the lowest first."""
    have = {name for name, there in llvmlite.binding.get_host_cpu_features().items() if there}
    return list(itertools.takewhile(lambda level: LEVELS[level] <= have, LEVELS))


def environment(kernels: str, level: str) -> dict[str, str]:
    """The environment of a run."""
    loops = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}
    return os.environ | loops | {"OPENBLAS_CORETYPE": kernels}


def main(arguments: list[str]) -> int:
    """How many runs failed."""
    if not any(library["internal_api"] == "openblas" for library in threadpool_info()):
        print("NumPy here has no OpenBLAS: the runs differ in the compiled loops alone.", flush=True)
    failed, here = [], levels_here()
    for kernels, level in PAIRS.items():
        name = f"{level} with the {kernels} kernels of OpenBLAS"
        if level not in here:
            print(f"{name}: left out, this processor lacks the level", flush=True)
            continue
        print(name, flush=True)
        command = [sys.executable, "-m", "pytest", *arguments]
        if subprocess.run(command, cwd=ROOT, env=environment(kernels, level), check=False).returncode:
            failed.append(name)
    print("\n".join(["Failed on", *failed] if failed else ["Green on all that this processor has."]))
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

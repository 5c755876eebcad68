"""Build a wheel that brings its machine code along: ``python tools/wheel.py [--into dist] [FAMILY ...]``.

A copy of the package is warmed up once for every level of the x86-64 family that this processor has,
each in a process of its own that numba is told to compile for the level instead of the processor. The
entries that they leave go into the copy, as ``maxmargin/_prebuilt``, and the copy becomes a wheel for this
Python and platform.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from maxmargin.core.cache import SUFFIX, levels

ROOT = Path(__file__).parents[1]
PIECES = ("src", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def build(into: Path, families: list[str]) -> Path:
    """The path of the wheel."""
    if not levels():
        raise SystemExit("Machine code can be shipped for x86-64-v3 and v4 only; use `pip wheel .` here.")
    with tempfile.TemporaryDirectory() as room:
        copy, caches = Path(room, "copy"), Path(room, "caches")
        copy.mkdir()
        for piece in PIECES:
            take(ROOT / piece, copy / piece)
        warm(copy, caches, families)
        home = copy / "src" / "maxmargin" / "_prebuilt"
        home.mkdir()
        for entry in caches.rglob(f"*{SUFFIX}"):
            shutil.copy(entry, home)
        size = sum(entry.stat().st_size for entry in home.iterdir())
        print(f"{len(list(home.iterdir()))} loops for {', '.join(levels())}: {size / 1e6:.1f} MB")
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--wheel-dir", str(into), str(copy)], check=True)
    return max(into.glob("maxmargin-*.whl"), key=lambda wheel: wheel.stat().st_mtime)


def take(source: Path, target: Path) -> None:
    """Copy a file, or a folder without what others left in it."""
    if source.is_dir():
        left = shutil.ignore_patterns("__pycache__", "*.egg-info", "_prebuilt")
        shutil.copytree(source, target, ignore=left)
    else:
        shutil.copy(source, target)


def warm(copy: Path, caches: Path, families: list[str]) -> None:
    """Compile every loop for every level, side by side."""
    command = [sys.executable, "-m", "maxmargin.cli", "warmup", "--jobs", "1", *families]
    running = []
    for level in levels():
        environment = {"PYTHONPATH": str(copy / "src"), "NUMBA_CACHE_DIR": str(caches / level)}
        environment |= {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": "", "MAXMARGIN_JIT_CACHE": "1"}
        running.append(subprocess.Popen(command, env=os.environ | environment, cwd=copy))
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit("The warm-up failed.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    given = parser.parse_args()
    print(build(given.into, given.families))

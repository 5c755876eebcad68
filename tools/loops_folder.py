"""Print the folder of this checkout for compiled loops.

    export NUMBA_CACHE_DIR=$(python tools/loops_folder.py)

Numba recompiles a loop when its own file changes, but not when a helper in another file changes. The folder
is therefore named after the sources of all loops, so that any change recompiles all of them.
"""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "maxmargin"


def folder() -> Path:
    """The folder for the sources as they are."""
    digest = hashlib.sha256()
    for path in sorted([*PACKAGE.glob("core/*.py"), *PACKAGE.rglob("*loops.py")]):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\n".encode() + path.read_bytes())
    return ROOT / "build" / "loops" / digest.hexdigest()[:16]


if __name__ == "__main__":
    print(folder())

"""Print where this checkout keeps its compiled loops.

    export NUMBA_CACHE_DIR=$(python tools/loops_folder.py)

numba compiles a loop again when the file of the loop has changed, but not when the file of a helper has that
it calls. So the folder is named by the sources of all loops: after any change all of them are compiled anew.
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

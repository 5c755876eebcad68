"""Check every address in the project's files: ``python tools/links.py [FILE ...]``.

Without files it reads all text files under version control. It prints the addresses that do not answer, with
their files, and fails if there is one. It needs the network, so it is not part of the tests.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Tests make addresses up.
LEFT_OUT = ("tests/",)
ADDRESS = re.compile(r"https?://[^\s<>\"'`{}|\\^\[\]()*]+")
SECONDS = 20
AGENT = {"User-Agent": "Mozilla/5.0 (link check of maxmargin)"}


def addresses(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Return every address with the files that contain it, without example hosts."""
    found: dict[str, list[Path]] = {}
    for path in paths:
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for address in ADDRESS.findall(text):
            address = address.rstrip(".,;:!?")
            host = address.split("/")[2].split(":")[0]
            if not host.endswith((".example", "example.org", "example.com")) and "." in host:
                found.setdefault(address, []).append(path)
    return found


def trouble(address: str) -> str | None:
    """Return why an address does not answer, or None if it does."""
    for method in ("HEAD", "GET"):
        try:
            request = urllib.request.Request(address, headers=AGENT, method=method)
            with urllib.request.urlopen(request, timeout=SECONDS):
                return None
        except urllib.error.HTTPError as error:
            # Some servers answer no HEAD.
            said = f"{error.code} {error.reason}"
        except OSError as error:
            said = str(getattr(error, "reason", error))
    return said


def main(words: Sequence[str]) -> int:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in tracked.splitlines() if not name.startswith(LEFT_OUT)]
    found = addresses(map(Path, words) if words else (ROOT / name for name in names))
    with ThreadPoolExecutor(8) as pool:
        troubles = dict(zip(found, pool.map(trouble, found), strict=True))
    broken = {address: error for address, error in troubles.items() if error}
    for address, error in sorted(broken.items()):
        places = ", ".join(sorted({str(path) for path in found[address]}))
        print(f"{address}: {error} ({places})")
    print(f"{len(found)} addresses, {len(broken)} do not answer.")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

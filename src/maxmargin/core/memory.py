"""How much memory there is."""

from __future__ import annotations

import os
from pathlib import Path

# Where Linux says what a container may use.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory() -> float:
    """Bytes of memory of this machine, or of the container we are in; infinite where nothing tells."""
    found = [float("inf")]
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        found.append(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    for limit in LIMITS:
        try:
            found.append(float(limit.read_text()))
        except (OSError, ValueError):  # no such file, or the word "max"
            continue
    return min(found)

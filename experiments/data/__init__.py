"""Loaders of the research sets that `maxmargin.datasets.load` accepts by name; not part of the wheel.

`maxmargin.datasets` searches here for sets that it does not ship. To add a set, describe its
files in `src/maxmargin/io/data/registry.json` and add one line to `BUILDERS`.
"""

from .catalogue import BUILDERS

__all__ = ["BUILDERS"]

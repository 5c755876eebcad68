"""The known data sets: what they are, where their files are found or come from."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path


@dataclass(frozen=True)
class FileInfo:
    """One file of a data set.

    Attributes
    ----------
    path : str
        Its place below the data directory.
    bytes, sha256 : int, str
        Size and hash of that file.
    source : str
        Where it comes from.
    url : str or None
        Where `fetch` finds it; None when the file was converted from something else.
    unpacked_bytes, unpacked_sha256 : int or None, str or None
        Size and hash after unpacking a compressed file.
    """

    path: str
    bytes: int
    sha256: str
    source: str
    url: str | None = None
    unpacked_bytes: int | None = None
    unpacked_sha256: str | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set before loading it."""

    name: str
    task: str
    source: str
    licence: str
    files: tuple[FileInfo, ...]
    shipped: bool = False

    @property
    def downloadable(self) -> bool:
        """Whether `fetch` can get every file."""
        return all(file.url is not None for file in self.files)


@cache
def registry() -> dict[str, DatasetInfo]:
    """All known data sets by name."""
    text = (resources.files(__package__) / "data" / "registry.json").read_text("utf-8")
    return {
        name: DatasetInfo(
            name,
            entry["task"],
            entry["source"],
            entry["licence"],
            tuple(FileInfo(**file) for file in entry["files"]),
            entry.get("shipped", False),
        )
        for name, entry in json.loads(text).items()
    }


def list_datasets(task: str | None = None) -> list[str]:
    """Names that `load` knows, sorted.

    Parameters
    ----------
    task : {"multilabel", "multiclass", "chain", "zero-shot", "ranking", "multilabel-text", \
"multiclass-text"}, default=None
        Only data for this task.

    Examples
    --------
    >>> from maxmargin.datasets import list_datasets
    >>> "yeast" in list_datasets("multilabel")
    True
    """
    known = {entry.task for entry in registry().values()}
    if task is not None and task not in known:
        raise ValueError(f"task must be one of {sorted(known)}. Got {task!r} instead.")
    return sorted(name for name, entry in registry().items() if task in (None, entry.task))


def info(name: str) -> DatasetInfo:
    """Task, source, licence and files of a data set.

    Examples
    --------
    >>> from maxmargin.datasets import info
    >>> info("yeast").task
    'multilabel'
    """
    if name not in registry():
        near = difflib.get_close_matches(name, registry(), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"No data set is called {name!r}.{hint} See maxmargin.datasets.list_datasets().")
    return registry()[name]


def cache_dir() -> Path:
    """Where `fetch` keeps files: $MAXMARGIN_CACHE, or maxmargin below the user's cache directory."""
    chosen = os.environ.get("MAXMARGIN_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "maxmargin"


@dataclass(frozen=True)
class Folder:
    """The directories in which a data set's files may lie, in order of preference."""

    name: str
    places: tuple[Path, ...]

    def file(self, filename: str) -> Path:
        """A file of the data set, packed or not."""
        for place in self.places:
            for candidate in (place / filename, place / f"{filename}.xz", place / f"{filename}.gz"):
                if candidate.is_file():
                    return candidate
        cure = (
            f"call maxmargin.datasets.fetch({self.name!r}) to download it, or set"
            if info(self.name).downloadable
            else "it cannot be downloaded as one file; set"
        )
        raise FileNotFoundError(
            f"Data set {self.name!r}: no file {filename} in {' or '.join(map(str, self.places))}: {cure} "
            f"MAXMARGIN_DATA to the directory that has {self.places[0].name}/{filename}."
        )


def folder(name: str) -> Folder:
    """Where to look for the files of a data set: MAXMARGIN_DATA, then the cache.

    Members of a collection (COLLECTION/MEMBER) share the folder of the collection.
    """
    given = os.environ.get("MAXMARGIN_DATA")
    roots = ([Path(given)] if given else []) + [cache_dir()]
    return Folder(name, tuple(root / name.partition("/")[0] for root in roots))

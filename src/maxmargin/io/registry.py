"""The known data sets: what they are, where their files are found or come from, and `load`."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from maxmargin.io.arff import read_mulan
from maxmargin.io.dataset import Dataset, stack
from maxmargin.io.shipped import SHIPPED


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
    """What is known of a data set before loading it; `recipe` makes the files that no address offers."""

    name: str
    task: str
    source: str
    licence: str
    files: tuple[FileInfo, ...]
    shipped: bool = False
    recipe: str | None = None

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
            entry.get("recipe"),
        )
        for name, entry in json.loads(text).items()
    }


def list_datasets(task: str | None = None) -> list[str]:
    """Names of the data sets that can be had, sorted: here, or to be brought by `fetch`.

    `load` knows a few more by name, whose files nobody offers for download; it takes them from the
    directory that MAXMARGIN_DATA names, and they are listed once they lie there.

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
    return sorted(
        name for name, entry in registry().items() if task in (None, entry.task) and where(name) != "not here"
    )


def where(name: str) -> str:
    """Where a data set is: "comes with the package", a directory, "can be fetched" or "not here".

    What the package could not read if it were here is not here.

    Examples
    --------
    >>> from maxmargin.io.registry import where
    >>> where("yeast")
    'comes with the package'
    """
    if name in SHIPPED:
        return "comes with the package"
    about = info(name)
    mulan = any(Path(file.path).name == f"{name}.xml" for file in about.files)
    if not mulan and name not in research_builders():
        return "not here"
    for place in folder(name).places:
        if all((place.parent / file.path).is_file() or _unpacked(place.parent, file) for file in about.files):
            return str(place)
    return "can be fetched" if about.downloadable else "not here"


def _unpacked(root: Path, file: FileInfo) -> bool:
    return (root / file.path.removesuffix(".xz")).is_file()


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

    def find(self, filename: str) -> Path | None:
        """A file of the data set, packed or not, or None."""
        for place in self.places:
            for candidate in (place / filename, place / f"{filename}.xz", place / f"{filename}.gz"):
                if candidate.is_file():
                    return candidate
        return None

    def file(self, filename: str) -> Path:
        """A file of the data set, packed or not; without it, an error that names the cure."""
        found = self.find(filename)
        if found is not None:
            return found
        about = info(self.name)
        cure = (
            f"call maxmargin.datasets.fetch({self.name!r}) to download it, or set"
            if about.downloadable
            else f"it cannot be downloaded; its files come from {about.source} (`maxmargin datasets info "
            f"{self.name}` lists them), set"
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


def load(name: str, split: str | None = None) -> Dataset:
    """Load a known data set.

    Small ones come with the package or with scikit-learn. The files of the others are looked for
    in the directory that the environment variable MAXMARGIN_DATA names (one folder per data set)
    and then in the cache that `fetch` fills. What is not laid out as Mulan does it (NAME.xml with
    NAME-train.arff and NAME-test.arff) is read by `experiments.data` of the repository, which is
    not part of the installed package.

    Parameters
    ----------
    name : str
        One of `list_datasets()`.
    split : {"train", "test", "all"}, default=None
        One side of the split that the source comes with; None and "all" give every sample, with
        the split in the `train` and `test` attributes.

    Returns
    -------
    Dataset
        X is CSR where the source is sparse. Y is a dense 0/1 array (n_samples, n_labels), or one
        class per sample. Nothing is scaled.

    Raises
    ------
    FileNotFoundError
        When the files are not on this machine; says where they were looked for and the cure. Also
        when the repository that has the loader of this set is not there.

    Examples
    --------
    >>> from maxmargin.datasets import load
    >>> load("iris")
    Dataset('iris': 150 samples x 4 features, 3 classes)
    """
    about = info(name)
    data = _build(name)
    Y = data.Y.toarray() if sp.issparse(data.Y) else data.Y
    data = replace(data, Y=np.ascontiguousarray(Y), name=name, source=about.source, licence=about.licence)
    return data.part(split)


def _build(name: str) -> Dataset:
    if name in SHIPPED:
        return SHIPPED[name](name)
    place, research = folder(name), research_builders()
    if name in research:
        return research[name](place)
    if place.find(f"{name}.xml") is not None:
        return read_mulan_folder(place)
    raise FileNotFoundError(
        f"Data set {name!r} is read by experiments/data of the maxmargin repository, which the installed "
        "package leaves out: put a checkout on PYTHONPATH. Only data laid out as Mulan does it "
        f"({name}.xml, {name}-train.arff, {name}-test.arff) is read without, from "
        f"{' or '.join(map(str, place.places))} (set MAXMARGIN_DATA to the directory that has {place.name}/)."
    )


def read_mulan_folder(
    folder: Folder, stem: str | None = None, kind: str = "", drop: Sequence[str] = ()
) -> Dataset:
    """The two sides of a Mulan data set: STEM.xml, STEM-trainKIND.arff and STEM-testKIND.arff."""
    stem = stem or folder.name
    xml = folder.file(f"{stem}.xml")
    train, test = (
        read_mulan(folder.file(f"{stem}-{side}{kind}.arff"), xml, drop=drop) for side in ("train", "test")
    )
    return stack(train, test)


@cache
def research_builders() -> Mapping[str, Callable[[Folder], Dataset]]:
    """What `experiments.data` can build: on the path, or in the checkout that this file lies in."""
    try:
        return importlib.import_module("experiments.data").BUILDERS
    except (ModuleNotFoundError, AttributeError):
        place = Path(__file__).parents[3] / "experiments" / "data" / "__init__.py"
    if not place.is_file():
        return {}
    spec = importlib.util.spec_from_file_location("maxmargin_experiments_data", place)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BUILDERS

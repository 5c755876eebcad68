"""The known data sets: their files, where these are found, `load`, and `fetch` to download them."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import json
import os
import sys
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from maxmargin.io.arff import read_mulan
from maxmargin.io.dataset import DataFormatError, Dataset, PathLike, stack
from maxmargin.io.files import Progress, atomic_write, unpacked
from maxmargin.io.shipped import SHIPPED

# Bytes that are downloaded or hashed at a time.
_CHUNK = 1 << 18


@dataclass(frozen=True)
class FileInfo:
    """One file of a data set.

    Attributes
    ----------
    path : str
        Its path below the data directory.
    bytes, sha256 : int, str
        Size and hash of that file.
    source : str
        Its origin.
    url : str or None
        Address for `fetch`; None if the file was converted from something else.
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
    """Description of a data set; `recipe` explains how to make files that cannot be downloaded."""

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
    """Return all known data sets by name."""
    text = (resources.files(__package__) / "data" / "registry.json").read_text("utf-8")
    return {
        name: DatasetInfo(name, **entry | {"files": tuple(FileInfo(**file) for file in entry["files"])})
        for name, entry in json.loads(text).items()
    }


def list_datasets(task: str | None = None) -> list[str]:
    """Return the sorted names of the data sets that are here or that `fetch` can download.

    `load` also reads a few sets that cannot be downloaded. They are listed once their files are in the
    directory that the environment variable MAXMARGIN_DATA names.

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
    tasks = {entry.task for entry in registry().values()}
    if task is not None and task not in tasks:
        raise ValueError(f"task must be one of {sorted(tasks)}. Got {task!r} instead.")
    return sorted(
        name for name, entry in registry().items() if task in (None, entry.task) and where(name) != "not here"
    )


def where(name: str) -> str:
    """Return "comes with the package", a directory, "can be fetched" or "not here".

    A set that this installation cannot read is "not here".

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
        paths = [place.parent / file.path for file in about.files]
        if all(path.is_file() or path.with_name(path.name.removesuffix(".xz")).is_file() for path in paths):
            return str(place)
    return "can be fetched" if about.downloadable else "not here"


def info(name: str) -> DatasetInfo:
    """Return task, source, licence and files of a data set.

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
    """Return the folder of `fetch`: $MAXMARGIN_CACHE, or maxmargin in the user's cache directory."""
    chosen = os.environ.get("MAXMARGIN_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "maxmargin"


@dataclass(frozen=True)
class Folder:
    """The directories that may hold a data set's files, in order of preference."""

    name: str
    places: tuple[Path, ...]

    def find(self, filename: str) -> Path | None:
        """Return the path of a file, packed or not, or None."""
        for place in self.places:
            for candidate in (place / filename, place / f"{filename}.xz", place / f"{filename}.gz"):
                if candidate.is_file():
                    return candidate
        return None

    def file(self, filename: str) -> Path:
        """Return the path of a file, packed or not; if it is missing, raise an error with the remedy."""
        found = self.find(filename)
        if found is not None:
            return found
        about = info(self.name)
        remedy = (
            f"call maxmargin.datasets.fetch({self.name!r}) to download it, or set"
            if about.downloadable
            else f"it cannot be downloaded; its files come from {about.source} (`maxmargin datasets info "
            f"{self.name}` lists them), set"
        )
        raise FileNotFoundError(
            f"Data set {self.name!r}: no file {filename} in {' or '.join(map(str, self.places))}: {remedy} "
            f"MAXMARGIN_DATA to the directory that has {self.places[0].name}/{filename}."
        )


def folder(name: str) -> Folder:
    """Return the folders of a data set, in MAXMARGIN_DATA first and then in the cache.

    Members of a collection (COLLECTION/MEMBER) share the folder of the collection.
    """
    given = os.environ.get("MAXMARGIN_DATA")
    roots = ([Path(given)] if given else []) + [cache_dir()]
    return Folder(name, tuple(root / name.partition("/")[0] for root in roots))


def load(name: str, split: str | None = None) -> Dataset:
    """Load a known data set.

    Small sets come with the package or with scikit-learn. The files of the others are taken from
    the directory that the environment variable MAXMARGIN_DATA names (one folder per data set),
    or from the cache that `fetch` fills. Sets in another layout than Mulan's (NAME.xml with
    NAME-train.arff and NAME-test.arff) are read by `experiments.data` of the repository, which is
    not part of the installed package.

    Parameters
    ----------
    name : str
        One of `list_datasets()`.
    split : {"train", "test", "all"}, default=None
        One side of the published split. None and "all" return every sample and keep the split in
        the attributes `train` and `test`.

    Returns
    -------
    Dataset
        X is CSR if the source is sparse. Y is a dense 0/1 array (n_samples, n_labels), or one
        class per sample. Nothing is scaled.

    Raises
    ------
    FileNotFoundError
        The files are not on this machine, or the repository with the loader of this set is not
        there; the message names the folders and the remedy.

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
        f"Data set {name!r} is read by experiments/data of the maxmargin repository, which is not part of "
        "the installed package: put a checkout on PYTHONPATH. Without it, only files in Mulan's layout "
        f"({name}.xml, {name}-train.arff, {name}-test.arff) are read, from "
        f"{' or '.join(map(str, place.places))} "
        f"(set MAXMARGIN_DATA to the directory that has {place.name}/)."
    )


def read_mulan_folder(
    folder: Folder, stem: str | None = None, kind: str = "", drop: Sequence[str] = ()
) -> Dataset:
    """Read both sides of a Mulan data set: STEM.xml, STEM-trainKIND.arff and STEM-testKIND.arff."""
    stem = stem or folder.name
    xml = folder.file(f"{stem}.xml")
    train, test = (
        read_mulan(folder.file(f"{stem}-{side}{kind}.arff"), xml, drop=drop) for side in ("train", "test")
    )
    return stack(train, test)


@cache
def research_builders() -> Mapping[str, Callable[[Folder], Dataset]]:
    """Return the loaders of `experiments.data`, on the path or in the checkout of this file."""
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


class DownloadError(OSError):
    """A file could not be downloaded, or is not the expected file."""


def fetch(
    name: str,
    *,
    directory: PathLike | None = None,
    mirror: str | None = None,
    timeout: float = 30.0,
    progress: Progress | None = None,
) -> Path:
    """Download the files of a data set and check them against the registry; needs pooch.

    A file appears under its name only when it is complete and its sha256 is right. Right files
    that are already there are kept.

    Parameters
    ----------
    name : str
        One of `list_datasets()`.
    directory : path-like, default=None
        Parent of the data set's folder; None means `cache_dir()`, which `load` searches.
    mirror : str, default=None
        Address of a directory laid out like MAXMARGIN_DATA to take the files from. None takes each
        file from its own source; some files have none.
    timeout : float, default=30
        Seconds to wait for the server at each step.
    progress : callable, default=None
        Called with (bytes received, bytes in all) of each file.

    Returns
    -------
    Path
        The folder of the data set.

    Raises
    ------
    DownloadError
        No network, no such file, wrong size or wrong hash. No half-written file remains.
    """
    about = info(name)
    if mirror is None and not about.downloadable:
        lacking = [f"{file.path} (from {file.source})" for file in about.files if file.url is None]
        raise DownloadError(
            f"{name} cannot be downloaded: there is no address for {'; '.join(lacking)}. Put its files into "
            f"the directory that MAXMARGIN_DATA names, or pass mirror=."
        )
    root = cache_dir() if directory is None else Path(directory)
    for file in about.files:
        if mirror is None:
            assert file.url is not None
            url, target = file.url, root / file.path.removesuffix(".xz")
        else:
            url, target = f"{mirror.rstrip('/')}/{urllib.parse.quote(file.path)}", root / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not _is_there(target, file):
            _download(url, target, file, timeout, progress)
    return root / name


def _download(url: str, target: Path, file: FileInfo, timeout: float, progress: Progress | None) -> None:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError(f"{url}: not an http or https address")
    with atomic_write(target) as out:
        download = _Download(url, out, max(file.bytes, file.unpacked_bytes or 0), progress)
        _receive(url, download, timeout)
        if not _is_right(out, file):
            raise DownloadError(
                f"{url}: the {download.received} received bytes are not {file.path}: their sha256 differs "
                "from the registry's. The download was cut off or the file has changed."
            )


def _receive(url: str, download: _Download, timeout: float) -> None:
    try:
        import pooch
        import requests.exceptions as faults
    except ImportError as error:
        raise ImportError("Downloads need pooch: pip install pooch") from error
    try:
        pooch.HTTPDownloader(timeout=timeout, chunk_size=_CHUNK)(url, download, None)
    except faults.HTTPError as error:
        answer: Any = error.response
        raise DownloadError(f"{url}: the server answered {answer.status_code} {answer.reason}") from error
    except faults.ChunkedEncodingError as error:
        raise DownloadError(f"{url}: the download was cut off ({error})") from error
    except faults.RequestException as error:
        if isinstance(error, faults.Timeout) or "timed out" in str(error):
            raise DownloadError(f"{url}: no answer within {timeout:g} s") from error
        raise DownloadError(f"{url}: no connection ({error})") from error


@dataclass
class _Download:
    """The output file of a download; limits its size and reports progress."""

    url: str
    out: IO[bytes]
    limit: int
    progress: Progress | None
    received: int = 0

    def write(self, chunk: bytes) -> None:
        self.received += len(chunk)
        if self.received > self.limit:
            raise DownloadError(f"{self.url}: more than the expected {self.limit} bytes")
        self.out.write(chunk)
        if self.progress is not None:
            self.progress(self.received, self.limit)

    def flush(self) -> None:
        """Do nothing: `atomic_write` flushes the complete file."""


def _is_there(target: Path, file: FileInfo) -> bool:
    if not target.is_file():
        return False
    with open(target, "rb") as stored:
        return _is_right(stored, file)


def _is_right(stored: IO[bytes], file: FileInfo) -> bool:
    """Whether an open file is the registered one, packed in any way."""
    stored.seek(0)
    if _sha256(stored) == file.sha256:
        return True
    if file.unpacked_sha256 is None:
        return False
    stored.seek(0)
    try:
        with unpacked(stored, file.path) as plain:
            return _sha256(plain) == file.unpacked_sha256
    except DataFormatError:
        return False


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()

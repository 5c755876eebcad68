"""Download of known data sets, for those who have internet access and pooch."""

from __future__ import annotations

import hashlib
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from maxmargin.io.atomic import PathLike, atomic_write
from maxmargin.io.dataset import DataFormatError
from maxmargin.io.files import Progress, unpacked
from maxmargin.io.registry import FileInfo, cache_dir, info

_PIECE = 1 << 18


class DownloadError(OSError):
    """A file could not be downloaded, or is not the file that was expected."""


def fetch(
    name: str,
    *,
    directory: PathLike | None = None,
    mirror: str | None = None,
    timeout: float = 30.0,
    progress: Progress | None = None,
) -> Path:
    """Download the files of a data set and check them against the registry; needs pooch.

    A file appears under its name only when it is complete and its sha256 is right. Files that are
    already there and right are kept.

    Parameters
    ----------
    name : str
        One of `list_datasets()`.
    directory : path-like, default=None
        Where to put the folder of the data set; None means `cache_dir()`, where `load` looks.
    mirror : str, default=None
        Address of a directory laid out like MAXMARGIN_DATA to take the files from. None takes each
        from its own source; not every file has one.
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
        No network, no such file, wrong size or wrong hash. Nothing half-written is left.
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
        arriving = _Arriving(url, out, max(file.bytes, file.unpacked_bytes or 0), progress)
        _receive(url, arriving, timeout)
        if not _is_right(out, file):
            raise DownloadError(
                f"{url}: what arrived ({arriving.received} bytes) is not {file.path}: its sha256 differs "
                f"from the registry's. The download was cut off or the file has changed."
            )


def _receive(url: str, arriving: _Arriving, timeout: float) -> None:
    try:
        import pooch
        import requests.exceptions as faults
    except ImportError as error:
        raise ImportError("Downloads need pooch: pip install pooch") from error
    try:
        pooch.HTTPDownloader(timeout=timeout, chunk_size=_PIECE)(url, arriving, None)
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
class _Arriving:
    """A file that takes no more than is expected and tells how much has come."""

    url: str
    out: IO[bytes]
    most: int
    progress: Progress | None
    received: int = 0

    def write(self, piece: bytes) -> None:
        self.received += len(piece)
        if self.received > self.most:
            raise DownloadError(f"{self.url}: more than the expected {self.most} bytes")
        self.out.write(piece)
        if self.progress is not None:
            self.progress(self.received, self.most)

    def flush(self) -> None:
        """What is complete is flushed when the file is moved to its place."""


def _is_there(target: Path, file: FileInfo) -> bool:
    if not target.is_file():
        return False
    with open(target, "rb") as stored:
        return _is_right(stored, file)


def _is_right(stored: IO[bytes], file: FileInfo) -> bool:
    """Whether an open file is the registered one, as registered or packed in another way."""
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
    while piece := stream.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()

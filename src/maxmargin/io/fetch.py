"""Download of known data sets, for those who have internet access."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO

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
    """Download the files of a data set and check them against the registry.

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
    with atomic_write(target) as out:
        try:
            received = _receive(url, out, max(file.bytes, file.unpacked_bytes or 0), timeout, progress)
        except urllib.error.HTTPError as error:
            raise DownloadError(f"{url}: the server answered {error.code} {error.reason}") from error
        except TimeoutError as error:
            raise DownloadError(f"{url}: no answer within {timeout:g} s") from error
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError) as error:
            if isinstance(getattr(error, "reason", None), TimeoutError):
                raise DownloadError(f"{url}: no answer within {timeout:g} s") from error
            raise DownloadError(f"{url}: no connection ({getattr(error, 'reason', error)})") from error
        if not _is_right(out, file):
            raise DownloadError(
                f"{url}: what arrived ({received} bytes) is not {file.path}: its sha256 differs from the "
                f"registry's. The download was cut off or the file has changed."
            )


def _receive(url: str, out: IO[bytes], most: int, timeout: float, progress: Progress | None) -> int:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError(f"{url}: not an http or https address")
    received = 0
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        while piece := answer.read(_PIECE):
            received += len(piece)
            if received > most:
                raise DownloadError(f"{url}: more than the expected {most} bytes")
            out.write(piece)
            if progress is not None:
                progress(received, most)
    return received


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

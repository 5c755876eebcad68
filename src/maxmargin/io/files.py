"""Files in and out: transparent .xz and .gz, line numbers, writes that are whole or absent."""

from __future__ import annotations

import codecs
import errno
import gzip
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from maxmargin.io.errors import DataFormatError

PathLike = str | os.PathLike[str]
Progress = Callable[[int, int], None]

# Lines between two calls of a progress function.
LINES = 1024
_XZ = b"\xfd7zXZ\x00"
_GZIP = b"\x1f\x8b"
_BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


@contextmanager
def unpacked(stored: IO[bytes], path: PathLike) -> Iterator[IO[bytes]]:
    """The unpacked bytes of an open file; compression is told by the first bytes, not by the name."""
    start = stored.read(len(_XZ))
    stored.seek(0)
    try:
        if start == _XZ:
            with lzma.LZMAFile(stored) as plain:
                yield plain
        elif start.startswith(_GZIP):
            with gzip.GzipFile(fileobj=stored) as unzipped:
                yield unzipped  # type: ignore[misc]
        else:
            yield stored
    except _BROKEN as error:
        raise DataFormatError(f"broken or cut off compressed file ({error})", path) from error


@contextmanager
def open_bytes(path: PathLike) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The unpacked bytes of a file and the file as stored (its position shows the progress)."""
    with open(path, "rb") as stored, unpacked(stored, path) as plain:
        yield plain, stored


def read_bytes(path: PathLike) -> bytes:
    """All unpacked bytes of a file."""
    with open_bytes(path) as (plain, _):
        return plain.read()


def byte_lines(path: PathLike, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, each with its line end."""
    with open_bytes(path) as (plain, stored):
        if progress is None:
            yield from enumerate(plain, 1)
            return
        total = os.fstat(stored.fileno()).st_size
        for number, line in enumerate(plain, 1):
            yield number, line
            if number % LINES == 0:
                progress(min(stored.tell(), total), total)
        progress(total, total)


def text_lines(path: PathLike, encoding: str, progress: Progress | None = None) -> Iterator[tuple[int, str]]:
    """Numbered lines as text, each with its line end; a byte order mark is dropped."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise ValueError(f"{encoding!r} is not an encoding; utf-8 and latin-1 are common ones.") from None
    for number, line in byte_lines(path, progress):
        if number == 1 and line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        try:
            yield number, line.decode(encoding)
        except UnicodeDecodeError as error:
            raise DataFormatError(
                f"not {encoding} text ({error.reason}); say which encoding it has (encoding=)",
                path,
                number,
                error.start + 1,
            ) from error


@contextmanager
def placed(path: PathLike) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name only when it is complete.

    It is written beside its place under a passing name and moved there in one step; on any error
    the passing file is removed and what stood under the name before stays.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a file to write", str(target))
    try:
        handle, passing = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror})", str(target)) from error
    try:
        with os.fdopen(handle, "w+b") as stored:
            yield stored
            stored.flush()
            os.fsync(stored.fileno())
        os.chmod(passing, 0o666 & ~_umask())
        os.replace(passing, target)
    except BaseException:
        Path(passing).unlink(missing_ok=True)
        raise


@contextmanager
def whole_file(path: PathLike) -> Iterator[IO[bytes]]:
    """Like `placed`, and packed if the name ends in .xz or .gz."""
    suffix = Path(path).suffix
    with placed(path) as stored:
        if suffix == ".xz":
            with lzma.LZMAFile(stored, "wb") as packed:
                yield packed
        elif suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=stored, mode="wb", mtime=0) as zipped:
                yield zipped  # type: ignore[misc]
        else:
            yield stored


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Files to read: transparent .xz and .gz, numbered lines."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from maxmargin.io.atomic import PathLike
from maxmargin.io.dataset import DataFormatError

Progress = Callable[[int, int], None]

# Lines between two calls of a progress function.
LINES = 1024
# Bytes that are unpacked at a time.
BUFFER = 1 << 17
# A packed file may unpack to this many bytes, or to this many times its own size. Tables that people pack
# shrink five- to twentyfold, a very regular one 170 times.
MOST, RATIO = 64 << 20, 200
_XZ = b"\xfd7zXZ\x00"
_GZIP = b"\x1f\x8b"
_BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


class Bounded(io.RawIOBase):
    """The unpacked bytes of a packed file, refused once they are out of proportion to it."""

    def __init__(self, plain: Any, stored: IO[bytes], path: PathLike) -> None:
        self.plain, self.path = plain, path
        self.packed = stored.seek(0, os.SEEK_END)
        self.left = max(MOST, RATIO * self.packed)
        stored.seek(0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = int(self.plain.readinto(buffer))
        self.left -= size
        if self.left < 0:
            raise DataFormatError(
                f"{self.packed} packed bytes unpack to more than {max(MOST, RATIO * self.packed)}, as a file "
                "made to fill the memory does; unpack it (gunzip, unxz) and read the result if you trust it",
                self.path,
            )
        return size


@contextmanager
def unpacked(stored: IO[bytes], path: PathLike) -> Iterator[IO[bytes]]:
    """The unpacked bytes of an open file; compression is told by the first bytes, not by the name."""
    start = stored.read(len(_XZ))
    stored.seek(0)
    try:
        if start == _XZ:
            with lzma.LZMAFile(stored) as plain:
                yield io.BufferedReader(Bounded(plain, stored, path), BUFFER)
        elif start.startswith(_GZIP):
            with gzip.GzipFile(fileobj=stored) as unzipped:
                yield io.BufferedReader(Bounded(unzipped, stored, path), BUFFER)
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
                f"not {encoding} text ({error.reason}); say which it has (encoding=, or --encoding)",
                path,
                number,
                error.start + 1,
            ) from error

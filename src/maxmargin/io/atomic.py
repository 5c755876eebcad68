"""Writes that are whole or absent, for models and data alike."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PathLike = str | os.PathLike[str]


@contextmanager
def atomic_write(path: PathLike, *, pack: bool = False) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name only when it is complete.

    It is written beside its place under a passing name and moved there in one step; on any error
    the passing file is removed and what stood under the name before stays.

    Parameters
    ----------
    path : path-like
    pack : bool, default=False
        Whether a name that ends in .xz or .gz makes a packed file.
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
            with _packed(stored, target.suffix if pack else "") as out:
                yield out
            stored.flush()
            os.fsync(stored.fileno())
        os.chmod(passing, 0o666 & ~_umask())
        os.replace(passing, target)
    except BaseException:
        Path(passing).unlink(missing_ok=True)
        raise


@contextmanager
def _packed(stored: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
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

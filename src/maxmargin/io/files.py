"""Files on disk: reading of plain, .xz and .gz files, and atomic writing."""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import lzma
import os
import re
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from maxmargin.io.dataset import DataFormatError, PathLike

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows has no such locks; only old temporary files are removed there
    fcntl = None

Progress = Callable[[int, int], None]

# Lines between two calls of a progress function.
LINES = 1024
# Bytes that are unpacked at a time.
BUFFER = 1 << 17
# A packed file may unpack to this many bytes, or to this many times its own size. Packed tables usually
# shrink five- to twentyfold, very regular ones up to 170 times.
MOST, RATIO = 64 << 20, 200
# Seconds after which a temporary file of another target counts as abandoned.
OLD = 24 * 3600
_XZ, _GZIP = b"\xfd7zXZ\x00", b"\x1f\x8b"
_BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
_SUFFIX = ".part"
_TEMPORARY = re.compile(rf"(\..+\.)[a-z0-9_]{{8}}{re.escape(_SUFFIX)}", re.DOTALL)


class Bounded(io.RawIOBase):
    """The unpacked bytes of a packed file; raises an error once there are far too many of them."""

    def __init__(self, plain: Any, stored: IO[bytes], path: PathLike) -> None:
        self.plain, self.path = plain, path
        self.packed = stored.seek(0, os.SEEK_END)
        self.limit = self.left = max(MOST, RATIO * self.packed)
        stored.seek(0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = int(self.plain.readinto(buffer))
        self.left -= size
        if self.left < 0:
            raise DataFormatError(
                f"{self.packed} packed bytes unpack to more than {self.limit}, which may exhaust the memory; "
                "if you trust the file, unpack it (gunzip, unxz) and read the result",
                self.path,
            )
        return size


@contextmanager
def unpacked(stored: IO[bytes], path: PathLike) -> Iterator[IO[bytes]]:
    """Yield the unpacked bytes of an open file; its first bytes, not its name, decide on the compression."""
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
    """Open a file; yield its unpacked bytes and the file as stored, whose position shows the progress."""
    with open(path, "rb") as stored, unpacked(stored, path) as plain:
        yield plain, stored


def read_bytes(path: PathLike) -> bytes:
    """Return all unpacked bytes of a file."""
    with open_bytes(path) as (plain, _):
        return plain.read()


def text_lines(path: PathLike, encoding: str, progress: Progress | None = None) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of text, each with its line end; a byte order mark is dropped."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise ValueError(f"{encoding!r} is not an encoding; utf-8 and latin-1 are common ones.") from None
    for number, line in _byte_lines(path, progress):
        if number == 1 and line.startswith(codecs.BOM_UTF8):
            line = line[len(codecs.BOM_UTF8) :]
        try:
            yield number, line.decode(encoding)
        except UnicodeDecodeError as error:
            raise DataFormatError(
                f"not {encoding} text ({error.reason}); pass another encoding (encoding=, or --encoding)",
                path,
                number,
                error.start + 1,
            ) from error


def _byte_lines(path: PathLike, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
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


@contextmanager
def atomic_write(path: PathLike, *, pack: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name only when it is complete.

    The data goes to a temporary file in the same folder, which then replaces the target in one step. On
    any error the temporary file is removed and the old target stays. A replaced file keeps its
    permissions; symbolic links are followed. Temporary files of killed writers are removed by the next
    write to the same name, and after a day by any write to the folder. With `pack`, a name that ends in
    .xz or .gz makes a compressed file.
    """
    target = Path(os.path.realpath(path))
    before = _status(target, path)
    try:
        _remove_abandoned(target)
        handle, temporary, lock = _open_temporary(target)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror})", str(path)) from error
    try:
        with os.fdopen(handle, "w+b") as stored:
            with _packed(stored, Path(path).suffix if pack else "") as out:
                yield out
            stored.flush()
            os.fsync(stored.fileno())
        _set_permissions(temporary, before)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _status(target: Path, path: PathLike) -> os.stat_result | None:
    """Return the status of the file to replace, None if there is none; refuse anything but a file."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror})", os.fspath(path)) from error
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a file to write", os.fspath(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is a pipe or a device, not a file to write", os.fspath(path))
    return found


def _set_permissions(temporary: str, before: os.stat_result | None) -> None:
    """Copy the permissions of the replaced file, or set those of any new file."""
    if before is None:
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        return
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(temporary, before.st_uid, before.st_gid)
    os.chmod(temporary, stat.S_IMODE(before.st_mode))


def _open_temporary(target: Path) -> tuple[int, str, int | None]:
    """Create a temporary file; return its handle, its name, and a lock to hold until it is complete."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_SUFFIX, dir=target.parent)
        lock = _lock(name, wait=True)
        # Another writer may have removed the file before it was locked.
        if os.fstat(handle).st_nlink:
            return handle, name, lock
        os.close(handle)
        if lock is not None:
            os.close(lock)


def _remove_abandoned(target: Path) -> None:
    """Remove temporary files that no living writer locks.

    Those of other targets must also be old and private, since other programs may use similar names.
    """
    own, oldest = f".{target.name}.", time.time() - OLD
    for entry in list(os.scandir(target.parent)):
        found = _TEMPORARY.fullmatch(entry.name)
        with suppress(OSError):
            if not found or not entry.is_file(follow_symlinks=False):
                continue
            about = entry.stat(follow_symlinks=False)
            private = os.name != "posix" or stat.S_IMODE(about.st_mode) == 0o600
            if (found[1] == own and fcntl is not None) or (about.st_mtime < oldest and private):
                _remove(entry.path)


def _remove(path: str) -> None:
    """Remove a file unless it is locked; systems without locks refuse to remove open files."""
    lock = _lock(path, wait=False)
    try:
        if lock is not None or fcntl is None:
            os.unlink(path)
    finally:
        if lock is not None:
            os.close(lock)


def _lock(path: str, *, wait: bool) -> int | None:
    """Lock a file of this user; return the open lock, or None if the file cannot be locked."""
    if fcntl is None:
        return None
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(opened).st_uid == os.geteuid():
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return opened
    except OSError:  # locked by a living writer, or on a file system without locks
        pass
    os.close(opened)
    return None


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

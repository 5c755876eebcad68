"""Writes that are whole or absent, for models and data alike."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import IO

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows has no such locks; passing files stay
    fcntl = None

PathLike = str | os.PathLike[str]
_SUFFIX = ".part"


@contextmanager
def atomic_write(path: PathLike, *, pack: bool = False) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name only when it is complete.

    It is written beside its place under a passing name and moved there in one step; on any error
    the passing file is removed and what stood under the name before stays. A file that is replaced
    keeps its permissions; a symbolic link is followed. What a writer that was killed has left
    behind under a passing name is removed by the next one.

    Parameters
    ----------
    path : path-like
    pack : bool, default=False
        Whether a name that ends in .xz or .gz makes a packed file.
    """
    target = Path(os.path.realpath(path))
    before = _standing(target, path)
    try:
        _clean_up(target)
        handle, passing, lock = _open_beside(target)
    except OSError as error:
        raise OSError(error.errno, f"cannot be written ({error.strerror})", str(path)) from error
    try:
        with os.fdopen(handle, "w+b") as stored:
            with _packed(stored, Path(path).suffix if pack else "") as out:
                yield out
            stored.flush()
            os.fsync(stored.fileno())
        _give_permissions(passing, before)
        os.replace(passing, target)
    except BaseException:
        Path(passing).unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _standing(target: Path, path: PathLike) -> os.stat_result | None:
    """What stands at the place of a file to write, if anything; only a file can be replaced."""
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


def _give_permissions(passing: str, before: os.stat_result | None) -> None:
    """Those of the file that is replaced, or those of any new file."""
    if before is None:
        os.chmod(passing, 0o666 & ~_umask())
        return
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(passing, before.st_uid, before.st_gid)
    os.chmod(passing, stat.S_IMODE(before.st_mode))


def _open_beside(target: Path) -> tuple[int, str, int | None]:
    """A new passing file, its name, and a lock that is held while its writer lives."""
    while True:
        handle, passing = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_SUFFIX, dir=target.parent)
        lock = _lock(passing, wait=True)
        # Someone who cleans up may have come between the two lines above.
        if os.fstat(handle).st_nlink:
            return handle, passing, lock
        os.close(handle)
        if lock is not None:
            os.close(lock)


def _clean_up(target: Path) -> None:
    """Remove passing files for this target whose writers are dead: those that nobody has locked."""
    own = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}{re.escape(_SUFFIX)}")
    for entry in list(os.scandir(target.parent)) if fcntl is not None else ():
        if own.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            lock = _lock(entry.path, wait=False)
            if lock is not None:
                with suppress(OSError):
                    os.unlink(entry.path)
                os.close(lock)


def _lock(path: str, *, wait: bool) -> int | None:
    """Lock a file that is one's own: the open lock, None where it is another's or cannot be locked."""
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
    except OSError:  # locked by a living writer, or on a disk that knows no locks
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

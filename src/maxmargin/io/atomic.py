"""Writes that are whole or absent, for models and data alike."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import IO

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows has no such locks; only old ones are removed
    fcntl = None

PathLike = str | os.PathLike[str]
_SUFFIX = ".part"
_PASSING = re.compile(rf"(\..+\.)[a-z0-9_]{{8}}{re.escape(_SUFFIX)}", re.DOTALL)
# Seconds after which a passing file of another target is taken for a leftover.
OLD = 24 * 3600


@contextmanager
def atomic_write(path: PathLike, *, pack: bool = False) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name only when it is complete.

    It is written beside its place under a passing name and moved there in one step; on any error
    the passing file is removed and what stood under the name before stays. A file that is replaced
    keeps its permissions; a symbolic link is followed. What a writer that was killed has left
    behind under a passing name is removed by the next one to the same name, and after a day by the next
    one to the folder.

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
    """Remove passing files whose writers are dead: nothing locks them.

    Those of other targets must be old, too, and as private as a passing file is: the folder may hold files
    of other programs under similar names.
    """
    own, old = f".{target.name}.", time.time() - OLD
    for entry in list(os.scandir(target.parent)):
        found = _PASSING.fullmatch(entry.name)
        with suppress(OSError):
            if found and entry.is_file(follow_symlinks=False):
                mine = found[1] == own and fcntl is not None
                if mine or _is_old(entry.stat(follow_symlinks=False), old):
                    _remove(entry.path)


def _is_old(about: os.stat_result, than: float) -> bool:
    return about.st_mtime < than and (os.name != "posix" or stat.S_IMODE(about.st_mode) == 0o600)


def _remove(path: str) -> None:
    """Remove a file that is not locked; where there are no locks, the system keeps files that are open."""
    lock = _lock(path, wait=False)
    try:
        if lock is not None or fcntl is None:
            os.unlink(path)
    finally:
        if lock is not None:
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

"""Machine code on disk: what comes with the package, read-only, and what this user's machine compiled.

An entry is one file: a line that names the format, a SHA-256 sum of the rest, and the compressed,
pickled code of one loop for one signature. Its name ends in a hash of everything the code depends on:
the signature, the kind of processor, the versions of Python, numba and llvmlite, the function and
the source files that it reaches, numba's settings. So an entry fits exactly or is not found; there is no
index that could disagree with it. Whatever cannot be read, an empty or torn file, flipped bytes, a folder
in its place, is compiled again; a disk that is full or read-only keeps nothing and fails nothing.

The entries in the package were written by the same code for a level of the processor family, x86-64-v3
or v4, instead of one processor: numba was told ``NUMBA_CPU_NAME=x86-64-v3`` (see ``tools/wheel.py``).

Of numba this file needs `_Cache` (what a dispatcher asks of its cache), `CompileResultCacheImpl` (where it
would put entries), `CompileResult._reduce` and `_rebuild`, the codegen's `magic_tuple`, and `rtsys`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import pickle
import platform
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from maxmargin.core.interrupt import uninterrupted

with uninterrupted():
    import llvmlite
    import llvmlite.binding
    import numba
    from numba.core import serialize
    from numba.core.caching import CompileResultCacheImpl, _Cache
    from numba.core.compiler import CompileResult
    from numba.core.runtime import rtsys

FORMAT = b"maxmargin loop 1\n"
SUFFIX = ".loop"
PART = ".loop-part"
# Seconds after which nobody is writing a part any more.
ABANDONED = 3600
PREBUILT = Path(__file__).parents[1] / "_prebuilt"
# What a file with code to compile holds: a loop, the body of a generic function, an instruction.
COMPILED = re.compile(rb"^@(compiled|generic|lowered|\w+\.of\()", re.MULTILINE)
# Files without loops on which the code of all loops depends.
ALWAYS = ("jit.py", "dispatch.py", "borrowed.py")
# Levels of the x86-64 family and what a processor must have beyond the one below.
LEVELS = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2"),
}
# Settings of numba that change the code.
SETTINGS = ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX")

log = logging.getLogger("maxmargin")


class DamagedEntry(Exception):
    """A file that is no whole entry."""


class LoopCache(_Cache):
    """The entries of one loop."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._enabled = True

    @functools.cached_property
    def cache_path(self) -> str | None:
        """The folder for this user's entries, the one that numba would take; None if it has none."""
        try:
            return CompileResultCacheImpl(self.function).locator.get_cache_path()
        except RuntimeError as error:
            if "cannot cache function" not in str(error):
                raise
            return None

    def enable(self) -> None:
        """Use the entries."""
        self._enabled = True

    def disable(self) -> None:
        """Neither read nor write entries."""
        self._enabled = False

    def flush(self) -> None:
        """Forget this user's entries of the loop."""
        for entry in self._entries():
            entry.unlink(missing_ok=True)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for a signature, or None where it has to be compiled."""
        if not self._enabled:
            return None
        for place in self._places(sig, target_context.codegen()):
            try:
                reduced = pickle.loads(read_entry(place))
            except FileNotFoundError:
                continue
            except (DamagedEntry, OSError) as error:
                tell_once(f"compiling again what could not be read from {place.parent} ({error})")
                continue
            # All that machine code needs; `refresh` would set up the compiler too, a tenth of a second.
            rtsys.initialize(target_context)
            return CompileResult._rebuild(target_context, *reduced)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for a signature, unless the disk refuses it."""
        if not self._enabled or self.cache_path is None or data.library.has_dynamic_globals:
            return
        place = Path(self.cache_path, self._name(sig, data.codegen.magic_tuple()))
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_entry(place, serialize.dumps(_reduced(data)))
            self._sweep()
        except OSError as error:
            tell_once(f"compiled loops are not kept in {place.parent} ({error})")

    def _places(self, sig: Any, codegen: Any) -> Iterator[Path]:
        """Files that would hold the code: the package's own, best level first, then this user's."""
        if self.function.__module__.startswith("maxmargin.") and PREBUILT.is_dir():
            triple = codegen.magic_tuple()[0]
            for level in levels():
                yield PREBUILT / self._name(sig, (triple, level, ""))
        if self.cache_path is not None:
            yield Path(self.cache_path, self._name(sig, codegen.magic_tuple()))

    def _sweep(self) -> None:
        """Remove entries of other sources, and what processes that were killed have left half written."""
        for entry in self._entries():
            if not entry.name.startswith(self._stamped_name):
                entry.unlink(missing_ok=True)
        for part in Path(str(self.cache_path)).glob(f"*{PART}"):
            if time.time() - part.stat().st_mtime > ABANDONED:
                part.unlink(missing_ok=True)

    def _entries(self) -> list[Path]:
        """This user's entries of the loop, whatever they were compiled from."""
        return [] if self.cache_path is None else list(Path(self.cache_path).glob(f"{self._base}-*{SUFFIX}"))

    @property
    def _base(self) -> str:
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        return f"{re.sub('[^a-zA-Z0-9_.]', '', name)}.{sys.implementation.cache_tag}"

    @functools.cached_property
    def _stamped_name(self) -> str:
        sources = stamp(Path(self.function.__code__.co_filename).parent)
        return f"{self._base}-{_hash(numba.__version__, llvmlite.__version__, sources)[:12]}"

    def _name(self, sig: Any, target: tuple[str, ...]) -> str:
        closure = [cell.cell_contents for cell in self.function.__closure__ or ()]
        settings = [str(getattr(numba.config, name, None)) for name in SETTINGS]
        parts = (platform.system(), *target, str(sig), *settings, serialize.dumps(closure).hex())
        code = self.function.__code__.co_code.hex()
        return f"{self._stamped_name}-{_hash(code, *parts)[:24]}{SUFFIX}"


def _hash(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


@functools.cache
def stamp(folder: Path) -> str:
    """Hash of the compiled files of a folder and of this one.

    A loop calls loops of its own folder and of this one, so an edit in one model leaves the others alone.
    """
    here, digest = Path(__file__).parent, hashlib.sha256()
    for source in [*sorted(here.glob("*.py")), *sorted(folder.glob("*.py") if folder != here else ())]:
        text = source.read_bytes()
        if COMPILED.search(text) or (source.parent == here and source.name in ALWAYS):
            digest.update(hashlib.sha256(text).digest())
    return digest.hexdigest()


@functools.cache
def levels() -> list[str]:
    """The levels of the x86-64 family that this processor has, the highest first."""
    if getattr(numba.config, "CPU_NAME") is not None or platform.machine() != "x86_64":  # noqa: B009
        return []
    have = {name for name, there in llvmlite.binding.get_host_cpu_features().items() if there}
    names = list(LEVELS)
    return [
        level for k, level in enumerate(names) if all(have.issuperset(LEVELS[below]) for below in names[k:])
    ]


def _reduced(result: Any) -> tuple[Any, ...]:
    """A compile result without the code that serves only to be linked into others.

    What other loops call is compiled as a part of them, never taken from here; numba reads from that code
    which symbols there are, and needs the one that Python enters by.
    """
    (name, kind, (machine_code, _)), *rest = result._reduce()
    rest[5] = ""  # the annotated source
    entry = f'define void @"{result.fndesc.llvm_cpython_wrapper_name}"() {{ ret void }}'
    symbols = llvmlite.binding.parse_assembly(entry).as_bitcode()
    return (name, kind, (machine_code, symbols)), *rest


def read_entry(place: Path) -> bytes:
    """What an entry holds, checked against its sum."""
    data = place.read_bytes()
    head = len(FORMAT)
    if data[:head] != FORMAT or hashlib.sha256(data[head + 32 :]).digest() != data[head : head + 32]:
        raise DamagedEntry(f"{place.name} is damaged")
    return zlib.decompress(data[head + 32 :])


def write_entry(place: Path, content: bytes) -> None:
    """Write an entry beside its place and move it there in one step."""
    packed = zlib.compress(content)
    number, name = tempfile.mkstemp(dir=place.parent, prefix=place.stem[-24:], suffix=PART)
    try:
        with open(number, "wb") as file:
            file.write(FORMAT + hashlib.sha256(packed).digest() + packed)
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


@functools.cache
def tell_once(message: str) -> None:
    """Say something in the log the first time that it happens."""
    log.warning(message)

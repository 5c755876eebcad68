"""The one decorator behind every compiled loop.

Loops are compiled on first call, cached on disk and run without the GIL. Three
environment variables matter:

- ``NUMBA_DISABLE_JIT=1`` runs the same functions as plain Python (numba's own switch);
- ``MAXMARGIN_JIT_CACHE=0`` keeps nothing on disk;
- ``NUMBA_CACHE_DIR`` moves the cache (numba's own switch).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.extending import overload

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be reordered and fused; NaN, infinities and divisions keep their meaning.
REORDER = frozenset({"contract", "reassoc", "nsz"})
# What a file with code to compile holds: a loop, or the body of a generic function.
COMPILED = re.compile(rb"^@(compiled|generic|\w+\.of\()", re.MULTILINE)


def compiled(
    function: F | None = None, *, reorder: bool = False, inline: bool = False, merge: bool = False
) -> Any:
    """Compile `function` for flat arrays.

    Parameters
    ----------
    reorder : bool
        Allow floating-point sums to be reordered, which lets them run in SIMD.
    inline : bool
        Ask LLVM to inline the function into its callers; such a helper is never cached by itself.
        Its array arguments belong to the caller, so it does not count references to them, which
        costs more than a short row: it may neither make arrays nor return one, and is called by
        other loops only.
    merge : bool
        Compile the function as a part of its callers, as if its lines stood there: for the named steps
        of a long loop, which would each take a second to compile by themselves.
    """
    if function is None:
        return lambda f: compiled(f, reorder=reorder, inline=inline, merge=merge)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    if reorder:
        options["fastmath"] = set(REORDER)
    if merge:
        return numba.njit(inline="always", **options)(function)
    if inline:
        options |= {"forceinline": True, "_nrt": False}
        return numba.njit(**options)(function)
    if os.environ.get("MAXMARGIN_JIT_CACHE", "1") == "0":
        return numba.njit(**options)(function)
    try:
        return _stamped(numba.njit(cache=True, **options)(function))
    except RuntimeError as error:
        if "cannot cache function" not in str(error):
            raise
        return numba.njit(**options)(function)


def generic(function: F) -> Any:
    """A function that compiled loops call and whose body depends on the kind of its first argument.

    The kind is a class of named tuples; ``@function.of(Kind)`` declares the body for it. Loops that
    call it are compiled once for every kind they meet and cached as ever; as plain Python the body
    is looked up by the class. `function` itself only documents the arguments. Bodies are inlined and,
    as helpers with ``compiled(inline=True)``, may neither make arrays nor return one.

    >>> from typing import NamedTuple
    >>> from maxmargin.core.jit import generic
    >>> class Square(NamedTuple):
    ...     side: float
    >>> @generic
    ... def area(shape): ...
    >>> @area.of(Square)
    ... def area_of_square(square):
    ...     return square.side**2
    >>> area(Square(3.0))
    9.0
    """
    chosen: Any = functools.singledispatch(function)
    kinds: dict[Any, Callable[..., Any]] = {}
    if not getattr(numba.config, "DISABLE_JIT"):  # noqa: B009 - set at run time, unknown to mypy
        options: Any = {"nogil": True, "error_model": "numpy", "forceinline": True, "_nrt": False}

        @overload(chosen, jit_options=options, strict=False)
        def choose(first, *rest):
            return kinds.get(getattr(first, "instance_class", None))

    def of(kind: type) -> Callable[[F], F]:
        def declare(body: F) -> F:
            kinds[kind] = body
            return chosen.register(kind, body)

        return declare

    chosen.of = of
    return chosen


def _stamped(dispatcher: Any) -> Any:
    """Tie the cache entry to every loop that the function can reach.

    Numba renews an entry when the function's own file changes; what the function calls may lie in
    another file, and stale code would outlive an upgrade. A loop calls loops of its own folder and
    of this one, so an edit in one model leaves the others alone.
    """
    cache = getattr(dispatcher, "_cache", None)
    if cache is not None:
        folder = Path(dispatcher.py_func.__code__.co_filename).parent
        cache._cache_file._source_stamp = f"{cache._cache_file._source_stamp} {_stamp(folder)}"
    return dispatcher


@functools.cache
def _stamp(folder: Path) -> str:
    """Hash of the compiled files of a folder and of this one."""
    digest = hashlib.sha256()
    for source in sorted({*folder.glob("*.py"), *Path(__file__).parent.glob("*.py")}):
        text = source.read_bytes()
        if COMPILED.search(text) or source.name == Path(__file__).name:
            digest.update(text)
    return digest.hexdigest()

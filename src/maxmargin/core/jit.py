"""The one decorator behind every compiled loop.

Loops are compiled on first call, unless the package or the disk holds their machine code
(`maxmargin.core.cache`), and run without the GIL. Three environment variables matter:

- ``NUMBA_DISABLE_JIT=1`` runs the same functions as plain Python (numba's own switch);
- ``MAXMARGIN_JIT_CACHE=0`` neither reads nor writes machine code on disk;
- ``NUMBA_CACHE_DIR`` moves what is kept on disk (numba's own switch).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

from maxmargin.core.interrupt import uninterrupted

with uninterrupted():
    import numba

from maxmargin.core.cache import LoopCache
from maxmargin.core.dispatch import Loop, overload_by_part

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be reordered and fused; NaN, infinities and divisions keep their meaning.
REORDER = frozenset({"contract", "reassoc", "nsz"})
# What holds of every loop, and of what is compiled with it.
COMMON: dict[str, Any] = {"nopython": True, "nogil": True, "error_model": "numpy"}


def compiled(
    function: F | None = None, *, reorder: bool = False, inline: bool = False, compact: bool = False
) -> Any:
    """Compile `function` for flat arrays.

    Parameters
    ----------
    reorder : bool
        Allow floating-point sums to be reordered, which lets them run in SIMD.
    inline : bool
        Ask LLVM to inline the function into its callers; such a helper is never cached by itself.
        Its array arguments belong to the caller, so it does not count references to them, which
        costs more than a short row: it may neither make arrays nor return one.
    compact : bool
        Keep the machine code short: a third less of it, and of the time it takes to be made, for a
        loop of many parts whose own loops are short, such as rows of few words.
    """
    if function is None:
        return lambda f: compiled(f, reorder=reorder, inline=inline, compact=compact)
    if getattr(numba.config, "DISABLE_JIT"):  # noqa: B009 - set at run time, unknown to mypy
        return function
    # Said in full: what is left out numba takes from whichever caller comes first.
    options = COMMON | {"fastmath": set(REORDER) if reorder else False}
    options |= {"forceinline": inline, "_nrt": not inline}
    loop: Any = Loop(function, targetoptions=options)
    loop.is_compact = compact
    if not inline and os.environ.get("MAXMARGIN_JIT_CACHE", "1") != "0":
        loop._cache = LoopCache(function)
    return loop


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
        options: Any = COMMON | {"forceinline": True, "_nrt": False}
        overload_by_part(chosen, lambda first, *_: kinds.get(getattr(first, "instance_class", None)), options)

    def of(kind: type) -> Callable[[F], F]:
        def declare(body: F) -> F:
            kinds[kind] = body
            return chosen.register(kind, body)

        return declare

    chosen.of = of
    return chosen

"""How loops are compiled: the only module beside `maxmargin.core.lanes` that imports numba.

Python calls an *entry* (`compiled`); numba stores its machine code on disk. Entries call *helpers*; for
Python and the tests a helper is a plain function. A *generic* helper has a body for each class of its first
argument. Loops run without the GIL and neither make arrays nor count references to their arguments (numba's
option ``_nrt``, see `numba.extending.register_jitable`): the caller of a loop holds its arrays, and a loop
that makes one does not compile unless it is declared with ``allocates``.

Problems of a few thousand numbers take less time than compiling: `interpreted` runs entries as plain Python
for them. Three environment variables of numba matter: ``NUMBA_DISABLE_JIT=1`` runs all loops as plain Python,
``NUMBA_CACHE_DIR`` moves the files on disk, and ``NUMBA_CPU_NAME`` selects the processor to compile for.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

log = logging.getLogger("maxmargin")

try:
    import numba
    from numba import types
    from numba.extending import lower_builtin, overload, type_callable, typeof_impl

    ON = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]  # set when numba is imported
except ImportError as error:
    log.warning("numba cannot be imported (%s): loops run as plain Python, a hundred times slower", error)
    ON = False

# Sums may be reordered and fused; NaN, infinities and divisions keep their meaning.
REORDER = frozenset({"contract", "reassoc", "nsz"})
# Exceptions of numba for files that cannot be read or written, or are truncated.
UNREADABLE = (OSError, EOFError, pickle.UnpicklingError)
# Samples times features times columns up to which plain Python takes less than a second, even for cuts.
PLAIN = 5000
# Whether entries run as plain Python in this context; None outside of any `interpreted` block.
_interpreted: ContextVar[bool | None] = ContextVar("interpreted", default=None)


def _options(reorder: bool) -> dict[str, Any]:
    """All options of a loop; a helper takes missing ones from its first caller."""
    fastmath = set(REORDER) if reorder else False
    return {"nogil": True, "error_model": "numpy", "_nrt": False, "fastmath": fastmath, "forceinline": False}


@contextlib.contextmanager
def interpreted(*sizes: float) -> Iterator[None]:
    """Run entries as plain Python within the block if the product of `sizes` is at most `PLAIN`."""
    token = _interpreted.set(math.prod(sizes) <= PLAIN)
    try:
        yield
    finally:
        _interpreted.reset(token)


def interpret(*sizes: float) -> None:
    """Decide again for the rest of the surrounding `interpreted` block, if there is one."""
    if _interpreted.get() is not None:
        _interpreted.set(math.prod(sizes) <= PLAIN)


@functools.cache
def _announce() -> None:
    """Log, once per process, that the first calls take seconds."""
    log.info("compiling loops; this takes a few seconds, once on this machine")


def _writable(values: Iterable[Any]) -> Iterator[np.ndarray]:
    """The writable arrays in nested tuples."""
    for value in values:
        if isinstance(value, tuple):
            yield from _writable(value)
        elif isinstance(value, np.ndarray) and value.flags.writeable:
            yield value


class Loop:
    """A function that runs as machine code: an entry when Python calls it, a helper when another loop does.

    `py_func` is the plain function and `machine` that of numba, compiled once for each list of types.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]
        self.py_func, self.options = function, options
        self.machine = numba.njit(**options)(function)


class Entry(Loop):
    """A loop that Python calls."""

    is_announced = False

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        try:
            super().__init__(function, options | {"cache": True})
        except RuntimeError:  # no folder that may be written to
            super().__init__(function, options)

    def __call__(self, *args: Any) -> Any:
        if _interpreted.get():
            return self._interpret(args)
        if not self.is_announced:
            self._announce()
        try:
            return self.machine(*args)
        except UNREADABLE as error:
            log.warning("%s is compiled and not kept on disk (%s)", self.py_func.__qualname__, error)
            self.machine = numba.njit(**self.options | {"cache": False})(self.py_func)
            return self.machine(*args)

    def _interpret(self, args: tuple[Any, ...]) -> Any:
        """Run as plain Python, or as machine code where Python raises instead of returning NaN."""
        before = [(array, array.copy()) for array in _writable(args)]
        try:
            with np.errstate(all="ignore"):
                return self.py_func(*args)
        except (ArithmeticError, ValueError):
            for array, values in before:
                array[...] = values
            return self.machine(*args)

    def _announce(self) -> None:
        """Log, once per process, that calls compile, unless machine code of this entry is on disk."""
        self.is_announced = True
        folder = self.machine.stats.cache_path
        if folder is None or not any(Path(folder).glob(f"*.{self.py_func.__qualname__}-*.nbi")):
            _announce()


class Helper(Loop):
    """A loop that other loops call; Python calls the plain function."""

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args)


if ON:

    @typeof_impl.register(Loop)
    def _type_of_loop(loop: Loop, context: Any) -> Any:
        return numba.typeof(loop.machine)


def compiled(function: Any = None, *, reorder: bool = False, allocates: bool = False) -> Any:
    """Compile `function`, which Python calls, on its first call, and store its machine code on disk.

    `reorder` allows floating-point sums to be reordered, so that they run in SIMD. Loops inline it then, as
    they do a helper. The plain function stays
    available as ``py_func``. Other loops may call an entry, too.
    """
    if function is None:
        return functools.partial(compiled, reorder=reorder, allocates=allocates)
    if not ON:
        function.py_func = function
        return function
    return Entry(function, _options(reorder) | {"_nrt": allocates, "forceinline": reorder})


def helper(function: Any = None, *, reorder: bool = False, hot: bool = False, allocates: bool = False) -> Any:
    """Let loops call `function`; a `hot` one, called per sample or per number, is inlined.

    One with `reorder` is inlined, too: LLVM may order the sums of two copies differently, and the copy that
    runs would depend on what else the process has compiled.
    """
    if function is None:
        return functools.partial(helper, reorder=reorder, hot=hot, allocates=allocates)
    if not ON:
        return function
    # Wrappers for calls from Python would take a fifth of the compile time.
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return Helper(function, _options(reorder) | wrappers | {"_nrt": allocates, "forceinline": hot or reorder})


def generic(function: Any) -> Any:
    """A helper whose body depends on the class of its first argument, a NamedTuple.

    ``@function.of(Kind)`` declares the body for a class. `function` itself only documents the arguments.

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
    bodies: dict[Any, Callable[..., Any]] = {}
    if ON:
        options: Any = _options(False) | {"forceinline": True}

        @overload(chosen, strict=False, jit_options=options)
        def choose(first: Any, *rest: Any) -> Any:
            return bodies.get(getattr(first, "instance_class", None))

    def of(kind: type) -> Callable[..., Any]:
        def declare(body: Callable[..., Any]) -> Callable[..., Any]:
            bodies[kind] = body
            return chosen.register(kind, body)

        return declare

    chosen.of = of
    return chosen


def lowered(typed: Callable[..., Any]) -> Callable[..., Any]:
    """Give a plain function its own LLVM instructions; Python calls the plain one.

    ``typed(*types)`` returns the signature of a call and the function that builds its instructions.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        @type_callable(function)
        def typer(context: Any) -> Any:
            def answer(*kinds: Any) -> Any:
                return typed(*kinds)[0]

            answer.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
            return answer

        @lower_builtin(function, types.VarArg(types.Any))
        def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return typed(*signature.args)[1](context, builder, signature, values)

        return function

    return declare if ON else lambda function: function

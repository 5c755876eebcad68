"""How long compiling took, apart from what was compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numba.core.event import TimingListener, register, unregister

KIND = "numba:compile"


@contextmanager
def compile_time() -> Iterator[TimingListener]:
    """A listener that counts, in `duration` where `done`, the seconds of compiling.

    Examples
    --------
    >>> from maxmargin.core.compiling import compile_time
    >>> with compile_time() as spent:
    ...     pass
    >>> spent.done
    False
    """
    listener = TimingListener()
    register(KIND, listener)
    try:
        yield listener
    finally:
        unregister(KIND, listener)

"""Ctrl-C waits for what must not be cut in two: the import of numba and a compilation.

Numba registers its functions while it is imported and on first use; a KeyboardInterrupt in between
leaves half of them registered, and every later compilation fails.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block has ended.

    Only the main thread receives signals, and only a handler that Python installed can be put back;
    elsewhere the block runs as it is.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *event: held.append(event))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[0])

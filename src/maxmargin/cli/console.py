"""Messages, tables and progress bars: results to stdout, everything else to stderr and a log file."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxmargin.io.words import visible

if TYPE_CHECKING:
    from rich.progress import Progress

WIDTH = 120
# What a command answers on stderr, which --quiet leaves; warnings are below, errors above.
RESULT = logging.WARNING + 5

PACKAGE = "maxmargin"
log = logging.getLogger(f"{PACKAGE}.cli")


class Lines(logging.Formatter):
    """A message as one line that acts on nothing; warnings and errors say what they are."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        kind = {logging.WARNING: "Warning: ", logging.ERROR: "Error: "}.get(record.levelno, "")
        record.message = visible(kind + record.message)
        return super().formatMessage(record)


class Screen(logging.Handler):
    """stderr, as it is when a message comes."""

    least = logging.INFO

    def emit(self, record: logging.LogRecord) -> None:
        # The rooms of the package log what matters to a developer below a warning.
        own = record.name in (log.name, PACKAGE) or self.least != logging.INFO
        if record.levelno >= (self.least if own else logging.WARNING):
            print(self.format(record), file=sys.stderr, flush=True)


_screen = Screen()
_screen.setFormatter(Lines())


@contextmanager
def speaking() -> Iterator[None]:
    """Print what the package logs, until the command has ended."""
    package = logging.getLogger(PACKAGE)
    before, level, _screen.least = list(package.handlers), package.level, logging.INFO
    package.addHandler(_screen)
    package.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        for handler in set(package.handlers) - set(before):
            package.removeHandler(handler)
            handler.close()
        package.setLevel(level)


def speak(verbose: bool, quiet: bool, log: Path | None) -> None:
    """Print as much as is asked for, and append all of it to a file, if one is named."""
    _screen.least = logging.DEBUG if verbose else RESULT if quiet else logging.INFO
    if log is not None:
        file = logging.FileHandler(log, encoding="utf-8")
        file.setFormatter(Lines("%(asctime)s %(message)s"))
        logging.getLogger(PACKAGE).addHandler(file)


def is_quiet() -> bool:
    """Whether errors and results alone are wanted."""
    return _screen.least == RESULT


def say(message: str, level: int = logging.INFO) -> None:
    """One line for the person, on stderr; nothing in it is markup, nor acts on the terminal."""
    log.log(level, "%s", message)


@contextmanager
def said_warnings() -> Iterator[None]:
    """Say each warning of the work inside once, as a line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(
        str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)
    ):
        say(" ".join(text.split()), logging.WARNING)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], left: Sequence[int] = (0,)
) -> None:
    """Print a table to stdout; columns named in `left` are text, the others are figures."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from maxmargin.report.page import number

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for k, column in enumerate(columns):
        head = Text("\n".join(map(visible, column.split("\n"))))
        words = k in left
        table.add_column(
            head, justify="left" if words else "right", overflow="fold", no_wrap=k == 0 or not words
        )
    for row in rows:
        table.add_row(*(Text(number(value)) for value in row))
    console = Console()
    width = console.width if console.is_terminal else WIDTH
    console = Console(width=max(width, console.measure(table).minimum))
    for line in title.split("\n"):
        print(visible(line))
    console.print(table)


def progress_bar(*fields: Any, shown: bool = True) -> Progress:
    """A progress bar on stderr that is silent when nobody watches.

    `fields` are extra columns, placed before the time left.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    class Description(ProgressColumn):
        """Names of files and data sets, which are not markup."""

        def render(self, task: Any) -> Text:
            return Text(visible(task.description))

    class Bar(Progress):
        """Older versions of rich end a line even where nothing was shown."""

        def stop(self) -> None:
            if not self.disable:
                super().stop()

    console = Console(stderr=True)
    return Bar(
        Description(),
        BarColumn(bar_width=30),
        *fields,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not (shown and console.is_terminal) or is_quiet(),
        transient=True,
    )

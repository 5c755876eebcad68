"""Words, tables and progress bars: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maxmargin.io.words import visible

if TYPE_CHECKING:
    from rich.progress import Progress

WIDTH = 120


def say(message: str) -> None:
    """One line for the person, on stderr; nothing in it is markup, nor acts on the terminal."""
    print(visible(message), file=sys.stderr, flush=True)


@contextmanager
def said_warnings() -> Iterator[None]:
    """Say each warning of the work inside once, as a line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(
        str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)
    ):
        say(f"Warning: {' '.join(text.split())}")


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
        table.add_column(
            Text(visible(column)), justify="left" if k in left else "right", overflow="fold", no_wrap=k == 0
        )
    for row in rows:
        table.add_row(*(Text(number(value)) for value in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
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
        disable=not (shown and console.is_terminal),
        transient=True,
    )

"""Terminal output, and the options that all commands share.

Results go to stdout. Messages and progress bars go to stderr; `--log` appends messages to a file.
"""

from __future__ import annotations

import logging
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maxmargin.io.words import number, visible

if TYPE_CHECKING:
    from rich.progress import Progress

# Width of a table that is not printed on a terminal.
WIDTH = 120
# Level of a command's result on stderr, which --quiet keeps; warnings are below it, errors above.
RESULT = logging.WARNING + 5
PACKAGE = "maxmargin"
log = logging.getLogger(f"{PACKAGE}.cli")


class OneLine(logging.Formatter):
    """Format a message as one line without control characters; mark warnings and errors."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        kind = {logging.WARNING: "Warning: ", logging.ERROR: "Error: "}.get(record.levelno, "")
        record.message = visible(kind + record.message)
        return super().formatMessage(record)


class Screen(logging.Handler):
    """Print messages of at least the level `least` to stderr."""

    least = logging.INFO

    def emit(self, record: logging.LogRecord) -> None:
        # Other modules log details for developers below the level of warnings; only -v and -q change that.
        own = record.name in (log.name, PACKAGE) or self.least != logging.INFO
        if record.levelno >= (self.least if own else logging.WARNING):
            print(self.format(record), file=sys.stderr, flush=True)


_screen = Screen()
_screen.setFormatter(OneLine())


@contextmanager
def logging_to_screen() -> Iterator[None]:
    """Print the log messages of the package until the command ends."""
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


def set_verbosity(verbose: bool, quiet: bool, log: Path | None) -> None:
    """Choose which messages are printed, and append all of them to the file `log`."""
    _screen.least = logging.DEBUG if verbose else RESULT if quiet else logging.INFO
    if log is not None:
        file = logging.FileHandler(log, encoding="utf-8")
        file.setFormatter(OneLine("%(asctime)s %(message)s"))
        logging.getLogger(PACKAGE).addHandler(file)


def echo(message: str, level: int = logging.INFO) -> None:
    """Print one line on stderr, without markup and control characters."""
    log.log(level, "%s", message)


@contextmanager
def echoed_warnings() -> Iterator[None]:
    """Print each distinct UserWarning of the block as one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = (str(warning.message) for warning in caught if issubclass(warning.category, UserWarning))
    for text in dict.fromkeys(texts):
        echo(" ".join(text.split()), logging.WARNING)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], left: Sequence[int] = (0,)
) -> None:
    """Print a table to stdout; columns in `left` hold text, the others hold numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for k, column in enumerate(columns):
        head, is_text = Text("\n".join(map(visible, column.split("\n")))), k in left
        table.add_column(
            head,
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=k == 0 or not is_text,
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
    """Return a progress bar on stderr, disabled where stderr is no terminal.

    `fields` are extra columns, placed before the elapsed time.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    class Description(ProgressColumn):
        """A description that may hold names of files, without markup."""

        def render(self, task: Any) -> Text:
            return Text(visible(task.description))

    class Bar(Progress):
        """Older versions of rich print a newline for a disabled bar."""

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
        disable=not (shown and console.is_terminal) or _screen.least == RESULT,
        transient=True,
    )


FILE = click.Path(path_type=Path)
SHARED_OPTIONS = [
    # `--verbose 1` is a parameter of the estimators, so this option has a short name only.
    click.Option(["-v", "verbose"], is_flag=True, help="Print more details."),
    click.Option(["-q", "--quiet"], is_flag=True, help="Print errors and results only."),
    click.Option(
        ["--log"],
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Append all messages, including those of -v, to FILE.",
    ),
]


class Command(click.Command):
    """A command with -v, -q and --log that refuses a repeated option with a single value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, *SHARED_OPTIONS]

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        words = shlex.join(args)
        if not context.resilient_parsing:
            _refuse_repeated(context, self.make_parser(context).parse_args(args=list(args))[2])
        rest = super().parse_args(context, args)
        verbose, quiet, file = (context.params.pop(name, None) for name in ("verbose", "quiet", "log"))
        if verbose and quiet:
            raise click.UsageError("Give either -v or --quiet, not both.", context)
        if not context.resilient_parsing:
            set_verbosity(verbose, quiet, file)
            log.debug("%s %s", context.command_path, words)
        return rest


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


def _refuse_repeated(context: click.Context, order: Sequence[click.Parameter]) -> None:
    """Raise an error for an option with a single value that is given twice."""
    seen = set()
    for option in order:
        if not isinstance(option, click.Option):
            continue
        is_switch = option.is_flag and not option.secondary_opts
        if option.name in seen and not (option.multiple or is_switch):
            raise click.UsageError(f"{option.opts[-1]} is given twice, but it takes one value.", context)
        seen.add(option.name)


model_argument = click.argument("model_file", type=FILE, metavar="MODEL")


def json_option(help: str) -> Any:
    """Return the option --json, with help on what is printed."""
    return click.option("--json", "as_json", is_flag=True, help=help)
